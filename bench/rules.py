"""Drains under rules, each against plain SQL of the same shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.lines import ROUNDS, TEXT, Bench, Line
from bench.measure import best, seconds
from hipq import Queue, limit, per_lane
from hipq.job.model import New
from hipq.job.units import UNIT

UNITS = 100
WEIGHTS = 3
LANES = 1_000
UNITS_A_LANE = 10


def lines(bench: Bench) -> Iterator[Line]:
    return UnderRules(bench).lines()


class UnderRules:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def lines(self) -> Iterator[Line]:
        size = f"{self._bench.size:,}"
        yield self._drain(
            f"drain {size}, limit {UNITS}, weights 1-{WEIGHTS}",
            {"limits": [limit(UNITS)]},
            lambda number: {"throttle_factor": UNIT * (1 + number % WEIGHTS)},
            lambda raw: raw.drain_limited(UNITS, WEIGHTS),
            self._bench.targets.limited,
        )
        for lanes in ("ordered", "fair"):
            yield self._drain(
                f"drain {size} over {LANES:,} lanes, {UNITS_A_LANE} a lane, {lanes}",
                {"limits": [per_lane(UNITS_A_LANE)], "lanes": lanes},
                lambda number: {"lane": f"lane{number % LANES:04}"},
                lambda raw, fair=lanes == "fair": raw.drain_lanes(UNITS_A_LANE, fair),  # type: ignore[misc]
                self._bench.targets.lanes,
            )

    def _drain(
        self,
        name: str,
        rules: dict[str, Any],
        job: Callable[[int], dict[str, Any]],
        drain: Callable[[Any], int],
        target: float,
    ) -> Line:
        bench = self._bench

        def ours() -> float:
            queue = self._filled(rules, job)
            took = bench.drain(queue)
            bench.check_done(queue)
            return bench.size / took

        def plain() -> float:
            queue = self._filled(rules, job)
            with bench.raw(queue) as raw:
                took = seconds(lambda: drain(raw))
            bench.check_done(queue)
            return bench.size / took

        rates = best({"hipq": ours, "plain": plain}, ROUNDS)
        return Line(name, rates["hipq"], rates["plain"], target)

    def _filled(self, rules: dict[str, Any], job: Callable[[int], dict[str, Any]]) -> Queue:
        queue, store = self._bench.queue(**rules), self._bench.app.store
        now = store.now()
        rank = queue.order.rank(now, 100)
        store.enqueue(
            [New(queue.number, "work", "", TEXT, "ready", rank, now, now, **job(n)) for n in range(self._bench.size)]
        )
        return queue
