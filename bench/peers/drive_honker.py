"""honker, with its own loop: an iterator that claims one job at a time."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import honker
from driver import PAYLOAD, Peer, serve
from other_process import is_worker, latencies, report


class Honker(Peer):
    package = "honker"
    setting = "its own loop (claim), one job a transaction, no results; its SQLite is WAL, synchronous NORMAL"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.database = honker.open(address)
        self.queue = self.database.queue("bench")

    def enqueue(self, count: int) -> None:
        for _ in range(count):
            self.queue.enqueue(PAYLOAD)

    def enqueue_many(self, count: int) -> bool:
        """One transaction: how it documents bulk inserts."""
        with self.database.transaction() as transaction:
            for _ in range(count):
                self.queue.enqueue(PAYLOAD, tx=transaction)
        return True

    def drain(self, count: int) -> float:
        return asyncio.run(self._drain(count))

    async def _drain(self, count: int) -> float:
        jobs = self.queue.claim("worker")
        began = time.perf_counter()
        async for job in jobs:
            nothing(job.payload)
            if not job.ack():
                raise AssertionError("a job was not acknowledged")
            count -= 1
            if not count:
                break
        return time.perf_counter() - began

    def check_done(self, count: int) -> None:  # noqa: ARG002
        """It deletes a job that was acknowledged."""
        left = self.database.query("SELECT count(*) AS jobs FROM _honker_jobs")[0]["jobs"]
        if left:
            raise AssertionError(f"{left} jobs left")

    def clear(self) -> None:
        with self.database.transaction() as transaction:
            transaction.execute("DELETE FROM _honker_live")
            transaction.execute("DELETE FROM _honker_dead")

    def latency(self, count: int) -> list[float]:
        return latencies(__file__, self.address, lambda: self.queue.enqueue(PAYLOAD), count)

    def close(self) -> None:
        self.database.close()


def nothing(payload: dict[str, Any]) -> None:
    pass


async def work(address: str) -> None:
    async for job in honker.open(address).queue("bench").claim("worker"):
        report()
        job.ack()


if __name__ == "__main__":
    if is_worker():
        asyncio.run(work(sys.argv[1]))
    else:
        serve(Honker)
