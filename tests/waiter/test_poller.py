"""From the tables to SQS."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hipq.job.when import SECOND
from hipq.waiter.claims import CLAIM
from hipq.waiter.item import INDEX, Scheduled
from hipq.waiter.poller import SOON
from tests.brokers.aws import FaultyAws
from tests.waiter.cloud import HOUR, Calls, Clock, Cloud, message

AFTER_CLAIM = CLAIM / SECOND + 1


def test_what_is_due_within_the_horizon_is_sent_with_its_delay_and_nothing_else(cloud: Cloud) -> None:
    queue, _ = cloud.with_table()
    moment = float(int(time.time()))
    waiter = cloud.waiter(queue, clock=lambda: moment)
    calls = Calls().watch(waiter)
    wanted = {-HOUR: 0, -0.5: 0, 0.0: 0, 0.25: 1, 10.0: 10, 10.5: 11, 899.0: 899, 900.0: 900}
    late = [900.5, 901.0, HOUR]
    for ahead in [*wanted, *late]:
        cloud.fill(queue, [Scheduled(queue, f"{ahead}", f"{moment + ahead:.6f}", f"{ahead}")])
    polled = waiter.poll()
    assert (polled.sent, polled.failed, polled.problems) == (len(wanted), 0, [])
    entries = [entry for call in calls.of("SendMessageBatch") for entry in call["Entries"]]
    assert {float(entry["MessageBody"]): entry["DelaySeconds"] for entry in entries} == wanted
    assert len(entries) == len(wanted)
    assert sorted(float(item["job_id"]["S"]) for item in cloud.items(queue)) == late


def test_items_go_in_batches_of_ten_and_of_what_sqs_takes_at_once(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    calls = Calls().watch(waiter)
    cloud.fill(queue, [message(queue, f"{n}", -1) for n in range(21)])
    assert waiter.poll().sent == 21
    assert sorted(len(call["Entries"]) for call in calls.of("SendMessageBatch")) == [1, 10, 10]
    assert cloud.bodies(queue) == Counter(map(str, range(21)))
    for n in range(7):  # six of them are more than SQS takes at once
        cloud.dynamodb.put_item(
            TableName=queue,
            Item={
                "scheduler": {"S": "shoryuken-waiter"},
                "job_id": {"S": str(n)},
                "perform_at": {"N": "1"},
                "sqs_message_body": {"S": "é" * 95_000},
            },
        )
    calls.made.clear()
    polled = waiter.poll()
    assert (polled.sent, polled.problems) == (7, [])
    assert sorted(len(call["Entries"]) for call in calls.of("SendMessageBatch")) == [2, 5]


def test_one_table_for_several_queues(cloud: Cloud) -> None:
    one, two, shared = cloud.queue(), cloud.queue(fifo=True), cloud.name()
    clock = Clock()
    waiter = cloud.waiter(one, two, table=shared, clock=clock)
    assert waiter.tables.find() == {}
    assert waiter.tables.create(one) == shared
    assert waiter.tables.find() == {one: shared, two: shared}
    waiter.send(one, "one", delay=HOUR)
    waiter.send(two, "two", delay=HOUR, group="a", dedup="d")
    clock.ahead = HOUR + 1
    assert [message.body for message in waiter.list(one)] == ["one"]
    assert [message.body for message in waiter.list(two)] == ["two"]
    assert waiter.poll().sent == 2
    assert cloud.bodies(one) == {"one": 1}
    (arrived,) = cloud.received(two)
    assert (arrived["Body"], arrived["Attributes"]["MessageGroupId"]) == ("two", "a")
    assert arrived["Attributes"]["MessageDeduplicationId"] == "d"


def test_items_of_shoryuken_waiter_are_sent(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    cloud.dynamodb.put_item(
        TableName=queue,
        Item={
            "scheduler": {"S": "shoryuken-waiter"},
            "job_id": {"S": "8c6d"},
            "perform_at": {"N": str(time.time())},
            "sqs_message_body": {"M": {"queue_name": {"S": queue}, "arguments": {"L": [{"N": "5"}]}}},
            "sqs_message_attributes": {
                "M": {"shoryuken_class": {"M": {"string_value": {"S": "Wrapper"}, "data_type": {"S": "String"}}}}
            },
        },
    )
    assert waiter.poll().sent == 1
    (arrived,) = cloud.received(queue)
    assert json.loads(arrived["Body"]) == {"queue_name": queue, "arguments": [5]}
    assert arrived["MessageAttributes"]["shoryuken_class"]["StringValue"] == "Wrapper"
    assert cloud.items(queue) == []


@pytest.mark.parametrize("projection", ["KEYS_ONLY", "GSI", "GSI KEYS_ONLY"])
def test_any_index_will_do(cloud: Cloud, projection: str) -> None:
    queue = cloud.queue()
    clock = Clock()
    waiter = cloud.waiter(queue, clock=clock)
    if projection == "KEYS_ONLY":
        waiter.tables.create(queue, "KEYS_ONLY")
    else:
        global_table(cloud, queue, "KEYS_ONLY" if "KEYS" in projection else "ALL")
    assert waiter.tables.check(queue) == []
    bodies = {f"{n}" for n in range(3)}
    for body in bodies:
        waiter.send(queue, body, {"a": {"DataType": "Binary", "BinaryValue": b"\xff"}}, delay=HOUR)
    assert {one.body for one in waiter.list(queue)} == bodies
    clock.ahead = HOUR
    assert waiter.poll().sent == 3
    arrived = cloud.received(queue)
    assert {one["Body"] for one in arrived} == bodies
    assert all(one["MessageAttributes"]["a"]["BinaryValue"] == b"\xff" for one in arrived)


def global_table(cloud: Cloud, name: str, projection: str) -> None:
    cloud.dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": "scheduler", "AttributeType": "S"},
            {"AttributeName": "job_id", "AttributeType": "S"},
            {"AttributeName": "perform_at", "AttributeType": "N"},
        ],
        KeySchema=[
            {"AttributeName": "scheduler", "KeyType": "HASH"},
            {"AttributeName": "job_id", "KeyType": "RANGE"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": INDEX,
                "KeySchema": [
                    {"AttributeName": "scheduler", "KeyType": "HASH"},
                    {"AttributeName": "perform_at", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": projection},
            }
        ],
    )


# -- FIFO -----------------------------------------------------------------------------------------------------------
def test_a_fifo_message_is_released_at_its_time_and_never_before(cloud: Cloud) -> None:
    queue, _ = cloud.with_table(fifo=True)
    moment = time.time()
    shift = [0.0]
    waiter = cloud.waiter(queue, clock=lambda: moment + shift[0])
    for n in (1, 2, 3):
        waiter.send(queue, f"{n}", group="a", delay=n * 60)
    for shift[0], expected in ((0.0, []), (59.99, []), (60.0, ["1"]), (119.0, []), (180.0, ["2", "3"])):
        polled = waiter.poll()
        assert [one["Body"] for one in cloud.received(queue)] == expected
        if expected != ["2", "3"]:
            assert polled.next_due is not None  # so that `run` looks then
            assert 0 <= polled.next_due / 1e6 - moment - shift[0] <= 120
    assert cloud.items(queue) == []


def test_a_group_stays_in_order_when_one_of_it_cannot_be_sent(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipq.waiter.delivery.PAUSES", (0.01, 0.01))
    queue, _ = cloud.with_table(fifo=True)
    cloud.fill(queue, [message(queue, f"a{n}", n - 10, group="a", dedup=f"a{n}") for n in range(3)])
    cloud.fill(queue, [message(queue, f"b{n}", n - 10.5, group="b", dedup=f"b{n}") for n in range(3)])
    with FaultyAws(cloud.endpoint) as aws:
        failure = {"SenderFault": False, "Code": "InternalError", "Message": "later"}
        for _ in range(3):  # b0 and a0 are first, and fail as often as they are tried
            aws.answer("SendMessageBatch", 200, {"Failed": [{"Id": "0", **failure}, {"Id": "1", **failure}]})
        waiter = cloud.waiter(queue, endpoint=aws.url)
        polled = waiter.poll()
    assert (polled.sent, polled.again) == (0, 2)
    assert waiter._poller._pause(polled, 300.0) == SOON, "it is due, and may be taken in a moment"
    assert polled.problems
    assert cloud.received(queue) == []
    waiter = cloud.waiter(queue)
    calls = Calls().watch(waiter)
    assert waiter.poll().sent == 6
    for call in calls.of("SendMessageBatch"):  # of a batch SQS may take the second and not the first
        groups = [entry["MessageGroupId"] for entry in call["Entries"]]
        assert len(groups) == len(set(groups))
    arrived = [one["Body"] for one in cloud.received(queue)]
    assert [one for one in arrived if one[0] == "a"] == ["a0", "a1", "a2"]
    assert [one for one in arrived if one[0] == "b"] == ["b0", "b1", "b2"]


def test_no_later_one_of_a_group_passes_one_that_another_poller_has(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table(fifo=True)
    first, *others = [message(queue, f"{n}", n - 10, group="a", dedup=f"{n}") for n in range(3)]
    cloud.fill(queue, [first, *others, message(queue, "b", -1, group="b", dedup="b")])
    claim(cloud, queue, first.job_id, until=time.time() + 60)
    assert waiter.poll().sent == 1
    assert [one["Body"] for one in cloud.received(queue)] == ["b"]
    claim(cloud, queue, first.job_id, until=time.time() - 1)
    assert waiter.poll().sent == 3
    assert [one["Body"] for one in cloud.received(queue)] == ["0", "1", "2"]


@pytest.mark.parametrize("until", [None, {"S": "soon"}, {"NULL": True}], ids=["none", "text", "null"])
def test_a_claim_without_an_end_holds_up_nothing(cloud: Cloud, until: dict[str, Any] | None) -> None:
    queue, waiter = cloud.with_table(fifo=True)
    first, second, third = (message(queue, f"{n}", n - 10, group="g", dedup=f"{n}") for n in range(3))
    cloud.fill(queue, [first, second, third])
    for one in (first, third):
        cloud.dynamodb.update_item(
            TableName=queue,
            Key={"scheduler": {"S": "shoryuken-waiter"}, "job_id": {"S": one.job_id}},
            UpdateExpression="SET claimed_by = :by" + (", claimed_until = :until" if until else ""),
            ExpressionAttributeValues={":by": {"S": "another"}, **({":until": until} if until else {})},
        )
    assert waiter.cancel(queue, third.job_id).maybe_sent
    assert waiter.poll().sent == 2
    assert [one["Body"] for one in cloud.received(queue)] == ["0", "1"]


def claim(cloud: Cloud, table: str, job_id: str, until: float) -> None:
    """As another poller does."""
    cloud.dynamodb.update_item(
        TableName=table,
        Key={"scheduler": {"S": "shoryuken-waiter"}, "job_id": {"S": job_id}},
        UpdateExpression="SET claimed_by = :by, claimed_until = :until",
        ExpressionAttributeValues={":by": {"S": "another"}, ":until": {"N": f"{until}"}},
    )


# -- what goes wrong ------------------------------------------------------------------------------------------------
def test_what_sqs_took_in_part_is_tried_again_in_part(cloud: Cloud) -> None:
    queue, _ = cloud.with_table()
    cloud.fill(queue, [message(queue, f"{n}", -1) for n in range(4)])
    with FaultyAws(cloud.endpoint) as aws:
        failed = [{"Id": f"{n}", "SenderFault": False, "Code": "InternalError"} for n in range(4)]
        aws.answer("SendMessageBatch", 200, {"Failed": failed})
        polled = cloud.waiter(queue, endpoint=aws.url).poll()
        assert (polled.sent, polled.failed, aws.count("SendMessageBatch")) == (4, 0, 2)
    assert cloud.bodies(queue) == Counter(map(str, range(4)))


def test_only_what_sqs_confirmed_is_deleted(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQS says it took two of four, refuses one for good, and says nothing of the last."""
    monkeypatch.setattr("hipq.waiter.delivery.PAUSES", ())
    queue, _ = cloud.with_table()
    cloud.fill(queue, [message(queue, f"{n}", n - 10) for n in range(4)])
    with FaultyAws(cloud.endpoint) as aws:
        confirmed = [{"Id": f"{n}", "MessageId": f"m{n}", "MD5OfMessageBody": "-"} for n in (0, 2)]
        refused = [{"Id": "1", "SenderFault": True, "Code": "InvalidMessageContents", "Message": "no"}]
        aws.answer("SendMessageBatch", 200, {"Successful": confirmed, "Failed": refused})
        polled = cloud.waiter(queue, endpoint=aws.url).poll()
    assert (polled.sent, polled.failed) == (2, 2)
    left = {item["sqs_message_body"]["S"]: item for item in cloud.items(queue)}
    assert set(left) == {"1", "3"}
    assert "InvalidMessageContents" in left["1"]["error"]["S"]
    assert "claimed_by" not in left["3"]  # certainly not sent, so whoever looks next may try
    assert cloud.waiter(queue).poll().sent == 1
    assert cloud.bodies(queue) == {"3": 1}


