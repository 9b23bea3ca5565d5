"""The picture of the report: bars on a logarithmic scale, as SVG that is readable on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from html import escape

from bench.compare import HIPQ, STORES, Contender, contenders
from bench.lines import PLAIN_SQL, figure
from bench.results import Results

PANELS = {
    "enqueue": "Add one at a time: jobs/s",
    "enqueue_many": "Add many in one call: jobs/s",
    "drain": "Run jobs that do nothing: jobs/s",
    "latency": "Pick-up by an idle worker, p50: ms, less is better",
}
CAPTIONS = (
    "* may lose jobs it has acknowledged, at a crash or a power loss. All scales are logarithmic.",
    "Plain SQL: what the database can do from Python, with nothing around it.",
)
WIDTH, MARGIN = 880, 16
PANEL = (WIDTH - 3 * MARGIN) // 2
NAMES, FIGURES = 136, 56
"""Pixels of a panel's names, and of the figures behind its bars."""
ROW, BAR, HEAD, GROUP = 17, 11, 30, 22
STYLE = """
text { font: 12px -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #1f2328 }
.page, .behind { fill: #ffffff }
.page { stroke: #d1d9e0 }
.title { font-size: 13px; font-weight: 600 }
.group, .tick, .figure { fill: #59636e }
.group { font-weight: 600; font-size: 11px }
.tick { font-size: 10px }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.ours { font-weight: 700 }
.bar { fill: #b3bcc6 }
.bar.hipq { fill: #0969da }
.bar.plain { fill: #d4a72c }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .page, .behind { fill: #0d1117 }
  .page { stroke: #3d444d }
  .group, .tick, .figure { fill: #9198a1 }
  .grid { stroke: #2a313c }
  .bar { fill: #4b535d }
  .bar.hipq { fill: #4493f8 }
  .bar.plain { fill: #bb8009 }
}
"""


def picture(results: Results) -> str:
    groups = {store: list(contenders(results, store)) for store in STORES}
    panels = [_Panel(title, verb, groups) for verb, title in PANELS.items()]
    rows = [panels[:2], panels[2:]]
    parts: list[str] = []
    top = MARGIN
    for row in rows:
        for column, panel in enumerate(row):
            parts.append(f'<g transform="translate({MARGIN + column * (PANEL + MARGIN)} {top})">')
            parts.extend(panel.drawn())
            parts.append("</g>")
        top += max(panel.height for panel in row) + MARGIN
    for caption in CAPTIONS:
        parts.append(f'<text class="tick" x="{MARGIN}" y="{top}">{caption}</text>')
        top += MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" '
            'role="img" aria-label="hipq, plain SQL and other queues compared">',
            f"<style>{STYLE}</style>",
            f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{top - 1}" rx="6"/>',
            *parts,
            "</svg>\n",
        ]
    )


class _Panel:
    """One verb, all who have it, by store."""

    def __init__(self, title: str, verb: str, groups: dict[str, list[Contender]]) -> None:
        self._title = title
        found = {store: [one for one in group if verb in one.figures] for store, group in groups.items()}
        self._groups = {
            store: sorted(map(partial(_entry, verb), group), key=lambda entry: entry[1], reverse=verb != "latency")
            for store, group in found.items()
            if any(not one.name.startswith(HIPQ) for one in group)
        }
        values = [value for group in self._groups.values() for _, value in group]
        self._low = math.floor(math.log10(min(values, default=1.0)) - 0.3)
        self._high = max(math.ceil(math.log10(max(values, default=10.0))), self._low + 1)
        self.height = HEAD + sum(GROUP + ROW * len(group) for group in self._groups.values()) + ROW

    def drawn(self) -> Iterator[str]:
        yield f'<text class="title" x="0" y="14">{escape(self._title)}</text>'
        bottom = self.height - ROW
        for power in range(self._low, self._high + 1):
            x = self._x(10.0**power)
            yield f'<line class="grid" x1="{x}" y1="{HEAD - 4}" x2="{x}" y2="{bottom}"/>'
            yield f'<text class="tick" x="{x}" y="{bottom + 12}" text-anchor="middle">{_tick(power)}</text>'
        y = HEAD
        for store, group in self._groups.items():
            yield f'<text class="group" x="0" y="{y + 14}">{escape(store)}</text>'
            y += GROUP
            for name, value in group:
                yield from self._bar(name, value, y)
                y += ROW

    def _bar(self, name: str, value: float, y: int) -> Iterator[str]:
        kind = "hipq" if name.startswith(HIPQ) else "plain" if name == PLAIN_SQL else ""
        ours, start, end = " ours" if kind == "hipq" else "", self._x(10.0**self._low), self._x(value)
        yield f'<text class="name{ours}" x="{NAMES - 8}" y="{y + 10}" text-anchor="end">{escape(name)}</text>'
        width = round(max(end - start, 1), 1)
        yield f'<rect class="bar {kind}" x="{start}" y="{y}" width="{width}" height="{BAR}" rx="2"/>'
        text, x = figure(value), round(start + width + 5, 1)  # the grid must not run through it
        yield f'<rect class="behind" x="{x - 2}" y="{y - 1}" width="{7 * len(text) + 4}" height="{BAR + 2}"/>'
        yield f'<text class="figure{ours}" x="{x}" y="{y + 10}">{text}</text>'

    def _x(self, value: float) -> float:
        part = (math.log10(value) - self._low) / (self._high - self._low)
        return round(NAMES + part * (PANEL - NAMES - FIGURES), 1)


def _entry(verb: str, one: Contender) -> tuple[str, float]:
    return one.name if one.durable else f"{one.name} *", one.figures[verb]


def _tick(power: int) -> str:
    return {3: "1k", 4: "10k", 5: "100k", 6: "1M"}.get(power, f"{10.0**power:g}")
