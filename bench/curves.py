"""How hipq's figures change as something grows. Every point of a curve has its own queue, and all take turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from bench.crowd import KINDS, crowd
from bench.lines import PAYLOAD, TEXT
from bench.measure import interleaved, seconds
from bench.million import Beside
from bench.served import LONG_NAP, Worker, declare, until_alive
from bench.stopping import Counted, claim_times
from hipq import Hipq, Job, Queue, per_lane
from hipq.job.model import New

RATE, TIME, BYTES, PART = "jobs/s", "ms", "MB/s", "of the ideal"
HANDS = (1, 2)
"""Few: else the server, or the processors that all workers share, would be measured."""
SECONDS = 5
"""How long a drain by workers with 50 ms handlers would take at best."""
ROUNDS = 5
PLENTY = 1_000
"""Units a lane: more than an engine has at a time, so that only the number of lanes differs."""
MEGABYTE = 1_000_000


class Curve(NamedTuple):
    curve: str
    store: str
    x: str
    """What grows."""
    unit: str
    points: list[tuple[int, float]]

    @property
    def part(self) -> float:
        """The worst point as a part of the first: 1 and more is as good as it was."""
        (_, first), *_ = self.points
        values = [value for _, value in self.points]
        return first / max(values) if self.unit == TIME else min(values) / first


class Sizes(NamedTuple):
    backlog: tuple[int, ...] = (0, 1_000, 10_000, 100_000, 1_000_000)
    lanes: tuple[int, ...] = (1, 10, 100, 1_000, 10_000)
    waiting: tuple[int, ...] = (1, 100, 10_000, 100_000)
    payload: tuple[int, ...] = (100, 1_000, 10_000, 100_000, 1_000_000)
    workers: tuple[int, ...] = (1, 4, 16, 32)
    types: tuple[int, ...] = (1, 10, 100, 1_000, 10_000, 100_000)
    queues: tuple[int, ...] = (1, 10, 100, 1_000)
    drained: int = 5_000
    """Jobs a drain."""
    carried: int = 10 * MEGABYTE
    """Bytes of payloads a drain, at most."""


QUICK = Sizes(
    (0, 1_000, 10_000), (1, 10, 100, 1_000), (1, 100, 1_000), (100, 10_000, 1_000_000), (1, 2), (1, 100, 1_000),
    (1, 10, 50), 1_000, 2 * MEGABYTE,
)  # fmt: skip


class Curves:
    def __init__(self, app: Hipq, claiming: Hipq, store: str, sizes: Sizes) -> None:
        self._app = app
        self._claiming = claiming
        """Does not wait for the disk, if it can be told so."""
        self._store = store
        self._sizes = sizes
        self._names = (f"{a}{b}" for a in "abcdefghij" for b in "abcdefghijklmnopqrstuvwxyz")

    def all(self) -> Iterator[Curve]:
        yield from self.backlog()
        yield from self.lanes()
        yield from self.waiting()
        yield from self.payload()
        yield from self.types()
        yield from self.queues()

    def backlog(self) -> Iterator[Curve]:
        count = self._sizes.drained
        for kind in KINDS:
            some = {size: Beside(self._app, next(self._names), kind) for size in self._sizes.backlog}
            for size, one in some.items():
                crowd(self._app, one.queue, kind, size)

            def drained(one: Beside) -> float:
                one.enqueue_many(count)
                return one.drain(count)

            def claimed(one: Beside) -> float:
                one.enqueue_many(1_000)
                return statistics.median(claim_times(self._claiming, one.queue.number, 10))

            for what, unit, measure in (("claim of 100", TIME, claimed), ("drain", RATE, drained)):
                found = self._points({size: partial(measure, one) for size, one in some.items()})
                yield Curve(f"{what}: {kind.name}", self._store, f"{kind.name} jobs besides", unit, found)
            self._drop([one.queue for one in some.values()])

    def lanes(self) -> Iterator[Curve]:
        count = max(2 * self._sizes.drained, self._sizes.lanes[-1])
        for lanes in ("ordered", "fair"):
            some = {
                size: Counted(self._app, next(self._names), limits=[per_lane(PLENTY)], lanes=lanes)
                for size in self._sizes.lanes
            }

            def drained(size: int, one: Counted) -> float:
                self._spread(one.queue, size, count)
                ran, took = one.run(count)
                return ran / took

            found = self._points({size: partial(drained, size, one) for size, one in some.items()}, 3)
            yield Curve(f"drain: {lanes} lanes", self._store, "lanes, each with a limit", RATE, found)
            self._drop([one.queue for one in some.values()])

    def _spread(self, queue: Queue, lanes: int, count: int) -> None:
        now = self._app.store.now()
        rank = queue.order.rank(now, 100)
        jobs = [
            New(queue.number, "work", "", TEXT, "ready", rank, now, now, lane=f"lane{n % lanes:05}")
            for n in range(count)
        ]  # fmt: skip
        self._app.store.enqueue(jobs)

    def waiting(self) -> Iterator[Curve]:
        some = {size: Beside(self._app, next(self._names), KINDS[0]) for size in self._sizes.waiting}
        for size, one in some.items():
            one.others(size)

        def answered(one: Beside) -> float:
            one.ask(300)
            return statistics.median(one.answer() for _ in range(3))

        def claimed(one: Beside) -> float:
            one.enqueue_many(1_000)
            return statistics.median(claim_times(self._claiming, one.queue.number, 10))

        for what, unit, measure in (("answer 100 at a time", RATE, answered), ("claim of 100: waiting", TIME, claimed)):
            found = self._points({size: partial(measure, one) for size, one in some.items()})
            yield Curve(what, self._store, "other jobs that wait", unit, found)
        self._drop([one.queue for one in some.values()])

    def payload(self) -> Iterator[Curve]:
        some = {size: Counted(self._app, next(self._names)) for size in self._sizes.payload}
        counts = {size: max(min(2_000, self._sizes.carried // size), 5) for size in some}

        def enqueued(size: int) -> float:
            data = [{**PAYLOAD, "note": "x" * (size - len(TEXT) + 40)}] * counts[size]
            return counts[size] / seconds(lambda: some[size].queue.enqueue_many("work", data))

        def drained(size: int) -> float:
            enqueued(size)  # an engine may have taken more than were wanted the last time
            ran, took = some[size].run(counts[size])
            return ran / took

        added = self._points({size: partial(enqueued, size) for size in some}, 3)
        ended = self._points({size: partial(drained, size) for size in some}, 3)
        for what, points in (("enqueue_many", added), ("drain", ended)):
            carried = [(size, rate * size / MEGABYTE) for size, rate in points]
            yield Curve(f"{what}: payload", self._store, "bytes of payload", RATE, points)
            yield Curve(f"{what}: volume", self._store, "bytes of payload", BYTES, carried)
        self._drop([one.queue for one in some.values()])

    def types(self) -> Iterator[Curve]:
        some = {size: self._app.queue(next(self._names)) for size in self._sizes.types}
        for size, queue in some.items():
            for number in range(size):
                queue.job(_type(number))(_work)
            assert queue.number

        def drained(size: int, queue: Queue) -> float:
            count, now = self._sizes.drained, self._app.store.now()
            rank, apart = queue.order.rank(now, 100), max(size // count, 1)
            kinds = [_type(n * apart % size) for n in range(count)]
            jobs = [New(queue.number, kind, "", TEXT, "ready", rank, now, now) for kind in kinds]
            self._app.store.enqueue(jobs)
            engine = self._app.engine([queue.name])
            try:
                return count / seconds(lambda: engine.run(until_empty=True))
            finally:
                engine.executor.close()

        found = self._points({size: partial(drained, size, queue) for size, queue in some.items()}, 3)
        yield Curve("drain: job types", self._store, "job types", RATE, found)
        self._drop(list(some.values()))

    def queues(self) -> Iterator[Curve]:
        """From the making of an engine, whose tables are there, to the end of its first turn."""

        def declared(size: int) -> Hipq:
            app = Hipq(f"queues_{size}", self._app.url)
            for number in range(size):
                app.queue(f"q_{number:04}".translate(_LETTERS)).job("work")(_work)
            return app

        def started(size: int) -> float:
            app = declared(size)
            began = time.perf_counter()
            engine = app.engine()
            engine.turn()
            took = 1000 * (time.perf_counter() - began)
            engine.leave()
            engine.executor.close()
            app.close()
            return took

        for size in self._sizes.queues:
            declared(size).migrate()
        found = self._points({size: partial(started, size) for size in self._sizes.queues}, 3)
        yield Curve("start of an engine", self._store, "queues", TIME, found)

    def _points(self, measures: dict[int, partial[float]], rounds: int = ROUNDS) -> list[tuple[int, float]]:
        """Medians, in turn."""
        found = interleaved({str(size): measure for size, measure in measures.items()}, rounds)
        return [(int(size), statistics.median(samples)) for size, samples in found.items()]

    def _drop(self, queues: Sequence[Queue]) -> None:
        for queue in queues:
            self._app.store.drop_queue(queue.number)


_LETTERS = str.maketrans("0123456789", "abcdefghij")


def _type(number: int) -> str:
    return f"type_{number:06}"


def _work(_: Job[Any]) -> None: ...


def workers(url: str, store: str, sizes: Sizes) -> Iterator[Curve]:
    """Real ones, started before the clock: the queue is paused until they and the jobs are there."""
    app = declare(url)
    app.migrate()
    for kind, name, count in (("work", "no-op", 4 * sizes.drained), ("nap", "5 ms", sizes.drained)):
        points = [(size, statistics.median(_together(app, size, kind, count) for _ in range(3)))
                  for size in sizes.workers]  # fmt: skip
        yield Curve(f"drain: workers, {name}", store, "worker processes", RATE, points)
    for hands in HANDS:
        points = [(size, _of_ideal(app, size, hands)) for size in sizes.workers]
        yield Curve(f"drain: workers, 50 ms, {hands} hands each", store, "worker processes", PART, points)
    app.close()


def _of_ideal(app: Hipq, size: int, hands: int) -> float:
    """The rate as a part of what so many hands would come to if nothing but the handlers took time."""
    ideal = size * hands / LONG_NAP
    return statistics.median(_together(app, size, "long_nap", round(SECONDS * ideal), hands) for _ in range(3)) / ideal


def _together(app: Hipq, size: int, kind: str, count: int, hands: int = 10) -> float:
    (queue,) = app.queues
    app.pause(queue.name)
    queue.enqueue_many(kind, [PAYLOAD] * count)
    with ExitStack() as stack:
        for _ in range(size):
            stack.enter_context(Worker(app.url, hands=hands))
        until_alive(app, size)
        time.sleep(0.5)
        began = time.perf_counter()
        app.resume(queue.name)
        while True:
            (peek,) = app.store.peek([(queue.number, (kind,))])
            if not peek.ready and not peek.owned:
                break
            time.sleep(0.01)
        return count / (time.perf_counter() - began)