def test_one_bad_item_is_kept_reported_and_tried_less_and_less_often(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    queue, waiter = cloud.with_table(clock=clock)
    key = {"scheduler": {"S": "shoryuken-waiter"}, "perform_at": {"N": "1"}}
    bad: dict[str, dict[str, Any]] = {
        "nothing": {},
        "binary": {"sqs_message_body": {"B": b"\x01"}},
        "typed": {
            "sqs_message_body": {"S": "x"},
            "sqs_message_attributes": {"M": {"a": {"M": {"data_type": {"S": "Wrong"}, "string_value": {"S": "1"}}}}},
        },
    }
    for name, item in bad.items():
        cloud.dynamodb.put_item(TableName=queue, Item={**key, "job_id": {"S": name}, **item})
    cloud.fill(queue, [message(queue, f"{n}", -1) for n in range(9)])
    with caplog.at_level(logging.ERROR, "hipq.waiter"):
        polled = waiter.poll()
    assert (polled.sent, polled.failed) == (9, 3)
    assert cloud.bodies(queue) == Counter(map(str, range(9)))
    kept = {one.job_id: one for one in waiter.list(queue)}
    assert set(kept) == set(bad)
    assert all(one.error and one.failures == 1 and not one.claimed_by for one in kept.values())
    assert all(name in caplog.text for name in bad)
    calls = Calls().watch(waiter)
    assert waiter.poll().failed == 3
    assert set(calls.counts()) == {"DescribeTable", "Query"}  # they are not tried at each look
    waits = []
    for _ in range(3):
        latest = max(one.retry_at for one in waiter.list(queue)) / 1e6
        waits.append(latest - clock())
        clock.ahead += waits[-1] + 1
        waiter.poll()
    assert 250 < waits[0] < waits[1] < waits[2]
    waiter.cancel(queue, "nothing")
    waiter.reschedule(queue, "typed", delay=HOUR)
    assert [(one.job_id, one.failures, one.error) for one in waiter.list(queue)][-1] == ("typed", 0, "")


def test_a_batch_that_sqs_refuses_as_a_whole_is_sent_in_parts(cloud: Cloud) -> None:
    queue, _ = cloud.with_table()
    cloud.fill(queue, [message(queue, f"{n}", n - 10) for n in range(5)])
    with FaultyAws(cloud.endpoint) as aws:
        for _ in range(3):  # five, then the first two, then the first of them
            aws.fail("SendMessageBatch", "InvalidMessageContents")
        polled = cloud.waiter(queue, endpoint=aws.url).poll()
    assert (polled.sent, polled.failed, polled.problems) == (4, 1, [])
    assert cloud.bodies(queue) == Counter("1234")
    assert "InvalidMessageContents" in cloud.items(queue)[0]["error"]["S"]


def test_a_queue_that_is_gone_holds_up_no_other(cloud: Cloud) -> None:
    queue, shared = cloud.queue(), cloud.name()
    waiter = cloud.waiter(queue, table=shared)
    waiter.tables.create(queue)
    cloud.fill(shared, [message(queue, "x", -1), message("gone", "y", -2), message("gone.fifo", "z", -2, group="a")])
    polled = waiter.poll()
    assert (polled.sent, polled.failed) == (1, 2)
    assert sum("there is no such queue" in one for one in polled.problems) == 2
    assert all("claimed_by" not in item for item in cloud.items(shared))


def test_a_queue_that_goes_meanwhile_loses_nothing(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    waiter.destinations.of(queue)
    url = cloud.sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    cloud.sqs.delete_queue(QueueUrl=url)
    cloud.fill(queue, [message(queue, f"{n}", -1) for n in range(12)])
    polled = waiter.poll()
    assert (polled.sent, polled.failed) == (0, 12)
    cloud.sqs.create_queue(QueueName=queue)
    assert waiter.poll().sent == 12  # at once: they were given back


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("Query", "ProvisionedThroughputExceededException"),
        ("UpdateItem", "ThrottlingException"),
        ("SendMessageBatch", "RequestThrottled"),
        ("DeleteItem", "InternalServerError"),
        ("DescribeTable", "ThrottlingException"),
    ],
)
def test_throttled_calls_are_tried_again(cloud: Cloud, what: str, code: str) -> None:
    queue, _ = cloud.with_table()
    cloud.fill(queue, [message(queue, "x", -1)])
    with FaultyAws(cloud.endpoint) as aws:
        aws.fail(what, code, 500 if code.startswith("Internal") else 400)
        polled = cloud.waiter(queue, endpoint=aws.url).poll()
        assert (polled.sent, polled.problems, aws.count(what)) == (1, [], 2)
    assert cloud.bodies(queue) == {"x": 1}


