"""The consumer: what is handled is deleted, what fails comes again, and a stop loses nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hipq.errors import Invalid, TransportUnavailable
from hipq.waiter import Message, Waiter
from hipq.waiter.intake import Intake
from tests.brokers.aws import FaultyAws
from tests.waiter.cloud import Cloud
from tests.waiter.consuming import PATIENCE, counted, eventually, is_empty, put, working

FAILED = {
    "Successful": [],
    "Failed": [{"Id": "0", "SenderFault": False, "Code": "InternalError", "Message": "ordered"}],
}
VOID = {
    "Successful": [],
    "Failed": [{"Id": "0", "SenderFault": True, "Code": "ReceiptHandleIsInvalid", "Message": "ordered"}],
}


@contextmanager
def gate(waiter: Waiter, queue: str, **options: Any) -> Iterator[tuple[list[Message], threading.Event]]:
    """A handler that waits: what has begun, and what lets all of them go on."""
    begun: list[Message] = []
    go = threading.Event()

    @waiter.handle(queue, **options)
    def wait(message: Message) -> None:
        begun.append(message)
        go.wait(PATIENCE)

    try:
        yield begun, go
    finally:
        go.set()


# -- handled ---------------------------------------------------------------------------------------------------------
def test_what_was_sent_is_handled_and_deleted(cloud: Cloud) -> None:
    queue = cloud.queue()
    waiter, seen = cloud.waiter(queue), list[Any]()
    waiter.handle(queue)(seen.append)
    attributes: dict[str, dict[str, Any]] = {
        "name": {"DataType": "String", "StringValue": "Jürgen \U0001f600"},
        "count": {"DataType": "Number.int", "StringValue": "5"},
        "bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
    }
    body = '{"to": "Zoë \U0001f600",\n\t"n": 1}'
    before = time.time()
    sent = waiter.send(queue, body, attributes)
    with working(waiter):
        (message,) = eventually(lambda: seen)
        eventually(lambda: is_empty(cloud, queue))
    assert (message.queue, message.id, message.body, message.attributes) == (queue, sent.id, body, attributes)
    assert (message.received, message.group, message.dedup) == (1, "", "")
    assert before - 60 < message.sent_at < time.time() + 60
    assert message.json == {"to": "Zoë \U0001f600", "n": 1}
    assert message.receipt
    assert message.receipt not in repr(message)
    assert len(seen) == 1


def test_a_fifo_message_says_its_group_and_dedup(cloud: Cloud) -> None:
    queue = cloud.queue(fifo=True)
    waiter, seen = cloud.waiter(queue), list[Any]()
    waiter.handle(queue)(seen.append)
    waiter.send(queue, "x", group="g", dedup="d")
    with working(waiter):
        (message,) = eventually(lambda: seen)
    assert (message.group, message.dedup) == ("g", "d")


def test_a_coroutine_is_a_handler_too(cloud: Cloud) -> None:
    queue = cloud.queue()
    waiter, seen = cloud.waiter(queue), list[Any]()

    @waiter.handle(queue)
    async def mail(message: Message) -> None:
        seen.append(message.body)

    put(cloud, queue, "a", "b")
    with working(waiter):
        eventually(lambda: is_empty(cloud, queue))
    assert sorted(seen) == ["a", "b"]


def test_only_so_many_handlers_run_at_a_time_over_all_queues(cloud: Cloud) -> None:
    one, two = cloud.queue(), cloud.queue()
    waiter = cloud.waiter(one, two)
    put(cloud, one, *map(str, range(12)))
    put(cloud, two, *map(str, range(12)))
    lock, most, running, seen = threading.Lock(), [0], [0], Counter[str]()

    def work(message: Message) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            seen[f"{message.queue} {message.body}"] += 1
        until = time.monotonic() + 0.5
        while most[0] < 3 and time.monotonic() < until:  # so that it is seen that three do run at once
            time.sleep(0.01)
        with lock:
            running[0] -= 1

    waiter.handle(one)(work)
    waiter.handle(two)(work)
    with working(waiter, concurrency=3):
        eventually(lambda: is_empty(cloud, one) and is_empty(cloud, two))
    assert most[0] == 3
    assert len(seen) == 24
    assert set(seen.values()) == {1}


def test_no_more_is_received_than_there_are_hands(cloud: Cloud) -> None:
    """Others may have the rest meanwhile."""
    queue = cloud.queue()
    waiter = cloud.waiter(queue)
    put(cloud, queue, *map(str, range(9)))
    with gate(waiter, queue) as (begun, go), working(waiter, concurrency=4):
        eventually(lambda: len(begun) == 4)
        assert counted(cloud, queue) == (5, 4)
        go.set()
        eventually(lambda: is_empty(cloud, queue))


# -- failed ----------------------------------------------------------------------------------------------------------
def test_what_raised_comes_again_when_it_is_hidden_no_longer(cloud: Cloud) -> None:
    queue = cloud.queue()
    waiter, seen = cloud.waiter(queue), list[Any]()

    @waiter.handle(queue, visibility=1)
    def fail(message: Message) -> None:
        seen.append(message.received)
        if len(seen) == 1:
            raise ConnectionError("the mail server does not answer")
        if len(seen) == 2:
            raise SystemExit("which ends no thread")

    put(cloud, queue, "x")
    with working(waiter, concurrency=1) as under_way:
        eventually(lambda: is_empty(cloud, queue) and len(seen) == 3)
    assert seen == [1, 2, 3]
    assert under_way.consumer.counts == {"handled": 1, "failed": 2}


def test_retry_says_when_it_comes_again(cloud: Cloud) -> None:
    queue = cloud.queue()  # which hides for an hour
    waiter, asked = cloud.waiter(queue), list[int]()

    def pause(message: Message) -> float:
        asked.append(message.received)
        return 0 if message.received < 3 else 1000

    @waiter.handle(queue, retry=pause)
    def fail(_: Message) -> None:
        raise ValueError

    put(cloud, queue, "x")
    with FaultyAws(cloud.endpoint) as proxy:
        faulty = cloud.waiter(queue, endpoint=proxy.url)
        faulty.handlers = waiter.handlers
        with working(faulty):
            eventually(lambda: proxy.count("ChangeMessageVisibilityBatch") == 3)
        told = [what["Entries"][0]["VisibilityTimeout"] for name, what in proxy.asked if name.startswith("Change")]
    assert asked == [1, 2, 3]
    assert told == [0, 0, 1000]
    assert counted(cloud, queue) == (0, 1)


@pytest.mark.parametrize(
    "retry", [lambda _: 1 / 0, lambda _: None, lambda _: "soon", lambda _: float("nan"), lambda _: -1]
)
def test_a_retry_that_says_nothing_leaves_it_hidden(cloud: Cloud, retry: Any) -> None:
    queue = cloud.queue()
    waiter = cloud.waiter(queue)

    @waiter.handle(queue, retry=retry)
    def fail(_: Message) -> None:
        raise ValueError

    put(cloud, queue, "x")
    with working(waiter, concurrency=1) as under_way:
        eventually(lambda: under_way.consumer.counts["failed"])
        put(cloud, queue, "y")  # for which the same thread must still be there
        eventually(lambda: under_way.consumer.counts["failed"] == 2)
    assert counted(cloud, queue) == (0, 2)


def test_a_failure_is_logged_with_its_traceback_and_without_the_body(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    queue = cloud.queue()
    waiter = cloud.waiter(queue)

    @waiter.handle(queue)
    def fail(_: Message) -> None:
        raise ConnectionError("the mail server does not answer")

    put(cloud, queue, "s3cret")
    with caplog.at_level(logging.INFO, "hipq"), working(waiter) as under_way:
        eventually(lambda: under_way.consumer.counts["failed"])
    (record,) = [one for one in caplog.records if one.exc_info]
    assert record.exc_info
    assert "the mail server does not answer" in str(record.exc_info[1])
    assert queue in record.getMessage()
    assert "s3cret" not in caplog.text


def test_a_bug_while_a_message_is_settled_ends_no_thread(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue = cloud.queue()
    waiter, seen = cloud.waiter(queue), list[str]()

    @waiter.handle(queue)
    def fail(message: Message) -> None:
        seen.append(message.body)
        raise ValueError

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Intake, "_not_done", broken)
    with working(waiter, concurrency=1):
        for body in ("x", "y"):
            put(cloud, queue, body)
            eventually(lambda body=body: body in seen)  # type: ignore[misc]
    assert "could not be settled" in caplog.text


@pytest.mark.parametrize("fifo", [False, True])
def test_a_machine_that_has_no_thread_left_for_a_moment_costs_no_hand_and_no_message(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, fifo: bool
) -> None:
    queue = cloud.queue(fifo=fifo, VisibilityTimeout="1")
    waiter, seen = cloud.waiter(queue), list[str]()
    start, refused = threading.Thread.start, list[str]()

    def full(thread: threading.Thread) -> None:
        if thread.name == "hipq-waiter-handler" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", full)
    waiter.handle(queue)(lambda message: seen.append(message.body))
    for body in ("x", "y"):
        waiter.send(queue, body, **({"group": "g"} if fifo else {}))  # type: ignore[arg-type]
    with working(waiter, concurrency=1):
        eventually(lambda: len(seen) == 2)
    assert refused
    assert seen == ["x", "y"] if fifo else sorted(seen) == ["x", "y"]


# -- deleted ---------------------------------------------------------------------------------------------------------
def test_what_is_through_together_is_deleted_together(cloud: Cloud) -> None:
    queue = cloud.queue()
    put(cloud, queue, *map(str, range(10)))
    with FaultyAws(cloud.endpoint) as proxy:
        waiter = cloud.waiter(queue, endpoint=proxy.url)
        with gate(waiter, queue) as (begun, go), working(waiter):
            eventually(lambda: len(begun) == 10)
            go.set()
            eventually(lambda: is_empty(cloud, queue))
        sizes = [len(what["Entries"]) for name, what in proxy.asked if name == "DeleteMessageBatch"]
    assert sum(sizes) == 10
    assert len(sizes) < 10


def test_what_sqs_fails_to_delete_is_deleted_later(cloud: Cloud) -> None:
    queue = cloud.queue()
    put(cloud, queue, "x")
    with FaultyAws(cloud.endpoint) as proxy:
        waiter, seen = cloud.waiter(queue, endpoint=proxy.url), list[Any]()
        waiter.handle(queue)(seen.append)
        proxy.answer("DeleteMessageBatch", 200, FAILED)
        proxy.fail("DeleteMessageBatch", "ThrottlingException")
        proxy.answer("DeleteMessageBatch", 0, {})
        with working(waiter):
            eventually(lambda: is_empty(cloud, queue))
        assert proxy.count("DeleteMessageBatch") == 4
    assert len(seen) == 1


def test_a_receipt_that_is_void_is_not_tried_again(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    queue = cloud.queue()
    put(cloud, queue, "x")
    with FaultyAws(cloud.endpoint) as proxy:
        waiter, seen = cloud.waiter(queue, endpoint=proxy.url), list[Any]()
        waiter.handle(queue)(seen.append)
        proxy.answer("DeleteMessageBatch", 200, VOID)
        with working(waiter):
            eventually(lambda: "was handled and comes again" in caplog.text)
        assert proxy.count("DeleteMessageBatch") == 1
    assert counted(cloud, queue) == (0, 1)


def test_a_stop_waits_until_what_was_handled_is_deleted(cloud: Cloud) -> None:
    queue = cloud.queue()
    put(cloud, queue, "x")
    with FaultyAws(cloud.endpoint) as proxy:
        waiter = cloud.waiter(queue, endpoint=proxy.url)
        with gate(waiter, queue) as (begun, go), working(waiter) as under_way:
            eventually(lambda: begun)
            for _ in range(3):
                proxy.answer("DeleteMessageBatch", 200, FAILED)
            under_way.stop.set()
            go.set()
            assert under_way.end() == 0
    assert is_empty(cloud, queue)


# -- a server that is away -------------------------------------------------------------------------------------------
def test_trouble_is_said_once_and_waited_for(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    queue = cloud.queue()
    put(cloud, queue, "x")
    with FaultyAws(cloud.endpoint) as proxy, caplog.at_level(logging.INFO, "hipq"):
        waiter, seen = cloud.waiter(queue, endpoint=proxy.url), list[Any]()
        waiter.handle(queue)(seen.append)
        for _ in range(3):
            proxy.fail("ReceiveMessage", "ThrottlingException")
        with working(waiter):
            eventually(lambda: seen)
        assert proxy.count("ReceiveMessage") >= 4
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1, said
    assert "ThrottlingException" in said[0]
    assert [record.getMessage() for record in caplog.records].count(f"{queue}: it works again") == 1


def test_a_connection_that_breaks_is_made_again(cloud: Cloud) -> None:
    queue = cloud.queue()
    put(cloud, queue, "x")
    with FaultyAws(cloud.endpoint) as proxy:
        waiter, seen = cloud.waiter(queue, endpoint=proxy.url), list[Any]()
        waiter.handle(queue)(seen.append)
        for _ in range(2):
            proxy.answer("ReceiveMessage", 0, {})
        with working(waiter):
            eventually(lambda: seen)
            eventually(lambda: is_empty(cloud, queue))
    assert len(seen) == 1


def test_who_may_not_look_at_the_queue_can_still_consume(cloud: Cloud) -> None:
    queue = cloud.queue()
    put(cloud, queue, "x")
    with FaultyAws(cloud.endpoint) as proxy:
        waiter, seen = cloud.waiter(queue, endpoint=proxy.url), list[Any]()
        waiter.handle(queue)(seen.append)
        proxy.fail("GetQueueAttributes", "AccessDenied", 403)
        with working(waiter):
            eventually(lambda: seen)
        (first, *_) = [what for name, what in proxy.asked if name == "ReceiveMessage"]
    assert first["VisibilityTimeout"] == 30


def test_a_queue_that_is_not_there_is_said_at_once(cloud: Cloud) -> None:
    queue = cloud.name()
    waiter = cloud.waiter(queue)
    waiter.handle(queue)(print)
    with pytest.raises(TransportUnavailable, match=f"queue {queue}: there is no such queue"):
        waiter.work(threading.Event())


def test_a_server_that_is_not_there_is_said_at_once(cloud: Cloud) -> None:
    waiter = cloud.waiter("mailers", endpoint="http://127.0.0.1:1")
    waiter.handle("mailers")(print)
    with pytest.raises(TransportUnavailable, match="nobody listens at 127"):
        waiter.work(threading.Event())


# -- stopped ---------------------------------------------------------------------------------------------------------
def test_a_stop_lets_handlers_finish(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    queue = cloud.queue()
    waiter = cloud.waiter(queue)
    put(cloud, queue, "x", "y")
    caplog.set_level(logging.INFO, "hipq")
    with gate(waiter, queue) as (begun, go), working(waiter) as under_way:
        eventually(lambda: len(begun) == 2)
        under_way.stop.set()
        eventually(lambda: "consumer stopping: 2 handlers finish" in caplog.text)
        put(cloud, queue, "z")
        assert under_way.thread.is_alive()
        go.set()
        assert under_way.end() == 0
    assert sorted(message.body for message in begun) == ["x", "y"]
    assert cloud.bodies(queue) == {"z": 1}


def test_a_second_stop_gives_back_what_handlers_work_on(cloud: Cloud) -> None:
    queue = cloud.queue()
    waiter = cloud.waiter(queue)
    put(cloud, queue, "x", "y")
    with gate(waiter, queue) as (begun, _), working(waiter) as under_way:
        eventually(lambda: len(begun) == 2)
        under_way.stop_now.set()
        assert under_way.end() == 2
        assert under_way.consumer.counts == {"given back": 2}
        again = cloud.received(queue)
    assert {(one["Body"], one["Attributes"]["ApproximateReceiveCount"]) for one in again} == {("x", "2"), ("y", "2")}


def test_what_nobody_has_begun_with_is_given_back_while_others_finish(cloud: Cloud) -> None:
    """Of two queues one message each, and one hand."""
    one, two = cloud.queue(), cloud.queue()
    with FaultyAws(cloud.endpoint) as proxy:
        waiter = cloud.waiter(one, two, endpoint=proxy.url)
        with gate(waiter, one) as (begun, go), gate(waiter, two) as (begun_too, go_too):
            with working(waiter, concurrency=1, wait=5) as under_way:
                eventually(lambda: proxy.count("ReceiveMessage") == 2)  # both are asked, and neither has anything yet
                put(cloud, one, "x")
                put(cloud, two, "y")
                eventually(lambda: counted(cloud, one) == counted(cloud, two) == (0, 1))
                eventually(lambda: begun or begun_too)
                under_way.stop.set()
                idle = two if begun else one
                eventually(lambda: counted(cloud, idle) == (1, 0))
                go.set()
                go_too.set()
                assert under_way.end() == 0
            assert len(begun) + len(begun_too) == 1
    assert under_way.consumer.counts == {"handled": 1, "given back": 1}


# -- refused ---------------------------------------------------------------------------------------------------------
def test_bad_handlers_are_refused() -> None:
    waiter = Waiter(["mailers"])
    with pytest.raises(Invalid, match="does not know the queue 'mialers'"):
        waiter.handle("mialers")
    for visibility in (0, 43_201, 1.5, True, "x"):
        with pytest.raises(Invalid, match="visibility"):
            waiter.handle("mailers", visibility=visibility)(print)  # type: ignore[arg-type]
    for retry in (-1, float("nan"), "soon"):
        with pytest.raises(Invalid, match="retry"):
            waiter.handle("mailers", retry=retry)(print)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="must be a function"):
        waiter.handle("mailers")(5)  # type: ignore[type-var]
    with pytest.raises(Invalid, match="nothing to consume"):
        waiter.work(threading.Event())
    waiter.handle("mailers")(print)
    with pytest.raises(Invalid, match="has a handler already"):
        waiter.handle("mailers")
    with pytest.raises(Invalid, match="'reports' has no handler"):
        waiter.consumer(["reports"])
    for concurrency in (0, 1001, 2.5):
        with pytest.raises(Invalid, match="concurrency"):
            waiter.consumer(concurrency=concurrency)  # type: ignore[arg-type]
    for wait in (-1, 21):
        with pytest.raises(Invalid, match="wait"):
            waiter.consumer(wait=wait)
