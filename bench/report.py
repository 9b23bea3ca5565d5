"""`python -m bench.report docs/benchmarks.json` writes the report and its picture beside that file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench.arena.page import section
from bench.compare import HIPQ, RUN_ON, STORES, VERBS, contenders
from bench.lines import PLAIN_SQL, Line, figure
from bench.peers import DURABLE, MARIADB, POSTGRES, REDIS, SQLITE
from bench.peers.company import Described
from bench.picture import picture
from bench.results import Results

METHOD = """\
# How fast it is

hipq beside plain SQL and other queues, on one machine. `make bench` makes this page from
[benchmarks.json](benchmarks.json). How the figures change as things grow is [another page](growth.md);
[`hipq bench`](bench.md) measures your own database.

![hipq, plain SQL and other queues: adding, running and picking up jobs](benchmarks.svg)

## How it is measured

- Everything is measured in one run on one machine, **interleaved**: hipq, plain SQL, a peer, the next peer, and again
  from the beginning, three times. A rate is the best of its rounds; a pick-up time is a percentile of all rounds
  together. Such machines are noisy, so what counts is the **ratio** of two figures from the same rounds.
- **Plain SQL** is the same work on the same tables, with the same indexes, batches and durability, and nothing around
  it: what the database can do from Python. Each kind of work is a file in `bench/raw/`.
- The same for all are the payload (about 100 bytes of JSON), a handler that does nothing, and one worker process. Each
  peer has a virtual environment of its own and the settings that were fastest here; its driver is in `bench/peers/`.
- A rate of running jobs counts **completed** jobs, until the last one's end is stored or acknowledged. Then the jobs
  are counted in the database. If one of hipq's is missing, the run fails; a peer that lost one is named below.
- What a job survives differs between queues, and is named beside each: a queue that does not wait for the disk is
  faster for that.
- Pick-up is the time from just before `enqueue` in one process to the handler's first line in another, which is idle.
"""
TARGETS = """\
What the project wants to be true of hipq. A rate must be at least so many times the other's, a time at most.

- A *drain* runs all jobs of a queue; *claim 100* is one request of a worker for its next 100 jobs.
- *Beside 1,000,000 future* means with a million more jobs in the queue: jobs for next week, jobs of a full or paused
  lane (*blocked*), jobs of a closed window, or jobs that are due. Adding, claiming and
  running are all measured so, in each order; the row has the worst of them, and *rest* the ratios of the others.
"""
HEADS = {"enqueue": "add one", "enqueue_many": "add many", "drain": "run", "latency": "pick-up p50, ms"}


def markdown(results: Results, arena: Path) -> str:
    """`arena` has what the last run of `make bench-arena` found, if there was one."""
    parts = [METHOD, *_peers(results), *_targets(results), *_failures(results), _machine(results)]
    if arena.exists():
        parts.append(section(json.loads(arena.read_text())))
    return "\n".join(parts)


def _targets(results: Results) -> Iterator[str]:
    wanted = [line for _, line in results.lines if line.target]
    yield f"## Targets: {sum(line.met for line in wanted)} of {len(wanted)} met\n"
    yield TARGETS
    for store in (SQLITE, POSTGRES, MARIADB):
        lines = [line for where, line in results.lines if where == store and line.target]
        if lines:
            yield f"### {store}\n"
            yield _table(
                ("work", "hipq", "other", "", "against", "ratio", "wanted", "met"), "lrrllrll", map(_row, lines)
            )


def _row(line: Line) -> tuple[str, ...]:
    sign = line.wanted.replace(">=", "≥").replace("<=", "≤")
    met = "yes" if line.met else "**no**"
    return line.name, figure(line.hipq), figure(line.raw), line.unit, line.against, f"{line.ratio:.2f}", sign, met


def _peers(results: Results) -> Iterator[str]:
    yield "## Other queues\n"
    yield "Jobs a second, and milliseconds, from the same rounds. An empty cell: the queue has no such thing.\n"
    described = {(peer.name, peer.store): peer for peer in results.peers}
    for store in STORES:
        if not any(peer.store == store for peer in results.peers):
            continue
        yield f"### {store}\n"
        if store == REDIS:
            yield f"hipq does not run on Redis: beside these it ran on {RUN_ON[store]}.\n"
        rows = []
        for one in contenders(results, store):
            name = f"**{one.name}**" if one.name.startswith(HIPQ) else one.name
            figures = [figure(one.figures[verb]) if verb in one.figures else "" for verb in VERBS]
            rows.append((name, *_about(results, one.name, one.store, described), *figures))
        yield _table(("queue", "version", "survives", *HEADS.values()), "lllrrrr", rows)
    yield "What was chosen for each:\n"
    yield from (f"- {peer.name} ({peer.store}): {peer.setting}" for peer in results.peers)
    yield ""


def _about(
    results: Results, name: str, store: str, described: dict[tuple[str, str], Described]
) -> tuple[str, str]:  # fmt: skip
    if name == PLAIN_SQL:
        return results.versions.get(store, ""), DURABLE
    if name.startswith(HIPQ):
        return results.versions["hipq"], DURABLE
    return described[name, store].version, described[name, store].durability


def _failures(results: Results) -> Iterator[str]:
    if results.failures:
        yield "## What could not be measured\n"
        yield from (f"- {name} ({store}): {reason}" for name, store, reason in results.failures)
        yield ""


def _machine(results: Results) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {number}" for name, number in results.versions.items())
    took = f"{'a quick run of ' if machine['quick'] else ''}{machine['minutes']} minutes"
    return (
        f"## The machine\n\n{machine['date']}, {took}: {machine['cores']} cores, {machine['system']}, "
        f"load {machine['load']} before the run. The host took {machine['steal_percent']} % of its time away meanwhile "
        f"(steal).\n\n{versions}.\n"
    )


def _table(heads: Sequence[str], sides: str, rows: Iterable[Sequence[str]]) -> str:
    marks = ["---:" if side == "r" else "---" for side in sides]
    lines = [heads, marks, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def write(file: Path) -> None:
    results = Results.load(file)
    file.with_suffix(".md").write_text(markdown(results, file.with_name("arena.json")))
    file.with_suffix(".svg").write_text(picture(results))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
