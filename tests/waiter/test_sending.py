"""Sent now, delayed by SQS, or kept in a table."""

from __future__ import annotations

import math
import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hipq.errors import Conflict, Invalid, NoTable, TransportUnavailable, WrongTable
from hipq.waiter import Scheduled, Waiter
from hipq.waiter.clock import AwsClock
from tests.brokers.aws import FaultyAws
from tests.waiter.cloud import HOUR, Calls, Clock, Cloud

NASTY = "tab\t nl\n cr\r quotes\"' <&>  \u00e9 \u2028 \ud7ff \ue000 \ufffd 🐘 \U0010ffff"
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "text": {"DataType": "String", "StringValue": NASTY},
    "number": {"DataType": "Number", "StringValue": "-1.50"},
    "label": {"DataType": "Number.float", "StringValue": "3"},
    "bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
}


@pytest.mark.parametrize("far", [False, True])
def test_body_and_attributes_arrive_byte_for_byte(cloud: Cloud, far: bool) -> None:
    clock = Clock()
    queue, waiter = cloud.with_table(clock=clock)
    sent = waiter.send(queue, NASTY, ATTRIBUTES, delay=2 * HOUR if far else None)
    assert sent.where == ("dynamodb" if far else "sqs")
    clock.ahead = 2 * HOUR
    assert waiter.poll().sent == far
    (arrived,) = cloud.received(queue)
    assert arrived["Body"] == NASTY
    assert arrived["MessageAttributes"] == ATTRIBUTES
    if not far:
        assert arrived["MessageId"] == sent.id


DELAYS: list[tuple[Any, int | None]] = [
    (None, None), (0, 0), (-5, 0), (-1e9, 0), (0.2, 1), (1, 1), (1.5, 2), (899.5, 900), (900, 900),
    (timedelta(minutes=15), 900), (timedelta(days=-1), 0),
]  # fmt: skip
"""What is asked for, and what SQS is told; None: nothing, as the queue has it."""


def test_sqs_delays_what_it_can(cloud: Cloud) -> None:
    queue, moment = cloud.queue(), time.time()
    waiter = cloud.waiter(queue, clock=lambda: moment)
    calls = Calls().watch(waiter)
    for delay, _ in DELAYS:
        assert waiter.send(queue, "x", delay=delay).where == "sqs"
    told = [call.get("DelaySeconds") for call in calls.of("SendMessage")]
    assert told == [seconds for _, seconds in DELAYS]


