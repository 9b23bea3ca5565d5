"""The lines of the target table: hipq and the raw ceiling of the same shape, interleaved, the best of each."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from bench.measure import seconds
from hipq import Hipq, Job, Queue, aged
from hipq.stores.base import Claim

PAYLOAD = {"amount": 5, "currency": "EUR", "reference": "order-000017", "note": "x" * 40}
TEXT = '{"amount":5,"currency":"EUR","reference":"order-000017","note":"' + "x" * 40 + '"}'
ROUNDS = 3


class Line(NamedTuple):
    name: str
    hipq: float
    raw: float
    target: float
    unit: str = "jobs/s"

    @property
    def ratio(self) -> float:
        return self.hipq / self.raw

    def __str__(self) -> str:
        more = self.unit == "jobs/s"
        met = self.ratio >= self.target if more else self.ratio <= self.target
        sign = ">=" if more else "<="
        return (
            f"{self.name:58} {self.hipq:>11,.{0 if more else 3}f} {self.raw:>11,.{0 if more else 3}f} {self.unit:7}"
            f" ratio {self.ratio:5.2f}  target {sign} {self.target:4.2f}  {'ok' if met else 'MISSED'}"
        )


class Bench:
    """One database, a fresh queue for every measurement."""

    def __init__(self, url: str, raw: Callable[[str, int], Any], size: int) -> None:
        self.app = Hipq("bench", url)
        self.app.migrate()
        self._raw = raw
        self.size = size
        self._names = (f"{a}{b}" for a in "abcdefghijklmnopqrstuvwxyz" for b in "abcdefghijklmnopqrstuvwxyz")

    def queue(self, **options: Any) -> Queue:
        queue = self.app.queue(next(self._names), **options)

        @queue.job
        def work(_: Job[Any]) -> None: ...

        @queue.job
        async def awork(_: Job[Any]) -> None: ...

        assert queue.number
        return queue

    @contextmanager
    def raw(self, queue: Queue) -> Iterator[Any]:
        raw = self._raw(f"bench_{queue.name}", queue.number)
        try:
            yield raw
        finally:
            raw.close()

    def vacuum(self, queue: Queue) -> bool:
        """What the database does by itself after a while; False if it never does."""
        with self.raw(queue) as raw:
            return bool(raw.vacuum())

    def drain(self, queue: Queue) -> None:
        self.app.run([queue.name], until_empty=True)

    def enqueue_one(self) -> Line:
        count = max(self.size // 20, 200)
        ours, theirs = [], []
        for _ in range(ROUNDS):
            queue = self.queue()
            work = queue.job_types[0]
            ours.append(count / seconds(lambda work=work: [work.enqueue(PAYLOAD) for _ in range(count)]))  # type: ignore[misc]
            with self.raw(self.queue()) as raw:
                theirs.append(count / seconds(lambda raw=raw: raw.insert_one_by_one([TEXT] * count)))  # type: ignore[misc]
        return Line("enqueue one at a time", max(ours), max(theirs), 0.8)

    def enqueue_concurrently(self, target: float) -> Line:
        count = max(self.size // 10, 400)
        few = count // 10
        ours, theirs = [], []

        async def many(work: Any) -> None:
            left = iter(range(count))

            async def client() -> None:
                for _ in left:
                    await work.aenqueue(PAYLOAD)

            await asyncio.gather(*(client() for _ in range(64)))

        for _ in range(ROUNDS):
            work = self.queue().job_types[0]
            ours.append(count / seconds(lambda work=work: asyncio.run(many(work))))  # type: ignore[misc]
            work = self.queue().job_types[0]
            theirs.append(few / seconds(lambda work=work: [work.enqueue(PAYLOAD) for _ in range(few)]))  # type: ignore[misc]
        return Line("64 concurrent aenqueue (against one at a time)", max(ours), max(theirs), target)

    def enqueue_many(self, keyed: bool, target: float) -> Line:
        count = self.size * 5 // 2
        ours, theirs = [], []
        keys = [f"key-{n}" for n in range(count)] if keyed else None
        for _ in range(ROUNDS):
            work = self.queue().job_types[0]
            ours.append(count / seconds(lambda work=work: work.enqueue_many([PAYLOAD] * count, keys=keys)))  # type: ignore[misc]
            with self.raw(self.queue()) as raw:
                theirs.append(count / seconds(lambda raw=raw: raw.insert_many([TEXT] * count, keys)))  # type: ignore[misc]
        return Line(f"enqueue_many {count:,}{' with keys' if keyed else ''}", max(ours), max(theirs), target)

    def drain_line(self, kind: str, target: float) -> Line:
        ours, theirs = [], []
        for _ in range(ROUNDS):
            queue = self.queue()
            queue.enqueue_many(kind, [PAYLOAD] * self.size)
            ours.append(self.size / seconds(lambda queue=queue: self.drain(queue)))  # type: ignore[misc]
            self.check_done(queue)
            other = self.queue()
            other.enqueue_many("work", [PAYLOAD] * self.size)
            with self.raw(other) as raw:
                theirs.append(self.size / seconds(raw.drain))
            self.check_done(other)
        name = "async" if kind == "awork" else "sync"
        return Line(f"drain {self.size:,} no-op, {name} handlers", max(ours), max(theirs), target)

    def check_done(self, queue: Queue) -> None:
        """Counted by completed jobs: the queue is empty and every job has its final row."""
        (glance,) = self.app.store.glance([(queue.number, ("work", "awork"))])
        assert not glance.ready
        assert not queue.running_jobs
        first = self.app.jobs(queue.name, limit=1)[0].id >> 16
        last = self.app.jobs(queue.name, after=(first + self.size - 2) << 16 | queue.number, limit=10)
        assert [job.state for job in last] == ["final"], last

    def claim_beside_future_jobs(self, order: Any, name: str, future: int, target: float = 1.2) -> Line:
        """Claiming 100 jobs, with and without a million that are not due; the median of many."""
        queues = [self.queue(order=order), self.queue(order=order)]
        store = self.app.store
        for start in range(0, future, 50_000):
            queues[1].enqueue_many("work", [PAYLOAD] * min(50_000, future - start), delay=86_400 + start)
        sysid = store.take_lease(3600, "bench")
        times: dict[int, list[float]] = {queue.number: [] for queue in queues}
        for queue in queues:
            queue.enqueue_many("work", [PAYLOAD] * 6_000)
        for _ in range(50):
            for queue in queues:
                claim = Claim(queue.number, ("work",), 100)
                now = store.now()
                began = time.perf_counter()
                won = store.turn(sysid, [], [claim], now).won
                times[queue.number].append(time.perf_counter() - began)
                assert len(won) == 100
        store.drop_lease(sysid)
        empty, full = (statistics.median(times[queue.number][5:]) * 1000 for queue in queues)
        return Line(f"claim 100 beside {future:,} future jobs, {name} order", full, empty, target, "ms")

    def lines(self, future: int, drain_target: float, bulk_target: float, together_target: float) -> Iterator[Line]:
        yield self.enqueue_one()
        yield self.enqueue_concurrently(together_target)
        yield self.enqueue_many(False, bulk_target)
        yield self.enqueue_many(True, bulk_target)
        yield self.drain_line("work", drain_target)
        yield self.drain_line("awork", drain_target)
        for order, name in (("time", "time"), ("priority", "priority"), (aged(60), "aged")):
            yield self.claim_beside_future_jobs(order, name, future)
