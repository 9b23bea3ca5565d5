"""`python -m bench.transports_page docs/transports.json` writes the page about answers from streams beside it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.lines import figure
from bench.peers import POSTGRES, SQLITE

BARE: Final = "bare"
MEMORY: Final = "no stream"
"""Messages that are in memory already: what reading and settling alone can do;"""
IN_ORDER: Final = "no stream, in order"
"""and if they come in the order of their jobs."""
TARGETS: Final = {SQLITE: 10_000, POSTGRES: 5_000}
"""Answers a second."""
CLIENT: Final = "client and server"
SETTLING: Final = "settling"
NEITHER: Final = "neither, see below"


class Found(NamedTuple):
    transport: str
    messages: int
    rates: dict[str, float]
    """Answers a second, by store; and messages a second of the bare client. The best of three."""
    steal: float
    """Percent that the host took away meanwhile;"""
    load: float
    """and how many others wanted the processors just before."""


class Kept(NamedTuple):
    found: list[Found]
    failures: list[str]
    versions: dict[str, str]
    machine: dict[str, Any]

    def of(self, transport: str) -> Found | None:
        return next((one for one in self.found if one.transport == transport), None)


class Row(NamedTuple):
    """One transport on one store, in microseconds an answer."""

    found: Found
    store: str
    all: float
    client: float
    """That the bare client needs for a message, with its server;"""
    settling: float
    """and that reading and settling need without a stream. Between processes some of it overlaps."""

    @property
    def rate(self) -> float:
        return self.found.rates[self.store]

    @property
    def ratio(self) -> float:
        return self.rate / self.found.rates[BARE]

    @property
    def bound(self) -> str:
        """What takes the most of it. What both do not explain is hipq's work between them, or other programs."""
        parts = {CLIENT: self.client, SETTLING: self.settling, NEITHER: self.all - self.client - self.settling}
        return max(parts, key=lambda name: parts[name])

    @property
    def is_met(self) -> bool:
        return self.rate >= TARGETS[self.store]


def rows(kept: Kept, store: str) -> list[Row]:
    alone = kept.of(MEMORY)
    settling = 1e6 / alone.rates[store] if alone and store in alone.rates else 0.0
    return [
        Row(one, store, 1e6 / one.rates[store], 1e6 / one.rates[BARE], settling)
        for one in kept.found
        if store in one.rates and BARE in one.rates
    ]


HEADING: Final = (
    f"{'':10} {'':11} {'messages':>9} {'hipq/s':>9} {'bare/s':>9} {'ratio':>6} {'steal':>6} {'load':>5}  bound by"
)


def line(row: Row) -> str:
    """For the terminal."""
    one = row.found
    said = "" if row.is_met else f"  (target {TARGETS[row.store]:,}/s not reached)"
    return (
        f"{one.transport:10} {row.store:11} {one.messages:9,} {figure(row.rate):>9} {figure(one.rates[BARE]):>9} "
        f"{row.ratio:6.2f} {one.steal:5.1f}% {one.load:5.1f}  {row.bound}{said}"
    )


