"""huey, on SQLite or on Redis: which, its address says."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from typing import Any

from driver import PAYLOAD, Peer, serve
from huey import RedisHuey, SqliteHuey, signals
from huey.consumer import Consumer
from other_process import is_worker, latencies, report


class Quiet(Consumer):
    """A consumer inside the driver, which keeps its own signal handlers."""

    def _set_signal_handlers(self) -> None:
        pass


def queue_at(address: str) -> Any:
    """As durable as it gets on SQLite: it waits for the disk at each commit."""
    if address.startswith("redis:"):
        return RedisHuey("bench", url=address, results=False)
    return SqliteHuey("bench", filename=address, fsync=True, journal_mode="wal", results=False)


class Huey(Peer):
    package = "huey"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.queue = queue_at(address)
        if address.startswith("redis:"):
            self.threads, self.setting = 2, "2 worker threads, hiredis, no results"
        else:
            self.threads, self.setting = 1, "1 worker thread, WAL, polls each 0.1 s when idle (default), no results"
        self.nothing = self.queue.task()(nothing)
        self.timed = self.queue.task()(timed)

    def enqueue(self, count: int) -> None:
        for _ in range(count):
            self.nothing(PAYLOAD)

    def drain(self, count: int) -> float:
        completions, all_done = itertools.count(1), threading.Event()

        def completed(signal: str, task: Any) -> None:  # noqa: ARG001
            if next(completions) == count:
                all_done.set()

        self.queue.signal(signals.SIGNAL_COMPLETE)(completed)
        consumer = Quiet(self.queue, workers=self.threads, periodic=False)
        began = time.perf_counter()
        consumer.start()
        all_done.wait()
        took = time.perf_counter() - began
        consumer.stop(graceful=True)
        self.queue.disconnect_signal(completed, signals.SIGNAL_COMPLETE)
        return took

    def check_done(self, count: int) -> None:  # noqa: ARG002
        left = self.queue.pending_count()
        if left:
            raise AssertionError(f"{left} jobs left")

    def clear(self) -> None:
        self.queue.storage.flush_all()

    def latency(self, count: int) -> list[float]:
        return latencies(__file__, self.address, lambda: self.timed(PAYLOAD), count)


def nothing(payload: dict[str, Any]) -> None:
    pass


def timed(payload: dict[str, Any]) -> None:  # noqa: ARG001
    report()


def work(address: str) -> None:
    queue = queue_at(address)
    queue.task()(timed)
    Consumer(queue, periodic=False).run()


if __name__ == "__main__":
    if is_worker():
        work(sys.argv[1])
    else:
        serve(Huey)
