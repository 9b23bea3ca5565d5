"""replies: an outside world that answers, late, twice, wrongly, early or never."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from hipq import Answer, Failed, Hipq, Invalid, Job, JobType, Ok, Progress, Wait, fixed
from hipq.testing import Harness, Reply, harness


@pytest.fixture
def charge(app: Hipq) -> JobType:
    queue = app.queue("orders")

    @queue.job(timeout=3600, retry=fixed(600, attempts=2))
    def charge(job: Job[Any]) -> Wait:
        return Wait(key=job.data.get("ref"))

    @charge.answered
    def settled(_job: Job[Any], answer: Answer) -> Any:
        match answer.data["status"]:
            case "paid":
                return Ok("paid")
            case "pending":
                return Progress()
            case _:
                return Failed("declined")

    return charge


def test_each_job_that_waits_gets_its_answer_after_that_time(app: Hipq, charge: JobType, db: str) -> None:
    with harness(app, db=db) as shop:
        shop.replies(charge, {"status": "paid"}, after=timedelta(minutes=20))
        charge.enqueue({}, key="1")
        charge.enqueue({}, key="2", delay=60)
        shop.advance(minutes=19)
        shop.assert_waiting(charge, "1")
        shop.advance(minutes=1)
        shop.assert_ok(charge, "1", result="paid")
        shop.assert_waiting(charge, "2")
        shop.advance(minutes=1)
        shop.assert_ok(charge, "2")
        charge.enqueue({"ref": "theirs"}, key="mine")
        shop.advance(minutes=20)
        shop.assert_ok(charge, "mine")


def test_at_once_without_a_time(charge: JobType, shop: Harness) -> None:
    shop.replies(charge, {"status": "paid"})
    charge.enqueue({}, key="1")
    assert [run.name for run in shop.run_until_idle()] == ["charge", "charge.answered"]
    shop.assert_empty()


def test_a_function_says_who_gets_what(charge: JobType, shop: Harness) -> None:
    def bank(job: Job[Any]) -> Any:
        if job.data["amount"] > 100:
            return {"status": "declined"}
        if job.data["amount"] == 0:
            return None
        return [Reply({"status": "pending"}, after=60), Reply({"status": "paid"}, after=timedelta(minutes=2))]

    shop.replies(charge, bank, after=30)  # what is not in a Reply
    for key, amount in (("rich", 101), ("free", 0), ("poor", 5)):
        charge.enqueue({"amount": amount}, key=key)
    assert len(shop.advance(seconds=30)) == 3 + 1
    assert len(shop.advance(seconds=90)) == 2
    shop.assert_failed(charge, "rich", error="declined")
    shop.assert_waiting(charge, "free")
    assert [entry["event"] for entry in shop.assert_ok(charge, "poor").history].count("progress") == 1


def test_later_than_the_time_out_while_a_retry_is_pending(charge: JobType, shop: Harness) -> None:
    shop.replies(charge, {"status": "paid"}, after=timedelta(minutes=65))
    charge.enqueue({}, key="1")
    shop.advance(minutes=60)
    shop.assert_scheduled(charge, "1", at=timedelta(minutes=10))
    shop.advance(minutes=5)
    shop.assert_ok(charge, "1", attempts=1)


def test_never_and_no_more(charge: JobType, shop: Harness) -> None:
    shop.replies(charge, {"status": "paid"})
    shop.replies(charge, None)
    charge.enqueue({}, key="1")
    shop.advance(days=1)
    shop.assert_failed(charge, "1", error="TimeoutError", attempts=2)


def test_twice_is_a_duplicate_early_is_buffered_and_an_error_is_retried(app: Hipq, charge: JobType, db: str) -> None:
    with harness(app, db=db) as shop:
        words: list[str] = []
        app.events.subscribe(lambda event: words.append(event.name), "matched", "buffered", "duplicate")
        shop.replies(charge, {"status": "paid"}, times=2)
        charge.enqueue({}, key="1")
        shop.run_until_idle()
        shop.assert_ok(charge, "1")
        assert words == ["matched", "duplicate"]

        words.clear()
        shop.replies(charge, {"status": "paid"}, early=True)
        charge.enqueue({"ref": "theirs"}, key="2")
        shop.run_until_idle()
        shop.assert_ok(charge, "2")
        assert words == ["buffered", "matched"]

        shop.replies(charge, "no such account", error=True)
        charge.enqueue({}, key="3")
        shop.run_until_idle()
        shop.assert_scheduled(charge, "3", at=timedelta(minutes=10), error="no such account", attempts=1)


def test_each_attempt_is_answered_for_itself(app: Hipq, shop: Harness) -> None:
    fenced = app.queue("orders").job("fenced", fence="attempt", timeout=60, retry=fixed(5))(lambda _job: Wait())
    shop.replies(fenced, lambda job: Reply(f"to attempt {job.attempt}", after=80 if job.attempt == 1 else 30))
    fenced.enqueue(key="1")
    shop.advance(seconds=80)  # the first answer comes in the second attempt, and is fenced off
    shop.assert_waiting(fenced, "1", attempts=2)
    shop.advance(seconds=15)
    shop.assert_ok(fenced, "1", result="to attempt 2")


def test_what_cannot_be_is_said(app: Hipq, charge: JobType, shop: Harness) -> None:
    other = Hipq("other", "sqlite://").queue("q").job("thing")(lambda _job: None)
    with pytest.raises(Invalid, match="thing belongs to other, which is not in this harness"):
        shop.replies(other, 1)
    with pytest.raises(Invalid, match="give a job type"):
        shop.replies("charge", 1)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="early, or comes after"):
        shop.replies(charge, 1, after=5, early=True)
    with pytest.raises(Invalid, match="times"):
        shop.replies(charge, 1, times=0)
    shop.replies(charge, lambda _job: [Reply(1), 2])
    charge.enqueue({}, key="1")
    with pytest.raises(Invalid, match="a Reply"):
        shop.run_until_idle()
    assert app.name == "shop"


def test_an_outside_world_that_fails_fails_the_test(charge: JobType, shop: Harness) -> None:
    shop.replies(charge, lambda job: job.data["no such name"])
    charge.enqueue({}, key="1")
    with pytest.raises(KeyError, match="no such name"):
        shop.run_until_idle()
    shop.run_until_idle()
    shop.assert_waiting(charge, "1")
