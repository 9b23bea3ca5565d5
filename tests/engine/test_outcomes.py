"""What a handler returns or raises, and what becomes of its job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hipq import Conflict, Failed, Hipq, Job, Ok, Queue, Retry, Wait, backoff
from hipq.testing.clock import HandClock

Run = Callable[[], None]


def result_of(queue: Queue, run: Run, handler: Callable[[Job[Any]], Any], **options: Any) -> Job[Any]:
    job_type = queue.job("work", **options)(handler)
    job_id = job_type.enqueue({"n": 1}, key="k")
    run()
    return queue.app.job(job_id)


@pytest.mark.parametrize(
    ("returned", "result", "exitcode"),
    [(None, None, 200), ({"a": [1, "ü"]}, {"a": [1, "ü"]}, 200), (0, 0, 200), (Ok("x", exitcode=201), "x", 201)],
)
def test_a_value_means_ok(queue: Queue, run: Run, returned: Any, result: Any, exitcode: int) -> None:
    job = result_of(queue, run, lambda _: returned)
    assert (job.state, job.phase, job.code, job.exitcode, job.error) == ("final", "done", "ok", exitcode, "NONE")
    assert (job.result, job.attempt, job.failures, job.owner) == (result, 1, 0, 0)
    assert [entry["event"] for entry in job.history] == ["claimed", "ok"]


def raise_(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize("raised", [True, False])
def test_failed_is_final_at_once_whatever_the_retry_handler_would_say(queue: Queue, run: Run, raised: bool) -> None:
    failed = Failed("card declined", exitcode=402)
    job = result_of(queue, run, lambda _: raise_(failed) if raised else failed, retry=backoff(attempts=9))
    assert (job.state, job.code, job.exitcode, job.attempt, job.failures) == ("final", "failed", 402, 1, 0)
    assert job.fault is not None
    assert job.fault.message == "card declined"


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt(), RecursionError()])
def test_any_exception_without_a_retry_handler_is_a_final_error(queue: Queue, run: Run, error: BaseException) -> None:
    job = result_of(queue, run, lambda _: raise_(error))
    assert (job.state, job.code, job.exitcode, job.failures) == ("final", "error", 500, 1)
    assert job.fault is not None
    assert job.fault.type == type(error).__name__
    assert "raise_" in job.fault.traceback


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_that_cannot_be_printed_is_an_error_all_the_same(queue: Queue, run: Run) -> None:
    job = result_of(queue, run, lambda _: raise_(Unprintable()))
    assert (job.state, job.code) == ("final", "error")


def test_text_no_store_takes_is_made_storable(queue: Queue, run: Run) -> None:
    job = result_of(queue, run, lambda _: raise_(ValueError("nul \x00 and \ud800 " + "x" * 100_000)))
    assert job.fault is not None
    assert job.state == "final"
    assert len(job.error) < 20_000


@pytest.mark.parametrize("value", [object(), float("nan"), {"a": "\x00"}, 1 << 63])
def test_a_result_that_is_not_json_is_an_error(queue: Queue, run: Run, value: Any) -> None:
    job = result_of(queue, run, lambda _: value)
    assert (job.state, job.code) == ("final", "error")
    assert job.fault is not None
    assert job.fault.message.startswith("the result ")


def test_retry_with_a_time_goes_again_then_and_is_no_failure(queue: Queue, run: Run, clock: HandClock) -> None:
    job = result_of(queue, run, lambda job: Retry(30, data={"n": job.data["n"] + 1}) if job.attempt < 3 else job.data)
    assert (job.state, job.phase, job.attempt, job.failures, job.code) == ("retry", "scheduled", 1, 0, "retry")
    assert job.scheduled_run_time.timestamp() == clock.now() / 1e6 + 30
    clock.advance(seconds=29)
    run()
    assert queue.app.job(job.id).attempt == 1
    for _ in range(2):
        clock.advance(seconds=30)
        run()
    done = queue.app.job(job.id)
    assert (done.state, done.code, done.attempt, done.result) == ("final", "ok", 3, {"n": 3})
    assert done.scheduled_run_time.timestamp() == clock.now() / 1e6, "the last one wanted"


def test_retry_without_a_time_and_without_a_retry_handler_goes_again_in_a_minute(
    queue: Queue, run: Run, clock: HandClock
) -> None:
    job = result_of(queue, run, lambda job: raise_(Retry(reason="busy")) if job.attempt == 1 else None)
    assert (job.state, job.code) == ("retry", "retry")
    clock.advance(seconds=60)
    run()
    assert queue.app.job(job.id).code == "ok"


def test_retry_without_a_time_asks_the_retry_handler(queue: Queue, run: Run) -> None:
    job = result_of(queue, run, lambda _: Retry(reason="busy"), retry=lambda _job, _fault: None)
    assert (job.state, job.code, job.failures) == ("final", "retry", 1)


def test_a_job_that_waits_stays_running_and_is_owned_by_nobody(queue: Queue, run: Run, clock: HandClock) -> None:
    job = result_of(queue, run, lambda _: Wait(), timeout=120)
    assert (job.state, job.phase, job.owner, job.error) == ("running", "waiting", 0, "NONE")
    assert job.deadline is not None
    assert job.deadline.timestamp() == clock.now() / 1e6 + 120
    assert queue.running_jobs[0].id == job.id
    clock.advance(seconds=119)
    run()
    assert queue.app.job(job.id).phase == "waiting"
    clock.advance(seconds=1)
    run()
    late = queue.app.job(job.id)
    assert (late.state, late.code, late.exitcode) == ("final", "error", 504)
    assert late.fault is not None
    assert late.fault.is_a(TimeoutError)


def test_a_wait_may_have_a_time_out_of_its_own(queue: Queue, run: Run, clock: HandClock) -> None:
    job = result_of(queue, run, lambda _: Wait(timeout=5))
    clock.advance(seconds=5)
    run()
    assert queue.app.job(job.id).state == "final"


def test_jobs_a_handler_adds_are_stored_with_its_outcome(queue: Queue, run: Run) -> None:
    seen: list[Any] = []
    queue.job("child")(lambda job: seen.append(job.data))

    def parent(job: Job[Any]) -> None:
        job.enqueue("child", "by name", key="one")
        job.enqueue("child", "same key: left alone", key="one")
        if job.data != {"n": 1}:
            raise ValueError

    job = result_of(queue, run, parent)
    assert seen == ["by name"]
    failing = queue.job_types[1].enqueue({"n": 2})
    run()
    assert queue.app.job(failing).code == "error"
    assert seen == ["by name"], "the outcome of a job that failed must bring no children"
    assert job.code == "ok"


def test_jobs_a_handler_adds_are_stored_also_when_it_asks_to_run_again(queue: Queue, run: Run) -> None:
    added: list[str] = []
    queue.app.events.subscribe(lambda event: added.append(event.job.job_type if event.job else ""), "added")

    def poll(job: Job[Any]) -> Retry:
        job.enqueue("child")
        return Retry(60)

    job = result_of(queue, run, poll)
    assert (job.state, len(queue.app.jobs("orders", type="child"))) == ("retry", 1)
    assert added == ["work", "child"], "a job that a handler adds is announced like any other"


def test_outside_a_handler_job_enqueue_says_where_it_works(queue: Queue, run: Run) -> None:
    job = result_of(queue, run, lambda _: None)
    with pytest.raises(ValueError, match="inside a handler only"):
        job.enqueue("work")


def test_nothing_about_a_final_job_ever_changes(app: Hipq, queue: Queue, run: Run) -> None:
    """I4."""
    job = result_of(queue, run, lambda _: None)
    for change in (app.cancel, app.retry_now):
        with pytest.raises(Conflict, match="stays so"):
            change(job.id)
    run()
    assert app.job(job.id)._row == job._row
