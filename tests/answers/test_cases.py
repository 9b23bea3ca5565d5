"""The 18 cases of how an answer finds its job, each on both stores."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hipq import (
    Answer,
    Answered,
    Failed,
    Fault,
    Hipq,
    Job,
    JobType,
    Ok,
    Progress,
    Queue,
    Retry,
    StoreUnavailable,
    Wait,
    admit,
    fixed,
    window,
)
from hipq.errors import DuplicateKey
from hipq.testing.clock import HandClock
from tests.answers.helping import Bank, MakeApp, Run, held, kept, step, told
from tests.engine.working import until_empty

both = pytest.mark.parametrize("handler", [True, False], ids=["handler", "no handler"])
"""For job types with an answer handler and without one."""


@dataclass
class Receipt:
    number: int


@pytest.fixture
def bank() -> Bank:
    return Bank()


# -- 1 ---------------------------------------------------------------------------------------------------------------
def test_case_01_the_answer_of_a_waiting_job_is_looked_at_and_settles_it(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    charge = bank.charge(queue)
    bank.answered(charge, lambda data: Ok({"paid": data["amount"]}, exitcode=201))
    job_id = charge.enqueue(key="order-17")
    run()
    assert (app.job(job_id).phase, held(app, job_id)) == ("waiting", 1)
    assert charge.answer("order-17", {"amount": 5}) is Answered.MATCHED
    before = app.job(job_id)
    assert (before.state, before.phase, before.attempt, held(app, job_id)) == ("running", "answered", 1, 1)
    assert kept(app) == [({"amount": 5}, "matched")]
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.exitcode, job.result, job.attempt) == ("final", "ok", 201, {"paid": 5}, 1)
    assert (bank.sent, bank.looked, held(app, job_id)) == ([1], [{"amount": 5}], 0)
    assert told(job) == ["claimed", "waits", "answered", "ok"]
    assert kept(app) == [({"amount": 5}, "settled")]


def test_case_01_without_an_answer_handler_the_answer_is_the_result_at_once(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    charge = bank.charge(queue)
    job_id = charge.enqueue(key="k")
    run()
    assert app.answer("orders", "charge", "k", [1, "ü", None]) == "matched"
    job = app.job(job_id)  # no engine has run since
    assert (job.state, job.code, job.exitcode, job.result, job.attempt) == ("final", "ok", 200, [1, "ü", None], 1)
    assert told(job) == ["claimed", "waits", "answered", "ok"]
    assert (kept(app), held(app, job_id)) == ([([1, "ü", None], "settled")], 0)


@both
def test_case_01_an_answer_may_come_to_a_program_that_does_not_know_the_job_type(
    make_app: MakeApp, bank: Bank, handler: bool
) -> None:
    worker, other = make_app(), make_app()
    charge = bank.charge(worker.queue("orders"))
    if handler:
        bank.answered(charge)
    other.queue("orders")
    job_id = charge.enqueue(key="k")
    worker.run(until_empty=True)
    assert other.answer("orders", "charge", "k", "paid") == "matched"
    assert other.job(job_id).phase == ("answered" if handler else "done"), (
        "the job itself says if code is to look at it"
    )
    worker.run(until_empty=True)
    assert (other.job(job_id).state, other.job(job_id).result) == ("final", "paid")
    assert bank.looked == (["paid"] if handler else [])


@pytest.mark.parametrize(
    ("outcome", "code", "exitcode"), [(Failed("declined", exitcode=402), "failed", 402), (None, "ok", 200)]
)
def test_case_01_what_the_answer_handler_returns_settles_the_job(
    app: Hipq, queue: Queue, run: Run, bank: Bank, outcome: Any, code: str, exitcode: int
) -> None:
    charge = bank.charge(queue)
    bank.answered(charge, lambda _: outcome)
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "x")
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.exitcode, job.failures, bank.sent) == ("final", code, exitcode, 0, [1])


def test_case_01_the_job_has_the_answer_of_its_own_key_type_and_queue_only(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    charge, others = bank.charge(queue), app.queue("others")
    refund = queue.job("refund")(lambda _: Wait())
    same = others.job("charge")(lambda _: Wait())
    ids = [charge.enqueue(key="k"), charge.enqueue(key="l"), refund.enqueue(key="k"), same.enqueue(key="k")]
    run()
    assert charge.answer("k", "mine") == "matched"
    assert [app.job(job_id).state for job_id in ids] == ["final", "running", "running", "running"]


def test_case_01_jobs_the_answer_handler_adds_are_stored_with_its_outcome(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    charge = bank.charge(queue)

    @charge.answered
    def settled(job: Job[Any], answer: Answer) -> str:
        job.enqueue("receipt", answer.data, key="r")
        bank.looked.append(answer.key)
        if len(bank.looked) == 1:
            raise ValueError
        return "done"

    charge.enqueue(key="k")
    run()
    charge.answer("k", {"amount": 5})
    run()
    assert app.jobs("orders", type="receipt") == [], "it failed: what it added goes with it"


# -- 2 ---------------------------------------------------------------------------------------------------------------
@both
def test_case_02_an_answer_while_the_job_executes_is_picked_up_by_its_wait(
    app: Hipq, queue: Queue, run: Run, bank: Bank, handler: bool
) -> None:
    words: list[str] = []

    @queue.job
    def charge(job: Job[Any]) -> Wait:
        bank.sent.append(job.attempt)
        words.append(app.answer("orders", "charge", job.key, "fast"))
        return Wait()

    if handler:
        bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    job = app.job(job_id)
    assert words == ["buffered"]
    assert (job.state, job.code, job.result, job.attempt, bank.sent) == ("final", "ok", "fast", 1, [1])
    assert kept(app) == [("fast", "settled")]
    assert bank.looked == (["fast"] if handler else [])


@both
def test_case_02_an_answer_while_the_job_is_initial_is_picked_up_by_its_wait(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, handler: bool
) -> None:
    charge = bank.charge(queue)
    if handler:
        bank.answered(charge)
    job_id = charge.enqueue(key="k", delay=30)
    assert charge.answer("k", "early") == "buffered"
    job = app.job(job_id)
    assert (job.state, job.phase, job.attempt) == ("initial", "scheduled", 0), "its request has not been sent"
    assert app.answers.list()[0].job == job_id
    clock.advance(seconds=30)
    run()
    job = app.job(job_id)
    assert (job.state, job.result, job.attempt, bank.sent) == ("final", "early", 1, [1])


@both
def test_case_02_an_answer_before_the_job_is_added_is_picked_up_within_the_early_window(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, handler: bool
) -> None:
    charge = bank.charge(queue)
    if handler:
        bank.answered(charge)
    assert charge.answer("k", "early") == "buffered"
    assert app.answers.list()[0].job == 0
    clock.advance(hours=1)
    job_id = charge.enqueue(key="k", delay=7200)
    clock.advance(hours=2)
    run()
    job = app.job(job_id)
    assert (job.state, job.result, job.attempt, bank.sent) == ("final", "early", 1, [1])
    assert [(one.job, one.state) for one in app.answers.list()] == [(job_id, "settled")]


def test_case_02_an_answer_older_than_the_early_window_is_not_the_jobs(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue)
    assert charge.answer("k", "old") == "buffered"
    clock.advance(seconds=3600.000001)
    job_id = charge.enqueue(key="k")
    run()
    assert (app.job(job_id).phase, kept(app)) == ("waiting", [("old", "buffered")])
    assert charge.answer("k", "new") == "matched"
    assert app.job(job_id).result == "new"
    assert kept(app) == [("old", "buffered"), ("new", "settled")]


def test_case_02_a_queue_may_have_another_early_window(app: Hipq, run: Run, bank: Bank, clock: HandClock) -> None:
    charge = bank.charge(app.queue("orders", early_window=10))
    for key, seconds in (("in", 10), ("out", 10.000001)):
        assert charge.answer(key, "early") == "buffered"
        clock.advance(seconds=seconds)
        charge.enqueue(key=key)
    run()
    states = {job.key: job.state for job in app.jobs("orders")}
    assert states == {"in": "final", "out": "running"}


def test_case_02_the_answer_of_a_job_that_ends_without_waiting_is_late(
    app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    """It is bound to that job, which is final: nobody will ever look at it."""

    @queue.job
    def charge(job: Job[Any]) -> str:
        assert app.answer("orders", "charge", job.key, "from outside") == "buffered"
        return "done without it"

    job_id = charge.enqueue(key="k")
    run()
    assert app.job(job_id).result == "done without it"
    clock.advance(minutes=2)  # engines see to it every so often
    run()
    assert [(one.job, one.state) for one in app.answers.list()] == [(job_id, "late")]


# -- 3 ---------------------------------------------------------------------------------------------------------------
@both
@pytest.mark.parametrize("named", [True, False], ids=["named", "by body"])
def test_case_03_the_same_answer_again_after_the_end_changes_nothing(
    app: Hipq, queue: Queue, run: Run, bank: Bank, handler: bool, named: bool
) -> None:
    charge = bank.charge(queue)
    if handler:
        bank.answered(charge)
    answer_id = "m-1" if named else None
    job_id = charge.enqueue(key="k")
    run()
    assert charge.answer("k", {"a": 1}, answer_id=answer_id) == "matched"
    run()
    before = app.job(job_id)
    for _ in range(2):
        assert charge.answer("k", {"a": 1}, answer_id=answer_id) == "duplicate"
        run()
    assert app.job(job_id)._row == before._row
    (only,) = app.answers.list()
    assert (only.state, only.copies, only.job) == ("settled", 3, job_id)
    assert bank.looked == ([{"a": 1}] if handler else [])


def test_case_03_the_same_answer_before_it_was_looked_at_is_a_duplicate_too(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    charge = bank.charge(queue)
    bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    assert charge.answer("k", "x", answer_id="m") == "matched"
    before = app.job(job_id)
    assert charge.answer("k", "x", answer_id="m") == "duplicate"
    assert app.job(job_id)._row == before._row
    run()
    assert (bank.looked, app.job(job_id).result) == (["x"], "x")


def test_case_03_the_same_answer_before_its_job_is_a_duplicate_too(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    charge = bank.charge(queue)
    words = [charge.answer("k", "x", answer_id="m") for _ in range(3)]
    assert words == ["buffered", "duplicate", "duplicate"]
    job_id = charge.enqueue(key="k")
    run()
    assert (app.job(job_id).result, app.answers.list()[0].copies) == ("x", 3)


def test_case_03_an_equal_body_that_came_while_the_first_was_looked_at_turns_out_to_be_a_duplicate(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    charge = bank.charge(queue)
    bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    assert charge.answer("k", "x") == "matched"
    assert charge.answer("k", "x") == "buffered", "the first may be Progress: then they are two"
    run()
    assert (bank.looked, app.job(job_id).result) == (["x"], "x")
    assert kept(app) == [("x", "settled"), ("x", "duplicate")]


# -- 4 ---------------------------------------------------------------------------------------------------------------
@both
def test_case_04_another_answer_for_a_job_that_has_its_answer_is_kept_and_flagged(
    app: Hipq, queue: Queue, run: Run, bank: Bank, handler: bool
) -> None:
    charge = bank.charge(queue)
    if handler:
        bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "paid")
    run()
    before = app.job(job_id)
    assert charge.answer("k", "declined") == "conflict"
    run()
    assert app.job(job_id)._row == before._row
    assert before.result == "paid"
    assert [(one.data, one.state, one.job) for one in app.answers.list()] == [
        ("paid", "settled", job_id),
        ("declined", "conflict", job_id),
    ]
    assert bank.looked == (["paid"] if handler else [])


def test_case_04_another_answer_before_the_first_was_looked_at_turns_out_to_be_a_conflict(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    charge = bank.charge(queue)
    bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    assert charge.answer("k", "paid") == "matched"
    assert charge.answer("k", "declined") == "buffered", "the first may be Progress"
    run()
    assert (app.job(job_id).result, bank.looked) == ("paid", ["paid"])
    assert kept(app) == [("paid", "settled"), ("declined", "conflict")]


@both
def test_case_04_of_two_early_answers_the_first_wins(
    app: Hipq, queue: Queue, run: Run, bank: Bank, handler: bool
) -> None:
    charge = bank.charge(queue)
    if handler:
        bank.answered(charge)
    assert [charge.answer("k", n) for n in (1, 2, 1)] == ["buffered"] * 3
    job_id = charge.enqueue(key="k")
    run()
    assert app.job(job_id).result == 1
    assert kept(app) == [(1, "settled"), (2, "conflict"), (1, "duplicate")]


# -- 5 ---------------------------------------------------------------------------------------------------------------
def timed_out(app: Hipq, charge: JobType, clock: HandClock, run: Run, **options: Any) -> int:
    """A job that has sent its request, and got no answer in time."""
    job_id = charge.enqueue(key="k", **options)
    run()
    assert app.job(job_id).phase == "waiting"
    clock.advance(seconds=10)
    run()
    return job_id


@both
def test_case_05_an_answer_while_a_retry_is_scheduled_cancels_the_retry(
    app: Hipq, run: Run, bank: Bank, clock: HandClock, handler: bool
) -> None:
    charge = bank.charge(app.queue("orders", throttle_limit=5), timeout=10, retry=fixed(60), throttle_factor=3)
    if handler:
        bank.answered(charge)
    job_id = timed_out(app, charge, clock, run)
    assert (app.job(job_id).state, app.job(job_id).phase) == ("retry", "scheduled")
    assert charge.answer("k", "after all") == "matched"
    assert held(app, job_id) == 0
    if handler:
        job = app.job(job_id)
        assert (job.state, job.phase, job.error, job.attempt) == ("running", "answered", "NONE", 1)
    run()
    clock.advance(seconds=60)
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.result, job.attempt, job.error) == ("final", "ok", "after all", 1, "NONE")
    assert bank.sent == [1], "the request is not sent again"
    assert told(job) == ["claimed", "waits", "error", "again", "answered", "ok"]


@both
def test_case_05_an_answer_while_a_retry_is_ready_cancels_the_retry(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, handler: bool
) -> None:
    charge = bank.charge(queue, timeout=10, retry=fixed(0))
    if handler:
        bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    app.pause("orders")
    clock.advance(seconds=10)
    run()
    assert (app.job(job_id).state, app.job(job_id).phase) == ("retry", "ready")
    assert (charge.answer("k", "x"), held(app, job_id)) == ("matched", 0)
    run()
    app.resume("orders")
    run()
    assert (app.job(job_id).state, app.job(job_id).result, app.job(job_id).attempt, bank.sent) == ("final", "x", 1, [1])


@both
def test_case_05_an_answer_before_the_retry_handler_was_asked_settles_the_job(
    make_app: MakeApp, clock: HandClock, bank: Bank, handler: bool
) -> None:
    """The time-out was noticed by an engine that does not have the code."""
    one, two = make_app(), make_app()
    asked: list[int] = []
    charge = bank.charge(one.queue("orders"), timeout=10, retry=lambda job, _: asked.append(job.id))
    if handler:
        bank.answered(charge)
    two.queue("orders").job("other")(lambda _: None)
    job_id = charge.enqueue(key="k")
    one.run(until_empty=True)
    clock.advance(seconds=10)
    two.run(until_empty=True)
    assert (one.job(job_id).state, one.job(job_id).phase) == ("error", "deciding")
    assert (charge.answer("k", "x"), held(one, job_id)) == ("matched", 0)
    one.run(until_empty=True)
    job = one.job(job_id)
    assert (job.state, job.code, job.result, job.attempt, asked, bank.sent) == ("final", "ok", "x", 1, [], [1])


@both
def test_case_05_an_answer_while_the_retry_is_parked_by_a_throttler_cancels_it(
    app: Hipq, run: Run, bank: Bank, clock: HandClock, handler: bool
) -> None:
    def once(due: list[Job[Any]], _running: list[Job[Any]], _now: Any) -> list[Any]:
        return [admit(job) for job in due if job.attempt == 0]

    charge = bank.charge(app.queue("orders", throttler=once), timeout=10, retry=fixed(0))
    if handler:
        bank.answered(charge)
    job_id = timed_out(app, charge, clock, run)
    assert (app.job(job_id).state, app.job(job_id).phase) == ("retry", "parked")
    assert (charge.answer("k", "x"), held(app, job_id)) == ("matched", 0)
    run()
    assert (app.job(job_id).state, app.job(job_id).result, app.job(job_id).attempt, bank.sent) == ("final", "x", 1, [1])


def test_case_05_its_work_breaks_no_limit_and_waits_for_none(app: Hipq, run: Run, bank: Bank, clock: HandClock) -> None:
    charge = bank.charge(app.queue("orders", throttle_limit=1), timeout=10, retry=fixed(60))
    bank.answered(charge, step({"40 %": Progress()}))
    job_id = timed_out(app, charge, clock, run)
    other = charge.enqueue(key="other")
    run()
    assert (app.job(other).phase, held(app, other)) == ("waiting", 1), "the limit is full"
    assert charge.answer("k", "40 %") == "matched"
    run()
    assert (app.job(job_id).phase, held(app, job_id), held(app, other)) == ("waiting", 0, 1)
    assert charge.answer("k", "done") == "matched"
    run()
    assert (app.job(job_id).state, app.job(job_id).result, app.job(other).phase) == ("final", "done", "waiting")


def test_case_05_after_progress_the_job_has_its_time_out_again_and_then_its_retry(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, timeout=10, retry=fixed(60, attempts=9))
    bank.answered(charge, step({"40 %": Progress()}))
    job_id = timed_out(app, charge, clock, run)
    charge.answer("k", "40 %")
    run()
    clock.advance(seconds=9)
    run()
    assert app.job(job_id).phase == "waiting"
    clock.advance(seconds=1)
    run()
    assert (app.job(job_id).state, app.job(job_id).failures) == ("retry", 2)
    clock.advance(seconds=60)
    run()
    assert (bank.sent, app.job(job_id).attempt, app.job(job_id).phase, held(app, job_id)) == ([1, 2], 2, "waiting", 1)


def test_case_05_an_answer_after_the_handler_itself_failed_is_accepted(app: Hipq, queue: Queue, run: Run) -> None:
    """The request was sent, and then something else went wrong."""

    @queue.job(retry=fixed(60))
    def charge(_: Job[Any]) -> Wait:
        raise ConnectionError("after it was sent")

    job_id = charge.enqueue(key="k")
    run()
    assert app.job(job_id).state == "retry"
    assert charge.answer("k", "x") == "matched"
    run()
    assert (app.job(job_id).state, app.job(job_id).result, app.job(job_id).attempt) == ("final", "x", 1)


@both
@pytest.mark.parametrize("last", [True, False], ids=["on its last attempt", "to be tried again"])
def test_case_05_a_handler_that_fails_with_its_answer_there_is_not_tried_again(
    app: Hipq, queue: Queue, run: Run, bank: Bank, handler: bool, last: bool
) -> None:
    """Its request was sent before it failed, and the answer was faster than the failure."""
    words = []
    app.events.subscribe(lambda event: words.append(event.name))

    @queue.job(retry=None if last else fixed(60))
    def charge(job: Job[Any]) -> Wait:
        bank.sent.append(job.attempt)
        assert app.answer("orders", "charge", job.key, "paid") == "buffered"
        raise OSError("the connection broke")

    if handler:
        bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.result, job.attempt, job.failures) == ("final", "ok", "paid", 1, 1)
    assert (bank.sent, bank.looked) == ([1], ["paid"] if handler else [])
    assert (kept(app), held(app, job_id)) == ([("paid", "settled")], 0)
    assert told(job)[:2] == ["claimed", "error"]
    assert told(job)[-2:] == ["answered", "ok"]
    assert "gave up" not in words
    assert "matched" in words


def test_case_05_an_answer_behind_one_that_says_the_work_failed_is_looked_at(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    charge = bank.charge(queue, retry=fixed(60))
    job_id = charge.enqueue(key="k")
    run()
    assert charge.answer("k", "busy", error=True) == "matched"
    assert charge.answer("k", "paid after all") == "buffered"
    run()
    job = app.job(job_id)
    assert (job.code, job.result, job.failures, bank.sent) == ("ok", "paid after all", 1, [1])
    assert kept(app) == [("busy", "applied"), ("paid after all", "settled")]


@pytest.mark.parametrize("named", [True, False], ids=["named", "by body"])
def test_case_05_the_same_failure_said_twice_is_one_failure(
    app: Hipq, queue: Queue, run: Run, bank: Bank, named: bool
) -> None:
    charge = bank.charge(queue, retry=fixed(60))
    job_id = charge.enqueue(key="k")
    run()
    answer_id = "m-1" if named else None
    assert charge.answer("k", "busy", error=True, answer_id=answer_id) == "matched"
    assert charge.answer("k", "busy", error=True, answer_id=answer_id) == ("duplicate" if named else "buffered")
    run()
    job = app.job(job_id)
    assert (job.state, job.phase, job.failures) == ("retry", "scheduled", 1)
    assert kept(app) == [("busy", "applied"), *([] if named else [("busy", "duplicate")])]


# -- 6 ---------------------------------------------------------------------------------------------------------------
@both
def test_case_06_final_stays_final_and_the_late_answer_is_bound_to_that_job(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, handler: bool
) -> None:
    seen: list[tuple[int, str, Any, str]] = []
    charge = bank.charge(
        queue, timeout=10, on_late=lambda job, answer: seen.append((job.id, job.state, answer.data, answer.state))
    )
    if handler:
        bank.answered(charge)
    job_id = timed_out(app, charge, clock, run)
    before = app.job(job_id)
    assert (before.state, before.code, before.exitcode) == ("final", "error", 504)
    assert charge.answer("k", "too late") == "late"
    run()
    assert app.job(job_id)._row == before._row
    assert [(one.data, one.state, one.job) for one in app.answers.list()] == [("too late", "late", job_id)]
    assert (seen, bank.looked) == ([(job_id, "final", "too late", "late")], [])


def test_case_06_the_hook_may_be_a_decorator_and_may_raise(app: Hipq, queue: Queue, run: Run, bank: Bank) -> None:
    charge = bank.charge(queue)
    seen: list[Any] = []

    @charge.on_late
    def look(_job: Job[Any], answer: Answer) -> None:
        seen.append(answer.data)
        raise ValueError

    job_id = charge.enqueue(key="k")
    run()
    app.cancel(job_id)
    assert charge.answer("k", "too late") == "late"
    assert (seen, kept(app)) == (["too late"], [("too late", "late")])


def test_case_06_the_hook_is_called_although_the_store_fails_right_after_the_answer_is_kept(
    app: Hipq, queue: Queue, run: Run, bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    charge = bank.charge(queue, on_late=lambda job, answer: seen.append((job.id, job.state, answer.id, answer.data)))
    job_id = charge.enqueue(key="k")
    run()
    app.cancel(job_id)

    def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("it went away")

    with monkeypatch.context() as patched:
        patched.setattr(app.store, "get", away)
        patched.setattr(app.store, "answers", away)
        assert charge.answer("k", "too late") == "late"
    (late,) = app.answers.list()
    assert seen == [(job_id, "final", late.id, "too late")]


def test_case_06_a_late_answer_stays_bound_when_the_key_is_used_again(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    charge = bank.charge(queue)
    first = charge.enqueue(key="k")
    run()
    app.cancel(first)
    assert charge.answer("k", "for the first") == "late"
    second = charge.enqueue(key="k")
    run()
    assert app.job(second).phase == "waiting"
    assert [(one.job, one.state) for one in app.answers.list()] == [(first, "late")]


# -- 7 ---------------------------------------------------------------------------------------------------------------
def second_attempt(app: Hipq, charge: JobType, clock: HandClock, run: Run) -> int:
    job_id = timed_out(app, charge, clock, run)
    clock.advance(seconds=60)
    run()
    assert (app.job(job_id).attempt, app.job(job_id).phase) == (2, "waiting")
    return job_id


@both
def test_case_07_an_earlier_attempts_answer_is_accepted(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, handler: bool
) -> None:
    charge = bank.charge(queue, timeout=10, retry=fixed(60))
    if handler:
        bank.answered(charge)
    job_id = second_attempt(app, charge, clock, run)
    assert charge.answer("k", "to the first", attempt=1) == "matched"
    run()
    assert (app.job(job_id).state, app.job(job_id).result, app.job(job_id).attempt) == ("final", "to the first", 2)


@both
def test_case_07_a_fence_refuses_an_earlier_attempts_answer(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, handler: bool
) -> None:
    seen: list[Any] = []
    charge = bank.charge(
        queue, timeout=10, retry=fixed(60), fence="attempt", on_late=lambda _, answer: seen.append(answer.data)
    )
    if handler:
        bank.answered(charge)
    job_id = second_attempt(app, charge, clock, run)
    before = app.job(job_id)
    assert charge.answer("k", "to the first", attempt=1) == "late"
    assert app.job(job_id)._row == before._row
    (late,) = app.answers.list()
    assert (late.state, late.job, late.attempt) == ("late", job_id, 1)
    assert "attempt 1" in late.note
    assert seen == ["to the first"]
    assert charge.answer("k", "to the second", attempt=2) == "matched"
    run()
    assert (app.job(job_id).result, app.job(job_id).attempt) == ("to the second", 2)


def test_case_07_a_fence_lets_through_what_names_no_attempt(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, timeout=10, retry=fixed(60), fence="attempt")
    job_id = second_attempt(app, charge, clock, run)
    assert charge.answer("k", "to whom?") == "matched"
    assert app.job(job_id).result == "to whom?"


def test_case_07_a_fence_lets_an_attempts_own_answer_cancel_its_retry(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, timeout=10, retry=fixed(60), fence="attempt")
    job_id = timed_out(app, charge, clock, run)
    assert charge.answer("k", "x", attempt=1) == "matched"
    assert (app.job(job_id).result, bank.sent) == ("x", [1])


def test_case_07_a_fence_refuses_while_the_next_attempt_executes(
    app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    words: list[str] = []

    @queue.job(timeout=10, retry=fixed(60), fence="attempt")
    def charge(job: Job[Any]) -> Wait:
        if job.attempt == 2:
            words.append(app.answer("orders", "charge", job.key, "to the first", attempt=1))
            words.append(app.answer("orders", "charge", job.key, "to the second", attempt=2))
        return Wait()

    job_id = charge.enqueue(key="k")
    run()
    clock.advance(seconds=10)
    run()
    clock.advance(seconds=60)
    run()
    assert words == ["late", "buffered"]
    assert (app.job(job_id).result, app.job(job_id).attempt) == ("to the second", 2)
    assert kept(app) == [("to the first", "late"), ("to the second", "settled")]


def test_case_07_a_fence_holds_also_for_attempts_that_failed_before_they_could_wait(
    app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    @queue.job(retry=fixed(60, attempts=9), fence="attempt")
    def charge(_: Job[Any]) -> Wait:
        raise ConnectionError("after it was sent")

    job_id = charge.enqueue(key="k")
    run()
    clock.advance(seconds=60)
    run()
    assert (app.job(job_id).state, app.job(job_id).attempt) == ("retry", 2)
    assert charge.answer("k", "to the first", attempt=1) == "late"
    assert app.job(job_id).state == "retry"


# -- 8 ---------------------------------------------------------------------------------------------------------------
@both
def test_case_08_what_arrives_between_two_jobs_of_a_key_is_late_and_its_predecessors(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, handler: bool
) -> None:
    charge = bank.charge(queue)
    if handler:
        bank.answered(charge)
    first = charge.enqueue(key="k")
    run()
    app.cancel(first)
    clock.advance(hours=1)
    assert charge.answer("k", "old") == "late"
    second = charge.enqueue(key="k")
    run()
    assert app.job(second).phase == "waiting"
    assert charge.answer("k", "new") == "matched"
    run()
    assert app.job(second).result == "new"
    assert [(one.data, one.state, one.job) for one in app.answers.list()] == [
        ("old", "late", first),
        ("new", "settled", second),
    ]


def test_case_08_what_arrives_after_the_early_window_is_for_the_next_job(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue)
    first = charge.enqueue(key="k")
    run()
    app.cancel(first)
    clock.advance(seconds=3600.000001)
    assert charge.answer("k", "new") == "buffered"
    second = charge.enqueue(key="k")
    run()
    assert app.job(second).result == "new"


def test_case_08_a_copy_of_the_predecessors_answer_is_a_duplicate_even_while_the_next_job_waits(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    charge = bank.charge(queue)
    first = charge.enqueue(key="k")
    run()
    assert charge.answer("k", "x", answer_id="m") == "matched"
    second = charge.enqueue(key="k")
    run()
    assert charge.answer("k", "x", answer_id="m") == "duplicate"
    assert (app.job(first).state, app.job(second).phase) == ("final", "waiting")
    assert charge.answer("k", "x", answer_id="n") == "matched"


def test_case_08_an_answer_from_before_the_predecessor_is_not_its_successors(app: Hipq, queue: Queue, run: Run) -> None:
    """The predecessor never waited, and so never looked for it."""
    waits: list[bool] = [False, True]

    @queue.job
    def charge(_: Job[Any]) -> Wait | None:
        return Wait() if waits.pop(0) else None

    assert charge.answer("k", "for the first") == "buffered"
    first = charge.enqueue(key="k")
    run()
    assert app.job(first).state == "final"
    second = charge.enqueue(key="k")
    run()
    assert app.job(second).phase == "waiting"


def test_case_08_an_answer_while_the_predecessor_executed_is_not_its_successors(
    app: Hipq, queue: Queue, run: Run
) -> None:
    words: list[str] = []

    @queue.job
    def charge(job: Job[Any]) -> Wait | None:
        if not words:
            words.append(app.answer("orders", "charge", job.key, "for the first"))
            return None
        return Wait()

    first = charge.enqueue(key="k")
    run()
    assert (app.job(first).state, words) == ("final", ["buffered"])
    second = charge.enqueue(key="k")
    run()
    assert app.job(second).phase == "waiting"
    assert app.answers.list()[0].job == first


def test_case_08_what_the_predecessor_left_unread_is_not_its_successors(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    charge = bank.charge(queue)
    bank.answered(charge)
    first = charge.enqueue(key="k")
    run()
    assert [charge.answer("k", n) for n in (1, 2)] == ["matched", "buffered"]
    app.cancel(first)
    second = charge.enqueue(key="k")
    run()
    assert app.job(second).phase == "waiting"
    assert [(one.data, one.state, one.job) for one in app.answers.list()] == [(1, "late", first), (2, "late", first)]


def test_case_08_the_predecessor_may_have_the_key_only_from_its_wait(
    app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    """It is older than another job that had the key before it: the last to end is whom an answer is to."""

    @queue.job
    def charge(job: Job[Any]) -> Wait | None:
        return Wait(key=job.data) if job.data else Wait()

    elder = charge.enqueue("k", delay=7200)
    before = charge.enqueue(key="k")
    run()
    assert charge.answer("k", "to the younger") == "matched"
    assert app.job(before).state == "final"
    clock.advance(hours=2)
    run()
    assert (app.job(elder).key, app.job(elder).wait_key, app.job(elder).phase) == (str(elder), "k", "waiting")
    assert charge.answer("k", "to the elder") == "matched"
    clock.advance(seconds=1)
    assert charge.answer("k", "to the elder, too") == "conflict"
    successor = charge.enqueue(key="k")
    run()
    assert app.job(successor).phase == "waiting", "it has eaten its predecessor's answer"


# -- 9 ---------------------------------------------------------------------------------------------------------------
def test_case_09_of_a_time_out_and_an_answer_at_the_same_moment_exactly_one_wins(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, timeout=10)
    bank.answered(charge)
    keys = [f"k{n}" for n in range(20)]
    ids = charge.enqueue_many([None] * 20, keys=keys)
    run()
    clock.advance(seconds=10)
    words: dict[str, str] = {}
    start = threading.Barrier(2)

    def answer() -> None:
        start.wait(10)
        words.update({key: charge.answer(key, "x") for key in keys})

    thread = threading.Thread(target=answer)
    thread.start()
    start.wait(10)
    run()
    thread.join(20)
    run()
    for job_id, key in zip(ids, keys, strict=True):
        job = app.job(job_id)
        assert job.state == "final"
        assert (words[key], job.code) in (("matched", "ok"), ("late", "error"))
        assert told(job).count("answered") == (words[key] == "matched")
    assert len(bank.looked) == sum(word == "matched" for word in words.values())


def test_case_09_an_answer_after_the_deadline_that_nobody_has_noticed_wins(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, timeout=10)
    job_id = charge.enqueue(key="k")
    run()
    clock.advance(seconds=11)
    assert charge.answer("k", "x") == "matched"
    run()
    assert (app.job(job_id).code, app.job(job_id).result) == ("ok", "x")


# -- 10 --------------------------------------------------------------------------------------------------------------
def test_case_10_what_nobody_claims_is_kept_counted_and_listed_until_its_time_is_over(
    app: Hipq, queue: Queue, clock: HandClock
) -> None:
    _ = queue
    assert app.answer("orders", "charge", "nobody", {"a": 1}) == "buffered"
    assert {state: tuple(count) for state, count in app.answers.counts().items()} == {"buffered": (1, 1)}
    clock.advance(days=7)
    assert (app.answers.prune(), kept(app, key="nobody")) == (0, [({"a": 1}, "buffered")])
    clock.advance(seconds=1)
    assert (app.answers.prune(), kept(app)) == (1, [])


def test_case_10_its_time_is_enforced_when_matching_without_any_prune(
    app: Hipq, bank: Bank, run: Run, clock: HandClock
) -> None:
    orders = app.queue("orders", answer_ttl=10)

    @orders.job
    def charge(job: Job[Any]) -> Wait:
        bank.sent.append(job.attempt)
        clock.advance(seconds=11)  # less than engines take until they look for such answers
        return Wait()

    job_id = charge.enqueue(key="k")
    assert charge.answer("k", "stale") == "buffered"
    run()
    assert (app.job(job_id).phase, kept(app)) == ("waiting", [("stale", "buffered")])


def test_case_10_a_stale_answer_does_not_stand_before_a_fresh_one(
    app: Hipq, bank: Bank, run: Run, clock: HandClock
) -> None:
    orders = app.queue("orders", answer_ttl=10)

    @orders.job
    def charge(_: Job[Any]) -> Wait:
        clock.advance(seconds=11)
        return Wait()

    bank.answered(charge)
    job_id = charge.enqueue(key="k")
    assert charge.answer("k", "stale") == "buffered"
    run()
    assert charge.answer("k", "fresh") == "matched"
    run()
    assert (app.job(job_id).result, bank.looked) == ("fresh", ["fresh"])


def test_case_10_engines_forget_what_nobody_claimed(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    _ = queue
    app.answer("orders", "charge", "nobody", 1)
    clock.advance(days=7)
    run()
    assert kept(app) == [(1, "buffered")]
    clock.advance(seconds=1)
    run()
    assert kept(app) == []


def test_case_10_it_can_be_replayed_and_rekeyed(app: Hipq, queue: Queue, run: Run, bank: Bank) -> None:
    charge = bank.charge(queue)
    job_id = charge.enqueue(key="order-17")
    run()
    assert charge.answer("order 17", "paid") == "buffered"
    (lost,) = app.answers.list(state="buffered")
    assert app.answers.replay(lost.id).outcome == "buffered"
    (lost,) = app.answers.list(state="buffered")
    replayed = app.answers.rekey(lost.id, "order-17")
    assert (replayed.outcome, replayed.job) == ("matched", job_id)
    assert (app.job(job_id).result, kept(app)) == ("paid", [("paid", "settled")])


# -- 11 --------------------------------------------------------------------------------------------------------------
@both
def test_case_11_an_answer_that_says_the_work_failed_goes_the_way_of_errors(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, handler: bool
) -> None:
    asked: list[str] = []

    def again(_job: Job[Any], fault: Any) -> Retry:
        asked.append(fault.message)
        return Retry(60)

    charge = bank.charge(queue, retry=again)
    if handler:
        bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    assert charge.answer("k", "no funds", error=True) == "matched"
    run()
    job = app.job(job_id)
    assert (job.state, job.phase, job.failures, job.attempt, held(app, job_id)) == ("retry", "scheduled", 1, 1, 0)
    assert (asked, bank.looked, kept(app)) == (["no funds"], [], [("no funds", "applied")])
    clock.advance(seconds=60)
    run()
    assert (bank.sent, app.job(job_id).attempt, app.job(job_id).phase) == ([1, 2], 2, "waiting")
    assert charge.answer("k", "paid") == "matched"
    run()
    assert (app.job(job_id).code, app.job(job_id).result) == ("ok", "paid")


def test_case_11_without_a_retry_handler_it_is_final(app: Hipq, queue: Queue, run: Run, bank: Bank) -> None:
    charge = bank.charge(queue)
    job_id = charge.enqueue(key="k")
    run()
    assert charge.answer("k", {"why": "no funds"}, error=True) == "matched"
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.exitcode, job.failures) == ("final", "error", 500, 1)
    assert job.fault is not None
    assert "no funds" in job.fault.message
    assert kept(app) == [({"why": "no funds"}, "settled")]


def test_case_11_early_too(app: Hipq, queue: Queue, run: Run, bank: Bank) -> None:
    charge = bank.charge(queue)
    assert charge.answer("k", "no funds", error=True) == "buffered"
    job_id = charge.enqueue(key="k")
    run()
    assert (app.job(job_id).state, app.job(job_id).code, bank.sent) == ("final", "error", [1])


# -- 12 --------------------------------------------------------------------------------------------------------------
def test_case_12_several_answers_are_looked_at_one_after_the_other(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, timeout=100)
    bank.answered(charge, step({"accepted": Progress(), "40 %": Progress(extend=1000)}))
    job_id = charge.enqueue(key="k")
    run()
    deadline = app.job(job_id).deadline
    clock.advance(seconds=50)
    assert charge.answer("k", "accepted") == "matched"
    run()
    job = app.job(job_id)
    assert (job.state, job.phase, job.attempt, job.deadline, held(app, job_id)) == (
        "running",
        "waiting",
        1,
        deadline,
        1,
    )
    assert charge.answer("k", "40 %") == "matched"
    run()
    extended = app.job(job_id).deadline
    assert extended is not None
    assert extended.timestamp() == clock.now() / 1e6 + 1000
    clock.advance(seconds=999)
    run()
    assert app.job(job_id).phase == "waiting"
    assert charge.answer("k", "done") == "matched"
    run()
    job = app.job(job_id)
    assert (job.state, job.result, job.attempt, job.failures, bank.sent) == ("final", "done", 1, 0, [1])
    assert told(job) == ["claimed", "waits", "answered", "progress", "answered", "progress", "answered", "ok"]
    assert kept(app) == [("accepted", "progress"), ("40 %", "progress"), ("done", "settled")]


@pytest.mark.parametrize("early", ["not added", "initial", "waiting"])
def test_case_12_several_that_queue_up_are_looked_at_in_order_and_none_is_lost(
    app: Hipq, queue: Queue, run: Run, bank: Bank, early: str
) -> None:
    charge = bank.charge(queue)
    bank.answered(charge, lambda n: n if n == 5 else Progress())
    job_id = charge.enqueue(key="k") if early != "not added" else 0
    if early == "waiting":
        run()
    words = [charge.answer("k", n) for n in range(7)]
    assert words == [("matched" if early == "waiting" else "buffered"), *["buffered"] * 6]
    job_id = job_id or charge.enqueue(key="k")
    run()
    job = app.job(job_id)
    assert (job.state, job.result, job.attempt, bank.looked) == ("final", 5, 1, [0, 1, 2, 3, 4, 5])
    assert kept(app) == [*((n, "progress") for n in range(5)), (5, "settled"), (6, "conflict")]


def test_case_12_more_queue_up_than_are_read_at_once(app: Hipq, queue: Queue, run: Run, bank: Bank) -> None:
    charge = bank.charge(queue)
    bank.answered(charge, lambda n: n if n == 119 else Progress())
    app.answer_many({"queue": "orders", "type": "charge", "key": "k", "data": n} for n in range(120))
    job_id = charge.enqueue(key="k")
    run()
    assert (app.job(job_id).result, bank.looked) == (119, list(range(120)))


def test_case_12_an_answer_while_the_one_before_is_looked_at_is_next(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    charge = bank.charge(queue)
    words: list[str] = []

    def outcome(data: Any) -> Any:
        if data == "accepted":
            words.append(charge.answer("k", "done"))
            return Progress()
        return data

    bank.answered(charge, outcome)
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "accepted")
    run()
    assert (words, bank.looked, app.job(job_id).result) == (["buffered"], ["accepted", "done"], "done")


def test_case_12_an_answer_handler_may_wait_anew_under_another_key(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, timeout=100)
    bank.answered(charge, step({"accepted": Wait(key="ticket-9", timeout=1000)}))
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "accepted")
    run()
    job = app.job(job_id)
    assert (job.state, job.phase, job.attempt, held(app, job_id)) == ("running", "waiting", 1, 1)
    assert (job.key, job.wait_key) == ("k", "ticket-9")
    assert job.deadline is not None
    assert job.deadline.timestamp() == clock.now() / 1e6 + 1000
    assert charge.answer("ticket-9", "done") == "matched"
    run()
    assert (app.job(job_id).state, app.job(job_id).result, bank.sent) == ("final", "done", [1])


@pytest.mark.parametrize("raised", [True, False], ids=["raised", "returned"])
def test_case_12_the_last_of_several_may_say_failed_or_retry(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, raised: bool
) -> None:
    charge = bank.charge(queue)
    outcomes: dict[str, Any] = {"accepted": Progress(), "busy": Retry(60), "declined": Failed("declined")}

    def outcome(data: str) -> Any:
        if raised and isinstance(outcomes[data], Exception):
            raise outcomes[data]
        return outcomes[data]

    bank.answered(charge, outcome)
    job_id = charge.enqueue(key="k")
    run()
    for data in ("accepted", "busy"):
        assert charge.answer("k", data) == "matched"
        run()
    job = app.job(job_id)
    assert (job.state, job.phase, job.failures, job.attempt, held(app, job_id)) == ("retry", "scheduled", 0, 1, 0)
    clock.advance(seconds=60)
    run()
    assert (bank.sent, app.job(job_id).attempt) == ([1, 2], 2)
    charge.answer("k", "declined")
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.exitcode, job.failures, job.attempt) == ("final", "failed", 400, 0, 2)


def test_case_12_an_answer_behind_one_that_asks_to_run_again_cancels_the_retry(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    """Nothing is lost between waits: the second stays the job's, and is looked at when it waits again at the latest."""
    charge = bank.charge(queue)
    bank.answered(charge, step({"busy": Retry(60)}))
    job_id = charge.enqueue(key="k")
    run()
    assert [charge.answer("k", data) for data in ("busy", "done after all")] == ["matched", "buffered"]
    run()
    clock.advance(seconds=60)
    run()
    assert (app.job(job_id).state, app.job(job_id).result) == ("final", "done after all")
    assert bank.looked == ["busy", "done after all"]


