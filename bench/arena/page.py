"""The section of docs/benchmarks.md that says what `make bench-arena` found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

COLUMNS: Final = {
    "per_second": "jobs/s", "p50_ms": "p50, ms", "p99_ms": "p99, ms", "p99.9_ms": "p99.9, ms", "max_ms": "longest, ms",
    "recovered_seconds": "recovered, s", "dead_tuples": "dead rows", "megabytes": "MB", "missing": "missing",
    "doubled": "doubled", "worker_exits": "workers ended",
}  # fmt: skip
METHOD: Final = """\
## The arena: what happens in production

The same kinds of cells as in the public comparison `hardbyte/postgresql-job-queue-benchmarking`, in a runner of our own
without containers (`make bench-arena`): for each queue and cell a new PostgreSQL on a disk, one process that adds
{rate:g} jobs a second, and {workers} workers with {hands} hands each. After {calm:g} quiet seconds it happens, for
{disturbed:g} seconds. Each queue is used by its public verbs with its default settings; what drives it is in
`bench/arena/systems/`. (pg-boss polls and takes batches as in the public comparison; procrastinate tries again what a
dead worker had, as its documentation says.)

- **Latency** is the time from adding to the start of the handler, of all that began from the disturbance on.
- **Recovered**: seconds from its end until no more was outstanding than is added in half a second; - means: not within
  {patience:g} seconds.
- **Missing** were acknowledged and had not run to their end {patience:g} seconds after the last was added.
- **Doubled** ran to their end more than once, which every queue here may do after a crash.
- **Dead rows** and **MB** are the most that all tables had. **Workers ended** by themselves, and were started again a
  second later.
"""


def section(report: dict[str, Any]) -> str:
    return "\n".join([METHOD.format(**report["pace"]), *_cells(report), *_failures(report), _machine(report)])


def _cells(report: dict[str, Any]) -> Iterator[str]:
    for name, about in report["cells"]:
        yield f"### {name[0].upper()}{name[1:]}\n\n{about[0].upper()}{about[1:]}.\n"
        yield _row(["queue", *COLUMNS.values()])
        yield _row(["---", *("---:" for _ in COLUMNS)])
        for system, cells in report["results"].items():
            found = cells.get(name, {"failed": "was not played"})
            shown = [found["failed"]] if "failed" in found else [_figure(found[column]) for column in COLUMNS]
            yield _row([f"**{system}**" if system == "hipq" else system, *shown, *[""] * (len(COLUMNS) - len(shown))])
        yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def _failures(report: dict[str, Any]) -> Iterator[str]:
    if report["failures"]:
        yield "Not there: " + "; ".join(f"{name} {reason}" for name, reason in report["failures"].items()) + ".\n"


def _machine(report: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    length = f"{'a quick run of ' if report['quick'] else ''}{report['minutes']} minutes"
    return f"{report['at'][:10]}, {length}: {report['machine']}. {versions}.\n"
