"""pgqueuer: asyncpg, as its documentation has it; a pool, so that a connection that was cut off is replaced."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
from pgqueuer.core.qm import QueueManager
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.queries import Queries

from contract import URL, Add, handle, main


async def _queries() -> Queries:
    return Queries(AsyncpgPoolDriver(await asyncpg.create_pool(URL, min_size=1, max_size=10)))


async def _install() -> None:
    await (await _queries()).install()


async def opened() -> Add:
    queries = await _queries()

    async def add(jobs: list[dict[str, Any]]) -> object:
        count = len(jobs)
        return await queries.enqueue(["work"] * count, [json.dumps(job).encode() for job in jobs], [0] * count)

    return add


async def _work() -> None:
    manager = QueueManager(await _queries())

    @manager.entrypoint("work")
    async def work(job: Any) -> None:
        await handle(json.loads(job.payload))

    await manager.run()


if __name__ == "__main__":
    main(lambda: asyncio.run(_install()), opened, lambda: asyncio.run(_work()))