# -- 13 --------------------------------------------------------------------------------------------------------------
def test_case_13_silence_for_longer_than_the_heartbeat_is_a_time_out(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, Wait(timeout=100, heartbeat=30), retry=fixed(60))
    bank.answered(charge, lambda _: Progress())
    job_id = charge.enqueue(key="k")
    run()
    for _ in range(2):
        clock.advance(seconds=29)
        run()
        assert charge.answer("k", "still working") == "matched"
        run()
        assert app.job(job_id).phase == "waiting"
    clock.advance(seconds=30)
    run()
    job = app.job(job_id)
    assert (job.state, job.failures, job.exitcode, job.attempt) == ("retry", 1, 504, 1)
    assert job.fault is not None
    assert job.fault.is_a(TimeoutError)
    assert "30 s" in job.fault.message


def test_case_13_signs_of_life_do_not_move_the_hard_time_out(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, Wait(timeout=100, heartbeat=30))
    bank.answered(charge, lambda _: Progress())
    job_id = charge.enqueue(key="k")
    run()
    for _ in range(4):
        clock.advance(seconds=24)
        charge.answer("k", "still working")
        run()
    clock.advance(seconds=3)
    run()
    assert app.job(job_id).phase == "waiting"
    clock.advance(seconds=1)
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.exitcode, len(bank.looked)) == ("final", "error", 504, 4)
    assert job.fault is not None
    assert "sign of life" not in job.fault.message