HEAD: Final = """\
# Answers from streams: how fast

Made by `make bench-transports` from [transports.json](transports.json). How fast the rest is:
[benchmarks.md](benchmarks.md).

## How it is measured

- So many jobs wait, and their answers, about 130 bytes of JSON each, are on the stream already, in random order. Then
  one `hipq listen` is started, a process as anybody runs it, and the clock goes from when it has the first messages in
  hand until no job waits any more. Then jobs are counted: each one is final.
- **Bare** is a process that reads the same messages with the same client library and acknowledges them, up to a
  thousand at a time, and does nothing else with them.
- Callbacks (`http`): 200 connections bring one answer after the other to `hipq callbacks`; bare is a uvicorn
  application that reads the body and says 200. The program that calls takes part of the two cores as well.
- **No stream**: the messages are in memory; they are read, matched and settled, a thousand in a transaction. That is
  what the database and hipq's own work on an answer allow, whatever brings it.
- All sides take turns, three rounds, the best of each. The servers run on the same two cores. Kafka is librdkafka's
  mock cluster, SQS and Kinesis are moto's server: how fast those two are says nothing of Amazon's.
- A listener reads, settles and acknowledges one batch after the other, so its time for an answer is about that of the
  client plus that of settling. **Bound by** names the larger of the two, unless the rest is larger still.
"""
NOTES: Final = """\
## What bounds it

Processor time of a listener for one answer from Redis, a thousand in a transaction, measured apart from the above
(10,000 jobs, answers in random order, time of the thread alone, so that other programs hardly count):

| µs | SQLite | PostgreSQL |
| --- | ---: | ---: |
| receive: redis-py reads and splits, hipq makes messages | 7 | 7 |
| read: JSON, key, checks | 8 | 8 |
| look: jobs of these keys, the same answers before | 11 | 8 |
| lock the keys | - | 4 |
| decide: the rules of matching, the job's new row | 8 | 8 |
| hashes of body and id | 6 | 6 |
| insert the answers | 9 | 2 |
| move the jobs to the final table | 37 | 3 |
| commit, and what holds these together | 21 | 8 |
| events | 2 | 2 |
| acknowledge | 1 | 1 |
| together | 110 | 57 |

- **PostgreSQL** does its part in a process of its own: there the listener waits about as long again as it works.
- **SQLite** works in the listener. The largest part is moving rows: in random order each answer touches pages of its
  own in the live table, the final table and their indexes, and 9 to 12 KiB are written for it. In the order of the jobs
  that is 2 to 3 KiB, and an answer takes 60 µs in place of 95 to 108. Real answers are somewhere between.
- **AMQP and MQTT**: the client libraries are Python, and need a good part of the processor for themselves.
- **SQS**: ten messages a request, each request a signed HTTP call, to moto's server in Python.
- **Kinesis** allows a shard five questions a second, and a listener takes a thousand records at once: of one shard,
  as here, 5,000 a second.
- **Callbacks** are looked up one by one: a callback's job is read in a statement of its own, by the one thread that
  settles them (560 µs each on PostgreSQL, 180 on SQLite, while others used the machine), before it joins a batch.
  Parsing HTTP takes a few hundred µs more, on the same core.

More listeners share a stream, each with a processor of its own. On SQLite they take turns at writing.
"""


def markdown(kept: Kept) -> str:
    parts = [HEAD, *_tables(kept), NOTES, *_failures(kept), _machine(kept)]
    return "\n".join(parts)


def _tables(kept: Kept) -> Iterator[str]:
    alone, ordered = kept.of(MEMORY), kept.of(IN_ORDER)
    for store, target in TARGETS.items():
        some = rows(kept, store)
        if not some:
            continue
        met = sum(row.is_met for row in some)
        yield f"## {store}: {met} of {len(some)} at {target:,} answers a second or more\n"
        if alone and ordered:
            yield (
                f"No stream: {figure(alone.rates[store])} answers a second ({some[0].settling:.0f} µs each); in the "
                f"order of their jobs {figure(ordered.rates[store])}.\n"
            )
        yield "| stream | answers | a second | bare, a second | ratio | µs an answer | µs, bare | bound by |"
        yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
        for row in some:
            one = row.found
            yield (
                f"| {one.transport} | {one.messages:,} | {figure(row.rate)} | {figure(one.rates[BARE])} "
                f"| {row.ratio:.2f} | {row.all:.0f} | {row.client:.0f} | {row.bound} |"
            )
        yield ""


def _failures(kept: Kept) -> Iterator[str]:
    if kept.failures:
        yield "## What could not be measured\n"
        yield from (f"- {failure}" for failure in kept.failures)
        yield ""


def _machine(kept: Kept) -> str:
    machine = kept.machine
    versions = ", ".join(f"{name} {number}" for name, number in kept.versions.items())
    loads = ", ".join(f"{one.transport.replace(',', '')} {one.load} ({one.steal} %)" for one in kept.found)
    return (
        f"## The machine\n\n{machine['date']}, {machine['minutes']} minutes: {machine['cores']} cores, "
        f"{machine['system']}. The load before each measurement, of other programs, and what the host took away during "
        f"it (steal): {loads}.\n\n{versions}.\n"
    )


def load(path: Path) -> Kept:
    kept = json.loads(path.read_text())
    return Kept(**kept | {"found": [Found(**one) for one in kept["found"]]})


def write(path: Path, kept: Kept) -> None:
    text = kept._asdict() | {"found": [one._asdict() for one in kept.found]}
    path.write_text(json.dumps(text, indent=1) + "\n")
    page(path).write_text(markdown(kept))


def page(path: Path) -> Path:
    return path.with_name(f"{path.stem}-bench.md")


if __name__ == "__main__":
    file = Path(sys.argv[1])
    write(file, load(file))
