"""When two answers are the same one."""

from __future__ import annotations

from typing import Any

import pytest

from hipq import Hipq, Job, JobType, Progress, Queue, Retry, Wait, fixed
from hipq.testing.clock import HandClock
from tests.answers.helping import Bank, Run, kept, step


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def charge(queue: Queue, bank: Bank) -> JobType:
    """Its answers are progress until one says done."""
    charge = bank.charge(queue, retry=fixed(60, attempts=9))
    bank.answered(charge, lambda data: data if data == "done" else Progress())
    return charge


def test_an_id_is_known_whatever_the_body_says(charge: JobType, run: Run, bank: Bank) -> None:
    charge.enqueue(key="k")
    run()
    assert charge.answer("k", "40 %", answer_id="m") == "matched"
    run()
    assert charge.answer("k", "done", answer_id="m") == "duplicate"
    run()
    assert bank.looked == ["40 %"]


def test_an_id_is_one_of_its_key_its_type_and_its_queue(app: Hipq, queue: Queue, charge: JobType, run: Run) -> None:
    others = app.queue("others")
    refund, same = queue.job("refund")(lambda _: Wait()), others.job("charge")(lambda _: Wait())
    for job_type, key in ((charge, "k"), (charge, "l"), (refund, "k"), (same, "k")):
        job_type.enqueue(key=key)
    run()
    words = [job_type.answer(key, 1, answer_id="m") for job_type, key in (
        (charge, "k"), (charge, "l"), (refund, "k"), (same, "k"), (charge, "k"), (same, "k"),
    )]  # fmt: skip
    assert words == ["matched"] * 4 + ["duplicate"] * 2


def test_ids_are_known_for_a_day(app: Hipq, charge: JobType, run: Run, clock: HandClock, bank: Bank) -> None:
    charge.enqueue(key="k", timeout=10 * 86_400)
    run()
    assert charge.answer("k", 1, answer_id="m") == "matched"
    run()
    clock.advance(seconds=86_399.999999)
    run()
    assert charge.answer("k", 1, answer_id="m") == "duplicate"
    clock.advance(seconds=1)
    run()
    assert (kept(app), charge.answer("k", 1, answer_id="m")) == ([], "matched")
    run()
    assert bank.looked == [1, 1]


def test_how_long_ids_are_known_has_nothing_to_do_with_how_long_answers_are_kept(
    app: Hipq, run: Run, clock: HandClock, bank: Bank
) -> None:
    charge = bank.charge(app.queue("orders", answer_ttl=60, answer_memory=600))
    bank.answered(charge, lambda _: Progress())
    other = bank.charge(app.queue("others", answer_ttl=600, answer_memory=60))
    bank.answered(other, lambda _: Progress())
    for job_type in (charge, other):
        job_type.enqueue(key="k")
        assert job_type.answer("nobody", "x") == "buffered"
    run()
    assert [one.answer("k", 1, answer_id="m") for one in (charge, other)] == ["matched", "matched"]
    run()
    clock.advance(seconds=61)
    run()
    assert (kept(app, queue="orders"), kept(app, queue="others")) == ([(1, "progress")], [("x", "buffered")])
    assert [one.answer("k", 1, answer_id="m") for one in (charge, other)] == ["duplicate", "matched"]


def test_without_ids_two_equal_signs_of_life_are_two(charge: JobType, run: Run, bank: Bank) -> None:
    charge.enqueue(key="k")
    run()
    for _ in range(3):
        assert charge.answer("k", "still working") == "matched"
        run()
    assert bank.looked == ["still working"] * 3


def test_without_ids_two_equal_signs_of_life_are_two_also_if_they_queue_up(
    charge: JobType, run: Run, bank: Bank
) -> None:
    charge.enqueue(key="k")
    run()
    assert [charge.answer("k", "still working") for _ in range(3)] == ["matched", "buffered", "buffered"]
    run()
    assert bank.looked == ["still working"] * 3