def test_case_13_an_extension_is_within_the_heartbeat(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, Wait(timeout=40, heartbeat=30))
    bank.answered(charge, lambda _: Progress(extend=1000))
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "still working")
    run()
    clock.advance(seconds=30)
    run()
    assert (app.job(job_id).state, app.job(job_id).exitcode) == ("final", 504)


# -- 14 --------------------------------------------------------------------------------------------------------------
def test_case_14_an_answer_handler_that_raises_is_called_again_and_the_request_is_not_sent_again(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    asked: list[int] = []
    charge = bank.charge(queue, timeout=3, retry=lambda job, _: asked.append(job.id))
    broken = [True, True, True, False]

    def outcome(data: Any) -> Any:
        if broken.pop(0):
            raise ConnectionError("the ledger is down")
        return data

    bank.answered(charge, outcome)
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "paid")
    run()
    for tries, pause in ((1, 1), (2, 2), (3, 4)):
        job = app.job(job_id)
        assert (job.state, job.phase, job.failures, job.attempt) == ("running", "waiting", 0, 1)
        assert (len(bank.looked), held(app, job_id), kept(app)) == (tries, 1, [("paid", "matched")])
        clock.advance(seconds=pause - 0.001)
        run()
        assert len(bank.looked) == tries
        clock.advance(seconds=0.001)
        run()
    job = app.job(job_id)
    assert (job.state, job.code, job.result, job.attempt, job.failures) == ("final", "ok", "paid", 1, 0)
    assert (bank.sent, bank.looked, asked) == ([1], ["paid"] * 4, [])
    assert told(job).count("answer failed") == 3
    assert kept(app) == [("paid", "settled")]


