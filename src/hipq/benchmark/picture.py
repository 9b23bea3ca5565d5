"""Figures as bars of block characters, or of # where the output cannot show those."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import Final

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_STEPS: Final = (1, 2, 5)


class Ink(str):
    """The characters of a bar, as the encoding of the output allows."""

    @classmethod
    def of(cls, encoding: str | None) -> Ink:
        return cls("█" if (encoding or "").lower().replace("-", "").startswith("utf") else "#")

    def bar(self, value: float, most: float, width: int) -> str:
        """A bar in proportion to the value; empty only if the value is 0."""
        length = value / most * width if most > 0 else 0.0
        if self == "#":
            return "#" * (max(round(length), 1) if value > 0 else 0)
        whole, eighths = divmod(max(math.floor(length * 8), 1) if value > 0 else 0, 8)
        return "█" * whole + _EIGHTHS[eighths].strip()


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
