"""What a typed program looks like: no type checker has anything to say about it."""

import asyncio
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import msgspec
from pydantic import BaseModel

from hipq import Answer, Failed, Fault, Hipq, Job, JobId, JobType, Ok, Progress, Retry, Wait
from hipq.testing import Harness, HarnessFactory

app = Hipq("shop")


@dataclass
class Charge:
    amount: int


@dataclass
class Receipt:
    number: int


class Parcel(TypedDict):
    weight: float


class Invoice(msgspec.Struct):
    total: int


class Refund(BaseModel):
    amount: int


def lane(job: Job[Charge]) -> str:
    return str(job.data.amount)


orders = app.queue("orders", lane_by=lane)


@orders.job
def charge(job: Job[Charge]) -> Receipt:
    assert_type(job.data, Charge)
    return Receipt(job.data.amount)


@orders.job(timeout=3600)
def maybe_later(job: Job[Charge]) -> Receipt | Wait | Failed:
    return Wait() if job.data.amount else Receipt(1)


@orders.job
def asks(job: Job[Charge]) -> Wait:
    return Wait(key=job.key)


@orders.job("renamed", priority=5)
async def in_a_task(job: Job[Parcel]) -> dict[str, float]:
    return {"weight": job.data["weight"]}


@orders.job
async def sends(job: Job[Invoice]) -> Wait | Retry:
    return Wait() if job.data.total else Retry(5)


@orders.job
def wraps(job: Job[Refund]) -> Ok:
    return Ok(job.data.amount)


@orders.job
def bare(job: Job) -> None:
    print(job.data["anything"])


@orders.job
def untyped(job):  # type: ignore[no-untyped-def] # pyright: ignore
    return job.data


@charge.retry
def again(job: Job[Charge], fault: Fault) -> Retry | None:
    job.data.amount += 1
    return Retry(5) if fault.kind else None


@asks.answered
def settled(job: Job[Charge], answer: Answer) -> Ok | Failed | Progress:
    return Ok(answer.data) if job.data.amount else Progress()


@maybe_later.answered
async def paid(job: Job[Charge], answer: Answer[Receipt]) -> Receipt | Progress:
    assert_type(answer.data, Receipt)
    return Progress() if job.attempt else answer.data


@asks.cancelled
def call_off(job: Job[Charge]) -> None:
    print(job.key)


assert_type(charge, JobType[Charge, Receipt])
assert_type(maybe_later, JobType[Charge, Receipt])
assert_type(asks, JobType[Charge, Any])
assert_type(in_a_task, JobType[Parcel, dict[str, float]])
assert_type(sends, JobType[Invoice, Any])
assert_type(wraps, JobType[Refund, Any])
assert_type(bare, JobType[Any, None])


def world(hipq_harness: HarnessFactory) -> Harness:
    return hipq_harness(app, db="postgresql://localhost/shop_test", fresh=True)


def use() -> int:
    job_id = charge.enqueue(Charge(5), key="order-17", delay=30, priority=10)
    assert_type(job_id, JobId[Receipt])
    assert_type(job_id.result(timeout=5), Receipt)
    assert_type(charge.enqueue_many([Charge(1), Charge(2)])[0].result(), Receipt)
    in_a_task.enqueue({"weight": 1.5})
    bare.enqueue({"anything": 1})
    bare.enqueue()
    charge.cron("*/5 * * * *", Charge(5), tz="Europe/Rome")
    bare.cron("@daily")
    print(job_id.status, app.jobs.get(job_id).status, {5: 1}[job_id])
    return job_id


async def use_async() -> None:
    job_id = await charge.aenqueue(Charge(5), key="order-18")
    assert_type(await job_id.aresult(), Receipt)
    assert_type((await charge.aenqueue_many([Charge(1)]))[0], JobId[Receipt])
    await asks.aanswer("order-17", {"status": "paid"})
    await app.aanswer("orders", "asks", "order-17", {"status": "paid"}, answer_id="a")
    assert_type(await app.ajob(job_id), Job[Any])
    assert_type(await app.ajobs("orders", state="error"), list[Job[Any]])
    assert_type(await app.acount("orders", most=5), int)
    print(await app.awhy(job_id))
    await app.acancel(job_id)
    await job_id.acancel()


asyncio.run(use_async())