def test_case_14_answers_that_come_meanwhile_keep_their_order(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue)
    broken = [True, False, False]

    def outcome(data: Any) -> Any:
        if broken.pop(0):
            raise ValueError
        return Progress() if data == "first" else data

    bank.answered(charge, outcome)
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "first")
    run()
    assert charge.answer("k", "second") == "buffered"
    run()
    assert bank.looked == ["first"]
    clock.advance(seconds=1)
    run()
    assert (bank.looked, app.job(job_id).result, bank.sent) == (["first", "first", "second"], "second", [1])


def test_case_14_a_job_that_never_can_read_its_answer_times_out_and_the_answer_is_kept_for_replay(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    asked: list[Any] = []

    def again(_job: Job[Any], fault: Fault) -> Retry:
        asked.append(fault)
        return Retry(100)

    charge = bank.charge(queue, timeout=600, retry=again)

    def outcome(data: Any) -> Any:
        return data["receipt"]

    bank.answered(charge, outcome)
    job_id = charge.enqueue(key="k")
    run()
    clock.advance(seconds=500)
    charge.answer("k", {"reciept": 7})
    run()
    for _ in range(2):  # counted from the failure: an answer that comes at the last moment has its time, too
        clock.advance(seconds=299.5)
        run()
        job = app.job(job_id)
        assert (job.phase, asked, held(app, job_id), str(job.fault)) == ("waiting", [], 1, "KeyError: 'receipt'")
    clock.advance(seconds=1)
    run()
    job = app.job(job_id)
    assert (job.state, job.phase, job.attempt, held(app, job_id), len(bank.looked)) == ("retry", "scheduled", 1, 0, 4)
    (fault,) = asked
    assert fault.is_a(TimeoutError)
    assert fault.message == "its answer handler failed 4 times, the last time with KeyError: 'receipt'"
    (answer,) = app.answers.list()
    assert (answer.state, answer.job, answer.note) == ("late", job_id, fault.message)
    charge.answered(lambda _job, answer: answer.data)  # the program is mended, and the answer comes anew
    assert app.answers.replay(answer.id).outcome == "matched"
    run()
    assert (app.result(job_id), bank.sent) == ({"reciept": 7}, [1])


def test_case_14_the_next_answer_takes_the_place_of_one_that_is_given_up(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, timeout=300)
    bank.answered(charge, lambda data: data["receipt"])
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "rubbish")
    run()
    assert charge.answer("k", {"receipt": 7}) == "buffered"
    clock.advance(seconds=300)
    for _ in range(10):
        run()
    assert (app.result(job_id), bank.sent) == (7, [1])
    assert [state for _, state in kept(app)] == ["late", "settled"]


