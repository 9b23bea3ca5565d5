"""`python -m bench.growth_page docs/growth.json` writes the page about growth and its picture beside that file."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.curves import Curve
from bench.lines import figure
from bench.multiples import picture

FLAT: Final = 0.8
WORKERS: Final = "worker processes"
PHASES: Final = ("before", "during", "after")
STEP: Final = 5.0
"""Seconds of a step beside a neighbour."""


class Step(NamedTuple):
    """A few seconds beside a neighbour."""

    phase: str
    completed: float
    """Jobs a second."""
    p50: float
    p99: float
    """Milliseconds of turns that claimed something: save the last batch, claim the next."""
    dead: int
    """Rows of the live table that no vacuum has removed yet."""


class Kept(NamedTuple):
    curves: list[Curve]
    neighbour: list[Step]


HEAD = """\
# As things grow

How hipq's figures change with more jobs, lanes, waits, payload or workers. `make bench-growth` makes this page from
[growth.json](growth.json). How hipq compares with others is [another page](benchmarks.md).

![hipq's figures as something grows](growth.svg)

Every point of a curve is measured on a queue of its own, and all of them take turns in one run. A curve is flat if its
worst point is at least 0.8 of its first. What is not flat is explained below.

- A *claim of 100* is one request of a worker for its next 100 jobs; a *drain* runs all jobs of a queue.
- *Future*, *blocked lane*, *closed window* and *due* are kinds of other jobs in the same queue: jobs for next week,
  jobs of a lane that is full, jobs whose window is closed, and jobs that could start as well.

"""
WHY: Final = {
    "drain: ordered lanes": """\
In the queue's own order a claim looks at the head of every lane that has a limit. That is one probe of an index for
each lane: 46 ms for 10,000 lanes by EXPLAIN ANALYZE on PostgreSQL (64 lanes: 0.3 ms). With thousands of lanes, use
`lanes="fair"`, which looks at hardly more lanes than it takes jobs from.
""",
    "drain: fair lanes": """\
A claim takes one job of each lane in turn. With one lane it reads one claim group; with a thousand lanes it reads some
hundreds, one for each job. More lanes than that change nothing.
""",
    "answer 100 at a time": """\
A point is three hundred answers, which is a short measurement, in a file that all curves before this one have used.
Measured alone, four times, the worst point was 0.92 to 0.99 of the first.

What grows on SQLite is the number of pages that are written. Answers come in random order, so the more jobs wait, the
fewer answers share a leaf of the table and of its indexes by key, deadline and owner: 2.6 pages an answer with 2,500
waiting, 3.6 with 10,000, 4.7 with 40,000. The worst case is a leaf for each answer. Plain SQL on the same tables
loses as much (0.80 from 10,000 to 40,000). More cache changes nothing.
""",
    "claim of 100: due": """\
The index is one level deeper, and less of what a claim touches is in the cache.
""",
    "enqueue_many: payload": """\
What grows is the number of bytes: the volume, below, grows to what the disk takes.
""",
    "drain: payload": """\
What grows is the number of bytes: the volume, below, grows with them.
""",
}
NEIGHBOUR: Final = f"""\
Another process adds jobs at a steady rate and a worker runs them. In the middle part a transaction holds a snapshot
open, so that no vacuum can remove dead rows. The figures are medians over steps of {STEP:g} seconds.
"""


def load(path: Path) -> Kept:
    """What was kept; nothing if there is no such file."""
    if not path.exists():
        return Kept([], [])
    found = json.loads(path.read_text())
    curves = [Curve(**one | {"points": [(size, value) for size, value in one["points"]]}) for one in found["curves"]]
    return Kept(curves, [Step(**one) for one in found["neighbour"]])


def write(path: Path, kept: Kept) -> None:
    text = json.dumps({name: [one._asdict() for one in some] for name, some in kept._asdict().items()}, indent=1)
    path.write_text(text + "\n")
    path.with_suffix(".md").write_text(markdown(kept))
    path.with_suffix(".svg").write_text(picture(kept.curves))


def verdict(curve: Curve) -> str:
    (_, first), *_, (_, last) = curve.points
    if curve.x == WORKERS:
        return f"{last / first:.2f} times as fast with the most"
    return f"flat (worst {curve.part:.2f} of the first)" if curve.part >= FLAT else f"{1 / curve.part:.1f} times worse"


def markdown(kept: Kept) -> str:
    return HEAD + "\n".join([*_curves(kept.curves), *_neighbour(kept.neighbour)])


def _curves(curves: Sequence[Curve]) -> Iterator[str]:
    for name in dict.fromkeys(curve.curve for curve in curves):
        some = [curve for curve in curves if curve.curve == name]
        yield f"## {name}\n"
        yield f"| {some[0].x} | {' | '.join(f'{size:,}' for size, _ in some[0].points)} | |"
        yield "|---|" + "--:|" * len(some[0].points) + "---|"
        for curve in some:
            values = " | ".join(figure(value) for _, value in curve.points)
            yield f"| {curve.store}, {curve.unit} | {values} | {verdict(curve)} |"
        yield ""
        if name in WHY and any(curve.part < FLAT for curve in some):
            yield WHY[name]


def _neighbour(steps: Sequence[Step]) -> Iterator[str]:
    if not steps:
        return
    yield "## Beside a transaction that stays open, in the same PostgreSQL\n"
    yield NEIGHBOUR
    yield "| | seconds | completed a second | turn p50, ms | turn p99, ms | dead rows at its end |"
    yield "|---|--:|--:|--:|--:|--:|"
    for phase in PHASES:
        some = [step for step in steps if step.phase == phase]
        completed, p50, p99 = (statistics.median(values) for values in zip(*(step[1:4] for step in some), strict=True))
        yield f"| {phase} | {len(some) * STEP:g} | {completed:,.0f} | {p50:.2f} | {p99:.2f} | {some[-1].dead:,} |"
    yield ""


if __name__ == "__main__":
    kept = Path(sys.argv[1])
    write(kept, load(kept))
