"""procrastinate: `batch_defer_async`, `run_worker_async`. Jobs of a worker that died stay as they are, unless somebody
runs the task of its documentation that tries them again: that is done here every five seconds."""

from __future__ import annotations

import asyncio
from typing import Any

import procrastinate

from contract import URL, WORKERS, Add, handle, main

STALLED_SECONDS = 10

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL))


@app.task(name="work")
async def work(**payload: Any) -> None:
    await handle(payload)


async def _install() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def opened() -> Add:
    await app.open_async()

    async def add(jobs: list[dict[str, Any]]) -> object:
        return await work.batch_defer_async(*jobs)

    return add


async def _retry_stalled() -> None:
    while True:
        await asyncio.sleep(5)
        try:
            for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_SECONDS):
                await app.job_manager.retry_job(job)
        except procrastinate.exceptions.ConnectorException as error:
            print(error)


async def _work() -> None:
    async with app.open_async():
        retrying = asyncio.create_task(_retry_stalled())
        await app.run_worker_async(concurrency=WORKERS)
        retrying.cancel()


if __name__ == "__main__":
    main(lambda: asyncio.run(_install()), opened, lambda: asyncio.run(_work()))
