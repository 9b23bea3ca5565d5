"""flexiq on SQLite."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from typing import Any

from driver import PAYLOAD, Peer, serve

os.environ["FLEXIQ_LOG_LEVEL"] = "WARNING"  # it logs each job otherwise

from flexiq import Queue
from other_process import is_worker, latencies, report

THREADS, BATCH, POLL = 64, 500, 5
"""It starts at most two jobs a thread at each poll, each so many milliseconds."""


def queue_at(address: str) -> Queue:
    return Queue(db_path=address, workers=THREADS, scheduler_batch_size=BATCH, scheduler_poll_interval_ms=POLL)


class Flexiq(Peer):
    package = "flexiq"
    setting = (
        f"{THREADS} threads, batch {BATCH}, polls each {POLL} ms, the worker's start included; "
        "its SQLite is WAL, synchronous NORMAL"
    )

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.files = itertools.count(1)
        self.called: Any = None
        self.count = 0
        self.all_called = threading.Event()
        self._open()

    def _open(self) -> None:
        self.path = f"{self.address}.{next(self.files)}"
        self.queue = queue_at(self.path)
        self.nothing = self.queue.task(name="nothing")(self._nothing)
        self.timed = self.queue.task(name="timed")(timed)

    def _nothing(self, payload: dict[str, Any]) -> None:  # noqa: ARG002
        if next(self.called) == self.count:
            self.all_called.set()

    def enqueue(self, count: int) -> None:
        for _ in range(count):
            self.nothing.delay(PAYLOAD)

    def enqueue_many(self, count: int) -> bool:
        self.queue.enqueue_many("nothing", [(PAYLOAD,)] * count)
        return True

    def drain(self, count: int) -> float:
        """It stores what was done after the handler: asked for once the last handler has been called."""
        self.called, self.count = itertools.count(1), count
        self.all_called.clear()
        worker = threading.Thread(target=self.queue.run_worker)
        began = time.perf_counter()
        worker.start()
        self.all_called.wait()
        while self.queue.stats()["completed"] < count:
            time.sleep(0.001)
        took = time.perf_counter() - began
        self.queue.shutdown()
        worker.join()
        return took

    def check_done(self, count: int) -> None:
        found = self.queue.stats()
        if found.pop("completed") != count or any(found.values()):
            raise AssertionError(f"jobs left: {self.queue.stats()}")

    def clear(self) -> None:
        """A new file: its own purge keeps the jobs, as cancelled, and a second SQLite in this process, Python's, would
        undo the locks of its own."""
        self.queue.close()
        self._open()

    def latency(self, count: int) -> list[float]:
        return latencies(__file__, self.path, lambda: self.timed.delay(PAYLOAD), count)


def timed(payload: dict[str, Any]) -> None:  # noqa: ARG001
    report()


def work(address: str) -> None:
    queue = queue_at(address)
    queue.task(name="timed")(timed)
    queue.run_worker()


if __name__ == "__main__":
    if is_worker():
        work(sys.argv[1])
    else:
        serve(Flexiq)
