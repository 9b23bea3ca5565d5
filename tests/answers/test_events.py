"""What is announced when answers come, and when jobs do something about them."""

from __future__ import annotations

from typing import Any

import pytest

from hipq import Hipq, JobType, Progress, Queue
from hipq.events import ANSWER_EVENTS, Event
from hipq.testing.clock import HandClock
from tests.answers.helping import Bank, Run, step

WORDS = (
    *ANSWER_EVENTS,
    "answered",
    "progress",
    "answer failed",
    "cancelling",
    "cancel handler ended",
    "cancel handler failed",
    "ok",
)


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def charge(queue: Queue, bank: Bank) -> JobType:
    return bank.charge(queue, timeout=100)


@pytest.fixture
def heard(app: Hipq) -> list[Event]:
    events: list[Event] = []
    app.events.subscribe(events.append, *WORDS, "cancelled", "timed out")
    return events


def names(heard: list[Event]) -> list[str]:
    found = [str(event.name) for event in heard]
    heard.clear()
    return found


def test_each_answer_that_comes_is_announced_with_its_number_its_key_and_how_long_it_took(
    app: Hipq, charge: JobType, run: Run, clock: HandClock, heard: list[Event]
) -> None:
    job_id = charge.enqueue(key="k")
    run()
    clock.advance(seconds=30)
    for key, data in (("k", 1), ("k", 1), ("k", 2), ("nobody", 3)):
        charge.answer(key, data)
    numbers = [one.id for one in app.answers.list()]
    assert [(event.name, event.details) for event in heard] == [
        ("matched", {"answer": numbers[0], "key": "k", "waited": 30.0}),
        ("ok", {}),
        ("duplicate", {"answer": numbers[0], "key": "k"}),
        ("conflict", {"answer": numbers[1], "key": "k"}),
        ("buffered", {"answer": numbers[2], "key": "nobody"}),
    ]
    assert {event.queue for event in heard} == {"orders"}
    assert heard[0].job is not None
    assert (heard[0].job.id, heard[0].job.state, heard[0].at) == (job_id, "final", clock.now())


def test_a_late_answer_is_announced(app: Hipq, charge: JobType, run: Run, heard: list[Event]) -> None:
    app.cancel(charge.enqueue(key="k"))
    charge.answer("k", 1)
    run()
    assert [(event.name, event.details) for event in heard] == [
        ("cancelled", {}),
        ("late", {"answer": app.answers.list()[0].id, "key": "k"}),
    ]


def test_what_the_job_does_about_its_answers_is_announced(
    charge: JobType, run: Run, clock: HandClock, bank: Bank, heard: list[Event]
) -> None:
    broken: list[Any] = [ValueError("once")]

    def outcome(data: Any) -> Any:
        if data == "done" and broken:
            raise broken.pop()
        return step({"40 %": Progress()})(data)

    bank.answered(charge, outcome)
    charge.enqueue(key="k")
    run()
    charge.answer("k", "40 %")
    assert names(heard) == ["matched", "answered"]
    run()
    assert names(heard) == ["progress"]
    charge.answer("k", "done")
    run()
    assert names(heard) == ["matched", "answered", "answer failed"]
    clock.advance(seconds=1)
    run()
    assert names(heard) == ["answered", "ok"]


def test_an_answer_that_was_waited_for_by_nobody_is_announced_as_matched_when_its_job_waits(
    app: Hipq, charge: JobType, run: Run, heard: list[Event]
) -> None:
    charge.answer("k", 1)
    number = app.answers.list()[0].id
    assert names(heard) == ["buffered"]
    charge.enqueue(key="k")
    run()
    matched = [event for event in heard if event.name == "matched"]
    assert [event.details for event in matched] == [{"answer": number, "key": "k", "waited": 0.0}]
    assert names(heard) == ["matched", "ok"]


def test_what_was_kept_for_a_job_that_ended_is_announced(
    app: Hipq, charge: JobType, run: Run, bank: Bank, heard: list[Event]
) -> None:
    bank.answered(charge)
    charge.enqueue(key="k")
    run()
    for data in ("a", "b", "a"):
        charge.answer("k", data)
    assert names(heard) == ["matched", "answered", "buffered", "buffered"]
    run()
    assert sorted(event.name for event in heard) == ["conflict", "duplicate", "ok"]
    told = {event.name: event.details.get("answer") for event in heard if event.name != "ok"}
    numbers = [one.id for one in app.answers.list()]
    assert told == {"conflict": numbers[1], "duplicate": numbers[2]}


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("cause", ["time-out", "cancel"])
def test_cancelling_is_announced(
    app: Hipq, charge: JobType, run: Run, clock: HandClock, bank: Bank, heard: list[Event], cause: str, fails: bool
) -> None:
    bank.cancelled(charge)
    if fails:
        charge.cancelled(lambda _: 1 / 0)
    job_id = charge.enqueue(key="k")
    run()
    if cause == "cancel":
        app.cancel(job_id)
    else:
        clock.advance(seconds=100)
    run()
    assert app.job(job_id).state == "final"
    before, *found = names(heard) if cause == "time-out" else ["timed out", *names(heard)]
    assert before == "timed out"
    assert found[0] == "cancelling"
    assert found[1] == ("cancel handler failed" if fails else "cancel handler ended")


def test_dropping_is_announced(app: Hipq, charge: JobType, heard: list[Event]) -> None:
    charge.answer("k", 1)
    number = app.answers.list()[0].id
    app.answers.drop(number)
    assert [(event.name, event.details) for event in heard][1:] == [("answer dropped", {"answer": number, "key": "k"})]


def test_pruning_is_announced(app: Hipq, charge: JobType, run: Run, clock: HandClock, heard: list[Event]) -> None:
    charge.answer("k", 1)
    clock.advance(days=8)
    run()
    assert app.answers.list() == []
    assert names(heard) == ["buffered", "answers pruned"]