def test_case_14_an_answer_that_does_not_fit_its_type_is_no_answer_for_the_handler(
    app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    looked: list[Receipt] = []

    @queue.job(timeout=300)
    def charge(_: Job[Any]) -> Wait:
        return Wait()

    @charge.answered
    def settled(_job: Job[Any], answer: Answer[Receipt]) -> int:
        looked.append(answer.data)
        return answer.data.number

    good, bad = charge.enqueue(key="good"), charge.enqueue(key="bad")
    run()
    charge.answer("good", {"number": 7})
    charge.answer("bad", {"number": "seven"})
    run()
    assert (app.result(good), looked) == (7, [Receipt(7)])
    assert app.job(bad).phase == "waiting"
    assert "the answer does not fit Receipt: Expected `int`, got `str` - at `$.number`" in str(app.job(bad).fault)
    clock.advance(seconds=300)
    run()
    assert (app.job(bad).state, looked) == ("final", [Receipt(7)])


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
def test_case_14_an_answer_handler_that_takes_too_long_is_called_again(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, is_async: bool
) -> None:
    charge = bank.charge(queue, run_timeout=5)
    release = threading.Event()
    if is_async:

        @charge.answered
        async def slowly(_job: Job[Any], answer: Answer) -> Any:
            import asyncio

            bank.looked.append(answer.data)
            if len(bank.looked) == 1:
                clock.advance(seconds=5)
                await asyncio.sleep(20)
            return answer.data
    else:

        @charge.answered
        def slow(_job: Job[Any], answer: Answer) -> Any:
            bank.looked.append(answer.data)
            if len(bank.looked) == 1:
                clock.advance(seconds=5)
                release.wait(20)
            return answer.data

    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "paid")
    try:
        app.run(until_empty=True, poll=0.02)
        job = app.job(job_id)
        assert (job.state, job.phase, job.failures) == ("running", "waiting", 0)
        assert told(job)[-1] == "answer failed"
        clock.advance(seconds=1)
        run()
    finally:
        release.set()
    job = app.job(job_id)
    assert (job.state, job.result, job.attempt, bank.sent, bank.looked) == ("final", "paid", 1, [1], ["paid"] * 2)


