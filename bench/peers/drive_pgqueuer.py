"""pgqueuer: asyncpg and uvloop, its fastest pair; a worker in drain mode ends by itself once all is logged."""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from driver import PAYLOAD, Peer, serve
from other_process import is_worker, latencies, report
from pgqueuer.core.qm import QueueManager
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

BATCH = 500
WORKER_CONNECTIONS = 4
BYTES = json.dumps(PAYLOAD).encode()


class Counting(Queries):
    """Counts jobs once the statement that moves them to the log has committed: completed, as pgqueuer stores that."""

    completed = 0
    last = 0.0

    async def log_jobs(self, job_status: list[Any]) -> None:
        await super().log_jobs(job_status)
        self.completed += len(job_status)
        self.last = time.perf_counter()


class PgQueuer(Peer):
    package = "pgqueuer"
    setting = f"asyncpg, uvloop, batch {BATCH}, pool of {WORKER_CONNECTIONS}"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._loop = uvloop.new_event_loop()
        self._connection = self._loop.run_until_complete(asyncpg.connect(address))
        self._queries = Queries(AsyncpgDriver(self._connection))
        self._loop.run_until_complete(self._queries.install())

    def enqueue(self, count: int) -> None:
        self._loop.run_until_complete(self._enqueue(count))

    async def _enqueue(self, count: int) -> None:
        for _ in range(count):
            await self._queries.enqueue("work", BYTES)

    def enqueue_many(self, count: int) -> bool:
        self._loop.run_until_complete(self._queries.enqueue(["work"] * count, [BYTES] * count, [0] * count))
        return True

    def drain(self, count: int) -> float:
        return self._loop.run_until_complete(self._drain(count))

    async def _drain(self, count: int) -> float:
        async with _pool(self.address) as pool:
            queries = Counting(AsyncpgPoolDriver(pool))
            manager = QueueManager(queries)

            @manager.entrypoint("work")
            async def work(_: object) -> None:
                pass

            began = time.perf_counter()
            await manager.run(timedelta(seconds=0.01), batch_size=BATCH, mode=QueueExecutionMode.drain)
        assert queries.completed == count, queries.completed
        return queries.last - began

    def check_done(self, count: int) -> None:
        found = self._loop.run_until_complete(
            self._connection.fetchrow(
                "SELECT (SELECT count(*) FROM pgqueuer),"
                " (SELECT count(*) FROM pgqueuer_log WHERE status = 'successful')"
            )
        )
        assert tuple(found) == (0, count), found

    def clear(self) -> None:
        self._loop.run_until_complete(
            self._connection.execute("TRUNCATE pgqueuer, pgqueuer_log, pgqueuer_statistics RESTART IDENTITY")
        )

    def latency(self, count: int) -> list[float]:
        return latencies(__file__, self.address, lambda: self.enqueue(1), count)

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())


def _pool(address: str) -> Any:
    return asyncpg.create_pool(address, min_size=WORKER_CONNECTIONS, max_size=WORKER_CONNECTIONS)


async def _work(address: str) -> None:
    """The idle worker: says when each job's handler began."""
    async with _pool(address) as pool:
        manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))

        @manager.entrypoint("work")
        async def work(_: object) -> None:
            report()

        await manager.run(batch_size=BATCH)


if __name__ == "__main__":
    if is_worker():
        uvloop.run(_work(sys.argv[1]))
    else:
        serve(PgQueuer)
