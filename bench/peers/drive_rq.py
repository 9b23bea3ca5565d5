"""RQ, with the worker that does not fork for each job."""

from __future__ import annotations

import sys
import time
from typing import Any

from driver import PAYLOAD, Peer, serve
from other_process import is_worker, latencies, report
from redis import Redis
from rq import Queue, SimpleWorker

KEEP = 0
"""Seconds a finished job is kept."""


class Quiet(SimpleWorker):
    """A worker inside the driver, which keeps its own signal handlers."""

    def _install_signal_handlers(self) -> None:
        pass


class Rq(Peer):
    package = "rq"
    setting = "SimpleWorker (no fork), burst, hiredis, finished jobs deleted at once"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.redis = Redis.from_url(address)
        self.queue = Queue("bench", connection=self.redis)

    def enqueue(self, count: int) -> None:
        for _ in range(count):
            self.queue.enqueue("drive_rq.nothing", PAYLOAD, result_ttl=KEEP)

    def enqueue_many(self, count: int) -> bool:
        one = Queue.prepare_data("drive_rq.nothing", (PAYLOAD,), result_ttl=KEEP)
        self.queue.enqueue_many([one] * count)
        return True

    def drain(self, count: int) -> float:  # noqa: ARG002
        worker = Quiet([self.queue], connection=self.redis)
        began = time.perf_counter()
        worker.work(burst=True, logging_level="WARNING")
        return time.perf_counter() - began

    def check_done(self, count: int) -> None:  # noqa: ARG002
        queue = self.queue
        left = {
            "queued": queue.count,
            "started": queue.started_job_registry.count,
            "failed": queue.failed_job_registry.count,
            "stored": len(self.redis.keys("rq:job:*")),
        }
        if any(left.values()):
            raise AssertionError(f"jobs left: {left}")

    def clear(self) -> None:
        self.redis.flushdb()

    def latency(self, count: int) -> list[float]:
        def enqueue() -> None:
            self.queue.enqueue("drive_rq.timed", PAYLOAD, result_ttl=KEEP)

        return latencies(__file__, self.address, enqueue, count)


def nothing(payload: dict[str, Any]) -> None:
    pass


def timed(payload: dict[str, Any]) -> None:  # noqa: ARG001
    report()


def work(address: str) -> None:
    SimpleWorker(["bench"], connection=Redis.from_url(address)).work(logging_level="WARNING")


if __name__ == "__main__":
    if is_worker():
        work(sys.argv[1])
    else:
        serve(Rq)
