"""dramatiq on Redis."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from typing import Any

THREADS, PREFETCH = 2, 64
os.environ["dramatiq_queue_prefetch"] = str(PREFETCH)  # noqa: SIM112 - read when it is imported

import dramatiq  # noqa: E402
from dramatiq.brokers.redis import RedisBroker  # noqa: E402
from driver import PAYLOAD, Peer, serve  # noqa: E402
from other_process import is_worker, latencies, report  # noqa: E402


class Acknowledged(dramatiq.Middleware):
    """Tells when so many jobs have been acknowledged to Redis."""

    def __init__(self) -> None:
        self.all_done = threading.Event()
        self.expect(0)

    def expect(self, count: int) -> None:
        self.all_done.clear()
        self._count, self._so_far = count, itertools.count(1)

    def after_ack(self, broker: Any, message: Any) -> None:  # noqa: ARG002
        if next(self._so_far) == self._count:
            self.all_done.set()


def actors_at(address: str) -> tuple[Any, Any, Any]:
    """The broker, with its default middleware, and both actors."""
    broker = RedisBroker(url=address)
    actors = [dramatiq.actor(function, broker=broker, queue_name="bench") for function in (nothing, timed)]
    return broker, actors[0], actors[1]


def nothing(payload: dict[str, Any]) -> None:
    pass


def timed(payload: dict[str, Any]) -> None:  # noqa: ARG001
    report()


class Dramatiq(Peer):
    package = "dramatiq"
    setting = f"{THREADS} worker threads, prefetch {PREFETCH}, default middleware, hiredis, no results"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.broker, self.nothing, self.timed = actors_at(address)
        self.acknowledged = Acknowledged()
        self.broker.add_middleware(self.acknowledged)

    def enqueue(self, count: int) -> None:
        for _ in range(count):
            self.nothing.send(PAYLOAD)

    def drain(self, count: int) -> float:
        self.acknowledged.expect(count)
        worker = dramatiq.Worker(self.broker, worker_threads=THREADS)
        began = time.perf_counter()
        worker.start()
        self.acknowledged.all_done.wait()
        took = time.perf_counter() - began
        worker.stop()
        return took

    def check_done(self, count: int) -> None:  # noqa: ARG002
        """Its size counts those that a worker holds unacknowledged, too."""
        left = self.broker.do_qsize("bench")
        if left:
            raise AssertionError(f"{left} jobs left")

    def clear(self) -> None:
        self.broker.client.flushdb()

    def latency(self, count: int) -> list[float]:
        return latencies(__file__, self.address, lambda: self.timed.send(PAYLOAD), count)


def work(address: str) -> None:
    dramatiq.Worker(actors_at(address)[0], worker_threads=THREADS).start()
    threading.Event().wait()


if __name__ == "__main__":
    if is_worker():
        work(sys.argv[1])
    else:
        serve(Dramatiq)
