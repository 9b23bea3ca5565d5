"""Celery on Redis."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

from celery import Celery, signals
from celery.worker import WorkController, state
from driver import PAYLOAD, Peer, serve
from other_process import is_worker, latencies, report
from redis import Redis

POOL, PREFETCH = "solo", 64
QUIET = {"without_mingle": True, "without_gossip": True, "without_heartbeat": True}
"""No talk among workers: there is one."""


def tasks_at(address: str) -> tuple[Celery, Any, Any]:
    app = Celery("bench", broker=address)
    app.conf.update(
        task_ignore_result=True, worker_enable_remote_control=False, worker_prefetch_multiplier=PREFETCH,
        broker_connection_retry_on_startup=True,
    )  # fmt: skip
    return app, app.task(name="nothing")(nothing), app.task(name="timed")(timed)


def nothing(payload: dict[str, Any]) -> None:
    pass


def timed(payload: dict[str, Any]) -> None:  # noqa: ARG001
    report()


class Timed(WorkController):
    """A worker inside the driver, which keeps its own signal handlers and wants to know when the worker may begin."""

    began = 0.0

    def on_consumer_ready(self, consumer: Any) -> None:  # noqa: ARG002
        self.began = time.perf_counter()


class CeleryPeer(Peer):
    package = "celery"
    setting = (
        f"{POOL} pool (one thread), prefetch {PREFETCH}, no mingle, gossip, heartbeat or remote control, "
        "hiredis, acknowledged before the handler (default), no results"
    )

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.redis = Redis.from_url(address)
        self.app, self.nothing, self.timed = tasks_at(address)

    def enqueue(self, count: int) -> None:
        with self.app.producer_pool.acquire(block=True) as producer:
            for _ in range(count):
                self.nothing.apply_async((PAYLOAD,), producer=producer)

    def drain(self, count: int) -> float:
        completions, ended = itertools.count(1), 0.0

        def completed(**_: Any) -> None:
            nonlocal ended
            if next(completions) == count:
                ended = time.perf_counter()
                state.should_stop = 0

        signals.task_postrun.connect(completed)
        worker = Timed(app=self.app, pool_cls=POOL, **QUIET)
        try:
            worker.start()
        finally:
            state.should_stop = None
            signals.task_postrun.disconnect(completed)
        return ended - worker.began

    def check_done(self, count: int) -> None:  # noqa: ARG002
        left = self.redis.llen("celery"), self.redis.hlen("unacked")
        if any(left):
            raise AssertionError(f"{left[0]} jobs queued, {left[1]} unacknowledged")

    def clear(self) -> None:
        """Its bindings stay: a client declares them once."""
        self.redis.delete("celery", "unacked", "unacked_index")

    def latency(self, count: int) -> list[float]:
        return latencies(__file__, self.address, lambda: self.timed.delay(PAYLOAD), count)


def work(address: str) -> None:
    app = tasks_at(address)[0]
    app.Worker(pool_cls=POOL, loglevel="WARNING", **QUIET).start()


if __name__ == "__main__":
    if is_worker():
        work(sys.argv[1])
    else:
        serve(CeleryPeer)
