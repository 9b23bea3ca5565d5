"""Retry as code: on a copy, saved once, run again only when claimed again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from hipq import Failed, Fault, Hipq, Job, Queue, Retry, backoff, fixed, schedule
from hipq.job.when import to_datetime
from hipq.testing.clock import HandClock

Run = Callable[[], None]


def failing(
    queue: Queue, retry: Any = None, error: BaseException | None = None, **options: Any
) -> tuple[int, list[Any]]:
    """A job that always fails, and the data of each of its runs."""
    runs: list[Any] = []

    @queue.job(retry=retry, **options)
    def work(job: Job[Any]) -> None:
        runs.append(job.data)
        raise error or ValueError("no")

    return work.enqueue({"try": 1}), runs


def test_a_retry_handler_may_change_the_data_and_the_time(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    def again(job: Job[Any], fault: Fault) -> Retry | None:
        assert fault.is_a(ValueError)
        assert job.state == "error"
        assert job.failures == job.attempt
        at = to_datetime(clock.now()) + timedelta(hours=1)
        return Retry(at=at, data={"try": job.data["try"] + 1}) if job.failures < 3 else None

    job_id, runs = failing(queue, again)
    run()
    job = app.job(job_id)
    assert (job.state, job.phase, job.attempt, job.failures) == ("retry", "scheduled", 1, 1)
    assert job.fault is not None
    assert job.fault.message == "no"
    for _ in range(4):
        clock.advance(hours=1)
        run()
    assert runs == [{"try": 1}, {"try": 2}, {"try": 3}]
    assert (app.job(job_id).state, app.job(job_id).failures) == ("final", 3)


@pytest.mark.parametrize("verdict", [None, False, Failed("enough")])
def test_a_retry_handler_may_give_up(app: Hipq, queue: Queue, run: Run, verdict: Any) -> None:
    job_id, _ = failing(queue, lambda _job, _fault: verdict)
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.attempt) == ("final", "error", 1)
    assert job.fault is not None
    assert job.fault.message == ("enough" if verdict else "no")


def _cancels(_job: Job[Any], _fault: Fault) -> None:
    raise asyncio.CancelledError


def test_a_payload_the_retry_handler_cannot_read_is_its_own_business(
    make_app: Callable[[], Hipq], clock: HandClock
) -> None:
    old, new = make_app(), make_app()
    job_id = old.queue("orders").enqueue("work", {"amount": "not a number"})
    asked = []

    def again(_job: Job[Any], fault: Fault) -> Retry:
        asked.append(fault.message)
        return Retry(60, data={"amount": 1})

    @new.queue("orders").job(retry=again)
    def work(job: Job[dict[str, int]]) -> int:
        return job.data["amount"]

    new.run(until_empty=True)
    assert (new.job(job_id).state, len(asked)) == ("retry", 1)
    clock.advance(seconds=60)
    new.run(until_empty=True)
    assert new.job(job_id).result == 1


def _raises(_job: Job[Any], _fault: Fault) -> None:
    raise KeyError("oops")


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (_raises, "KeyError: 'oops'"),
        (_cancels, "CancelledError"),
        (lambda _job, _fault: 5, "not int"),
        (lambda _job, _fault: Retry(-1), "delay"),
    ],
)
def test_a_retry_handler_that_raises_is_an_error_on_the_job(
    app: Hipq, queue: Queue, run: Run, handler: Any, said: str
) -> None:
    job_id, _ = failing(queue, handler)
    run()
    job = app.job(job_id)
    assert (job.state, job.code) == ("final", "error")
    assert job.fault is not None
    assert said in job.fault.message
    assert "ValueError: no" in job.fault.message, "the first error is not forgotten"


@pytest.mark.parametrize(
    ("policy", "pauses"),
    [
        (backoff(attempts=4, base=1, factor=3, jitter=0), [1, 3, 9]),
        (backoff(attempts=5, base=10, factor=10, cap=timedelta(seconds=50), jitter=0), [10, 50, 50, 50]),
        (fixed(7, attempts=3), [7, 7]),
        (schedule([1, timedelta(minutes=1), 5]), [1, 60, 5]),
    ],
)
def test_policies_pause_as_they_say_then_give_up(
    app: Hipq, queue: Queue, run: Run, clock: HandClock, policy: Any, pauses: list[float]
) -> None:
    job_id, runs = failing(queue, policy)
    found = []
    run()
    while (job := app.job(job_id)).state == "retry":
        found.append(job.scheduled_run_time.timestamp() - clock.now() / 1e6)
        clock.advance(seconds=found[-1])
        run()
    assert found == pauses
    assert len(runs) == len(pauses) + 1
    assert job.failures == len(runs)


def test_jitter_spreads_jobs_and_stays_within_its_bound(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    queue.job("work", retry=backoff(base=100, jitter=0.5))(lambda _: 1 / 0)
    ids = queue.enqueue_many("work", [None] * 20)
    run()
    pauses = [app.job(job_id).scheduled_run_time.timestamp() - clock.now() / 1e6 for job_id in ids]
    assert all(100 <= pause <= 150 for pause in pauses)
    assert len(set(pauses)) > 15


@pytest.mark.parametrize(
    ("policy", "again"),
    [
        (fixed(1, on=OSError), True),
        (fixed(1, on=[KeyError, TimeoutError]), True),
        (fixed(1, on=KeyError), False),
        (fixed(1, never=OSError), False),
        (fixed(1, never=[ValueError]), True),
    ],
)
def test_policies_filter_by_exception(app: Hipq, queue: Queue, run: Run, policy: Any, again: bool) -> None:
    job_id, _ = failing(queue, policy, TimeoutError("slow"))
    run()
    assert app.job(job_id).state == ("retry" if again else "final")


def test_the_decorator_form(app: Hipq, queue: Queue, run: Run) -> None:
    @queue.job
    def work(_: Job[Any]) -> None:
        raise ValueError

    @work.retry
    def again(_job: Job[Any], _fault: Fault) -> Retry:
        return Retry(60)

    job_id = work.enqueue()
    run()
    assert app.job(job_id).state == "retry"


def test_past_its_lifetime_an_error_is_final(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    job_id, runs = failing(queue, fixed(60, attempts=1000), lifetime=150)
    for _ in range(5):
        run()
        clock.advance(seconds=60)
    assert (app.job(job_id).state, len(runs)) == ("final", 4)


def test_past_its_lifetime_asking_again_is_final_too(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    @queue.job(lifetime=100)
    def work(_: Job[Any]) -> Retry:
        return Retry(60)

    job_id = work.enqueue()
    for _ in range(4):
        run()
        clock.advance(seconds=60)
    job = app.job(job_id)
    assert (job.state, job.attempt, job.code) == ("final", 3, "retry")
    assert job.history[-1]["event"] == "lifetime over"


def test_an_engine_without_the_code_leaves_the_error_to_one_that_has_it(
    make_app: Callable[[], Hipq], clock: HandClock
) -> None:
    """A waiting job times out while only an engine without its code is there."""
    from hipq import Wait

    one, two = make_app(), make_app()
    asked = []

    def again(job: Job[Any], _fault: Fault) -> None:
        asked.append(job.failures)

    one.queue("orders").job("work", timeout=10, retry=again)(lambda _: Wait())
    two.queue("orders").job("other")(lambda _: None)
    job_id = one.queues[0].enqueue("work")
    one.run(until_empty=True)
    clock.advance(seconds=10)
    two.run(until_empty=True)
    job = one.job(job_id)
    assert (job.state, job.phase, job.owner, asked) == ("error", "deciding", 0, [])
    one.run(until_empty=True)
    assert (one.job(job_id).state, asked) == ("final", [1])