@pytest.mark.parametrize("raised", [True, False], ids=["raised", "returned"])
@pytest.mark.parametrize(
    ("outcome", "state", "code"), [(Failed("no"), "final", "failed"), (Retry(60), "retry", "retry")], ids=["F", "R"]
)
def test_case_14_failed_and_retry_are_no_failures_of_the_answer_handler(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, outcome: Any, state: str, code: str, raised: bool
) -> None:
    charge = bank.charge(queue)

    def said(_: Any) -> Any:
        if raised:
            raise outcome
        return outcome

    bank.answered(charge, said)
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "x")
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.failures, job.attempt) == (state, code, 0, 1)
    assert "answer failed" not in told(job)
    clock.advance(seconds=59)
    run()
    assert (bank.looked, bank.sent) == (["x"], [1])


def test_case_14_a_retry_without_a_time_asks_the_retry_handler(app: Hipq, queue: Queue, run: Run, bank: Bank) -> None:
    charge = bank.charge(queue, retry=lambda _job, _fault: None)
    bank.answered(charge, lambda _: Retry())
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "x")
    run()
    job = app.job(job_id)
    assert (job.state, job.code, bank.looked, "answer failed" in told(job)) == ("final", "retry", ["x"], False)


def test_case_14_a_result_that_is_not_json_is_a_failure_of_the_answer_handler(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    results: list[Any] = [object(), "fine"]
    charge = bank.charge(queue)
    bank.answered(charge, lambda _: results.pop(0))
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "x")
    run()
    assert told(app.job(job_id))[-1] == "answer failed"
    clock.advance(seconds=1)
    run()
    assert (app.job(job_id).result, bank.sent) == ("fine", [1])


def test_case_14_an_async_answer_handler_of_a_plain_job_type(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue)

    @charge.answered
    async def settled(_job: Job[Any], answer: Answer) -> Any:
        bank.looked.append(answer.data)
        if len(bank.looked) == 1:
            raise ValueError("once")
        return Ok(answer.data)

    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "x")
    run()
    assert (app.job(job_id).phase, told(app.job(job_id))[-1]) == ("waiting", "answer failed")
    clock.advance(seconds=1)
    run()
    assert (app.job(job_id).state, app.job(job_id).result, bank.looked, bank.sent) == ("final", "x", ["x", "x"], [1])


def test_case_14_a_plain_answer_handler_of_an_async_job_type(app: Hipq, queue: Queue, run: Run, bank: Bank) -> None:
    @queue.job
    async def charge(_: Job[Any]) -> Wait:
        return Wait()

    bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "x")
    run()
    assert (app.job(job_id).result, bank.looked) == ("x", ["x"])


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
def test_case_14_answer_handlers_of_job_types_with_processes_run_there(
    app: Hipq, queue: Queue, run: Run, clock: HandClock, is_async: bool
) -> None:
    import os

    charge = queue.job("charge", process=True)(lambda _: Wait())

    def outcome(job: Job[Any], answer: Answer) -> Any:
        if "answer failed" not in told(job):
            raise ValueError("once")
        return {"pid": os.getpid(), "data": answer.data, "key": answer.key}

    async def later(job: Job[Any], answer: Answer) -> Any:
        return outcome(job, answer)

    charge.answered(later if is_async else outcome)
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", [1, 2])
    run()
    assert told(app.job(job_id))[-1] == "answer failed"
    clock.advance(seconds=1)
    run()
    result = app.job(job_id).result
    assert (result["data"], result["key"], app.job(job_id).attempt) == ([1, 2], "k", 1)
    assert result["pid"] != os.getpid()


# -- 15 --------------------------------------------------------------------------------------------------------------
Close = Callable[[Hipq, HandClock], None]


def fill(app: Hipq, _clock: HandClock) -> None:
    app.rules.set_limit("orders", 1)


def shut(_app: Hipq, clock: HandClock) -> None:
    clock.advance(hours=2)


def pause(app: Hipq, _clock: HandClock) -> None:
    app.pause("orders")


def pause_lane(app: Hipq, _clock: HandClock) -> None:
    app.pause("orders", lane="east")