@pytest.mark.parametrize("what", ["Query", "UpdateItem", "SendMessageBatch", "DeleteItem", "DescribeTable"])
def test_whatever_fails_for_good_loses_nothing(cloud: Cloud, what: str) -> None:
    """The library gives up at once on what is not allowed."""
    queue, _ = cloud.with_table()
    cloud.fill(queue, [message(queue, f"{n}", -1) for n in range(3)])
    clock = Clock()
    with FaultyAws(cloud.endpoint) as aws:
        waiter = cloud.waiter(queue, endpoint=aws.url, clock=clock)
        for _ in range(3):
            aws.fail(what, "AccessDeniedException")
        polled = waiter.poll()
        assert polled.problems
        assert polled.sent == 0
        sent = cloud.bodies(queue)
        assert len(cloud.items(queue)) == 3
        for _ in range(3):
            aws._answers.pop(what, None)
        again = waiter.poll()
        assert again.sent == 3
    assert cloud.items(queue) == []
    assert sent + cloud.bodies(queue) == Counter("012")  # once each: what was not deleted is not sent again


def test_a_lost_answer_of_a_claim_or_a_delete_is_no_second_message(cloud: Cloud) -> None:
    """DynamoDB did it, and the answer got lost: the library asks again, and must not be told that it is too late."""
    queue, waiter = cloud.with_table()
    cloud.fill(queue, [message(queue, "x", -1)])
    lost: Counter[str] = Counter()

    def lose(response: Any, operation: Any, **_: Any) -> float | None:
        done = response is not None and response[0].status_code == 200
        if done and operation.name in ("UpdateItem", "DeleteItem") and not lost[operation.name]:
            lost[operation.name] += 1
            return 0.0  # try again
        return None

    waiter.clients.dynamodb.meta.events.register_first("needs-retry.dynamodb", lose)
    polled = waiter.poll()
    assert (polled.sent, polled.lost, polled.taken) == (1, 0, 0)
    assert lost == {"UpdateItem": 1, "DeleteItem": 1}
    assert cloud.bodies(queue) == {"x": 1}


