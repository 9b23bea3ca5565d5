"""Schedules: each tick once, whoever is there; what was missed and what overlaps as the schedule says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from hipq import Hipq, Invalid, Job, Queue, window
from hipq.errors import StoreUnavailable
from hipq.events import Event
from hipq.testing.clock import HandClock

pytestmark = pytest.mark.every_store

Run = Callable[[], None]


def ticks(app: Hipq) -> list[str]:
    """When the jobs of schedules were due, as the clock on the wall shows it."""
    return [f"{job.scheduled_run_time:%H:%M}" for job in app.jobs("orders", oldest=True, limit=1000)]


def test_a_tick_adds_a_job_and_the_job_runs(queue: Queue, clock: HandClock, run: Run) -> None:
    seen: list[Any] = []

    @queue.cron("*/5 * * * *", {"deep": True})
    def tidy(job: Job[Any]) -> None:
        seen.append((job.data, job.type, job.scheduled_run_time))

    run()
    assert seen == []  # a schedule begins when it is first seen: it does not make up for what was before
    clock.advance(minutes=5)
    run()
    assert seen == [({"deep": True}, "tidy", datetime(2027, 1, 15, 8, 5, tzinfo=UTC))]
    clock.advance(minutes=4, seconds=59)
    run()
    assert len(seen) == 1
    clock.advance(seconds=1)
    run()
    assert len(seen) == 2


def test_the_zone_is_the_wall_clocks(app: Hipq, queue: Queue, clock: HandClock, run: Run) -> None:
    @queue.cron("30 9 * * *", tz="Europe/Rome")
    def report(_: Job[Any]) -> None: ...

    run()
    clock.advance(hours=1)
    run()
    assert ticks(app) == ["08:30"]


def test_a_type_can_have_several_schedules_with_their_own_data_and_options(
    queue: Queue, clock: HandClock, run: Run
) -> None:
    seen: list[Any] = []

    @queue.job
    def work(job: Job[Any]) -> None:
        seen.append((job.data, job.priority, job.lane))

    work.cron("5 * * * *", "five", name="at_five", priority=7)
    work.cron("6 * * * *", "six", name="at_six", lane="east")
    run()
    clock.advance(minutes=10)
    run()
    assert sorted(seen) == [("five", 7, ""), ("six", 100, "east")]


def test_every_tick_has_the_windows_of_its_schedule(app: Hipq, queue: Queue, clock: HandClock, run: Run) -> None:
    work = queue.job("work")(lambda _: None)
    work.cron("0 0 * * *", windows=iter([window("22:00", "23:00")]), overlap=True)
    run()
    for _ in range(2):
        clock.advance(hours=24)
        run()
    assert [job.time_windows for job in app.jobs("orders")] == [[{"start": "22:00", "end": "23:00"}]] * 2


@pytest.mark.parametrize(
    ("missed", "expected"), [("one", ["11:00"]), ("all", ["09:00", "10:00", "11:00"]), ("skip", [])]
)
def test_missed_ticks_are_handled_as_the_schedule_says(
    app: Hipq, queue: Queue, clock: HandClock, run: Run, missed: str, expected: list[str]
) -> None:
    @queue.cron("0 * * * *", missed=missed, overlap=True)
    def work(_: Job[Any]) -> None: ...

    run()
    clock.advance(hours=3, minutes=10)
    run()
    assert ticks(app) == expected
    clock.advance(minutes=50, seconds=30)  # a little late is not missed
    run()
    assert ticks(app) == [*expected, "12:00"]


def test_very_many_missed_ticks_are_made_up_for_in_steps(app: Hipq, queue: Queue, clock: HandClock, run: Run) -> None:
    @queue.cron("* * * * *", missed="all", overlap=True)
    def work(_: Job[Any]) -> None: ...

    run()
    clock.advance(hours=6)
    run()
    assert len(ticks(app)) == 360
    assert len(set(ticks(app))) == 360


def test_a_tick_is_skipped_while_the_job_before_it_is_not_final(app: Hipq, queue: Queue, clock: HandClock) -> None:
    started, release = threading.Event(), threading.Event()
    skipped: list[Event] = []
    app.events.subscribe(skipped.append, "tick skipped")

    @queue.cron("* * * * *")
    def slow(_: Job[Any]) -> None:
        started.set()
        release.wait(20)

    engine = app.engine(lease=3600)
    engine.turn()
    clock.advance(minutes=1)
    engine.turn()
    assert started.wait(30)
    clock.advance(minutes=1)
    engine.turn()
    assert [event.details["schedule"] for event in skipped] == ["slow"]
    assert len(ticks(app)) == 1
    release.set()
    engine.stop()
    engine.run()
    engine.executor.close()


def test_with_overlap_every_tick_adds_its_job(app: Hipq, queue: Queue, clock: HandClock) -> None:
    app.pause("orders")

    @queue.cron("* * * * *", overlap=True)
    def slow(_: Job[Any]) -> None: ...

    engine = app.engine(lease=36_000)
    for _ in range(4):
        engine.turn()
        clock.advance(minutes=1)
    engine.turn()
    engine.executor.close()
    assert ticks(app) == ["08:01", "08:02", "08:03", "08:04"]


def test_each_tick_is_added_once_by_many_engines(make_app: Callable[[], Hipq], clock: HandClock) -> None:
    engines = []
    for _ in range(4):
        app = make_app()
        app.queue("orders").cron("* * * * *", overlap=True)(work)
        app.pause("orders")
        engines.append(app.engine(lease=36_000))
    for engine in engines:
        engine.turn()
    for _ in range(10):
        clock.advance(minutes=1)
        threads = [threading.Thread(target=engine.turn) for engine in engines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for engine in engines:
        engine.executor.close()
    assert ticks(app) == [f"08:{minute:02}" for minute in range(1, 11)]


def work(_: Job[Any]) -> None: ...


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_tick_whose_acknowledgement_is_lost_is_added_once(
    app: Hipq, queue: Queue, clock: HandClock, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.cron("* * * * *", overlap=True)(work)
    app.pause("orders")
    engine = app.engine(lease=36_000)
    engine.turn()
    clock.advance(minutes=1)
    change = app.store.change_schedules

    def broken(*args: Any) -> Any:
        if lost == "after":
            change(*args)
        raise StoreUnavailable("cut")

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "change_schedules", broken)
        with pytest.raises(StoreUnavailable):
            engine.turn()
    engine.turn()
    engine.turn()
    engine.executor.close()
    assert ticks(app) == ["08:01"]


def test_a_tick_whose_job_is_refused_is_said_and_stops_nothing(app: Hipq, clock: HandClock) -> None:
    said: list[Event] = []
    app.events.subscribe(said.append, "tick failed")
    queue = app.queue("orders", throttle_limit=5)
    queue.job("heavy", throttle_factor=4)(work).cron("* * * * *")
    ran: list[int] = []
    queue.job("light")(lambda job: ran.append(job.id))
    app.run(until_empty=True)
    app.rules.set_limit("orders", 3)
    clock.advance(minutes=1)
    queue.enqueue("light")
    app.run(until_empty=True)
    assert [event.details["schedule"] for event in said] == ["heavy"]
    assert "above" in said[0].details["error"]
    assert len(ran) == 1
    app.rules.set_limit("orders", None)
    clock.advance(minutes=1)
    app.run(until_empty=True)
    assert [job.type for job in app.jobs("orders", oldest=True)] == ["light", "heavy"]


def test_a_calendar_set_back_does_not_silence_a_schedule(app: Hipq, queue: Queue, clock: HandClock, run: Run) -> None:
    queue.cron("*/5 * * * *")(work)
    run()
    clock.step(365 * 86_400)
    run()
    clock.step(-365 * 86_400)
    run()
    clock.advance(minutes=5)
    run()
    assert ticks(app)[-1] == "08:05"


def test_a_changed_expression_counts_from_now(make_app: Callable[[], Hipq], clock: HandClock) -> None:
    first = make_app()
    first.queue("orders").cron("0 * * * *")(work)
    first.run(until_empty=True)
    clock.advance(hours=1)
    first.run(until_empty=True)
    second = make_app()
    second.queue("orders").cron("*/20 * * * *", missed="all", overlap=True)(work)
    clock.advance(hours=2, minutes=10)
    second.run(until_empty=True)
    assert ticks(second) == ["09:00"]  # none of the new expression comes late
    clock.advance(minutes=10)
    second.run(until_empty=True)
    assert ticks(second) == ["09:00", "11:20"]


def test_a_schedule_that_cannot_be_is_refused_where_it_is_written(queue: Queue) -> None:
    @queue.job
    def work(_: Job[Any]) -> None: ...

    for wrong in ("* * * *", "61 * * * *", "0 0 30 2 *", "", "@reboot"):
        with pytest.raises(Invalid):
            work.cron(wrong)
    with pytest.raises(Invalid, match="zone"):
        work.cron("* * * * *", tz="Mars/Olympus")
    with pytest.raises(Invalid, match="key"):
        work.cron("* * * * *", key="mine")  # type: ignore[call-arg]
    with pytest.raises(Invalid, match="missed"):
        work.cron("* * * * *", missed="sometimes")
    with pytest.raises(Invalid):
        work.cron("* * * * *", float("nan"))
    with pytest.raises(TypeError, match=r"no option nonsense; there are tz, name, missed, overlap, lane, "):
        work.cron("* * * * *", nonsense=1)  # type: ignore[call-arg]
    work.cron("* * * * *")
    with pytest.raises(Invalid, match="another name"):
        work.cron("5 * * * *")


def test_a_clock_set_back_adds_no_tick_twice_and_is_said(app: Hipq, queue: Queue, clock: HandClock) -> None:
    """The schedule waits until the clock has caught up; that is in the log."""
    said: list[int] = []
    app.events.subscribe(lambda event: said.append(event.details["seconds"]), "clock set back")
    queue.cron("*/5 * * * *", missed="all", overlap=True)(work)
    engine = app.engine()
    engine.turn()
    for _ in range(12):
        clock.advance(minutes=5)
        engine.turn()
    clock.step(-1800)
    for _ in range(7):
        engine.turn()
        clock.advance(minutes=5)
    engine.turn()
    found = ticks(app)
    assert len(set(found)) == len(found) == 13
    assert (found[0], found[-1]) == ("08:05", "09:05")
    assert said == [1800]
    engine.executor.close()


def test_engines_whose_clocks_differ_add_each_tick_once(url: str, clock: HandClock) -> None:
    ahead = HandClock(clock.now() + 600_000_000, clock.steady())
    apps = [Hipq("shop", url, clock=one) for one in (clock, ahead)]
    engines = []
    for app in apps:
        app.migrate()
        app.queue("orders").cron("* * * * *", missed="all", overlap=True)(work)
        engines.append(app.engine())
    for _ in range(30):
        for engine in engines:
            engine.turn()
        for one in (clock, ahead):
            one.advance(seconds=30)
    found = ticks(apps[0])
    assert len(set(found)) == len(found) >= 14
    for app, engine in zip(apps, engines, strict=True):
        engine.executor.close()
        app.close()
