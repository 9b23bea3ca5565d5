"""Figures as people read them: histograms, lists, times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import Final

_STEPS: Final = (1, 2, 5)


def histogram(sorted_values: Sequence[float]) -> list[tuple[float, float, int]]:
    """The counts between bounds of 1, 2 or 5 times a power of ten, without empty ones at the ends."""
    edges = _edges(sorted_values[0], sorted_values[-1])
    return [(low, high, sum(low <= value < high for value in sorted_values)) for low, high in pairwise(edges)]


def _edges(least: float, most: float) -> list[float]:
    power = math.floor(math.log10(least))
    every = [step * 10.0**exponent for exponent in range(power - 1, power + 12) for step in _STEPS]
    first = max(edge for edge in every if edge <= least)
    last = min(edge for edge in every if edge > most)
    return [edge for edge in every if first <= edge <= last]


def wrapped(points: Iterable[str], width: int) -> list[str]:
    """A list of points, wrapped to this width."""
    return [line for point in points for line in wrap(f"- {point}", width, subsequent_indent="  ")]


def milliseconds(value: float) -> str:
    """A time with two significant digits."""
    return f"{value:.2g} ms" if value < 10 else f"{value:,.0f} ms"
