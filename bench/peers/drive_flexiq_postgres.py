"""flexiq on PostgreSQL: its Rust core claims and completes. It polls: its `push_dispatch` leaves jobs lying here."""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import Any, LiteralString

import psycopg
from driver import PAYLOAD, Peer, serve
from flexiq import Queue
from other_process import is_worker, latencies, report

WORKERS = 16
BATCH = 100
POLL_MILLISECONDS = 1


class Flexiq(Peer):
    package = "flexiq"
    setting = f"async handler, {WORKERS} workers, batch {BATCH}, poll {POLL_MILLISECONDS} ms"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._queue = _queue(address)
        self._work = self._queue.task(name="work")(_nothing)
        self._watch = psycopg.connect(address, autocommit=True)

    def enqueue(self, count: int) -> None:
        for _ in range(count):
            self._work.delay(**PAYLOAD)

    def enqueue_many(self, count: int) -> bool:
        self._queue.enqueue_many("work", [()] * count, [PAYLOAD] * count)
        return True

    def drain(self, count: int) -> float:
        """A completed job is moved to another table: counting that is cheap."""
        queue = _queue(self.address)
        queue.task(name="work")(_nothing)
        worker = threading.Thread(target=queue.run_worker, daemon=True)
        began = time.perf_counter()
        worker.start()
        while self._archived() < count:
            time.sleep(0.01)
        took = time.perf_counter() - began
        queue.shutdown()
        worker.join()
        return took

    def _archived(self) -> int:
        return self._count("SELECT count(*) FROM flexiq.archived_jobs WHERE status = 2")

    def _count(self, statement: LiteralString) -> int:
        found = self._watch.execute(statement).fetchone()
        return int(found[0]) if found else 0

    def check_done(self, count: int) -> None:
        found = self._count("SELECT count(*) FROM flexiq.jobs"), self._archived()
        assert found == (0, count), found

    def clear(self) -> None:
        self._watch.execute(
            "TRUNCATE flexiq.jobs, flexiq.archived_jobs, flexiq.execution_claims, flexiq.task_metrics CASCADE"
        )

    def latency(self, count: int) -> list[float]:
        return latencies(__file__, self.address, lambda: self.enqueue(1), count)

    def close(self) -> None:
        self._watch.close()


def _queue(address: str) -> Any:
    return Queue(
        backend="postgres", db_url=address, workers=WORKERS, scheduler_batch_size=BATCH,
        scheduler_poll_interval_ms=POLL_MILLISECONDS,
    )  # fmt: skip


async def _nothing(**_: object) -> None:
    pass


async def _report(**_: object) -> None:
    report()


if __name__ == "__main__":
    logging.disable(logging.INFO)
    if is_worker():
        idle = _queue(sys.argv[1])
        idle.task(name="work")(_report)
        idle.run_worker()
    else:
        serve(Flexiq)
