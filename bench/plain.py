"""Adding jobs, running them and picking them up: hipq, plain SQL of the same shape and the peers, interleaved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from bench.lines import PAYLOAD, PLAIN_SQL, ROUNDS, TEXT, THE_LIMIT, Bench, Line, awork, work
from bench.measure import best, interleaved, percentile, seconds
from bench.peers import MARIADB, POSTGRES, REDIS, SQLITE, Listed
from bench.peers.driven import Driven
from bench.pick_up import pick_ups
from hipq import Queue

HIPQ, SYNC, ASYNC = "hipq", "sync", "async"
CLIENTS = 64
ONE_BY_ONE = {SQLITE: 3_000, POSTGRES: 1_000, REDIS: 1_500, MARIADB: 1_000}
"""Jobs added one at a time, by store: about a second."""
QUICK = 5
"""A quick run has so many times less of what takes a second."""


def lines(bench: Bench) -> Iterator[Line]:
    plain = Plain(bench)
    yield from plain.compared()
    yield plain.enqueue_concurrently()
    yield from plain.enqueue_many(keyed=True)


def compared(bench: Bench) -> Iterator[Line]:
    """What peers do as well."""
    return Plain(bench).compared()


class Plain:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._targets = bench.targets
        self._part = QUICK if bench.quick else 1

    def compared(self) -> Iterator[Line]:
        yield from self.enqueue_one()
        yield from self.enqueue_many(keyed=False)
        yield from self.drain()
        yield from self.pick_up()

    # -- adding -----------------------------------------------------------------------------------------------------
    def enqueue_one(self) -> Iterator[Line]:
        count = ONE_BY_ONE[self._bench.store] // self._part
        rates = best(
            {
                HIPQ: lambda: self._added(count, lambda queue: _one_by_one(queue, count)),
                PLAIN_SQL: lambda: self._added_plainly(count, lambda raw: raw.insert_one_by_one([TEXT] * count)),
                **self._peers("enqueue", lambda listed: ONE_BY_ONE[listed.store]),
            },
            ROUNDS,
        )
        targets = {PLAIN_SQL: self._targets.one, self._targets.peer: self._targets.peer_one}
        yield from _lines("enqueue one at a time", "enqueue", rates, targets)

    def enqueue_many(self, keyed: bool) -> Iterator[Line]:
        count = self._bench.size * 5 // 2
        keys = [f"key-{n}" for n in range(count)] if keyed else None
        sides: dict[str, Callable[[], float | None]] = {
            HIPQ: lambda: self._added(count, lambda queue: queue.enqueue_many("work", [PAYLOAD] * count, keys=keys)),
            PLAIN_SQL: lambda: self._added_plainly(count, lambda raw: raw.insert_many([TEXT] * count, keys)),
        }
        targets = {PLAIN_SQL: self._targets.bulk}
        if keyed:
            yield from _lines(f"enqueue_many {count:,} with keys", "", best(sides, ROUNDS), targets)
        else:
            sides |= self._peers("enqueue_many", lambda listed: listed.bulk)
            targets[self._targets.peer] = self._targets.peer_bulk
            yield from _lines(f"enqueue_many {count:,}", "enqueue_many", best(sides, ROUNDS), targets)

    def enqueue_concurrently(self) -> Line:
        count = self._bench.size // 2
        few = count // 10
        rates = best(
            {
                "together": lambda: self._added(count, lambda queue: asyncio.run(_together(queue, count))),
                "apart": lambda: self._added(few, lambda queue: _one_by_one(queue, few)),
            },
            ROUNDS,
        )
        name = f"{CLIENTS} concurrent aenqueue"
        target = self._targets.concurrently
        return Line(name, rates["together"], rates["apart"], target, against="one at a time")

    def _added(self, count: int, add: Callable[[Queue], object]) -> float:
        queue = self._bench.queue()
        took = seconds(lambda: add(queue))
        self._bench.check_added(queue, count)
        return count / took

    def _added_plainly(self, count: int, add: Callable[[Any], object]) -> float:
        queue = self._bench.queue()
        with self._bench.raw(queue) as raw:
            took = seconds(lambda: add(raw))
        self._bench.check_added(queue, count)
        return count / took

    # -- running ----------------------------------------------------------------------------------------------------
    def drain(self) -> Iterator[Line]:
        rates = best(
            {
                SYNC: lambda: self._drained(work),
                PLAIN_SQL: self._drained_plainly,
                ASYNC: lambda: self._drained(awork),
                **self._peers("drain", lambda listed: listed.size),
            },
            ROUNDS,
        )
        targets = {PLAIN_SQL: self._targets.drain, self._targets.peer: self._targets.peer_drain}
        name = f"drain {self._bench.size:,} no-op"
        other = {of: rate for of, rate in rates.items() if of != ASYNC}
        yield from _lines(f"{name}, sync handlers", "drain", other, targets, ours=SYNC)
        other = {of: rate for of, rate in rates.items() if of in (ASYNC, *targets)}
        yield from _lines(f"{name}, async handlers", "", other, targets, ours=ASYNC)

    def _drained(self, handler: Callable[..., Any]) -> float:
        queue = self._bench.queue(handler)
        queue.enqueue_many("work", [PAYLOAD] * self._bench.size)
        took = self._bench.drain(queue)
        self._bench.check_done(queue)
        return self._bench.size / took

    def _drained_plainly(self) -> float:
        queue = self._bench.queue()
        queue.enqueue_many("work", [PAYLOAD] * self._bench.size)
        with self._bench.raw(queue) as raw:
            took = seconds(raw.drain)
        self._bench.check_done(queue)
        return self._bench.size / took

    # -- picking up -------------------------------------------------------------------------------------------------
    def pick_up(self) -> Iterator[Line]:
        """Of the samples of all rounds together: a tail is not a matter of the best."""
        count = 25 if self._bench.quick else 75
        rounds = interleaved({HIPQ: lambda: pick_ups(self._bench, count), **self._latencies(count)}, ROUNDS)
        found = {of: [one for samples in rounds[of] for one in samples] for of in rounds}
        middle = {of: percentile(samples, 50) for of, samples in found.items()}
        name, unit = "pick-up by an idle worker in another process", "ms"
        yield from _lines(f"{name}, p50", "latency", middle, {self._targets.peer: self._targets.peer_latency}, unit)
        for part, limit in self._targets.latency.items():
            yield Line(f"{name}, p{part}", percentile(found[HIPQ], part), limit, 1.0, unit, THE_LIMIT)

    # -- the peers --------------------------------------------------------------------------------------------------
    def _peers(self, verb: str, size: Callable[[Listed], int]) -> dict[str, Callable[[], float | None]]:
        """Of those that no target names, half as much: they are many."""
        return {
            label: partial(self._rate, driven, verb, size(driven.listed) // self._part // (1 if named else 2))
            for driven in self._bench.company.running
            for label in [self._label(driven.listed)]
            for named in [label == self._targets.peer]
            if size(driven.listed)
        }

    def _rate(self, driven: Driven, verb: str, count: int) -> float | None:
        return self._bench.company.ask(driven, lambda peer: peer.rate(verb, count), verb)

    def _latencies(self, count: int) -> dict[str, Callable[[], list[float] | None]]:
        """Of those that no target names, as many as a median needs."""
        return {
            label: partial(self._latency, driven, count if label == self._targets.peer else min(count, 15))
            for driven in self._bench.company.running
            for label in [self._label(driven.listed)]
        }

    def _latency(self, driven: Driven, count: int) -> list[float] | None:
        return self._bench.company.ask(driven, lambda peer: peer.latency(count), "latency")

    def _label(self, listed: Listed) -> str:
        return listed.name if listed.store == self._bench.store else f"{listed.name} ({listed.store})"


def _lines(
    name: str, verb: str, found: Mapping[str, float], targets: Mapping[str, float], unit: str = "jobs/s",
    ours: str = HIPQ,
) -> Iterator[Line]:  # fmt: skip
    for other in found:
        if other != ours:
            yield Line(name, found[ours], found[other], targets.get(other, 0.0), unit, other, verb)


def _one_by_one(queue: Queue, count: int) -> None:
    work = queue.job_types[0]
    for _ in range(count):
        work.enqueue(PAYLOAD)


async def _together(queue: Queue, count: int) -> None:
    work, left = queue.job_types[0], iter(range(count))

    async def client() -> None:
        for _ in left:
            await work.aenqueue(PAYLOAD)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
