"""awa: its queue storage, `enqueue_many_copy`, a client with as many workers as it is given."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Any

import awa

from contract import URL, WORKERS, Add, handle, main


@dataclass
class Work:
    number: int
    at: float
    padding: str


def install() -> None:
    client = awa.Client(URL)
    client.migrate()
    client.install_queue_storage(schema="awa")
    client.close()


async def opened() -> Add:
    client = awa.Client(URL)

    async def add(jobs: list[dict[str, Any]]) -> object:
        return await asyncio.to_thread(client.enqueue_many_copy, [Work(**job) for job in jobs])

    return add


async def _work() -> None:
    client = awa.AsyncClient(URL)

    @client.task(Work)
    async def work(job: Any) -> None:
        await handle(asdict(job.args))

    await client.start([{"name": "default", "max_workers": WORKERS}])
    await asyncio.Event().wait()


if __name__ == "__main__":
    main(install, opened, lambda: asyncio.run(_work()))
