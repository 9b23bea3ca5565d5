"""awa: its queue storage, the engine it recommends; the Rust core claims and completes, handlers run on asyncio."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Any

import awa
import psycopg
import uvloop
from driver import PAYLOAD, Peer, serve
from other_process import is_worker, latencies, report

SCHEMA = "awa"
WORKERS = 500
CLAIMERS = 1
CLAIM_BATCH = 512
CONNECTIONS = 10
POLL_MILLISECONDS = 10


@dataclass
class Work:
    amount: int
    currency: str
    reference: str
    note: str


class Awa(Peer):
    package = "awa-pg"
    setting = f"queue storage, {WORKERS} workers, {CLAIMERS} claimer, claims of {CLAIM_BATCH}, uvloop"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._client = awa.Client(address)
        self._client.migrate()
        self._client.install_queue_storage(schema=SCHEMA)
        self._watch = psycopg.connect(address, autocommit=True)
        self._job = Work(**PAYLOAD)
        self._unfinished, self._before = False, 0

    def enqueue(self, count: int) -> None:
        for _ in range(count):
            self._client.insert(self._job)

    def enqueue_many(self, count: int) -> bool:
        self._client.enqueue_many_copy([self._job] * count)
        return True

    def drain(self, count: int) -> float:
        return uvloop.run(self._drain(count))

    async def _drain(self, count: int) -> float:
        """It has no counter of completed jobs that is cheap to ask for: the sum of its stored batches is."""
        client = awa.AsyncClient(self.address, CONNECTIONS)

        @client.task(Work)
        async def work(_: object) -> None:
            pass

        await client.health_check()
        began = time.perf_counter()
        await _start(client)
        while self._completed() < self._before + count:
            await asyncio.sleep(0.005)
        took = time.perf_counter() - began
        await client.shutdown()
        await client.close()
        return took

    def _completed(self) -> int:
        found = self._watch.execute(
            "SELECT (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches)"
            " + (SELECT coalesce(sum(pruned_completed_count), 0) FROM awa.queue_terminal_rollups)"
        ).fetchone()
        return int(found[0]) if found else 0

    def check_done(self, count: int) -> None:
        """Its views of jobs take seconds for a few thousand; emptying the queue says the same: nothing was left."""
        left = self._client.drain_queue("default")
        completed = self._completed() - self._before
        assert (left, completed) == (0, count), (left, completed)
        self._unfinished = False

    def clear(self) -> None:
        """Its reset takes seconds. Completed jobs may stay, it prunes them by itself: they are not counted again."""
        if self._unfinished:
            self._client.install_queue_storage(schema=SCHEMA, reset=True)
            self._client.close()  # its connections remember types that the reset has dropped
            self._client = awa.Client(self.address)
        self._before = self._completed()
        self._unfinished = True

    def latency(self, count: int) -> list[float]:
        return latencies(__file__, self.address, lambda: self.enqueue(1), count)

    def close(self) -> None:
        self._watch.close()
        self._client.close()


async def _start(client: Any) -> None:
    queue = {"name": "default", "max_workers": WORKERS, "claimers": CLAIMERS, "claim_batch_size": CLAIM_BATCH}
    await client.start([queue], poll_interval_ms=POLL_MILLISECONDS)


async def _work(address: str) -> None:
    """The idle worker: says when each job's handler began."""
    client = awa.AsyncClient(address, CONNECTIONS)

    @client.task(Work)
    async def work(_: object) -> None:
        report()

    await _start(client)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if is_worker():
        uvloop.run(_work(sys.argv[1]))
    else:
        serve(Awa)
