"""What adding a job returns, results by their types, and the verbs for async code."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

from hipq import Failed, Hipq, Invalid, Job, JobFailed, JobId, NotFound, Ok, Queue, Wait
from hipq.errors import HipqError

Run = Callable[[], None]


@dataclass
class Receipt:
    number: int


class Total(TypedDict):
    total: int


def test_it_is_a_number_and_a_handle(app: Hipq, queue: Queue, run: Run) -> None:
    double = queue.job("double")(lambda job: job.data * 2)
    job_id = double.enqueue(4)
    assert isinstance(job_id, JobId)
    assert (str(job_id), json.dumps({"id": job_id}), {int(job_id): "found"}[job_id]) == (
        str(int(job_id)), json.dumps({"id": int(job_id)}), "found",
    )  # fmt: skip
    assert job_id.status == "initial"
    run()
    assert (job_id.status, job_id.result(timeout=5), app.jobs.get(int(job_id)).result()) == ("final", 8, 8)
    for plain in (pickle.loads(pickle.dumps(job_id)), copy.deepcopy(job_id)):
        assert (plain, type(plain)) == (job_id, int)
    with pytest.raises(NotFound, match=str(job_id + 1)):
        app.jobs.get(job_id + 1)


def test_every_way_of_adding_returns_one(app: Hipq, queue: Queue) -> None:
    work = queue.job("work")(lambda _: None)
    found = [work.enqueue(1), *work.enqueue_many([1, 2]), queue.enqueue("work"), *queue.enqueue_many("work", [1])]
    found += [asyncio.run(work.aenqueue(1)), *asyncio.run(work.aenqueue_many([1]))]
    found.append(work.enqueue(key="k"))
    found.append(work.enqueue(key="k", on_duplicate="return"))
    assert [type(one) for one in found] == [JobId] * 9
    assert found[-1] == found[-2]
    found[0].cancel("not wanted")
    assert "not wanted" in app.job(found[0]).error
    with pytest.raises(JobFailed):
        found[0].result()


def test_one_may_be_in_the_data_of_another_job(queue: Queue, run: Run) -> None:
    work = queue.job("work")(lambda job: job.data)
    first = work.enqueue(1)
    second = work.enqueue({"after": first, "all": [first]})
    run()
    assert second.result() == {"after": int(first), "all": [int(first)]}
    assert type(second.result()["after"]) is int


def test_results_are_of_the_type_that_the_handler_returns(app: Hipq, queue: Queue, run: Run) -> None:
    @queue.job
    def charge(job: Job[int]) -> Receipt | Wait | Failed:
        return Receipt(job.data) if job.data else Wait()

    @queue.job
    async def many(job: Job[int]) -> list[Receipt]:
        return [Receipt(n) for n in range(job.data)]

    @queue.job
    def total(job: Job[int]) -> Total:
        return {"total": job.data}

    @queue.job
    def nothing(job: Job[int]) -> None:
        assert job.data

    ids: list[JobId] = [charge.enqueue(7), many.enqueue(2), total.enqueue(3), nothing.enqueue(1)]
    run()
    assert [one.result(5) for one in ids] == [Receipt(7), [Receipt(0), Receipt(1)], {"total": 3}, None]
    assert asyncio.run(ids[0].aresult(5)) == app.result(ids[0]) == Receipt(7)
    assert app.job(ids[0]).result == {"number": 7}


def test_the_answer_handler_types_the_result_where_the_handler_does_not(queue: Queue, run: Run) -> None:
    @queue.job
    def ask(_job: Job[Any]) -> Wait:
        return Wait()

    @ask.answered
    def settled(_job: Job[Any], answer: Any) -> Receipt:
        return Receipt(answer.data)

    job_id = ask.enqueue(key="order-17")
    run()
    ask.answer("order-17", 12)
    run()
    assert job_id.result(5) == Receipt(12)


def test_a_result_of_another_type_than_the_annotation_says_is_kept_and_said(app: Hipq, queue: Queue, run: Run) -> None:
    """The job has done its work: what it came to must not be lost over an annotation."""

    @queue.job
    def wrong(_job: Job[Any]) -> Receipt:
        return {"sum": 3}  # type: ignore[return-value]

    @queue.job
    def strange(_job: Job[Any]) -> Receipt:
        return {1, 2}  # type: ignore[return-value]

    job_id, other = wrong.enqueue(), strange.enqueue()
    run()
    assert app.job(job_id).code == "ok"
    assert app.job(job_id).result == {"sum": 3}
    with pytest.raises(Invalid, match=r"a result of wrong does not fit Receipt: .*number.*plain JSON"):
        job_id.result()
    assert "the result does not fit Receipt" in app.job(other).error


def test_async_verbs_are_the_same_as_the_others(app: Hipq, queue: Queue, run: Run) -> None:
    ask = queue.job("ask")(lambda _: Wait())
    answered = ask.enqueue(key="order-17")
    waiting = ask.enqueue(key="order-18")
    later = ask.enqueue(key="order-19", delay=3600)
    run()

    async def main() -> list[Any]:
        await app.aretry_now(later)
        before = app.job(later).phase
        found = [
            (await app.ajob(answered)).phase,
            [job.key for job in await app.ajobs("orders", state="running")],
            await app.acount("orders", state="running"),
            str(await ask.aanswer("order-17", {"status": "paid"})),
            str(await app.aanswer("orders", "ask", "order-17", {"status": "paid"})),
            [str(one) for one in await app.aanswer_many([{"queue": "orders", "type": "ask", "key": "nobody"}])],
            await answered.aresult(5),
            (await app.awhy(waiting)).reason == app.why(waiting).reason,
            before,
        ]
        await app.acancel(waiting)
        await later.acancel()
        return [*found, waiting.status, later.status]

    assert asyncio.run(main()) == [
        "waiting", ["order-18", "order-17"], 2, "matched", "duplicate", ["buffered"], {"status": "paid"}, True, "ready",
        "final", "final",
    ]  # fmt: skip


def test_the_event_loop_goes_on_while_an_async_verb_works(app: Hipq, queue: Queue) -> None:
    job_id = queue.enqueue("work")
    ticks: list[int] = []

    async def main() -> None:
        async def tick() -> None:
            while True:
                ticks.append(1)
                await asyncio.sleep(0)

        beside = asyncio.create_task(tick())
        for _ in range(5):
            await app.ajob(job_id)
        beside.cancel()

    asyncio.run(main())
    assert len(ticks) > 5


def test_errors_come_out_of_async_verbs(app: Hipq, queue: Queue) -> None:
    with pytest.raises(HipqError, match="no such queue"):
        asyncio.run(app.aanswer("nowhere", "ask", "k"))
    with pytest.raises(NotFound):
        asyncio.run(app.ajob(1))
    assert queue.job("ok")(lambda _: Ok(1)).aanswer is not None
