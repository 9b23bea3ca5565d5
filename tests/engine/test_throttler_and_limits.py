"""A throttler that is code, in a queue that has limits, rates, windows or lanes as well."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from hipq import Hipq, Invalid, Job, Wait, admit, limit, rate, reject, share, window
from hipq.testing.clock import HandClock
from tests.engine.working import real_time, until, until_empty, working

pytestmark = pytest.mark.every_store

MakeApp = Callable[[], Hipq]
Jobs = list[Job[Any]]


def admit_all(due: Jobs, _running: Jobs, _now: Any) -> list[Any]:
    return [admit(job) for job in due]


def phases(app: Hipq) -> Counter[str]:
    return Counter(job.phase for job in app.jobs("orders", limit=1000))


@real_time
def test_until_empty_asks_about_all_that_is_due(app: Hipq) -> None:
    queue = app.queue("orders", throttler=lambda due, *_: [admit(job) for job in due if job.data >= 600])
    queue.job("work")(lambda _: None)
    queue.enqueue_many("work", range(700))
    until_empty(app)
    assert phases(app) == {"parked": 600, "done": 100}


@real_time
def test_until_empty_asks_about_what_comes_behind_rejected_jobs(app: Hipq) -> None:
    queue = app.queue("orders", throttler=lambda due, *_: [reject(job, "no") for job in due])
    queue.job("work")(lambda _: None)
    queue.enqueue_many("work", range(700))
    until_empty(app)
    assert phases(app) == {"done": 700}


@real_time
def test_until_empty_waits_for_a_rate(app: Hipq) -> None:
    queue = app.queue("orders", throttler=admit_all, limits=[rate(5, per=0.3)])
    queue.job("work")(lambda _: None)
    queue.enqueue_many("work", range(17))
    assert until_empty(app) >= 0.85  # two clocks are compared
    assert phases(app) == {"done": 17}


@real_time
def test_room_in_a_rate_is_noticed_at_once(app: Hipq) -> None:
    queue = app.queue("orders", throttler=admit_all, limits=[rate(5, per=0.2)])
    queue.job("work")(lambda _: None)
    queue.enqueue_many("work", range(30))
    with working(app, poll=60.0):
        assert until(lambda: phases(app) == {"done": 30}) < 40, "long before the next poll"


@real_time
def test_until_empty_ends_when_a_heavy_job_bars_all_that_is_admitted(app: Hipq) -> None:
    queue = app.queue("orders", throttle_limit=3, throttler=lambda due, *_: [admit(job) for job in due][:1])
    queue.job("hold")(lambda _: Wait(timeout=600))
    queue.job("work")(lambda _: None)
    queue.enqueue("hold", throttle_factor=2)
    for factor in (3, 1, 1, 1, 1, 1):
        queue.enqueue("work", throttle_factor=factor)
    until_empty(app)
    assert phases(app)["done"] == 3, "a poolful passes the heavy one, which has no room while the other waits"


@pytest.mark.parametrize("concurrency", [1, 5])
@real_time
def test_fair_lanes_take_turns(app: Hipq, concurrency: int) -> None:
    queue = app.queue("orders", throttler=admit_all, throttle_limit=1, lanes="fair")
    order: list[str] = []
    queue.job("work")(lambda job: order.append(job.lane))
    for lane in ("a", "b", "c"):
        queue.enqueue_many("work", range(4), lane=lane)
    until_empty(app, concurrency=concurrency)
    assert "".join(order) in ("abcabcabcabc", "bcabcabcabca", "cabcabcabcab")


@real_time
def test_why_names_the_limit_that_keeps_an_admitted_job_from_starting(app: Hipq) -> None:
    admits: list[bool] = []
    queue = app.queue("orders", throttle_limit=1, throttler=lambda due, *_: [admit(job) for job in due if admits])
    queue.job("work")(lambda _: Wait(timeout=600))
    first, second = queue.enqueue_many("work", [1, 2])
    with working(app):
        until(lambda: phases(app) == {"parked": 2})
        assert app.why(second).reason == "parked"
        admits.append(True)
        until(lambda: app.job(first).phase == "waiting")
        assert app.why(second).reason == "limit full"


@real_time
def test_until_empty_gives_a_failing_throttler_up(app: Hipq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipq.engine.throttle.SLOW", 50_000)
    queue = app.queue("orders", throttler=lambda *_: [1 / 0])
    queue.job("work")(lambda _: None)
    queue.enqueue("work")
    until_empty(app)
    assert phases(app) == {"ready": 1}


def test_a_parked_job_whose_window_closed_is_scheduled_for_the_next_opening(app: Hipq, clock: HandClock) -> None:
    now = datetime.fromtimestamp(clock.now() / 1e6).astimezone()
    opens, closes = (now + timedelta(hours=hours) for hours in (-1, 1))
    open_now = window(f"{opens:%H}:00", f"{closes:%H}:30", tz="UTC")
    queue = app.queue("orders", throttler=lambda *_: None)
    queue.job("work", windows=[open_now])(lambda _: None)
    job_id = queue.enqueue("work")
    until_empty(app)
    assert app.job(job_id).phase == "parked"
    clock.advance(hours=4)
    with working(app):
        until(lambda: clock.advance(seconds=0.1) or app.job(job_id).phase == "scheduled")  # type: ignore[func-returns-value]
    assert app.job(job_id).scheduled_run_time.timestamp() > clock.now() / 1e6


# -- what programs that add jobs know ---------------------------------------------------------------------------------
def test_a_program_that_adds_jobs_hears_of_a_lower_limit(app: Hipq, make_app: MakeApp, clock: HandClock) -> None:
    app.queue("orders").job("work")(lambda _: None)
    adds = make_app().queue("orders")
    adds.enqueue("work", throttle_factor=50)
    app.rules.set_limit("orders", [limit(10), share({"east": 50})])
    clock.advance(seconds=5)
    with pytest.raises(Invalid, match="above"):
        adds.enqueue("work", throttle_factor=50, lane="east")
    with pytest.raises(Invalid, match="share"):
        adds.enqueue("work", lane="west")


@real_time
def test_a_rate_that_comes_back_has_gone_on_counting(app: Hipq) -> None:
    queue = app.queue("orders", limits=[rate(10, per=60)])
    queue.job("work")(lambda _: None)
    queue.enqueue_many("work", range(40))
    with working(app):
        until(lambda: phases(app)["done"] == 10)
        app.rules.set_limit("orders", [rate(3, per=0.2)])
        until(lambda: phases(app)["done"] >= 16)
        app.rules.set_limit("orders", None)
        until(lambda: not phases(app)["executing"])  # what was claimed before that
        done = phases(app)["done"]
        time.sleep(0.5)
        assert phases(app) == {"done": done, "ready": 40 - done}


@pytest.mark.parametrize("option", ["lease", "poll"])
def test_times_of_an_engine_may_be_timedeltas(app: Hipq, option: str) -> None:
    app.queue("orders").job("work")(lambda _: None)
    engine = app.engine(**{option: timedelta(seconds=30)})  # type: ignore[arg-type]
    assert getattr(engine.setup, option) == 30.0
    engine.executor.close()
