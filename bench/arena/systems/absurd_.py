"""absurd: `spawn`, one at a time as its SDK has it, and `start_worker`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from absurd_sdk import AsyncAbsurd

from contract import URL, WORKERS, Add, handle, main

QUEUE = "arena"


async def _install() -> None:
    subprocess.run([Path(sys.executable).with_name("absurdctl"), "init", "-d", URL], check=True, stdout=sys.stderr)
    app = AsyncAbsurd(URL, queue_name=QUEUE)
    await app.create_queue()
    await app.close()


async def opened() -> Add:
    app = AsyncAbsurd(URL, queue_name=QUEUE)

    async def add(jobs: list[dict[str, Any]]) -> None:
        for job in jobs:
            await app.spawn("work", job, queue=QUEUE)

    return add


async def _work() -> None:
    app = AsyncAbsurd(URL, queue_name=QUEUE)

    @app.register_task("work")
    async def work(payload: dict[str, Any], _context: Any) -> None:
        await handle(payload)

    await app.start_worker(concurrency=WORKERS)


if __name__ == "__main__":
    main(lambda: asyncio.run(_install()), opened, lambda: asyncio.run(_work()))
