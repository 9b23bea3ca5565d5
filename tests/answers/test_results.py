"""`app.result` and `app.aresult`: waiting for a job to end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from hipq import Failed, Hipq, Invalid, Job, JobFailed, JobType, NotFound, Queue
from hipq.job.model import Row
from tests.answers.helping import Bank, MakeApp, Run
from tests.engine.working import until


@pytest.fixture
def charge(queue: Queue) -> JobType:
    return Bank().charge(queue)


def result(app: Hipq, job_id: int, is_async: bool, timeout: float | None = 60) -> Any:
    return asyncio.run(app.aresult(job_id, timeout)) if is_async else app.result(job_id, timeout)


both = pytest.mark.parametrize("is_async", [True, False], ids=["aresult", "result"])


@both
def test_the_result_of_a_job_that_has_ended(app: Hipq, queue: Queue, run: Run, is_async: bool) -> None:
    job_id = queue.job("work")(lambda job: job.data).enqueue([1, {"a": "ü"}])
    run()
    assert result(app, job_id, is_async, 0) == [1, {"a": "ü"}]


@both
def test_a_job_without_success_has_none(app: Hipq, queue: Queue, run: Run, is_async: bool) -> None:
    @queue.job
    def work(_: Job[Any]) -> None:
        raise Failed("card declined")

    job_id = work.enqueue()
    run()
    with pytest.raises(JobFailed, match="card declined") as raised:
        result(app, job_id, is_async)
    assert raised.value.job.id == job_id


@both
@pytest.mark.parametrize("error", [True, False], ids=["failed", "ok"])
def test_it_is_there_soon_after_the_answer_came(
    app: Hipq, charge: JobType, run: Run, is_async: bool, error: bool
) -> None:
    job_id = charge.enqueue(key="k")
    run()
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(result(app, job_id, is_async))
        except JobFailed as failed:
            found.append(failed.job.code)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: app.database._results is not None and app.database._results._waiting)
    charge.answer("k", "paid", error=error)
    run()
    thread.join(60)
    assert found == ["error" if error else "paid"]


@both
def test_it_may_end_in_another_program(make_app: MakeApp, is_async: bool) -> None:
    one, two = make_app(), make_app()
    one.queue("orders")
    charge = Bank().charge(two.queue("orders"))
    job_id = charge.enqueue(key="k")
    two.run(until_empty=True)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(result(one, job_id, is_async)))
    thread.start()
    until(lambda: one.database._results is not None and one.database._results._waiting)
    charge.answer("k", "paid")
    thread.join(60)
    assert found == ["paid"]


@both
@pytest.mark.parametrize("timeout", [0, 0.05])
def test_it_waits_no_longer_than_it_may(app: Hipq, charge: JobType, is_async: bool, timeout: float) -> None:
    job_id = charge.enqueue()
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=str(job_id)):
        result(app, job_id, is_async, timeout)
    assert timeout * 0.9 <= time.monotonic() - began < 60
    assert app.database.results._waiting == {}


@both
def test_there_must_be_such_a_job(app: Hipq, charge: JobType, is_async: bool) -> None:
    assert charge.queue.number
    with pytest.raises(NotFound):
        result(app, 1 << 40 | charge.queue.number, is_async)
    bad: list[tuple[Any, Any]] = [(0, 1), ("x", 1), (1 << 63, 1), (65537, -1), (65537, "x"), (65537, float("nan"))]
    for job_id, timeout in bad:
        with pytest.raises(Invalid):
            result(app, job_id, is_async, timeout)


def test_a_cancelled_wait_leaves_nothing_behind(app: Hipq, charge: JobType, run: Run) -> None:
    job_id = charge.enqueue(key="k")
    run()

    async def main() -> Any:
        tasks = [asyncio.create_task(app.aresult(job_id, 60)) for _ in range(10)]
        while job_id not in app.database.results._waiting or len(app.database.results._waiting[job_id].futures) < 10:
            await asyncio.sleep(0.005)
        for task in tasks[1:]:
            task.cancel()
        ended = await asyncio.gather(*tasks[1:], return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        assert len(app.database.results._waiting[job_id].futures) == 1
        charge.answer("k", "paid")
        return await tasks[0]

    assert asyncio.run(main()) == "paid"
    assert app.database.results._waiting == {}
    until(lambda: not app.database.results._looking)
    until(lambda: not any(thread.name == "hipq-results" for thread in threading.enumerate()))


def test_a_thousand_wait_with_few_questions(app: Hipq, charge: JobType) -> None:
    ids = charge.enqueue_many(range(1000), keys=[f"k{n}" for n in range(1000)])
    app.run(until_empty=True, concurrency=100)
    calls: list[int] = []
    ask = app.store.ended

    def counted(some: Sequence[int]) -> list[Row]:
        calls.append(len(some))
        return ask(some)

    app.store.ended = counted  # type: ignore[method-assign, assignment]

    async def main() -> tuple[list[Any], float]:
        tasks = [asyncio.create_task(app.aresult(job_id, 120)) for job_id in ids]
        while len(app.database.results._waiting) < 1000:
            for failed in [task for task in tasks if task.done()]:  # else it would be waited for until pytest ends all
                failed.result()
            await asyncio.sleep(0.005)
        before, began = len(calls), time.monotonic()
        await asyncio.sleep(1)
        asked = (len(calls) - before) / (time.monotonic() - began)  # it sleeps longer on a busy machine
        answers = [{"queue": "orders", "type": "charge", "key": f"k{n}", "data": n} for n in range(1000)]
        await asyncio.to_thread(app.answer_many, answers)
        return await asyncio.gather(*tasks), asked

    results, asked = asyncio.run(main())
    assert results == list(range(1000))
    assert asked <= 200, "questions in a second: there are 10 ms between any two, and news may come in between"


def test_many_threads_wait_for_one_job(app: Hipq, charge: JobType, run: Run) -> None:
    job_id = charge.enqueue(key="k")
    run()
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(app.result(job_id, 60))) for _ in range(20)]
    for thread in threads:
        thread.start()
    charge.answer("k", "paid")
    for thread in threads:
        thread.join(60)
    assert found == ["paid"] * 20
