"""taskiq on Redis Streams, whose broker acknowledges."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine
from typing import Any

import uvloop
from driver import PAYLOAD, Peer, serve
from other_process import is_worker, latencies, report
from redis import Redis
from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamBroker

TASKS, PREFETCH = 100, 100


def tasks_at(address: str) -> tuple[Any, Any, Any]:
    """The broker, its group reading from the stream's beginning, and both tasks."""
    broker = RedisStreamBroker(address, queue_name="bench", consumer_id="0")
    return broker, broker.task("nothing")(nothing), broker.task("timed")(timed)


async def nothing(payload: dict[str, Any]) -> None:
    pass


async def timed(payload: dict[str, Any]) -> None:  # noqa: ARG001
    report()


class Taskiq(Peer):
    package = "taskiq"
    setting = (
        f"Redis Streams, async handler, {TASKS} at a time, prefetch {PREFETCH}, arguments not validated, uvloop, "
        "hiredis, acknowledged when done, no results"
    )

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.redis = Redis.from_url(address)
        self.broker, self.nothing, self.timed = tasks_at(address)
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def enqueue(self, count: int) -> None:
        self._run(self._enqueue(count))

    async def _enqueue(self, count: int) -> None:
        for _ in range(count):
            await self.nothing.kiq(PAYLOAD)

    def drain(self, count: int) -> float:
        took: float = self._run(self._drain(count))
        return took

    async def _drain(self, count: int) -> float:
        receiver = Receiver(
            self.broker, validate_params=False, max_async_tasks=TASKS, max_prefetch=PREFETCH, run_startup=False,
            max_tasks_to_execute=count,
        )  # fmt: skip
        began = time.perf_counter()
        await receiver.listen(asyncio.Event())
        return time.perf_counter() - began

    def check_done(self, count: int) -> None:
        group: Any = self.redis.xinfo_groups("bench")[0]
        if group["pending"] or group["lag"] or group["entries-read"] != count:
            raise AssertionError(f"jobs left: {group}")

    def clear(self) -> None:
        self.redis.flushdb()
        self._run(self.broker.startup())

    def latency(self, count: int) -> list[float]:
        return latencies(__file__, self.address, lambda: self._run(self.timed.kiq(PAYLOAD)), count)

    def close(self) -> None:
        self._run(self.broker.shutdown())
        self.runner.close()

    def _run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(what)


async def work(address: str) -> None:
    broker = tasks_at(address)[0]
    receiver = Receiver(broker, validate_params=False, max_async_tasks=TASKS, max_prefetch=PREFETCH)
    await receiver.listen(asyncio.Event())


if __name__ == "__main__":
    if is_worker():
        uvloop.run(work(sys.argv[1]))
    else:
        serve(Taskiq)