def pause_type(app: Hipq, _clock: HandClock) -> None:
    app.pause("orders", type="charge")


@pytest.mark.parametrize("close", [fill, shut, pause, pause_lane, pause_type])
@both
def test_case_15_an_answer_waits_for_no_limit_window_or_pause(
    app: Hipq, run: Run, bank: Bank, clock: HandClock, close: Close, handler: bool
) -> None:
    charge = bank.charge(app.queue("orders", throttle_limit=3), windows=[window("07:00", "09:00")])
    if handler:
        bank.answered(charge)
    ids = charge.enqueue_many([None] * 3, keys=["a", "b", "c"], lane="east")
    run()
    close(app, clock)
    blocked = charge.enqueue(key="d", lane="east")
    run()
    assert app.job(blocked).state == "initial"
    assert charge.answer("a", "x") == "matched"
    run()
    assert (app.job(ids[0]).state, app.job(ids[0]).result, app.job(ids[0]).attempt) == ("final", "x", 1)
    assert app.job(blocked).state == "initial"


def test_case_15_an_answer_does_not_ask_a_throttler(app: Hipq, run: Run, bank: Bank) -> None:
    asked: list[str] = []

    def first_only(due: list[Job[Any]], _running: list[Job[Any]], _now: Any) -> list[Any]:
        asked.extend(job.key for job in due)
        return [admit(job) for job in due if job.key == "k"]

    charge = bank.charge(app.queue("orders", throttler=first_only))
    bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    blocked = charge.enqueue(key="blocked")
    run()
    before = asked.count("k")
    assert charge.answer("k", "x") == "matched"
    run()
    assert (app.job(job_id).state, app.job(job_id).result, asked.count("k")) == ("final", "x", before)
    assert (app.job(blocked).state, app.job(blocked).phase) == ("initial", "parked")


def test_case_15_progress_keeps_the_jobs_place_in_a_full_limit(app: Hipq, run: Run, bank: Bank) -> None:
    charge = bank.charge(app.queue("orders", throttle_limit=1))
    bank.answered(charge, step({"40 %": Progress()}))
    job_id, other = charge.enqueue(key="k"), charge.enqueue(key="other")
    run()
    charge.answer("k", "40 %")
    run()
    assert (app.job(job_id).phase, held(app, job_id), app.job(other).state) == ("waiting", 1, "initial")
    charge.answer("k", "done")
    run()
    assert (app.job(job_id).state, app.job(other).phase) == ("final", "waiting")


# -- 16 --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["order-17", "ticket-9"])
@both
def test_case_16_the_key_may_be_known_only_from_the_requests_reply(
    app: Hipq, queue: Queue, run: Run, bank: Bank, handler: bool, key: str
) -> None:
    charge = bank.charge(queue, Wait(key="ticket-9"))
    if handler:
        bank.answered(charge)
    job_id = charge.enqueue(key="order-17")
    run()
    job = app.job(job_id)
    assert (job.key, job.wait_key, job.phase) == ("order-17", "ticket-9", "waiting")
    assert charge.answer(key, "paid") == "matched"
    run()
    assert (app.job(job_id).state, app.job(job_id).result) == ("final", "paid")
    assert charge.answer(key, "declined") == "conflict"
    assert {one.job for one in app.answers.list()} == {job_id}


