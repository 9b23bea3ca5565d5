"""Small multiples: a little plot for each curve, both stores in it; readable on light and on dark paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bench.curves import Curve
from bench.lines import figure
from bench.peers import SQLITE

COLUMNS = 4
WIDTH, HEIGHT = 250, 168
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 34, 34
"""Of a plot within its cell."""
HEAD = 44
STYLE = """
  text { font: 11px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 12px } .head { font-weight: 600; font-size: 15px }
  .faint { fill: #6e7781; font-size: 10px } .grid { stroke: #d0d7de; stroke-width: 1 }
  .paper { fill: #ffffff } path { fill: none; stroke-width: 2 }
  .first { stroke: #0969da } .dot-first { fill: #0969da } .second { stroke: #bc4c00 } .dot-second { fill: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .faint { fill: #9198a1 } .grid { stroke: #30363d } .paper { fill: #0d1117 }
    .first { stroke: #58a6ff } .dot-first { fill: #58a6ff } .second { stroke: #f0883e } .dot-second { fill: #f0883e }
  }
"""


def picture(curves: Sequence[Curve]) -> str:
    """Curves of the same name share a plot."""
    plots: dict[str, list[Curve]] = {}
    for curve in curves:
        plots.setdefault(curve.curve, []).append(curve)
    rows = math.ceil(len(plots) / COLUMNS)
    width, height = COLUMNS * WIDTH, HEAD + rows * HEIGHT
    cells = [
        f'<g transform="translate({number % COLUMNS * WIDTH} {HEAD + number // COLUMNS * HEIGHT})">{_plot(some)}</g>'
        for number, some in enumerate(plots.values())
    ]
    legend = "".join(
        f'<circle class="dot-{_kind(store)}" cx="{x}" cy="19" r="4"/><text x="{x + 9}" y="23">{escape(store)}</text>'
        for store, x in zip(dict.fromkeys(curve.store for curve in curves), (width - 190, width - 105), strict=False)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="hipq: figures as something grows">\n<style>{STYLE}</style>\n'
        f'<rect class="paper" width="{width}" height="{height}"/>\n'
        f'<text class="head" x="14" y="24">hipq as something grows (flat is good)</text>{legend}\n'
        + "\n".join(cells)
        + "\n</svg>\n"
    )


def _plot(curves: Sequence[Curve]) -> str:
    first = curves[0]
    places = [size for size, _ in first.points]
    top = _round_up(max(value for curve in curves for _, value in curve.points))
    parts = [f'<text class="title" x="14" y="18">{escape(first.curve)}, {escape(first.unit)}</text>']
    for part in (0.0, 0.5, 1.0):
        y = _down(part)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="faint" x="{LEFT - 5}" y="{y + 3.5:.1f}" text-anchor="end">{_short(top * part)}</text>'
        )
    for index, size in enumerate(places):
        x = _across(index, len(places))
        parts.append(
            f'<text class="faint" x="{x:.1f}" y="{HEIGHT - BOTTOM + 13}" text-anchor="middle">{_short(size)}</text>'
        )
    parts.append(f'<text class="faint" x="{LEFT}" y="{HEIGHT - BOTTOM + 25}">{escape(first.x)}</text>')
    for curve in curves:
        dots = [
            (_across(places.index(size), len(places)), _down(value / top), value)
            for size, value in curve.points if size in places
        ]  # fmt: skip
        line = " ".join(f"{'M' if not n else 'L'}{x:.1f} {y:.1f}" for n, (x, y, _) in enumerate(dots))
        kind = _kind(curve.store)
        parts.append(f'<path class="{kind}" d="{line}"/>')
        parts += [
            f'<circle class="dot-{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
            f"<title>{escape(curve.store)}: {figure(value)}</title></circle>"
            for x, y, value in dots
        ]
    return "".join(parts)


def _across(index: int, count: int) -> float:
    """One step a point: what grows, grows tenfold from one to the next, more or less."""
    return LEFT + 8 + index * (WIDTH - LEFT - RIGHT - 16) / max(count - 1, 1)


def _down(part: float) -> float:
    return TOP + (1 - part) * (HEIGHT - TOP - BOTTOM)


def _kind(store: str) -> str:
    return "first" if store == SQLITE else "second"


def _round_up(value: float) -> float:
    """To 1, 2, 4, 6 or 8 and some zeros."""
    scale = 10 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next((step * scale for step in (1, 2, 4, 6, 8, 10) if step * scale >= value), value)


def _short(value: float) -> str:
    for size, name in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:g}{name}"
    return f"{value:g}"
