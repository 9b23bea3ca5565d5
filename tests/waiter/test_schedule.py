"""What waits: seen, called off, put to another time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hipq.errors import Conflict, Invalid, NoTable, NotFound
from hipq.waiter import Scheduled
from tests.waiter.cloud import HOUR, Clock, Cloud, message


def test_a_list_is_in_the_order_of_time_and_goes_on_where_it_stopped(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    cloud.fill(queue, [message(queue, f"{n:02}", HOUR + 10 * n) for n in reversed(range(12))])
    cloud.fill(queue, [message("another", "x", HOUR)])
    first = waiter.list(queue, limit=5)
    second = waiter.list(queue, limit=5, after=first[-1])
    third = waiter.list(queue, limit=5, after=second[-1].cursor)
    assert [one.body for one in (*first, *second, *third)] == [f"{n:02}" for n in range(12)]
    assert len(third) == 2
    assert [one.body for one in waiter.list(queue)] == [f"{n:02}" for n in range(12)]
    assert waiter.list(queue, after=third[-1]) == []


def test_a_list_goes_on_behind_one_that_is_gone(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    cloud.fill(queue, [message(queue, f"{n}", HOUR + n) for n in range(4)])
    (_, last) = waiter.list(queue, limit=2)
    waiter.cancel(queue, last.job_id)
    assert [one.body for one in waiter.list(queue, after=last)] == ["2", "3"]


def test_cancel_drops_it_and_says_what_it_was(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    sent = waiter.send(queue, "x", {"a": {"DataType": "String", "StringValue": "1"}}, delay=HOUR)
    dropped = waiter.cancel(queue, sent.id)
    assert (dropped.body, dropped.job_id, dropped.maybe_sent) == ("x", sent.id, False)
    assert dropped.attributes == {"a": {"DataType": "String", "StringValue": "1"}}
    with pytest.raises(NotFound, match="sent or cancelled already"):
        waiter.cancel(queue, sent.id)
    assert cloud.items(queue) == []


def test_reschedule_puts_it_to_another_time(cloud: Cloud) -> None:
    clock = Clock()
    queue, waiter = cloud.with_table(clock=clock)
    sent = waiter.send(queue, "x", delay=2 * HOUR)
    at = datetime.now(UTC) + timedelta(hours=5)
    assert waiter.reschedule(queue, sent.id, at=at).at == at
    clock.ahead = 3 * HOUR
    assert waiter.poll().sent == 0
    moved = waiter.reschedule(queue, sent.id, delay=-5)
    assert moved.at.timestamp() <= clock()
    assert waiter.poll().sent == 1
    assert cloud.bodies(queue) == {"x": 1}


@pytest.mark.parametrize("change", ["cancel", "reschedule"])
def test_what_is_being_sent_cannot_be_changed_any_more(cloud: Cloud, change: str) -> None:
    queue, waiter = cloud.with_table()
    sent = message(queue, "x", -1)
    cloud.fill(queue, [sent])
    said: list[Exception] = []

    def meanwhile(**_: Any) -> None:
        try:
            changed(cloud, queue, sent.job_id, change)
        except Exception as error:
            said.append(error)

    waiter.clients.sqs.meta.events.register("provide-client-params.sqs.SendMessageBatch", meanwhile)
    assert waiter.poll().sent == 1
    assert isinstance(said[0], Conflict)
    assert "being sent" in str(said[0])
    with pytest.raises(NotFound):
        changed(cloud, queue, sent.job_id, change)
    assert cloud.bodies(queue) == {"x": 1}


def changed(cloud: Cloud, queue: str, job_id: str, change: str) -> Scheduled:
    waiter = cloud.waiter(queue)
    return waiter.cancel(queue, job_id) if change == "cancel" else waiter.reschedule(queue, job_id, delay=HOUR)


@pytest.mark.parametrize("change", ["cancel", "reschedule"])
def test_what_was_changed_after_a_poller_saw_it_is_not_sent(cloud: Cloud, change: str) -> None:
    queue, waiter = cloud.with_table()
    seen = message(queue, "x", -1)
    cloud.fill(queue, [seen])

    def meanwhile(**_: Any) -> None:
        changed(cloud, queue, seen.job_id, change)

    waiter.clients.dynamodb.meta.events.register("after-call.dynamodb.Query", meanwhile)
    polled = waiter.poll()
    assert (polled.sent, polled.taken) == (0, 1)
    assert cloud.received(queue) == []
    assert len(cloud.items(queue)) == (0 if change == "cancel" else 1)


def test_a_claim_that_ran_out_can_be_cancelled_but_may_have_been_sent(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    left = message(queue, "x", HOUR)
    cloud.fill(queue, [left])
    cloud.dynamodb.update_item(
        TableName=queue,
        Key={"scheduler": {"S": "shoryuken-waiter"}, "job_id": {"S": left.job_id}},
        UpdateExpression="SET claimed_by = :by, claimed_until = :until",
        ExpressionAttributeValues={":by": {"S": "dead"}, ":until": {"N": f"{time.time() - 1}"}},
    )
    assert waiter.cancel(queue, left.job_id).maybe_sent


def test_what_names_no_queue_that_can_be_read_can_be_cancelled(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    left = message(queue, "x", HOUR)
    cloud.fill(queue, [left])
    cloud.dynamodb.update_item(
        TableName=queue,
        Key={"scheduler": {"S": "shoryuken-waiter"}, "job_id": {"S": left.job_id}},
        UpdateExpression="SET queue_name = :odd",
        ExpressionAttributeValues={":odd": {"N": "5"}},
    )
    (seen,) = waiter.list(queue)
    assert seen.error == "queue_name is no text"
    assert waiter.cancel(queue, seen.job_id).job_id == left.job_id
    assert waiter.list(queue) == []


def test_another_queue_has_its_own_in_a_shared_table(cloud: Cloud) -> None:
    one, two = cloud.queue(), cloud.queue()
    waiter = cloud.waiter(one, two, table=cloud.name())
    waiter.tables.create(one)
    sent = waiter.send(one, "x", delay=HOUR)
    with pytest.raises(NotFound):
        waiter.cancel(two, sent.id)
    with pytest.raises(NotFound):
        waiter.reschedule(two, sent.id, delay=5)
    assert waiter.list(two) == []
    assert waiter.cancel(one, sent.id).queue == one


def test_bad_input(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    bad: list[Any] = [
        lambda: waiter.list(queue, limit=0),
        lambda: waiter.list(queue, limit="5"),  # type: ignore[arg-type]
        lambda: waiter.list(queue, after="nonsense"),
        lambda: waiter.cancel(queue, ""),
        lambda: waiter.cancel("a b", "x"),
        lambda: waiter.reschedule(queue, "x"),
        lambda: waiter.reschedule(queue, "x", delay=float("nan")),
        lambda: waiter.reschedule(queue, "x", at=datetime(2999, 1, 1)),
    ]
    for one in bad:
        with pytest.raises(Invalid):
            one()
    with pytest.raises(NoTable, match="has no DynamoDB table"):
        waiter.list(cloud.name())
