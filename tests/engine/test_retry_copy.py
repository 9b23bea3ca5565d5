"""What a retry handler does to its copy of the job is saved with its verdict, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hipq import Failed, Fault, Hipq, Invalid, Job, Queue, Retry, Wait
from hipq.job.when import moment, to_datetime
from hipq.testing.clock import HandClock

Run = Callable[[], None]
LARGE = "x" * 20_000
"""Above what a row carries itself."""


def counts(job: Job[Any], _fault: Fault) -> Retry | None:
    job.data["n"] += 1
    return Retry(5) if job.data["n"] < 3 else None


def assigns(job: Job[Any], _fault: Fault) -> Retry | None:
    job.data = {**job.data, "n": job.data["n"] + 1}
    return Retry(5) if job.data["n"] < 3 else None


@pytest.mark.parametrize("retry", [counts, assigns], ids=["in place", "assigned"])
@pytest.mark.parametrize("where", ["thread", "task", "process"])
@pytest.mark.parametrize("more", ["", LARGE], ids=["small", "large"])
def test_changed_data_is_saved(
    app: Hipq, queue: Queue, run: Run, clock: HandClock, retry: Any, where: str, more: str
) -> None:
    def plain(job: Job[Any]) -> None:
        job.data["n"] += 100  # its own, and nobody else's
        raise ValueError(job.data["n"])

    async def task(job: Job[Any]) -> None:
        await asyncio.sleep(0)
        plain(job)

    queue.job("work", retry=retry, process=where == "process")(task if where == "task" else plain)
    job_id = queue.enqueue("work", {"n": 0, "more": more})
    seen = []
    for _ in range(5):
        run()
        seen.append((app.job(job_id).state, app.job(job_id).data["n"]))
        clock.advance(seconds=5)
    assert seen == [("retry", 1), ("retry", 2), ("final", 3), ("final", 3), ("final", 3)], "with the last verdict, too"
    assert app.job(job_id).data["more"] == more
    assert "103" not in app.job(job_id).error


@pytest.mark.parametrize(("before", "after"), [("small", LARGE), (LARGE, "small"), (LARGE, LARGE + "y")])
@pytest.mark.parametrize("verdict", [Retry(60), None, Failed("no")], ids=["again", "given up", "failed"])
def test_of_any_size_with_any_verdict(app: Hipq, queue: Queue, run: Run, before: str, after: str, verdict: Any) -> None:
    def again(job: Job[Any], _fault: Fault) -> Any:
        job.data[0], job.priority = after, 7
        return verdict

    queue.job("work", retry=again)(lambda _: 1 / 0)
    job_id = queue.enqueue("work", [before], priority=50)
    run()
    job = app.job(job_id)
    assert (job.state, job.data, job.priority) == ("retry" if isinstance(verdict, Retry) else "final", [after], 7)


def test_changed_priority_and_time_are_saved_and_it_stands_where_they_say(app: Hipq, clock: HandClock) -> None:
    queue = app.queue("ordered", order="priority")
    at = to_datetime(clock.now()) + timedelta(hours=1)

    def again(job: Job[Any], _fault: Fault) -> Retry:
        job.scheduled_run_time, job.priority = at, 5
        assert (job.scheduled_run_time, job.priority) == (at, 5)
        return Retry()

    queue.job("work", retry=again)(lambda _: 1 / 0)
    job_id = queue.enqueue("work", priority=100)
    app.run(until_empty=True)
    job = app.job(job_id)
    assert (job.state, job.phase, job.priority, job.scheduled_run_time) == ("retry", "scheduled", 5, at)
    assert job._row.rank == queue.order.rank(moment(at), 5)


def test_a_time_and_data_in_the_verdict_count_more(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    def again(job: Job[Any], _fault: Fault) -> Retry:
        job.data["n"] = 1
        job.scheduled_run_time = to_datetime(clock.now()) + timedelta(hours=1)
        return Retry(5, data={"n": 2})

    queue.job("work", retry=again)(lambda _: 1 / 0)
    job_id = queue.enqueue("work", {"n": 0})
    run()
    job = app.job(job_id)
    assert (job.data, job.scheduled_run_time.timestamp()) == ({"n": 2}, clock.now() / 1e6 + 5)


@dataclass
class Charge:
    amount: int
    tries: int = 0


def test_a_typed_payload_too(queue: Queue, run: Run, clock: HandClock) -> None:
    def again(job: Job[Charge], _fault: Fault) -> Retry:
        job.data.tries += 1
        return Retry(5)

    seen = []

    @queue.job(retry=again)
    def work(job: Job[Charge]) -> None:
        seen.append(job.data)
        job.data.amount = -1
        raise ValueError

    work.enqueue({"amount": 5})  # type: ignore[arg-type]
    for _ in range(3):
        run()
        clock.advance(seconds=5)
    assert [(data.tries, data.amount) for data in seen] == [(0, -1), (1, -1), (2, -1)]


def test_what_is_only_read_stays_as_it_was_stored(app: Hipq, queue: Queue, run: Run) -> None:
    """A type may add what is left out; and another program may have stored what hipq would not."""

    def again(job: Job[Any], _fault: Fault) -> Retry:
        assert job.data
        return Retry(5)

    @queue.job(retry=again)
    def work(_: Job[Charge]) -> None:
        raise ValueError

    job_id = work.enqueue({"amount": 5})  # type: ignore[arg-type]
    run()
    assert app.job(job_id).data == {"amount": 5}


@pytest.mark.parametrize(
    ("value", "said"),
    [(object(), "JSON"), (float("nan"), "nan"), ("\x00", "NUL"), (1 << 70, "64 bits"), ("x" * (16 << 20), "limit")],
    ids=["object", "nan", "nul", "integer", "size"],
)
def test_data_that_cannot_be_stored_is_an_error_on_the_job(
    app: Hipq, queue: Queue, run: Run, value: Any, said: str
) -> None:
    def again(job: Job[Any], _fault: Fault) -> Retry:
        job.data["n"] = value
        return Retry(0)

    queue.job("work", retry=again)(lambda _: 1 / 0)
    job_id = queue.enqueue("work", {"n": 0})
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.attempt, job.data) == ("final", "error", 1, {"n": 0})
    assert said in job.error
    assert "ZeroDivisionError" in job.error, "the first error is not forgotten"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda job: setattr(job, "priority", "high"), "priority"),
        (lambda job: setattr(job, "scheduled_run_time", 5), "scheduled_run_time"),
        (lambda job: setattr(job, "data", {"amount": "much"}), "Charge"),
    ],
)
def test_what_does_not_fit_is_an_error_on_the_job(
    app: Hipq, queue: Queue, run: Run, change: Callable[[Any], None], said: str
) -> None:
    def again(job: Job[Any], _fault: Fault) -> Retry:
        change(job)
        return Retry(0)

    @queue.job(retry=again)
    def work(_: Job[Charge]) -> None:
        raise ValueError

    job_id = work.enqueue({"amount": 5})  # type: ignore[arg-type]
    run()
    job = app.job(job_id)
    assert (job.state, job.code, job.attempt, job.data) == ("final", "error", 1, {"amount": 5})
    assert said in job.error


def test_after_a_time_out_and_after_an_answer_that_says_no(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    """Then the retry handler is asked later than the handler ran, perhaps by another engine."""

    def again(job: Job[Any], _fault: Fault) -> Retry:
        job.data["n"] += 1
        return Retry(5)

    queue.job("asks", retry=again, timeout=60)(lambda _: Wait())
    job_id = queue.enqueue("asks", {"n": 0}, key="k")
    run()
    clock.advance(seconds=60)
    run()
    assert (app.job(job_id).state, app.job(job_id).data) == ("retry", {"n": 1})
    clock.advance(seconds=5)
    run()
    assert app.answer("orders", "asks", "k", "busy", error=True) == "matched"
    run()
    assert (app.job(job_id).state, app.job(job_id).data) == ("retry", {"n": 2})


def test_an_answer_that_was_there_already_leaves_the_job_as_it_was(app: Hipq, queue: Queue, run: Run) -> None:
    """Nothing follows from its failure then; what the retry handler wanted neither."""

    def again(job: Job[Any], _fault: Fault) -> Retry:
        job.data["n"] += 1
        return Retry(5)

    @queue.job(retry=again)
    def asks(job: Job[Any]) -> None:
        app.answer("orders", "asks", job.key, "paid")
        raise ValueError

    job_id = asks.enqueue({"n": 0}, key="k")
    run()
    assert (app.job(job_id).code, app.job(job_id).result, app.job(job_id).data) == ("ok", "paid", {"n": 0})


def test_a_handler_is_told_that_its_own_job_cannot_be_changed(app: Hipq, queue: Queue, run: Run) -> None:
    raised: list[str] = []

    @queue.job
    def work(job: Job[Any]) -> None:
        for name, value in (("data", {}), ("priority", 5), ("scheduled_run_time", job.create_time)):
            with pytest.raises(Invalid) as error:
                setattr(job, name, value)
            raised.append(str(error.value))

    job_id = work.enqueue({"n": 0})
    run()
    assert (app.job(job_id).code, len(raised)) == ("ok", 3)
    assert all("retry handler" in said for said in raised)
