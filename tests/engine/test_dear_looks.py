"""While somebody's old transaction is open, every look reads more and more: not so the part of the time spent on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from hipq import Hipq, Job, Queue
from tests.engine.working import real_time, until, working

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


@real_time
@pytest.mark.parametrize(("verb", "most"), [("glance", 5), ("orphans", 5)])
def test_looks_that_became_dear_are_few_and_work_goes_on(app: Hipq, queue: Queue, verb: str, most: int) -> None:
    @queue.job
    def work(_: Job[Any]) -> None: ...

    called = slow(app.store, verb)
    done = 0
    with working(app, poll=0.1, lease=0.3):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            id = work.enqueue()
            until(lambda id=id: app.job(id).state == "final")  # type: ignore[misc]
            done += 1
        looks = len([moment for moment in called if moment < end])
    assert 1 <= looks <= most  # else one a job, or one a tenth of a second
    assert done > 3 * most
