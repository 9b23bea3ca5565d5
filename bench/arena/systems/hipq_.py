"""hipq: `aenqueue_many`, and `app.run`, which is what `hipq worker` runs."""

from __future__ import annotations

from typing import Any

from contract import URL, WORKERS, Add, handle, main
from hipq import Hipq, Job

app = Hipq("arena", URL)
queue = app.queue("jobs")


@queue.job
async def work(job: Job[Any]) -> None:
    await handle(job.data)


async def opened() -> Add:
    return work.aenqueue_many


def run() -> None:
    app.run(concurrency=WORKERS)


if __name__ == "__main__":
    main(app.migrate, opened, run)
