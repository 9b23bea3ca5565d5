"""The same work beside a million more jobs: those of next week, of a lane that is full, of a window that is closed, or
simply due, in every order. Two queues with the same settings, one has the million; both do the same, in turn.

Jobs that do not start are put there once for the three orders: their ranks are those of time order, which are below any
rank of the others, so they come first in all of them. Jobs that are due do start, so every order gets its own.

Short turns, and the median of the ratios of two that follow each other. Of two equal queues the worst verb came out at
0.93 to 1.00 that way (ten tries, a quiet machine); the best of nine longer turns at 0.74 to 0.99 (eight, a busier one).
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from bench.crowd import BLOCKED, BUSY, CLOSED, DUE, KINDS, Kind, crowd, plain
from bench.lines import PAYLOAD, Bench, Line
from bench.measure import seconds
from bench.stopping import Counted
from hipq import Hipq, aged, per_lane
from hipq.job.order import AnyOrder, order
from hipq.job.when import to_datetime

TARGET = 0.9
ROUNDS = 7
ROUNDS_CLOSED = 4
"""Longer ones: once a second an engine puts some of those off to the next opening, and once when it starts."""
TURNS = 3
"""Turns a round of what takes some hundredths of a second."""
ORDERS: dict[str, AnyOrder] = {"time": order("time"), "priority": order("priority"), "aged": aged(60)}
HOLDERS = 1_000
"""Jobs that fill the lane of those which are blocked. So many are let into other lanes, too: an engine has no more."""
AT_ONCE = 100
"""Answers brought together."""


def lines(bench: Bench) -> Iterator[Line]:
    return Million(bench, 100_000 if bench.quick else 1_000_000).lines()


class Sizes(NamedTuple):
    """Jobs a turn."""

    enqueue: int
    many: int
    drain: int


class Beside:
    """A queue of the pair. Its verbs return how many a second."""

    def __init__(self, app: Hipq, name: str, kind: Kind) -> None:
        limits = [per_lane(HOLDERS)] if kind is BLOCKED else []
        self.counted = Counted(app, name, limits=limits)
        self.queue = self.counted.queue
        self._app = app
        self._work, self._ask = self.queue.job_types
        self._past = to_datetime(app.store.now()) - timedelta(days=1)
        self._waiting: list[str] = []
        self._answered = 0
        if kind is BLOCKED:
            self._wait([f"holder-{number}" for number in range(HOLDERS)], lane=BUSY)

    def enqueue(self, count: int) -> float:
        return count / seconds(lambda: [self._work.enqueue(PAYLOAD) for _ in range(count)])

    def enqueue_many(self, count: int) -> float:
        return count / seconds(lambda: self._work.enqueue_many([PAYLOAD] * count))

    def drain(self, count: int) -> float:
        ran, took = self.counted.run(count)
        return ran / took

    def ask(self, count: int) -> None:
        """So many jobs begin to wait for their answers."""
        keys = [f"key-{self._answered + number}" for number in range(count)]
        self._wait(keys)
        random.Random(1).shuffle(keys)
        self._waiting = keys

    def others(self, count: int) -> None:
        """So many wait, and are never answered."""
        self._wait([f"other-{number}" for number in range(count)])

    def answer(self) -> float:
        some = [self._waiting.pop() for _ in range(AT_ONCE)]
        answers = [{"queue": self.queue.name, "type": self._ask.name, "key": key} for key in some]
        took = seconds(lambda: self._app.answer_many(answers))
        self._answered += len(some)
        return len(some) / took

    def check(self) -> None:
        """What ran has ended, what was asked and answered too."""
        with plain(self._app) as database:
            assert database.count(self.queue, "job_type = 'work'", final=True) == self.counted.worked
            assert database.count(self.queue, "job_type = 'ask'", final=True) == self._answered
            assert database.count(self.queue, "phase IN ('executing', 'answered')") == 0

    def _wait(self, keys: list[str], **options: Any) -> None:
        """They were due yesterday, so they come before all others."""
        self._ask.enqueue_many([None] * len(keys), keys=keys, at=self._past, **options)
        ran, _ = self.counted.run(len(keys), self._ask.name)
        assert ran == len(keys)


class Ratio(NamedTuple):
    """Of one verb."""

    value: float
    rate: float
    """With the million."""


class Million:
    def __init__(self, bench: Bench, more: int) -> None:
        self._bench = bench
        self._more = more
        self._sizes = Sizes(bench.size // 400, bench.size // 25, bench.size // 8)

    def lines(self) -> Iterator[Line]:
        for kind in KINDS:
            pair: list[Beside] = []
            for name in ORDERS:
                fresh = not pair
                if fresh or kind is DUE:
                    self._drop(pair)
                    pair = self._pair(kind, name)
                for one in pair:
                    one.queue._order = ORDERS[name]
                yield self._line(pair, kind, name, before_vacuum=fresh)
            self._drop(pair)

    def _pair(self, kind: Kind, name: str) -> list[Beside]:
        found = [
            Beside(self._bench.app, f"{kind.name.replace(' ', '_')}_{name}_{side}", kind) for side in ("few", "many")
        ]
        few = 4 * ROUNDS * 1_000 if kind is DUE else 0  # an engine takes some more than are drained: never all
        for one, count in zip(found, (few, few + self._more), strict=True):
            one.queue._order = ORDERS[name]
            crowd(self._bench.app, one.queue, kind, count)
        return found

    def _drop(self, pair: list[Beside]) -> None:
        for one in pair:
            self._bench.app.store.drop_queue(one.queue.number)

    # -- what is measured -------------------------------------------------------------------------------------------
    def _line(self, pair: list[Beside], kind: Kind, name: str, *, before_vacuum: bool) -> Line:
        """The worst verb; where asked for, before or after the first vacuum, whichever is worse."""
        found = [self._compared(pair, kind)] if before_vacuum else []
        with plain(self._bench.app) as database:
            vacuumed = [database.vacuum(one.queue) for one in pair]
        if all(vacuumed) or not found:
            found.append(self._compared(pair, kind))
        ratios = {verb: min(one[verb] for one in found) for verb in found[0]}
        worst = min(ratios, key=lambda verb: ratios[verb])
        rest = sorted(ratio.value for verb, ratio in ratios.items() if verb != worst)
        title = f"{worst} beside {self._more:,} {kind.name}, {name} (rest {rest[0]:.2f}-{rest[-1]:.2f})"
        ratio, rate = ratios[worst]
        return Line(title, rate, rate / ratio, TARGET, against="without them")

    def _compared(self, pair: list[Beside], kind: Kind) -> dict[str, Ratio]:
        sizes, rounds, more = self._sizes, ROUNDS, 0
        if kind is CLOSED:
            rounds, more = ROUNDS_CLOSED, max(self._bench.size - sizes.drain, 0)
        found: dict[str, list[tuple[float, float]]] = {}

        def turns(verb: str, count: int, *values: int) -> None:
            for number in range(count):
                works = [partial(getattr(one, verb), *values) for one in pair]
                found.setdefault(verb, []).append(_in_turn(works, first=number % 2))

        for _ in range(rounds):
            for one in pair:
                one.ask(TURNS * AT_ONCE)  # while there is nothing else to run
            turns("answer", TURNS)
            turns("enqueue", TURNS, sizes.enqueue)
            turns("enqueue_many", TURNS, sizes.many)
            added = TURNS * (sizes.enqueue + sizes.many)
            for one in pair:
                one.enqueue_many(max(sizes.drain + more - added, 0))
            turns("drain", 1, max(sizes.drain + more, added))
        for one in pair:
            one.check()
        return {verb: _ratio(rates) for verb, rates in found.items()}


def _in_turn(works: Sequence[Callable[[], float]], first: int) -> tuple[float, float]:
    """The rates of both, whichever came first."""
    rates = {side: works[side]() for side in (first, 1 - first)}
    return rates[0], rates[1]


def _ratio(rates: list[tuple[float, float]]) -> Ratio:
    return Ratio(statistics.median(many / few for few, many in rates), statistics.median(many for _, many in rates))
