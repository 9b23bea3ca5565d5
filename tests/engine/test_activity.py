"""What an engine's jobs come to is in the counters, and an engine folds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hipq import Failed, Hipq, Job, Queue, Wait, fixed
from hipq.job.activity import DAY, HOUR, MINUTE, Activity
from hipq.job.states import Code
from hipq.job.when import SECOND
from hipq.stores.sql.activity import FOLDS
from hipq.testing.clock import HandClock

pytestmark = pytest.mark.every_store


def of_type(app: Hipq, queue: Queue, since: int) -> dict[str, Activity]:
    found = app.store.activity([queue.number], DAY, since, app.store.now() + 1, "job_type")
    return {one.job_type: one for one in found}


def test_lives_of_jobs(app: Hipq, queue: Queue, clock: HandClock, run: Callable[[], None]) -> None:
    @queue.job()
    def works(_: Job[Any]) -> None:
        clock.advance(seconds=5)

    @queue.job()
    def refuses(_: Job[Any]) -> Failed:
        return Failed("never")

    @queue.job(retry=fixed(60, attempts=3))
    def breaks(_: Job[Any]) -> None:
        raise OSError("cable cut")

    @queue.job()
    def asks(_: Job[Any]) -> Wait:
        return Wait(timeout=900)

    began = clock.now()
    for name in ("works", "refuses", "breaks", "asks"):
        queue.enqueue(name, key="the one")
    queue.enqueue("works", key="put off", delay=3600)
    app.cancel(queue.enqueue("works", delay=3600))
    for _ in range(3):
        run()
        clock.advance(seconds=60)
    app.answer("orders", "asks", "the one", "done")
    found = of_type(app, queue, began)
    seen = {name: (one.started, one.finished, one.failed, one.retried) for name, one in found.items()}
    assert seen == {"works": (1, 2, 0, 0), "refuses": (1, 1, 1, 0), "breaks": (3, 1, 1, 2), "asks": (1, 1, 0, 0)}
    assert found["works"].ended(Code.CANCELLED) == 1
    assert 3 <= (found["works"].run.percentile(0.5) or 0) <= 10
    assert 100 <= (found["asks"].answer.percentile(0.5) or 0) <= 300
    assert found["asks"].run.total == found["asks"].answer.total == found["asks"].ended(Code.OK) == 1


def test_an_engine_folds_them(app: Hipq, queue: Queue, clock: HandClock, run: Callable[[], None]) -> None:
    @queue.job()
    def works(_: Job[Any]) -> None: ...

    began = clock.now()
    for _ in range(100):
        queue.enqueue("works")
        run()
        clock.advance(seconds=30)
    hour = app.store.activity([queue.number], MINUTE, began, clock.now())
    clock.advance(seconds=FOLDS[0].after + HOUR)
    run()
    later = app.store.activity([queue.number], MINUTE, began - HOUR * SECOND, clock.now())
    assert (len(hour), len(later)) == (50, 1 + (began % (HOUR * SECOND) > 0))
    assert sum(one.finished for one in later) == 100