def test_case_16_a_job_keeps_its_key_on_every_attempt(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    """It is what handlers use so that a service does not do the same thing twice; so no second job may have it."""
    keys: list[str] = []

    @queue.job(retry=fixed(60), timeout=10)
    def charge(job: Job[Any]) -> Wait:
        keys.append(job.key)
        return Wait(key=f"ticket-{job.attempt}")

    job_id = charge.enqueue(key="order-17")
    run()
    with pytest.raises(DuplicateKey) as refused:
        charge.enqueue(key="order-17")
    assert refused.value.id == job_id
    for _ in range(2):
        clock.advance(seconds=60)
        run()
    job = app.job(job_id)
    assert (keys, job.attempt, job.wait_key) == (["order-17"] * 2, 2, "ticket-2")
    assert [entry.get("key") for entry in job.history if entry["event"] == "waits"] == ["ticket-1", "ticket-2"]


def test_case_16_a_retry_that_is_pending_is_off_when_the_answer_to_the_waits_key_comes(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    """Case 5, the commonest: the time-out was too short."""
    charge = bank.charge(queue, Wait(key="ticket-9", timeout=10), retry=fixed(60))
    bank.answered(charge)
    job_id = charge.enqueue(key="order-17")
    run()
    clock.advance(seconds=10)
    run()
    assert (app.job(job_id).state, app.job(job_id).wait_key) == ("retry", "ticket-9")
    assert charge.answer("ticket-9", "paid") == "matched"
    run()
    assert (app.job(job_id).result, app.job(job_id).attempt, bank.sent) == ("paid", 1, [1])


def test_case_16_an_answer_to_the_first_request_is_good_while_the_second_is_sent(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    """Case 7. The engine may have claimed the retry a moment before the answer came: that must make no difference."""
    words: list[str] = []

    @queue.job(retry=fixed(60), timeout=10)
    def charge(job: Job[Any]) -> Wait:
        if job.attempt == 2:
            words.append(app.answer("orders", "charge", "ticket-1", "paid"))
        return Wait(key=f"ticket-{job.attempt}")

    bank.answered(charge)
    job_id = charge.enqueue(key="order-17")
    run()
    for _ in range(2):
        clock.advance(seconds=60)
        run()
    assert (words, app.job(job_id).result, app.job(job_id).attempt) == (["buffered"], "paid", 2)


def test_case_16_an_answer_may_be_faster_than_the_reply(app: Hipq, queue: Queue, run: Run) -> None:
    words: list[str] = []

    @queue.job
    def charge(_: Job[Any]) -> Wait:
        words.append(app.answer("orders", "charge", "ticket-9", "paid"))
        return Wait(key="ticket-9")

    job_id = charge.enqueue(key="order-17")
    run()
    assert (words, app.job(job_id).state, app.job(job_id).result) == (["buffered"], "final", "paid")


def test_case_16_an_early_answer_to_the_jobs_own_key_is_picked_up_too(
    app: Hipq, queue: Queue, run: Run, bank: Bank
) -> None:
    words: list[str] = []

    @queue.job
    def charge(job: Job[Any]) -> Wait:
        words.append(app.answer("orders", "charge", job.key, "paid"))
        return Wait(key="ticket-9")

    bank.answered(charge)
    job_id = charge.enqueue(key="order-17")
    run()
    assert (words, app.job(job_id).result, bank.looked) == (["buffered"], "paid", ["paid"])


def test_case_16_a_key_that_another_live_job_has_is_an_error(app: Hipq, queue: Queue, run: Run) -> None:
    @queue.job
    def charge(job: Job[Any]) -> Wait:
        return Wait(key=job.data) if job.data else Wait()

    first = charge.enqueue(key="ticket-9")
    run()
    second, bystander = charge.enqueue("ticket-9", key="order-17"), charge.enqueue(key="bystander")
    run()
    job = app.job(second)
    assert (job.state, job.code, app.job(first).phase, app.job(bystander).phase) == (
        "final",
        "error",
        "waiting",
        "waiting",
    )
    assert f"another live charge job (id {first}) has the key 'ticket-9'" in str(job.fault)
    assert charge.answer("ticket-9", "paid") == "matched"
    assert (app.job(first).result, app.job(second).code) == ("paid", "error")


def test_case_16_jobs_that_want_one_key_at_once_cost_no_neighbour_anything(app: Hipq, queue: Queue, run: Run) -> None:
    charge = queue.job("charge")(lambda job: Wait(key=job.data) if job.data else Ok("done"))
    ids = charge.enqueue_many(["ticket", "ticket", None, "another", "ticket", None])
    run()
    jobs = [app.job(job_id) for job_id in ids]
    assert sorted(job.phase for job in jobs if job.data == "ticket") == ["done", "done", "waiting"]
    (winner,) = (job.id for job in jobs if job.data == "ticket" and job.phase == "waiting")
    for job in jobs:
        if job.data == "ticket" and job.id != winner:
            assert f"(id {winner}) has the key 'ticket'" in str(job.fault)
    assert [(job.phase, job.code) for job in jobs if job.data != "ticket"] == [
        ("done", "ok"), ("waiting", "NONE"), ("done", "ok")
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["", "x" * 501, "a\x00b", "\ud800", 5])
def test_case_16_a_key_that_is_none_is_an_error(app: Hipq, queue: Queue, run: Run, key: Any) -> None:
    charge = queue.job("charge")(lambda _: Wait(key=key))
    job_id = charge.enqueue()
    run()
    assert (app.job(job_id).state, app.job(job_id).code) == ("final", "error")
    assert "key" in app.job(job_id).error


# -- 17 --------------------------------------------------------------------------------------------------------------
def test_case_17_a_time_out_is_called_off_before_it_is_an_error(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, timeout=10, retry=fixed(60))
    bank.cancelled(charge)
    job_id = timed_out(app, charge, clock, run)
    job = app.job(job_id)
    assert (job.state, job.phase, job.failures, job.exitcode, held(app, job_id)) == ("retry", "scheduled", 1, 504, 0)
    assert job.fault is not None
    assert job.fault.is_a(TimeoutError)
    assert (bank.called_off, job.attempt) == (["k"], 1)
    assert told(job) == ["claimed", "waits", "cancelling", "cancel handler ended", "error", "again"]


def test_case_17_a_cancel_handler_knows_why(app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock) -> None:
    charge = bank.charge(queue, timeout=60)
    causes: list[tuple[str, str]] = []

    @charge.cancelled
    def call_off(job: Job[Any]) -> None:
        assert job.cause is not None
        causes.append((job.key, job.cause.kind))

    charge.enqueue(key="late")
    cancelled = charge.enqueue(key="off")
    run()
    assert app.job(cancelled).cause is None
    app.cancel(cancelled)
    run()
    clock.advance(seconds=61)
    run()
    assert causes == [("off", "cancelled"), ("late", "timeout")]


def test_case_17_a_cancelled_job_is_called_off_and_then_final(app: Hipq, queue: Queue, run: Run, bank: Bank) -> None:
    charge = bank.charge(queue, retry=fixed(60))
    bank.cancelled(charge)
    job_id = charge.enqueue(key="k")
    run()
    app.cancel(job_id, "changed my mind")
    job = app.job(job_id)
    assert (job.state, job.phase, held(app, job_id), bank.called_off) == ("running", "cancelling", 1, [])
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.exitcode, job.attempt, held(app, job_id)) == ("final", "cancelled", 499, 1, 0)
    assert job.fault is not None
    assert (job.fault.kind, job.fault.message, bank.called_off) == ("cancelled", "changed my mind", ["k"])
    assert told(job) == ["claimed", "waits", "cancelling", "cancel handler ended", "cancelled"]


@pytest.mark.parametrize("how", ["raises", "async", "async raises", "slow"])
@pytest.mark.parametrize("cause", ["time-out", "cancel"])
def test_case_17_what_the_cancel_handler_does_never_blocks(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, how: str, cause: str
) -> None:
    charge = bank.charge(queue, timeout=10, run_timeout=5)
    release = threading.Event()
    if how.startswith("async"):

        @charge.cancelled
        async def call_off(job: Job[Any]) -> None:
            bank.called_off.append(job.key)
            if "raises" in how:
                raise ConnectionError("the bank is closed")
    else:

        @charge.cancelled
        def call_off_plain(job: Job[Any]) -> None:
            bank.called_off.append(job.key)
            if how == "raises":
                raise ConnectionError("the bank is closed")
            clock.advance(seconds=5)
            release.wait(20)

    job_id = charge.enqueue(key="k")
    run()
    if cause == "cancel":
        app.cancel(job_id)
    else:
        clock.advance(seconds=10)
    try:
        app.run(until_empty=True, poll=0.02)
    finally:
        release.set()
    job = app.job(job_id)
    assert (job.state, job.exitcode, bank.called_off) == ("final", 499 if cause == "cancel" else 504, ["k"])
    event = "cancel handler ended" if how == "async" else "cancel handler failed"
    (entry,) = [entry for entry in job.history if entry["event"] == event]
    if how.endswith("raises"):
        assert "the bank is closed" in entry["error"]


@both
def test_case_17_an_answer_while_a_time_out_is_called_off_is_accepted(
    make_app: MakeApp, bank: Bank, clock: HandClock, handler: bool
) -> None:
    one, two = make_app(), make_app()
    charge = bank.charge(one.queue("orders"), timeout=10)
    bank.cancelled(charge)
    if handler:
        bank.answered(charge)
    two.queue("orders").job("other")(lambda _: None)
    job_id = charge.enqueue(key="k")
    one.run(until_empty=True)
    clock.advance(seconds=10)
    two.run(until_empty=True)
    assert one.job(job_id).phase == "cancelling", "an engine without the code leaves it to one that has it"
    assert charge.answer("k", "just in time") == "matched"
    one.run(until_empty=True)
    job = one.job(job_id)
    assert (job.state, job.code, job.result, job.attempt, bank.called_off) == ("final", "ok", "just in time", 1, [])


def test_case_17_an_answer_while_the_cancel_handler_of_a_time_out_runs_is_accepted(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    """And may be looked at before that has returned; both may end in the same turn of the engine."""
    charge = bank.charge(queue, timeout=10)
    together = {f"k{n}": threading.Barrier(2) for n in range(4)}
    words: list[str] = []

    def meet(key: str) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            together[key].wait(0.5)

    @charge.answered
    def settled(job: Job[Any], answer: Answer) -> Any:
        bank.looked.append(answer.data)
        meet(job.key)
        return answer.data

    @charge.cancelled
    def call_off(job: Job[Any]) -> None:
        words.append(charge.answer(job.key, job.key))
        meet(job.key)

    ids = charge.enqueue_many([None] * 4, keys=list(together))
    run()
    clock.advance(seconds=10)
    until_empty(app, 4)
    assert words == ["matched"] * 4
    assert [(app.job(job_id).state, app.job(job_id).result) for job_id in ids] == [("final", key) for key in together]
    assert sorted(bank.looked) == list(together)


@both
def test_case_17_an_answer_while_a_cancel_is_called_off_is_late(
    app: Hipq, queue: Queue, run: Run, bank: Bank, handler: bool
) -> None:
    charge = bank.charge(queue)
    bank.cancelled(charge)
    if handler:
        bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    app.cancel(job_id)
    assert charge.answer("k", "x") == "late"
    assert [(one.state, one.job) for one in app.answers.list()] == [("late", job_id)]
    run()
    assert (app.job(job_id).state, app.job(job_id).exitcode, bank.looked, bank.called_off) == ("final", 499, [], ["k"])


def test_case_17_the_cancel_handler_is_not_kept_waiting_by_a_pause_or_a_limit(
    app: Hipq, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(app.queue("orders", throttle_limit=1), windows=[window("07:00", "09:00")])
    bank.cancelled(charge)
    job_id = charge.enqueue(key="k")
    run()
    app.pause("orders")
    clock.advance(hours=2)
    app.cancel(job_id)
    run()
    assert (app.job(job_id).state, bank.called_off) == ("final", ["k"])


def test_case_17_a_job_that_never_waited_has_nothing_to_call_off(app: Hipq, queue: Queue, run: Run, bank: Bank) -> None:
    charge = bank.charge(queue)
    bank.cancelled(charge)
    job_id = charge.enqueue(key="k", delay=10)
    app.cancel(job_id)
    run()
    assert (app.job(job_id).state, bank.called_off) == ("final", [])


# -- 18 --------------------------------------------------------------------------------------------------------------
def test_case_18_a_time_out_is_an_error_by_default(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, Wait(timeout=10), retry=fixed(60, attempts=2))
    job_id = timed_out(app, charge, clock, run)
    assert (app.job(job_id).state, app.job(job_id).failures, app.job(job_id).exitcode) == ("retry", 1, 504)
    clock.advance(seconds=60)
    run()
    clock.advance(seconds=10)
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.failures, bank.sent) == ("final", "error", 2, [1, 2])


@pytest.mark.parametrize("calls_off", [True, False], ids=["cancel handler ended", "plain"])
@pytest.mark.parametrize(
    ("chosen", "state", "code", "exitcode", "result"),
    [
        (Ok({"assumed": "paid"}, exitcode=202), "final", "ok", 202, {"assumed": "paid"}),
        (Failed("no answer", exitcode=408), "final", "failed", 408, None),
        (Retry(30, data="other"), "retry", "retry", 100, None),
    ],
    ids=["Ok", "Failed", "Retry"],
)
def test_case_18_a_time_out_may_mean_what_the_user_chooses(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, calls_off: bool, chosen: Any, state: str,
    code: str, exitcode: int, result: Any,
) -> None:  # fmt: skip
    asked: list[int] = []
    charge = bank.charge(queue, Wait(timeout=10, on_timeout=chosen), retry=lambda job, _: asked.append(job.id))
    if calls_off:
        bank.cancelled(charge)
    job_id = timed_out(app, charge, clock, run)
    job = app.job(job_id)
    assert (job.state, job.code, job.exitcode, job.result) == (state, code, exitcode, result)
    assert (job.failures, job.attempt, held(app, job_id), asked) == (0, 1, 0, [])
    assert bank.called_off == (["k"] if calls_off else [])
    if state == "retry":
        assert (job.scheduled_run_time.timestamp(), job.data) == (clock.now() / 1e6 + 30, "other")
        clock.advance(seconds=30)
        run()
        assert bank.sent == [1, 2]


def test_case_18_the_heartbeat_means_the_same(app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock) -> None:
    charge = bank.charge(queue, Wait(timeout=100, heartbeat=10, on_timeout=Ok("assumed")))
    job_id = timed_out(app, charge, clock, run)
    assert (app.job(job_id).state, app.job(job_id).result) == ("final", "assumed")


@pytest.mark.parametrize("chosen", [Retry(), Wait(), ValueError("x")])
def test_case_18_what_is_no_choice_is_an_error_at_once(app: Hipq, queue: Queue, run: Run, chosen: Any) -> None:
    charge = queue.job("charge")(lambda _: Wait(on_timeout=chosen))
    job_id = charge.enqueue()
    run()
    job = app.job(job_id)
    assert (job.state, job.code) == ("final", "error")
    assert "on_timeout" in job.error
