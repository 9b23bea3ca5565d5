"""While somebody's old transaction is open, every look reads more and more: not so the part of the time spent on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from hipq import Hipq, Job, Queue
from hipq.engine import rescue
from hipq.engine.timetable import LONGEST_REST, SHARE, PollBudget
from hipq.job import transitions
from hipq.job.model import Change
from hipq.stores.claims import Claim
from tests.engine.working import real_time, until, working

pytestmark = pytest.mark.every_store

DEAR = 0.05
SECONDS = 2.0


def slow(store: Any, verb: str) -> list[float]:
    """From now on that takes a while; when it was called."""
    called: list[float] = []
    real: Callable[..., Any] = getattr(store, verb)

    def slowly(*arguments: Any) -> Any:
        called.append(time.monotonic())
        time.sleep(DEAR)
        return real(*arguments)

    setattr(store, verb, slowly)
    return called


def test_one_long_look_is_no_reason_to_rest_two_are() -> None:
    looks = PollBudget()
    looks.looked(0, 3_600_000_000)  # as if the process had been stopped
    assert looks.rested == looks.ended == 3_600_000_000
    looks.looked(0, 1_000)
    assert looks.rested == 1_000 + SHARE * 1_000
    looks.looked(0, 900_000)
    looks.looked(0, 900_000)
    assert looks.rested == 900_000 + LONGEST_REST


@real_time
def test_the_jobs_of_a_dead_engine_come_back_at_once_however_many_and_dear(app: Hipq, queue: Queue) -> None:
    @queue.job
    def work(_: Job[Any]) -> None: ...

    count = 3 * rescue.STEP
    work.enqueue_many([None] * count)
    dead = app.store.take_lease(0.001, "dead")
    now = app.store.now()
    taken = app.store.turn(app.store.take_lease(60, "alive"), [], [Claim(queue.number, ("work",), count)], now).won
    changes = [Change(row, transitions.adopted(row, dead, now), (), "claimed") for row in taken]
    app.store.turn(dead, changes, [], now)
    owned = app.store.owned
    slow(app.store, "owned")
    with working(app, lease=60):  # it sweeps every twenty seconds
        took = until(lambda: not owned([queue.number], None, 1))
    assert took < 35, "not some at each sweep: that would be at 0, 20 and 40 s"


@real_time
@pytest.mark.parametrize(("verb", "most"), [("peek", 5), ("owned", 5)])
def test_looks_that_became_dear_are_few_and_work_goes_on(app: Hipq, queue: Queue, verb: str, most: int) -> None:
    @queue.job
    def work(_: Job[Any]) -> None: ...

    called = slow(app.store, verb)
    done = 0
    with working(app, poll=0.1, lease=0.3):
        began = time.monotonic()
        while time.monotonic() < began + SECONDS or done <= 3 * most:
            job_id = work.enqueue()
            until(lambda one_id=job_id: app.job(one_id).state == "final")  # type: ignore[misc]
            done += 1
        looks, took = len(called), time.monotonic() - began
    assert 1 <= looks <= max(1.0, took / SECONDS) * most  # else one a job, or one a tenth of a second