def test_what_is_further_out_goes_into_the_table(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    for delay in (900.001, 901, timedelta(days=1), 3_155_760_000):
        before = time.time()
        sent = waiter.send(queue, "far", delay=delay)
        after = time.time()
        (item,) = [one for one in cloud.items(queue) if one["job_id"]["S"] == sent.id]
        assert sent.where == "dynamodb"
        assert item["scheduler"]["S"] == "shoryuken-waiter"
        assert item["queue_name"]["S"] == queue
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        assert before + seconds - 1e-3 <= float(item["perform_at"]["N"]) <= after + seconds + 1e-3
    assert not cloud.delayed(queue)


def test_a_time_in_any_zone(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    at = datetime.now(timezone(timedelta(hours=5, minutes=30))) + timedelta(hours=3)
    waiter.send(queue, "x", at=at)
    assert waiter.list(queue)[0].at == at.astimezone(UTC)
    assert waiter.send(queue, "x", at=datetime(1999, 1, 1, tzinfo=UTC)).where == "sqs"
    assert waiter.send(queue, "x", at=datetime.now(UTC) + timedelta(minutes=10)).where == "sqs"


@pytest.mark.parametrize(
    "bad",
    [
        {"body": ""}, {"body": b"x"}, {"body": "\x00"}, {"body": None},
        {"attributes": {"a": 1}},
        {"delay": math.nan}, {"delay": math.inf}, {"delay": -math.inf}, {"delay": 1e300}, {"delay": 10**400},
        {"delay": "5"}, {"delay": True}, {"delay": timedelta.max},
        {"at": datetime(2999, 1, 1)}, {"at": 5}, {"at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))},
        {"at": datetime(2999, 1, 1, tzinfo=UTC), "delay": 5},
        {"queue": "no such name!"}, {"queue": None},
        {"group": "a b"}, {"group": ""}, {"group": "x" * 129}, {"dedup": "x"},
        {"fallback": 5}, {"fallback": "sns"},
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_aws_is_asked(bad: dict[str, Any]) -> None:
    waiter = Waiter(["mailers"], endpoint_url="http://127.0.0.1:9")  # nobody there: it would take long to find out
    with pytest.raises(Invalid) as error:
        waiter.send(**{"queue": "mailers", "body": "x", **bad})
    assert "\n" not in str(error.value)


def test_a_fifo_queue_needs_a_group(cloud: Cloud) -> None:
    queue = cloud.queue(fifo=True)
    with pytest.raises(Invalid, match="group"):
        cloud.waiter(queue).send(queue, "x")


def test_sizes(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    large = "é" * 524_288
    assert waiter.send(queue, large).where == "sqs"
    with pytest.raises(Invalid, match="1048576 bytes"):
        waiter.send(queue, large + "x")
    with pytest.raises(Invalid, match="1048576 bytes"):
        waiter.send(queue, large[:-1], {"ab": {"DataType": "String", "StringValue": "12345"}})
    with pytest.raises(Invalid, match="KEYS_ONLY"):
        waiter.send(queue, "x" * 205_000, delay=HOUR)  # twice: once in the index
    assert waiter.send(queue, "x" * 203_000, delay=HOUR).where == "dynamodb"
    small = cloud.queue(MaximumMessageSize="2048")
    with pytest.raises(Invalid, match="2048 bytes"):
        cloud.waiter(small).send(small, "x" * 2049)
    keys_only = cloud.queue()
    waiter = cloud.waiter(keys_only)
    waiter.tables.create(keys_only, "KEYS_ONLY")
    assert waiter.send(keys_only, "x" * 400_000, delay=HOUR).where == "dynamodb"
    with pytest.raises(Invalid, match="409600 bytes"):
        waiter.send(keys_only, "x" * 409_000, delay=HOUR)


def test_without_a_table_it_says_what_to_do(cloud: Cloud) -> None:
    queue = cloud.queue()
    waiter = cloud.waiter(queue)
    with pytest.raises(NoTable, match=f"hipq waiter create-table {queue}"):
        waiter.send(queue, "x", delay=HOUR)
    assert not cloud.received(queue)
    assert not cloud.delayed(queue)


def test_without_a_table_the_fallback_has_it(cloud: Cloud) -> None:
    queue = cloud.queue()
    waiter = cloud.waiter(queue)
    kept: list[Scheduled] = []

    def keep(message: Scheduled) -> str:
        kept.append(message)
        return "mine"

    sent = waiter.send(queue, "x", ATTRIBUTES, delay=HOUR, fallback=keep)
    assert (sent.id, sent.where) == ("mine", "fallback")
    assert (kept[0].body, kept[0].attributes, kept[0].queue) == ("x", ATTRIBUTES, queue)
    assert abs(kept[0].at.timestamp() - time.time() - HOUR) < 60
    calls = Calls().watch(waiter)
    assert waiter.send(queue, "x", delay=HOUR, fallback="sqs").where == "sqs"
    assert calls.of("SendMessage")[0]["DelaySeconds"] == 900
    waiter.tables.create(queue)
    assert waiter.send(queue, "x", delay=HOUR, fallback="sqs").where == "dynamodb"


def test_a_table_made_later_is_found_without_a_restart(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = cloud.queue()
    waiter = cloud.waiter(queue)
    with pytest.raises(NoTable):
        waiter.send(queue, "x", delay=HOUR)
    cloud.waiter(queue).tables.create(queue)
    with pytest.raises(NoTable):  # it was not there a moment ago: AWS is not asked at each message
        waiter.send(queue, "x", delay=HOUR)
    monkeypatch.setattr("hipq.waiter.tables.AGAIN", 0.0)
    assert waiter.send(queue, "x", delay=HOUR).where == "dynamodb"
    cloud.dynamodb.delete_table(TableName=queue)
    with pytest.raises(NoTable):
        waiter.send(queue, "x", delay=HOUR)


def test_a_table_of_another_kind_is_not_written_to(cloud: Cloud) -> None:
    queue = cloud.queue()
    cloud.dynamodb.create_table(
        TableName=queue,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    with pytest.raises(WrongTable, match=f"table {queue} cannot keep messages"):
        cloud.waiter(queue).send(queue, "x", delay=HOUR, fallback="sqs")


def test_a_missing_queue_is_one_sentence(cloud: Cloud) -> None:
    with pytest.raises(TransportUnavailable, match="queue nowhere: there is no such queue"):
        cloud.waiter().send("nowhere", "x")


def test_a_queue_that_was_made_anew_is_found(cloud: Cloud) -> None:
    queue = cloud.queue()
    waiter = cloud.waiter(queue)
    waiter.send(queue, "x")
    cloud.sqs.delete_queue(QueueUrl=cloud.sqs.get_queue_url(QueueName=queue)["QueueUrl"])
    with pytest.raises(TransportUnavailable):
        waiter.send(queue, "x")
    cloud.sqs.create_queue(QueueName=queue)
    assert waiter.send(queue, "x").where == "sqs"


def test_who_may_not_ask_may_still_send(cloud: Cloud) -> None:
    queue = cloud.queue()
    with FaultyAws(cloud.endpoint) as aws:
        aws.fail("GetQueueAttributes", "AccessDeniedException")
        assert cloud.waiter(queue, endpoint=aws.url).send(queue, "x").where == "sqs"
        assert aws.count("GetQueueAttributes") == 1


def test_throttled_calls_are_tried_again(cloud: Cloud) -> None:
    queue, _ = cloud.with_table()
    with FaultyAws(cloud.endpoint) as aws:
        waiter = cloud.waiter(queue, endpoint=aws.url)
        aws.fail("PutItem", "ProvisionedThroughputExceededException")
        aws.fail("SendMessage", "RequestThrottled")
        assert waiter.send(queue, "far", delay=HOUR).where == "dynamodb"
        assert waiter.send(queue, "near").where == "sqs"
        assert (aws.count("PutItem"), aws.count("SendMessage")) == (2, 2)
    assert len(cloud.items(queue)) == 1


def test_a_fifo_message_that_must_wait_is_kept_however_near_it_is(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table(fifo=True)
    calls = Calls().watch(waiter)
    assert waiter.send(queue, "now", group="a").where == "sqs"
    assert waiter.send(queue, "past", group="a", delay=-5).where == "sqs"
    assert waiter.send(queue, "soon", group="a", delay=5).where == "dynamodb"
    for call in calls.of("SendMessage"):
        assert "DelaySeconds" not in call  # SQS refuses it for a single message
        assert call["MessageDeduplicationId"]
    (item,) = cloud.items(queue)
    assert item["message_group_id"]["S"] == "a"
    assert item["message_deduplication_id"]["S"] == item["job_id"]["S"]


def test_a_fifo_queue_that_compares_bodies_is_left_to_do_so(cloud: Cloud) -> None:
    queue = cloud.queue(fifo=True, ContentBasedDeduplication="true")
    waiter = cloud.waiter(queue)
    calls = Calls().watch(waiter)
    waiter.send(queue, "x", group="a")
    waiter.send(queue, "x", group="a", dedup="mine")
    assert [call.get("MessageDeduplicationId") for call in calls.of("SendMessage")] == [None, "mine"]


@pytest.mark.parametrize("off", [-1000.0, -20.0, 0.0, 20.0, 1000.0])
def test_a_wrong_clock_is_corrected_by_what_aws_says(cloud: Cloud, off: float) -> None:
    queue, _ = cloud.with_table()
    waiter = cloud.waiter(queue)
    real = time.time
    waiter.clock._read = lambda: real() + off
    before = real()
    waiter.send(queue, "x", delay=2 * HOUR)
    after = real()
    due = float(cloud.items(queue)[0]["perform_at"]["N"])
    slow = after - before  # AWS says whole seconds, and its answer was on its way for a while
    assert before - 1 - slow <= due - 2 * HOUR <= after + 1 + slow
    if not off:
        assert waiter.clock.offset == 0  # what may be right is left alone


@pytest.mark.parametrize(
    ("here", "asked", "offset"),
    [
        (1000.0, 1000.0, 0.0), (1000.99, 1000.9, 0.0), (1001.5, 1000.5, 0.0), (1030.0, 1004.0, -3.0),
        (999.0, 998.9, 1.0), (900.0, 900.0, 100.0), (1100.0, 1100.0, -99.0),
    ],
)  # fmt: skip
def test_the_clock_is_moved_no_further_than_it_must(here: float, asked: float, offset: float) -> None:
    """AWS says 1000."""
    clock, times = AwsClock(), iter([asked, here])
    clock._read = lambda: next(times)
    clock.call_began()
    clock.answer_received("Thu, 01 Jan 1970 00:16:40 GMT")
    assert clock.offset == pytest.approx(offset)


def test_what_is_no_date_changes_nothing() -> None:
    clock = AwsClock()
    for said in (None, "", "yesterday"):
        clock.answer_received(said)
    assert clock.offset == 0


# -- what answers is not AWS ------------------------------------------------------------------------------------------
class LoginPage(BaseHTTPRequestHandler):
    """A proxy that answers everything, and every answer is fine."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b"<html>Please log in</html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def test_nothing_is_sent_or_kept_where_something_else_than_aws_says_yes(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    waiter.send(queue, "x", delay=2 * HOUR)  # it knows the queue and the table
    server = ThreadingHTTPServer(("127.0.0.1", 0), LoginPage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        elsewhere = cloud.waiter(queue, endpoint=f"http://127.0.0.1:{server.server_port}")
        elsewhere.destinations._known |= waiter.destinations._known
        elsewhere.tables._known |= waiter.tables._known
        for delay in (None, 2 * HOUR):
            with pytest.raises(TransportUnavailable, match="not AWS"):
                elsewhere.send(queue, "lost?", delay=delay)
        with pytest.raises(TransportUnavailable, match="not AWS"):
            elsewhere.cancel(queue, "x")
        assert [problem for problem in elsewhere.poll().problems if "not AWS" in problem]
    finally:
        server.shutdown()
        server.server_close()
    assert len(waiter.list(queue)) == 1


def test_a_message_that_has_an_id_of_its_own_is_kept_under_it(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    at = datetime.now(UTC) + timedelta(days=3)
    for _ in range(2):  # sent again, it is kept once
        assert waiter.send(queue, "hello", at=at, job_id="order-17").id == "order-17"
    assert [one.job_id for one in waiter.list(queue)] == ["order-17"]
    with pytest.raises(Conflict, match="order-17"):
        waiter.send(queue, "another", at=at, job_id="order-17")
    assert waiter.cancel(queue, "order-17").body == "hello"
    with pytest.raises(Invalid, match="job_id must have"):
        waiter.send(queue, "hello", at=at, job_id="")


@pytest.mark.parametrize(("written", "delay"), [("60", 60.0), ('"2m"', 120.0)])
def test_the_delay_of_hipq_toml_is_the_waiters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, delay: float
) -> None:
    (tmp_path / "hipq.toml").write_text(f"[waiter]\ndelay = {written}\n")
    monkeypatch.chdir(tmp_path)
    assert Waiter(["mailers"]).delay == delay
    assert Waiter(["mailers"], delay=5).delay == 5
    (tmp_path / "hipq.toml").unlink()
    assert Waiter(["mailers"]).delay == 300
