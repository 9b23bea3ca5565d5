"""Claims beside many jobs that may not start: they are first in the queue, or not due for a day. What a claim alone
takes; `bench.million` has the whole work beside a million."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from bench.lines import PAYLOAD, TEXT, Bench, Line
from hipq import Queue, aged, window
from hipq.engine.throttle import HEAD, PAGE
from hipq.job import transitions
from hipq.job.model import Change, New, Row
from hipq.job.when import to_datetime
from hipq.job.windows import ALWAYS, dump
from hipq.limits.per_lane import PerLane
from hipq.limits.rules import Rules
from hipq.stores.claims import Claim

TARGET = 1.5
FUTURE_TARGET = 1.2
WITHOUT = "without them"
WANTED = 100
ROUNDS = 25
HOUR = 3_600_000_000
TYPES = ("work", "awork")
"""What an engine of these queues has code for: a claim names both, paused or not."""


def lines(bench: Bench) -> Iterator[Line]:
    many = 20_000 if bench.quick else 200_000
    for order, name in (("time", "time"), ("priority", "priority"), (aged(60), "aged")):
        yield beside_future_jobs(bench, order, name, many)
    yield from Beside(bench, many * 99 // 100).lines()


def beside_future_jobs(bench: Bench, order: Any, name: str, future: int) -> Line:
    """Claiming 100 jobs, with and without many that are not due; the median of many."""
    queues = [bench.queue(order=order), bench.queue(order=order)]
    store = bench.app.store
    for start in range(0, future, 50_000):
        queues[1].enqueue_many("work", [PAYLOAD] * min(50_000, future - start), delay=86_400 + start)
    engine_id = store.take_lease(3600, "bench")
    times: dict[int, list[float]] = {queue.number: [] for queue in queues}
    for queue in queues:
        queue.enqueue_many("work", [PAYLOAD] * 6_000)
    for _ in range(50):
        for queue in queues:
            claim = Claim(queue.number, ("work",), WANTED)
            now = store.now()
            began = time.perf_counter()
            won = store.turn(engine_id, [], [claim], now).won
            times[queue.number].append(time.perf_counter() - began)
            assert len(won) == WANTED
    store.renew_lease(engine_id, 0)
    empty, full = (statistics.median(times[queue.number][5:]) * 1000 for queue in queues)
    what = f"claim {WANTED} beside {future:,} future jobs, {name} order"
    return Line(what, full, empty, FUTURE_TARGET, "ms", WITHOUT)


class Beside:
    """Two queues with the same rules and the same fresh jobs; one has all the others besides."""

    def __init__(self, bench: Bench, blocked: int) -> None:
        self._bench = bench
        self._store = bench.app.store
        self._blocked = blocked
        self._engine_id = 0

    def lines(self) -> Iterator[Line]:
        self._engine_id = self._store.take_lease(86_400, "bench")
        full_lane = Rules(limits=(PerLane(WANTED),))
        queues = self._pair(lane="busy")
        self._set(queues, full_lane)
        held = self._claim(queues[1])
        assert len(held) == WANTED
        yield self._line("of a full lane", queues, self._claim, lane="free")
        self._finish(held)
        self._set(queues, Rules(paused_lanes=("busy",)))
        yield self._line("of a paused lane", queues, self._claim, lane="free")
        self._set(queues, Rules(paused_types=("work",)))
        yield self._line("of a paused type", queues, self._claim, job_type="awork")
        queues = self._pair(time_windows=self._closed())
        yield self._line("of a closed window", queues, self._claim)
        queues = self._pair(phase="parked")
        self._set(queues, Rules(throttled=True))
        yield self._line("a throttler refused", queues, self._ask_and_claim, asked=True)
        self._store.renew_lease(self._engine_id, 0)

    # -- what is there ----------------------------------------------------------------------------------------------
    def _pair(self, **blocked: Any) -> tuple[Queue, Queue]:
        queues = self._bench.queue(), self._bench.queue()
        for start in range(0, self._blocked, 50_000):
            some = range(start, min(start + 50_000, self._blocked))
            self._store.enqueue([self._new(queues[1], number, **blocked) for number in some])
        return queues

    def _new(self, queue: Queue, number: int, **more: Any) -> New:
        at = self._store.now() - HOUR
        fields = {"job_type": "work", "phase": "ready", "time_windows": ALWAYS} | more
        rank = f"{number:020x}"  # before those of the others
        return New(queue.number, job_key="", job_data=TEXT, rank=rank, scheduled_run_time=at, create_time=at, **fields)

    def _add(self, queue: Queue, count: int, **fresh: Any) -> None:
        self._store.enqueue([self._new(queue, 1 << 60, **fresh) for _ in range(count)])

    def _set(self, queues: tuple[Queue, Queue], rules: Rules) -> None:
        for queue in queues:
            self._store.change_rules(queue.number, lambda _: rules)

    def _closed(self) -> str:
        """A window that is closed for hours to come."""
        opens = to_datetime(self._store.now()) + timedelta(hours=11)
        return dump([window(f"{opens:%H:%M}", f"{opens + timedelta(hours=1):%H:%M}")])

    # -- what is measured -------------------------------------------------------------------------------------------
    def _line(
        self, which: str, queues: tuple[Queue, Queue], claim: Callable[[Queue], list[Row]], asked: bool = False,
        **fresh: Any,
    ) -> Line:  # fmt: skip
        """The worse of two: as the table was left by what filled it, and once it was vacuumed and analyzed."""
        found = []
        for vacuumed in (False, True):
            if vacuumed and not self._bench.vacuum(queues[1]):
                break
            found.append(self._compared(queues, claim, 1 if asked else WANTED, fresh))
        empty, full = max(found, key=lambda pair: pair[1] / pair[0])
        what = "ask and claim 1" if asked else f"claim {WANTED}"
        return Line(f"{what} beside {self._blocked:,} {which}", full, empty, TARGET, "ms", WITHOUT)

    def _compared(
        self, queues: tuple[Queue, Queue], claim: Callable[[Queue], list[Row]], count: int, fresh: dict[str, Any]
    ) -> tuple[float, float]:
        times: dict[int, list[float]] = {queue.number: [] for queue in queues}
        for number in range(ROUNDS):
            for queue in queues if number % 2 else queues[::-1]:
                self._add(queue, count, **fresh)
                began = time.perf_counter()
                won = claim(queue)
                times[queue.number].append(time.perf_counter() - began)
                assert len(won) == count
                self._finish(won)
        empty, full = (statistics.median(times[queue.number][5:]) * 1000 for queue in queues)
        return empty, full

    def _claim(self, queue: Queue) -> list[Row]:
        return self._store.turn(self._engine_id, [], [Claim(queue.number, TYPES, WANTED)], self._store.now()).won

    def _ask_and_claim(self, queue: Queue) -> list[Row]:
        now = self._store.now()
        claim = Claim(queue.number, TYPES, 10)
        asked = self._store.ask(self._engine_id, claim, HEAD, 60.0, PAGE, now)
        assert asked is not None
        fresh = tuple(row.id for row in asked.due if row.phase == "ready")
        return self._store.turn(self._engine_id, [], [claim._replace(ticket=asked.ticket, admitted=fresh)], now).won

    def _finish(self, rows: list[Row]) -> None:
        now = self._store.now()
        changes = [Change(row, transitions.succeeded(row, "null", 0, now)) for row in rows]
        assert not self._store.turn(self._engine_id, changes, [], now).lost
