"""What a failing assertion says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, Field

from hipq import Failed, Hipq, Invalid, Job, JobType, Ok, Wait, fixed
from hipq.testing import Harness


@dataclass
class Bill:
    amount: int
    to: str = "ann"


@pytest.fixture
def charge(app: Hipq) -> JobType:
    queue = app.queue("orders", throttle_limit=1)

    @queue.job(timeout=3600, retry=fixed(60, attempts=2))
    def charge(job: Job[Any]) -> Any:
        if job.data == "refuse":
            raise Failed("declined")
        if job.data == "break":
            raise ConnectionError("the bank is down")
        return Wait() if job.data == "wait" else Ok({"paid": job.data})

    return charge


def complaint(raised: pytest.ExceptionInfo[AssertionError]) -> list[str]:
    return [line.strip() for line in str(raised.value).splitlines()]


def test_ok(charge: JobType, shop: Harness) -> None:
    job_id = charge.enqueue(5, key="good")
    shop.run_until_idle()
    assert shop.assert_ok(job_id).id == job_id
    assert shop.assert_ok(charge, "good", result={"paid": 5}, attempts=1).key == "good"
    with pytest.raises(AssertionError) as raised:
        shop.assert_ok(job_id, result={"paid": 6})
    assert complaint(raised)[0] == (
        "charge 'good' has the result {'paid': 5}, not {'paid': 6}: it ended with ok at 2027-01-15 08:00:00 UTC"
    )
    with pytest.raises(AssertionError, match="was tried once, not twice"):
        shop.assert_ok(job_id, attempts=2)


def test_not_ok_with_history_and_traceback(charge: JobType, shop: Harness) -> None:
    charge.enqueue("break", key="bad")
    shop.run_until_idle()
    with pytest.raises(AssertionError) as raised:
        shop.assert_ok(charge, "bad")
    lines = complaint(raised)
    assert lines[0].startswith("charge 'bad' has not ended ok: ")
    assert "2027-01-15 08:01:00 UTC" in lines[0]
    assert "2027-01-15 08:00:00Z claimed (by 1)" in lines
    assert "2027-01-15 08:00:00Z error (error ConnectionError: the bank is down)" in lines
    assert 'raise ConnectionError("the bank is down")' in lines
    assert lines[-1] == "ConnectionError: the bank is down"


def test_failed(charge: JobType, shop: Harness) -> None:
    charge.enqueue("refuse", key="no")
    charge.enqueue(1, key="yes")
    shop.run_until_idle()
    shop.assert_failed(charge, "no", error="declined", attempts=1)
    with pytest.raises(AssertionError, match="charge 'yes' has not failed: it ended with ok"):
        shop.assert_failed(charge, "yes")
    with pytest.raises(AssertionError, match="charge 'no' has an error that does not say 'money': declined"):
        shop.assert_failed(charge, "no", error="money")


def test_waiting_and_scheduled(charge: JobType, shop: Harness) -> None:
    charge.enqueue("wait", key="first")
    charge.enqueue("wait", key="second")
    charge.enqueue(1, key="later", delay=90)
    shop.run_until_idle()
    shop.assert_waiting(charge, "first", until=shop.now + timedelta(hours=1))
    with pytest.raises(AssertionError, match="waits until 2027-01-15 09:00:00Z, not 2027-01-15 08:00:05Z"):
        shop.assert_waiting(charge, "first", until=timedelta(seconds=5))
    with pytest.raises(AssertionError, match=r"charge 'second' does not wait for an answer: .*limit"):
        shop.assert_waiting(charge, "second")
    with pytest.raises(AssertionError, match=r"charge 'first' is not scheduled: .*wait"):
        shop.assert_scheduled(charge, "first")
    shop.assert_scheduled(charge, "later", at=timedelta(seconds=90))
    shop.assert_scheduled(charge, "later", at=timedelta(seconds=100), within=10)
    with pytest.raises(AssertionError, match="is scheduled at 2027-01-15 08:01:30Z, not 2027-01-15 08:01:40Z"):
        shop.assert_scheduled(charge, "later", at=timedelta(seconds=100), within=timedelta(seconds=9))
    with pytest.raises(AssertionError, match="does not say 'down': it has none"):
        shop.assert_scheduled(charge, "later", error="down")


def test_jobs_that_are_not_there(app: Hipq, charge: JobType, shop: Harness) -> None:
    with pytest.raises(AssertionError, match="no charge job with the key 'x'; there is no charge job at all"):
        shop.job(charge, "x")
    charge.enqueue(5, key="order-17")
    with pytest.raises(AssertionError) as raised:
        shop.job(charge, "x")
    assert complaint(raised)[1:] == ["charge 'order-17', 5, ready"]
    with pytest.raises(AssertionError, match="there is no job 12345"):
        shop.job(12345)
    with pytest.raises(Invalid, match="its key is missing"):
        shop.job(charge)
    with pytest.raises(Invalid, match="a key needs a job type"):
        shop.job(65537, "order-17")
    assert app.name == "shop"


def test_of_several_jobs_with_a_key_the_last_is_meant(charge: JobType, shop: Harness) -> None:
    for data in (1, 2, "refuse"):
        charge.enqueue(data, key="same")
        shop.run_until_idle()
    assert shop.assert_failed(charge, "same").data == "refuse"
    shop.assert_enqueued(charge, key="same", count=3)


def test_enqueued(app: Hipq, charge: JobType, shop: Harness) -> None:
    @app.queue("bills").job
    def bill(_job: Job[Bill]) -> None: ...

    bill.enqueue(Bill(5))
    bill.enqueue({"amount": 6, "to": "ben"}, key="ben")  # type: ignore[arg-type]
    (found,) = shop.assert_enqueued(bill, {"amount": 5})
    assert found.data == {"amount": 5, "to": "ann"}
    shop.assert_enqueued(bill, count=2)
    shop.assert_enqueued(bill, Bill(6, "ben"), key="ben")
    shop.assert_not_enqueued(bill, {"amount": 7})
    shop.assert_not_enqueued(charge)
    with pytest.raises(AssertionError) as raised:
        shop.assert_enqueued(bill, {"amount": 7}, key="ben")
    assert complaint(raised) == [
        "of bill jobs with the key 'ben' and data {'amount': 7} none was added; there are:",
        f"bill {found.id}, {{'amount': 5, 'to': 'ann'}}, ready",
        "bill 'ben', {'amount': 6, 'to': 'ben'}, ready",
    ]
    with pytest.raises(AssertionError, match="of bill jobs 2 were, not 3, added; there are:"):
        shop.assert_enqueued(bill, count=3)
    with pytest.raises(AssertionError, match=r"of bill jobs with data \{'amount': 5\} 1 was added; there are:"):
        shop.assert_not_enqueued(bill, {"amount": 5})
    with pytest.raises(AssertionError, match="of charge jobs none was added; there is no charge job at all"):
        shop.assert_enqueued(charge)


def test_nested_data_and_many_jobs(app: Hipq, shop: Harness) -> None:
    work = app.queue("orders").job("work")(lambda _job: None)
    work.enqueue_many([{"who": {"name": "ann", "age": number}, "tags": ["a"]} for number in range(1200)])
    shop.assert_enqueued(work, {"who": {"name": "ann"}}, count=1200)
    shop.assert_enqueued(work, {"who": {"age": 1199}, "tags": ["a"]}, count=1)
    shop.assert_not_enqueued(work, {"who": {"name": "ben"}})
    shop.assert_not_enqueued(work, {"who": None})
    with pytest.raises(AssertionError, match="and 1190 more"):
        shop.assert_not_enqueued(work)


def test_empty(charge: JobType, shop: Harness) -> None:
    shop.assert_empty()
    charge.enqueue("wait", key="first")
    charge.enqueue("wait", key="second")
    shop.run_until_idle()
    with pytest.raises(AssertionError) as raised:
        shop.assert_empty()
    lines = complaint(raised)
    assert lines[0] == "2 jobs have not ended:"
    assert lines[1].startswith("charge 'first': ")
    assert "answer" in lines[1]
    assert lines[2].startswith("charge 'second': ")
    assert "limit" in lines[2]
    charge.answer("first", 1)
    shop.run_until_idle()
    charge.answer("second", 1)
    shop.run_until_idle()
    shop.assert_empty()


class Invoice(BaseModel):
    total: Decimal
    paid_by: str = Field(default="ann", serialization_alias="paidBy", validation_alias="paidBy")


def test_pydantic_models_are_compared_as_they_are_stored(app: Hipq, shop: Harness) -> None:
    @app.queue("invoices").job
    def bill(job: Job[Invoice]) -> Invoice:
        return job.data

    bill.enqueue(Invoice(total=Decimal("1.50")), key="one")
    shop.run_until_idle()
    shop.assert_ok(bill, "one", result=Invoice(total=Decimal("1.50")))
    shop.assert_enqueued(bill, Invoice(total=Decimal("1.50")), count=1)
    shop.assert_enqueued(bill, {"paidBy": "ann"}, count=1)
    shop.assert_not_enqueued(bill, Invoice(total=Decimal("1.51")))
    with pytest.raises(AssertionError, match="has the result"):
        shop.assert_ok(bill, "one", result=Invoice(total=Decimal(2)))
    with pytest.raises(Invalid, match="cannot be written as JSON"):
        shop.assert_enqueued(bill, object())


def test_ready_and_held_up(charge: JobType, shop: Harness) -> None:
    charge.enqueue("wait", key="first")
    charge.enqueue(5, key="second")
    shop.run_until_idle()
    assert shop.assert_ready(charge, "second", why="limit 1 is full").attempt == 0
    with pytest.raises(AssertionError, match="charge 'first' is not ready: it waits for its answer"):
        shop.assert_ready(charge, "first")
    with pytest.raises(AssertionError, match="is not held up by 'paused'"):
        shop.assert_ready(charge, "second", why="paused")
