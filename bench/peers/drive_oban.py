"""oban: psycopg and uvloop, as its own command runs it. Needs Python 3.12."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import uvloop
from driver import PAYLOAD, Peer, serve
from oban import Oban, telemetry, worker
from oban.schema import install
from other_process import is_worker, latencies, report
from psycopg_pool import AsyncConnectionPool

LIMIT = 1000
DEBOUNCE = 0.001
NODE = "bench"


@worker(queue="default")
class Work:
    async def process(self, _: object) -> None:
        pass


@worker(queue="reported")
class Reported:
    async def process(self, _: object) -> None:
        report()


class ObanPeer(Peer):
    package = "oban"
    setting = f"psycopg, uvloop, queue limit {LIMIT}, debounce {DEBOUNCE * 1000:.0f} ms"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._loop = uvloop.new_event_loop()
        self._pool = self._loop.run_until_complete(_pool(address, autocommit=True))
        self._loop.run_until_complete(install(self._pool))
        self._oban = self._loop.run_until_complete(_client(self._pool))

    def enqueue(self, count: int) -> None:
        self._loop.run_until_complete(self._enqueue(count, Work))

    async def _enqueue(self, count: int, which: Any) -> None:
        for _ in range(count):
            await self._oban.enqueue(which.new(PAYLOAD))

    def enqueue_many(self, count: int) -> bool:
        self._loop.run_until_complete(self._enqueue_many(count, Work))
        return True

    async def _enqueue_many(self, count: int, which: Any) -> None:
        async with self._pool.connection() as connection, connection.transaction():
            jobs = [which.new(PAYLOAD) for _ in range(count)]
            await self._oban.enqueue_many(jobs, conn=connection)

    def drain(self, count: int) -> float:
        return self._loop.run_until_complete(self._drain(count))

    async def _drain(self, count: int) -> float:
        """Its queue starts paused, connected; completed are those whose acknowledgement has committed."""
        left, done = count, asyncio.Event()

        def acknowledged(_: str, about: dict[str, Any]) -> None:
            nonlocal left
            left -= about["count"]
            if not left:
                done.set()

        telemetry.attach("bench", ["oban.producer.ack.stop"], acknowledged)
        queues = {"default": {"limit": LIMIT, "debounce_interval": DEBOUNCE, "paused": True}}
        async with Oban(pool=self._pool, name="worker", node=NODE, queues=queues) as oban:
            began = time.perf_counter()
            await oban.resume_queue("default", node=NODE)
            await done.wait()
            took = time.perf_counter() - began
        telemetry.detach("bench")
        return took

    def check_done(self, count: int) -> None:
        found = self._loop.run_until_complete(self._counts())
        assert found == [("completed", count)], found

    async def _counts(self) -> list[tuple[str, int]]:
        async with self._pool.connection() as connection:
            found = await connection.execute("SELECT state::text, count(*) FROM oban_jobs GROUP BY state")
            return list(await found.fetchall())

    def clear(self) -> None:
        self._loop.run_until_complete(self._clear())

    async def _clear(self) -> None:
        async with self._pool.connection() as connection:
            await connection.execute("TRUNCATE oban_jobs RESTART IDENTITY")

    def latency(self, count: int) -> list[float]:
        def enqueue() -> None:
            self._loop.run_until_complete(self._enqueue(1, Reported))

        return latencies(__file__, self.address, enqueue, count)

    def close(self) -> None:
        self._loop.run_until_complete(self._oban.stop())
        self._loop.run_until_complete(self._pool.close())


async def _pool(address: str, autocommit: bool) -> AsyncConnectionPool[Any]:
    """Autocommit spares a statement of its own the BEGIN and COMMIT around it; oban opens its transactions itself."""
    pool = AsyncConnectionPool(address, min_size=2, max_size=10, open=False, kwargs={"autocommit": autocommit})
    await pool.open(wait=True)
    return pool


async def _client(pool: AsyncConnectionPool[Any]) -> Any:
    return Oban(pool=pool)


async def _work(address: str) -> None:
    """The idle worker: says when each job's handler began."""
    async with Oban(pool=await _pool(address, autocommit=True), queues={"reported": LIMIT}):
        await asyncio.Event().wait()


if __name__ == "__main__":
    if is_worker():
        uvloop.run(_work(sys.argv[1]))
    else:
        serve(ObanPeer)
