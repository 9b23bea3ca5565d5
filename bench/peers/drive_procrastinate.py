"""procrastinate: psycopg's binary build, a pool of its own without the check before each statement."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import procrastinate
import uvloop
from driver import PAYLOAD, Peer, serve
from other_process import is_worker, latencies, report
from psycopg_pool import AsyncConnectionPool, ConnectionPool

CONCURRENCY = 20
CONNECTIONS = 3


class Procrastinate(Peer):
    package = "procrastinate"
    setting = f"psycopg, uvloop, autocommit, concurrency {CONCURRENCY}, pool of {CONNECTIONS}"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._pool = ConnectionPool(address, min_size=1, max_size=1, kwargs={"autocommit": True})
        self._app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector())
        self._app.open(self._pool)
        self._app.schema_manager.apply_schema()
        self._work = self._app.task(name="work")(_nothing)

    def enqueue(self, count: int) -> None:
        for _ in range(count):
            self._work.defer(**PAYLOAD)

    def enqueue_many(self, count: int) -> bool:
        self._work.batch_defer(*[PAYLOAD] * count)
        return True

    def drain(self, count: int) -> float:  # noqa: ARG002
        return uvloop.run(self._drain())

    async def _drain(self) -> float:
        """Without `wait` the worker returns once each job's end is stored."""
        async with _Opened(self.address) as app:
            app.task(name="work")(_nothing)
            began = time.perf_counter()
            await app.run_worker_async(
                concurrency=CONCURRENCY, wait=False, listen_notify=False, install_signal_handlers=False
            )
            return time.perf_counter() - began

    def check_done(self, count: int) -> None:
        with self._pool.connection() as connection:
            found = connection.execute(
                "SELECT status::text, count(*) FROM procrastinate_jobs GROUP BY status"
            ).fetchall()
        assert found == [("succeeded", count)], found

    def clear(self) -> None:
        with self._pool.connection() as connection:
            connection.execute("TRUNCATE procrastinate_jobs, procrastinate_events RESTART IDENTITY CASCADE")

    def latency(self, count: int) -> list[float]:
        return latencies(__file__, self.address, lambda: self.enqueue(1), count)

    def close(self) -> None:
        self._pool.close()


class _Opened:
    """An app with a pool given to it: one it makes itself asks the server before each statement if it is there."""

    def __init__(self, address: str) -> None:
        self._pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            address, min_size=CONNECTIONS, max_size=CONNECTIONS, open=False, configure=_autocommit
        )

    async def __aenter__(self) -> Any:
        await self._pool.open(wait=True)
        app = procrastinate.App(connector=procrastinate.PsycopgConnector())
        await app.open_async(self._pool)
        return app

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()


async def _autocommit(connection: Any) -> None:
    """A call of procrastinate is one statement: no BEGIN and COMMIT around it. (The pool's `kwargs` would go to its
    listening connection as well, which gets that argument already.)"""
    await connection.set_autocommit(True)


async def _nothing(**_: object) -> None:
    pass


async def _report(**_: object) -> None:
    report()


async def _serve_idle(address: str) -> None:
    """The idle worker: says when each job's handler began."""
    async with _Opened(address) as app:
        app.task(name="work")(_report)
        await app.run_worker_async(concurrency=CONCURRENCY)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    if is_worker():
        uvloop.run(_serve_idle(sys.argv[1]))
    else:
        serve(Procrastinate)