def test_when_sqs_does_not_say_the_claim_keeps_others_off_for_a_while(cloud: Cloud) -> None:
    queue, _ = cloud.with_table()
    cloud.fill(queue, [message(queue, "x", -1)])
    with FaultyAws(cloud.endpoint) as aws:
        for _ in range(4):
            aws.fail("SendMessageBatch", "InternalFailure", 500)
        polled = cloud.waiter(queue, endpoint=aws.url).poll()
        assert (polled.sent, polled.failed) == (0, 1)
    assert cloud.waiter(queue).poll().taken == 1
    assert cloud.waiter(queue, clock=Clock(AFTER_CLAIM)).poll().sent == 1


def test_a_table_in_trouble_holds_up_no_other(cloud: Cloud) -> None:
    good, _ = cloud.with_table()
    bad, missing = cloud.queue(), cloud.queue()
    cloud.dynamodb.create_table(
        TableName=bad,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    cloud.fill(good, [message(good, "x", -1)])
    polled = cloud.waiter(missing, bad, good).poll()
    assert polled.sent == 1
    assert len(polled.problems) == 1
    assert bad in polled.problems[0]


# -- several --------------------------------------------------------------------------------------------------------
def test_several_pollers_at_once_send_each_once(cloud: Cloud) -> None:
    queue, _ = cloud.with_table()
    cloud.fill(queue, [message(queue, f"{n}", -1) for n in range(60)])
    waiters = [cloud.waiter(queue, threads=2) for _ in range(3)]
    counted = [Calls().watch(waiter) for waiter in waiters]
    with ThreadPoolExecutor(3) as pool:
        polled = list(pool.map(lambda one: one.poll(), waiters))
    polled.append(waiters[0].poll())  # what one left to another that was there before it
    assert sum(one.sent for one in polled) == 60
    assert not any(one.problems or one.lost for one in polled)
    assert cloud.items(queue) == []
    assert cloud.bodies(queue) == Counter(map(str, range(60)))
    # Where another was first, one try for a batch is enough to know.
    assert sum(calls.counts()["UpdateItem"] for calls in counted) <= 60 + 2 * 6 + 6


def test_a_poller_that_was_too_slow_deletes_nothing_of_another(cloud: Cloud) -> None:
    """Its claim runs out before it deletes: another has it by then, and has not sent it yet."""
    queue, slow = cloud.with_table()
    cloud.fill(queue, [message(queue, "x", -1)])

    def steal(**_: Any) -> None:
        (item,) = cloud.items(queue)
        claim(cloud, queue, item["job_id"]["S"], until=time.time() + 60)

    slow.clients.sqs.meta.events.register("after-call.sqs.SendMessageBatch", steal)
    polled = slow.poll()
    assert (polled.sent, polled.lost) == (0, 1)
    assert len(cloud.items(queue)) == 1


def test_run_looks_again_and_stops_when_told(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    queue, _ = cloud.with_table()
    waiter = cloud.waiter(queue, delay=0.05)
    stop = threading.Event()
    thread = threading.Thread(target=waiter.run, args=(stop,))
    thread.start()
    try:
        for n in range(2):
            cloud.fill(queue, [message(queue, f"{n}", -1)])
            until = time.monotonic() + 30
            while cloud.items(queue) and time.monotonic() < until:
                time.sleep(0.02)
            assert cloud.bodies(queue) == {f"{n}": 1}
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()
    assert "too seldom" not in caplog.text


def test_run_waits_for_a_fifo_message_that_it_has_seen(cloud: Cloud) -> None:
    """However seldom it looks."""
    queue, _ = cloud.with_table(fifo=True)
    waiter = cloud.waiter(queue, delay=800)
    due = time.time() + 1.5
    waiter.send(queue, "x", group="a", delay=1.5)
    stop = threading.Event()
    thread = threading.Thread(target=waiter.run, args=(stop,))
    thread.start()
    try:
        until = time.monotonic() + 30
        while cloud.items(queue) and time.monotonic() < until:
            time.sleep(0.02)
        (arrived,) = cloud.received(queue)
        assert int(arrived["Attributes"]["SentTimestamp"]) / 1000 >= due - 0.01
    finally:
        stop.set()
        thread.join(30)


@pytest.mark.parametrize("delay", [899.0, 900.0])
def test_looking_too_seldom_is_warned_about(cloud: Cloud, caplog: pytest.LogCaptureFixture, delay: float) -> None:
    stop = threading.Event()
    stop.set()
    cloud.waiter(delay=delay).run(stop)
    assert ("too seldom" in caplog.text) == (delay >= 900)


def test_a_problem_is_said_once(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    queue, shared = cloud.queue(), cloud.name()
    waiter = cloud.waiter(queue, table=shared, delay=0.01)
    waiter.tables.create(queue)
    cloud.fill(shared, [message("gone", "y", -2)])
    calls = Calls().watch(waiter)
    stop = threading.Event()
    thread = threading.Thread(target=waiter.run, args=(stop,))
    thread.start()
    until = time.monotonic() + 30
    while calls.counts()["Query"] < 4 and time.monotonic() < until:
        time.sleep(0.02)
    stop.set()
    thread.join(30)
    assert calls.counts()["Query"] >= 4
    assert caplog.text.count("there is no such queue") == 1
