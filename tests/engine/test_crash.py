"""A job that kills the process it runs in: an error like any other, of that job and of no other."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hipq import Answer, Fault, Hipq, Job, Queue, Retry, Wait, backoff, fixed
from hipq.job import transitions
from hipq.job.model import Change
from hipq.stores.claims import Claim
from hipq.testing.clock import HandClock
from tests.engine.working import one_store, real_time, until, working

Run = Callable[[], None]


@pytest.mark.parametrize("how", ["SIGSEGV", "status 3"])
def test_the_retry_handler_is_asked_and_its_delay_is_kept(
    app: Hipq, queue: Queue, run: Run, clock: HandClock, how: str
) -> None:
    def again(job: Job[Any], fault: Fault) -> Retry | None:
        note = {"kind": fault.kind, "class": fault.is_a(ChildProcessError), "failures": job.failures}
        return Retry(60, data={**note, "message": fault.message}) if job.failures < 3 else None

    @queue.job(process=True, retry=again)
    def dies(_: Job[Any]) -> None:
        if how == "SIGSEGV":
            os.kill(os.getpid(), signal.SIGSEGV)
        os._exit(3)

    job_id = dies.enqueue({})
    for failures in (1, 2):
        run()
        job = app.job(job_id)
        assert (job.state, job.phase, job.attempt, job.failures) == ("retry", "scheduled", failures, failures)
        assert job.scheduled_run_time.timestamp() == clock.now() / 1e6 + 60
        assert (job.data["kind"], job.data["class"], job.data["failures"]) == ("crash", True, failures)
        assert how in job.data["message"]
        run()
        assert app.job(job_id).attempt == failures, "not before its time"
        clock.advance(seconds=60)
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.attempt, job.failures) == ("final", "error", 3, 3)
    assert job.fault is not None
    assert (job.fault.kind, how in job.fault.message) == ("crash", True)


def test_without_a_retry_handler_it_is_tried_three_times_with_growing_delays(
    app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    queue.job("dies", process=True)(lambda _: os._exit(3))
    job_id = queue.enqueue("dies")
    pauses = []
    run()
    while (job := app.job(job_id)).state == "retry":
        pauses.append(job.scheduled_run_time.timestamp() - clock.now() / 1e6)
        clock.advance(seconds=pauses[-1])
        run()
    assert pauses == [5, 30]
    assert (job.state, job.code, job.attempt, job.failures) == ("final", "error", 3, 3)
    assert "status 3" in job.error


def test_a_policy_counts_crashes_among_its_failures(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    @queue.job(process=True, retry=backoff(attempts=4, base=10, factor=2, jitter=0))
    def both(job: Job[Any]) -> None:
        if job.attempt % 2:
            os._exit(3)
        raise ValueError("no")

    job_id = both.enqueue()
    pauses = []
    run()
    while (job := app.job(job_id)).state == "retry":
        pauses.append(job.scheduled_run_time.timestamp() - clock.now() / 1e6)
        clock.advance(seconds=pauses[-1])
        run()
    assert pauses == [10, 20, 40]
    assert (job.failures, job.attempt) == (4, 4)


def test_a_crash_of_its_engine_costs_a_job_nothing_and_its_own_afterwards_does(
    app: Hipq, queue: Queue, run: Run
) -> None:
    """It ran in a thread when its engine died; then it runs apart, and what happens there is its own doing."""
    queue.job("dies", retry=lambda _job, _fault: None)(lambda _: os._exit(3))
    job_id = queue.enqueue("dies")
    engine_id, now = app.store.take_lease(60, "died"), app.store.now()
    (row,) = app.store.turn(engine_id, [], [Claim(queue.number, ("dies",), 1)], now).won
    assert not app.store.turn(engine_id, [Change(row, transitions.rescued(row, now))], [], now).lost
    assert (app.job(job_id).failures, app.job(job_id).crashes) == (0, 1)
    run()
    job = app.job(job_id)
    assert (job.state, job.failures, job.attempt) == ("final", 1, 2)


def test_jobs_of_an_engine_that_died_share_processes_until_one_of_them_kills_one(
    app: Hipq, queue: Queue, run: Run
) -> None:
    """A fork for each would make them some hundred times slower. The one that kills costs the others nothing, and is
    found alone in a process of its own."""
    queue.job("where")(lambda _: os.getpid())
    queue.job("dies", retry=lambda _job, _fault: None)(lambda _: os._exit(3))
    ids = [queue.enqueue("dies" if number == 25 else "where") for number in range(50)]
    engine_id, now = app.store.take_lease(60, "died"), app.store.now()
    rows = app.store.turn(engine_id, [], [Claim(queue.number, ("where", "dies"), 50)], now).won
    assert not app.store.turn(engine_id, [Change(row, transitions.rescued(row, now)) for row in rows], [], now).lost
    run()
    guilty, innocent = app.job(ids[25]), [app.job(job_id) for job_id in ids if job_id != ids[25]]
    assert {(job.code, job.failures, job.attempt) for job in innocent} == {("ok", 0, 2)}
    assert os.getpid() not in {job.result for job in innocent}, "they run apart from the engine"
    assert len({job.result for job in innocent}) < 25
    assert (guilty.state, guilty.code, guilty.failures) == ("final", "error", 1)


@one_store
def test_a_process_that_ran_other_jobs_before_may_have_died_of_those(app: Hipq, queue: Queue) -> None:
    """What an earlier job left behind, here a timer, ends the process while another job is in it: that one goes back
    without a failure, and runs in a process of its own."""

    @queue.job(process=True)
    def leaves_a_trap(_: Job[Any]) -> int:
        signal.signal(signal.SIGALRM, lambda *_: os._exit(9))
        return os.getpid()

    @queue.job(process=True)
    def innocent(job: Job[Any]) -> str:
        if os.getpid() == job.data:
            signal.raise_signal(signal.SIGALRM)
        return "fine"

    first = leaves_a_trap.enqueue()
    with working(app, concurrency=1):
        until(lambda: app.job(first).state == "final")
        second = innocent.enqueue(app.job(first).result)
        until(lambda: app.job(second).state == "final")
    job = app.job(second)
    assert (job.code, job.result, job.attempt, job.failures) == ("ok", "fine", 2, 0)
    assert [entry["event"] for entry in job.history] == ["claimed", "crashed", "claimed", "ok"]


@one_store
def test_a_retry_handler_that_crashes_too_ends_the_job_with_both_errors(
    app: Hipq, queue: Queue, run: Run, tmp_path: Path
) -> None:
    def asked(_job: Job[Any], _fault: Fault) -> None:
        with (tmp_path / "asked").open("a") as file:
            file.write("x")
        os._exit(9)

    queue.job("dies", process=True, retry=asked)(lambda _: os.kill(os.getpid(), signal.SIGSEGV))
    job_id = queue.enqueue("dies")
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.failures, (tmp_path / "asked").read_text()) == ("final", "error", 1, "xx")
    assert "status 9" in job.error
    assert "SIGSEGV" in job.error


def test_an_answer_handler_that_crashes_is_called_again_later_and_then_it_is_an_error(
    app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    """The answer is not lost by a crash, and is not looked at three times in a moment."""

    @queue.job(process=True, retry=fixed(60, attempts=2), timeout=3600)
    def asks(job: Job[Any]) -> Any:
        return Wait() if job.attempt == 1 else "again"

    @asks.answered
    def dies(_job: Job[Any], _answer: Answer) -> None:
        os._exit(9)

    job_id = asks.enqueue(key="k")
    run()
    assert asks.answer("k", "paid") == "matched"
    for pause in (1, 2):
        run()
        job = app.job(job_id)
        assert (job.phase, job.failures) == ("waiting", 0)
        assert job.deadline is not None
        assert job.deadline.timestamp() - clock.now() / 1e6 == pause
        clock.advance(seconds=pause)
    run()
    assert (app.job(job_id).state, app.job(job_id).failures) == ("retry", 1)
    clock.advance(seconds=60)
    run()
    assert (app.job(job_id).result, app.job(job_id).attempt) == ("again", 2)


@one_store
@real_time
def test_one_that_is_killed_from_outside_names_the_signal(app: Hipq, queue: Queue, tmp_path: Path) -> None:
    """As the kernel does when memory runs out."""

    @queue.job(process=True, retry=lambda _job, _fault: None)
    def big(_: Job[Any]) -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        signal.pause()

    job_id = big.enqueue()
    with working(app):
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        until(lambda: app.job(job_id).state == "final")
    assert str(app.job(job_id).fault) == "ChildProcessError: the process that ran it was killed by SIGKILL"