def test_a_body_that_equals_progress_is_not_a_copy_of_the_answer_the_job_ended_with(
    app: Hipq, charge: JobType, run: Run
) -> None:
    """Bodies never tell that Progress is the same."""
    charge.enqueue(key="k")
    run()
    for data in ("still working", "done"):
        assert charge.answer("k", data) == "matched"
        run()
    assert charge.answer("k", "still working") == "conflict"
    assert kept(app)[-1] == ("still working", "conflict")


def test_equal_bodies_for_different_jobs_are_different_answers(app: Hipq, queue: Queue, run: Run, bank: Bank) -> None:
    charge = bank.charge(queue)
    ids = []
    for _ in range(3):
        ids.append(charge.enqueue(key="k"))
        run()
        assert charge.answer("k", "paid") == "matched"
    assert [app.job(job_id).result for job_id in ids] == ["paid"] * 3
    assert [one.job for one in app.answers.list()] == ids


@pytest.mark.parametrize("first", [True, False])
def test_that_it_says_the_work_failed_makes_it_another_answer(
    app: Hipq, queue: Queue, run: Run, bank: Bank, first: bool
) -> None:
    charge = bank.charge(queue)
    charge.enqueue(key="k")
    run()
    assert charge.answer("k", "x", error=first) == "matched"
    run()
    assert charge.answer("k", "x", error=first) == "duplicate"
    assert charge.answer("k", "x", error=not first) == "conflict"
    assert [(one.error, one.state, one.copies) for one in app.answers.list()] == [
        (first, "settled", 2),
        (not first, "conflict", 1),
    ]


def test_bodies_are_compared_as_json(queue: Queue, run: Run, bank: Bank) -> None:
    charge = bank.charge(queue)
    charge.enqueue(key="k")
    run()
    assert charge.answer("k", {"a": 1}) == "matched"
    words = [charge.answer("k", data) for data in ({"a": 1}, {"a": 1.0}, {"a": True}, [["a", 1]])]
    assert words == ["duplicate", "conflict", "conflict", "conflict"]


@pytest.mark.parametrize("error", [True, False], ids=["error", "Retry"])
def test_a_copy_of_the_answer_that_led_to_a_retry_does_not_cancel_it(
    app: Hipq, queue: Queue, run: Run, bank: Bank, error: bool
) -> None:
    """The broker brings it again: it was used, and was not Progress."""
    charge = bank.charge(queue, retry=fixed(60, attempts=9))
    bank.answered(charge, step({"busy": Retry(60)}))
    job_id = charge.enqueue(key="k")
    run()
    assert charge.answer("k", "busy", error=error) == "matched"
    run()
    before: Any = app.job(job_id)
    assert before.state == "retry"
    assert charge.answer("k", "busy", error=error) == "duplicate"
    assert app.job(job_id)._row == before._row


def test_the_next_attempt_takes_an_answer_with_the_same_body(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue, retry=fixed(60, attempts=2))
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "busy", error=True)
    run()
    clock.advance(seconds=60)
    run()
    assert (app.job(job_id).attempt, app.job(job_id).phase) == (2, "waiting")
    assert charge.answer("k", "busy", error=True) == "matched"
    run()
    assert (app.job(job_id).state, app.job(job_id).failures) == ("final", 2)


def test_the_same_body_under_another_key_of_the_job_is_another_answer(
    app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    @queue.job(retry=fixed(60), timeout=10)
    def charge(job: Job[Any]) -> Wait:
        return Wait(key=f"request {job.attempt}")

    job_id = charge.enqueue(key="k")
    run()
    assert charge.answer("request 1", "busy", error=True) == "matched"
    run()
    for _ in range(2):
        clock.advance(seconds=60)
        run()
    job = app.job(job_id)
    assert (job.state, job.attempt, job.wait_key) == ("retry", 2, "request 2"), "it has timed out"
    assert charge.answer("request 2", "busy", error=True) == "matched"
