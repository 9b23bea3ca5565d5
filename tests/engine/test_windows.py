"""Windows: a job starts inside one of them, or not at all; they govern starts only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hipq import Conflict, Hipq, Invalid, Job, Queue, Retry, Wait, backoff, window
from hipq.job import windows
from hipq.testing.clock import HandClock
from tests.engine.working import until

Run = Callable[[], None]
NIGHT = window("22:00", "05:00")
NOON = window("12:00", "13:00")
MORNING = window("07:00", "09:00")  # open: the clock starts at 08:00


def at(hour: int, minute: int = 0, day: int = 15) -> datetime:
    return datetime(2027, 1, day, hour, minute, tzinfo=UTC)


def test_without_a_time_a_job_is_scheduled_for_the_first_opening(app: Hipq, queue: Queue) -> None:
    @queue.job(windows=[NIGHT, NOON])
    def work(_: Job[Any]) -> None: ...

    job = app.job(work.enqueue())
    assert (job.scheduled_run_time, job.phase) == (at(12), "scheduled")
    job = app.job(work.enqueue(windows=[MORNING]))
    assert (job.scheduled_run_time, job.phase) == (at(8), "ready")
    job = app.job(work.enqueue(windows=[]))
    assert (job.scheduled_run_time, job.phase, job.time_windows) == (at(8), "ready", [])


def test_a_time_inside_a_window_is_kept_and_one_outside_rolls_forward(app: Hipq, queue: Queue) -> None:
    @queue.job(windows=[NIGHT])
    def work(_: Job[Any]) -> None: ...

    assert app.job(work.enqueue(at=at(23, 30))).scheduled_run_time == at(23, 30)
    assert app.job(work.enqueue(at=at(4, 59, 16))).scheduled_run_time == at(4, 59, 16)
    assert app.job(work.enqueue(at=at(5, 0, 16))).scheduled_run_time == at(22, 0, 16)
    assert app.job(work.enqueue(delay=timedelta(hours=2))).scheduled_run_time == at(22)
    ids = work.enqueue_many([1, 2], at=at(10), windows=[NOON])
    assert {app.job(job_id).scheduled_run_time for job_id in ids} == {at(12)}


def test_it_starts_when_its_window_opens(queue: Queue, clock: HandClock, run: Run) -> None:
    started: list[int] = []

    @queue.job(windows=[NOON])
    def work(_: Job[Any]) -> None:
        started.append(clock.now())

    work.enqueue()
    run()
    clock.advance(hours=3, minutes=59)
    run()
    assert started == []
    clock.advance(minutes=1)
    run()
    assert len(started) == 1


def test_a_ready_job_whose_window_closed_rolls_to_the_next_opening_without_an_attempt(
    app: Hipq, queue: Queue, clock: HandClock, run: Run
) -> None:
    @queue.job(windows=[MORNING])
    def work(_: Job[Any]) -> None: ...

    ids = work.enqueue_many(range(3)) + [work.enqueue(lane="east", priority=5)]
    clock.advance(hours=1)  # nobody was there before it closed
    run()
    for job_id in ids:
        job = app.job(job_id)
        assert (job.state, job.phase, job.attempt) == ("initial", "scheduled", 0)
        assert job.scheduled_run_time == at(7, 0, 16)
        assert job.history[-1]["event"] == "window closed"
    clock.advance(hours=22)
    run()
    assert {app.job(job_id).code for job_id in ids} == {"ok"}
    assert {app.job(job_id).attempt for job_id in ids} == {1}


def test_a_window_that_closes_before_a_hand_is_free_is_checked_again_at_launch(
    app: Hipq, queue: Queue, clock: HandClock
) -> None:
    release, started = threading.Event(), threading.Event()

    @queue.job
    def blocker(_: Job[Any]) -> None:
        started.set()
        release.wait(20)

    @queue.job(windows=[MORNING])
    def work(_: Job[Any]) -> None:
        raise AssertionError("it must not start")

    blocker.enqueue()
    engine = app.engine(concurrency=1, lease=36_000)
    engine.batch.prefetch.measure([(("orders", "work"), 1)] * 1000)  # as if handlers were quick: it claims ahead
    engine.turn()
    assert started.wait(30)
    job_id = work.enqueue()
    engine.wake()
    engine.turn()
    assert app.job(job_id).phase == "executing"
    clock.advance(hours=1)
    release.set()
    thread = threading.Thread(target=engine.run, args=(True,))
    thread.start()
    thread.join(60)
    engine.executor.close()
    job = app.job(job_id)
    assert (job.attempt, job.phase, job.scheduled_run_time) == (0, "scheduled", at(7, 0, 16))


def test_a_retry_is_scheduled_into_the_window(app: Hipq, queue: Queue, run: Run) -> None:
    @queue.job(windows=[MORNING], retry=backoff(attempts=3, base=7200, jitter=False))
    def fails(_: Job[Any]) -> None:
        raise OSError("no")

    @queue.job(windows=[MORNING])
    def asks(_: Job[Any]) -> Retry:
        return Retry(600)

    failed, asked = fails.enqueue(), asks.enqueue()
    run()
    assert app.job(failed).scheduled_run_time == at(7, 0, 16)
    assert app.job(asked).scheduled_run_time == at(8, 10)


def test_windows_govern_starts_only(app: Hipq, queue: Queue, clock: HandClock, run: Run) -> None:
    @queue.job(windows=[MORNING], timeout=7200)
    def waits(_: Job[Any]) -> Wait:
        return Wait()

    job_id = waits.enqueue()
    run()
    clock.advance(hours=1, minutes=30)  # the window is closed, the job goes on waiting
    run()
    assert app.job(job_id).phase == "waiting"
    clock.advance(hours=1)
    run()
    assert app.job(job_id).fault is not None
    assert app.job(job_id).state == "final"


def test_a_job_is_not_hurried_out_of_its_window(app: Hipq, queue: Queue) -> None:
    @queue.job(windows=[NOON])
    def work(_: Job[Any]) -> None: ...

    job_id = work.enqueue()
    with pytest.raises(Conflict, match="12:00"):
        app.retry_now(job_id)


def test_closed_windows_do_not_keep_until_empty_waiting(queue: Queue, clock: HandClock, run: Run) -> None:
    @queue.job(windows=[MORNING])
    def work(_: Job[Any]) -> None: ...

    ids = work.enqueue_many(range(2500))  # more than are rolled in one step
    clock.advance(hours=1)
    run()
    assert {queue.app.job(job_id).phase for job_id in (ids[0], ids[-1])} == {"scheduled"}
    assert not queue.app.jobs(queue.name, phase="ready")


def test_bad_windows_are_refused_with_a_sentence(queue: Queue) -> None:
    @queue.job
    def work(_: Job[Any]) -> None: ...

    for wrong in ("22:00-05:00", [("22:00", "05:00")], 5):
        with pytest.raises(Invalid, match="window"):
            work.enqueue(windows=wrong)  # type: ignore[arg-type]
    with pytest.raises(Invalid):
        window("22:00", "22:00")
    with pytest.raises(Invalid):
        queue.job(windows=["22:00"])  # type: ignore[list-item]


def test_a_zone_only_the_producer_knows_holds_up_nothing_else(
    app: Hipq, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    @queue.job
    def work(_: Job[Any]) -> None: ...

    strange, plain = work.enqueue(windows=[window("00:00", "24:00", tz="Europe/Rome")]), work.enqueue()
    known = windows.is_open

    def is_open(text: str, now: int) -> bool:
        if "Rome" in text:
            raise Invalid("there is no time zone Europe/Rome on this machine")
        return known(text, now)

    monkeypatch.setattr(windows, "is_open", is_open)
    engine = app.engine()
    thread = threading.Thread(target=engine.run)
    thread.start()
    try:
        until(lambda: app.job(plain).state == "final")
    finally:
        engine.stop()
        thread.join(60)
    engine.executor.close()
    assert (app.job(plain).code, app.job(strange).phase) == ("ok", "ready")
