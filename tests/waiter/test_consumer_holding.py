"""Messages in hand: hidden for longer while their handlers run, and known when they are somebody else's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hipq.waiter import Message
from hipq.waiter.clients import AwsTarget, errors
from hipq.waiter.connection import QueueConnection
from hipq.waiter.handler_threads import HandlerTask, HandlerThreads
from hipq.waiter.held_messages import LONGEST_HIDDEN, HeldMessage, HeldMessages
from tests.brokers.aws import FaultyAws
from tests.waiter.cloud import Cloud
from tests.waiter.consuming import PATIENCE, counted, eventually, is_empty, put, working
from tests.waiter.test_consumer import FAILED, VOID

VISIBILITY = 10


def test_a_handler_that_takes_longer_than_the_visibility_is_the_only_one(cloud: Cloud) -> None:
    """The other consumer, which alone has a hand free, would get the message when it is hidden no longer."""
    queue = cloud.queue()
    lock, seen = threading.Lock(), list[int]()

    def slow(message: Message) -> None:
        with lock:
            seen.append(message.received)
        until = time.monotonic() + VISIBILITY + 1.5
        while len(seen) == 1 and time.monotonic() < until:
            time.sleep(0.05)

    one, two = cloud.waiter(queue), cloud.waiter(queue)
    for waiter in (one, two):
        waiter.handle(queue, visibility=VISIBILITY)(slow)
    put(cloud, queue, "x")
    with working(one, concurrency=1), working(two, concurrency=1):
        eventually(lambda: is_empty(cloud, queue))
    assert seen == [1]


# -- by hand ---------------------------------------------------------------------------------------------------------
class Bench:
    """A holding that nobody tends but the test, and what it asks of SQS."""

    def __init__(self, cloud: Cloud, proxy: FaultyAws, queue: str) -> None:
        sqs = cloud.waiter(queue, endpoint=proxy.url).clients.impatient_sqs(20)
        self.cloud, self.proxy, self.queue = cloud, proxy, queue
        connection = QueueConnection(queue, sqs, sqs, lambda: errors(AwsTarget("sqs", queue)))
        self.settled: list[tuple[HeldMessage, bool]] = []
        self.holding = HeldMessages(connection, VISIBILITY, lambda held, done: self.settled.append((held, done)))
        self._url = connection.url

    def taken(self, *bodies: str, ago: float = 0.0) -> list[HeldMessage]:
        put(self.cloud, self.queue, *bodies)
        said = self.cloud.sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10)["Messages"]
        messages = [Message(self.queue, one["MessageId"], one["Body"], receipt=one["ReceiptHandle"]) for one in said]
        return self.holding.take(messages, time.monotonic() - ago)

    @property
    def hidden(self) -> list[list[int]]:
        """Of each request that hides messages, for how long."""
        asked = [what["Entries"] for name, what in self.proxy.asked if name == "ChangeMessageVisibilityBatch"]
        return [[entry["VisibilityTimeout"] for entry in entries] for entries in asked]


@pytest.fixture
def bench(cloud: Cloud) -> Iterator[Bench]:
    with FaultyAws(cloud.endpoint) as proxy:
        yield Bench(cloud, proxy, cloud.queue())


def test_a_message_is_hidden_again_when_half_its_time_is_over(bench: Bench) -> None:
    (held,) = bench.taken("x")
    now = time.monotonic()
    bench.holding.hide_longer(now)
    bench.holding.hide_longer(now + VISIBILITY * 0.4)
    assert bench.hidden == []  # what is through by then costs nothing
    bench.holding.hide_longer(held.until - VISIBILITY * 0.4)
    assert bench.hidden == [[VISIBILITY]]
    assert held.until > now + VISIBILITY - 1


def test_ten_are_hidden_with_one_request(bench: Bench) -> None:
    bench.taken(*map(str, range(10)), ago=6)
    bench.taken("x", ago=6)
    bench.holding.hide_longer(time.monotonic())
    assert [len(one) for one in bench.hidden] == [10, 1]


def test_no_message_is_hidden_past_its_twelve_hours(bench: Bench) -> None:
    """SQS refuses that, and it would not be hidden at all."""
    (held,) = bench.taken("x", ago=LONGEST_HIDDEN - 8)
    held.until = time.monotonic() + 2
    bench.holding.hide_longer(time.monotonic())
    ((seconds,),) = bench.hidden
    assert 1 < seconds < 8
    held.until = time.monotonic() + 7
    bench.holding.hide_longer(time.monotonic() + 3)
    assert len(bench.hidden) == 1  # there is nothing to gain


def test_a_hiding_that_failed_is_tried_again(bench: Bench) -> None:
    (held,) = bench.taken("x", ago=6)
    before = held.until
    for answer in (FAILED, None):
        if answer:
            bench.proxy.answer("ChangeMessageVisibilityBatch", 200, answer)
        else:
            bench.proxy.fail("ChangeMessageVisibilityBatch", "ThrottlingException")
        bench.holding.hide_longer(time.monotonic())
        assert (held.until, held.lost) == (before, False)
    bench.holding.hide_longer(time.monotonic())
    assert held.until > before
    assert held.is_ours


def test_a_message_that_is_somebody_elses_is_not_begun_with(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    lost, late = bench.taken("x", "y", ago=6)
    bench.proxy.answer("ChangeMessageVisibilityBatch", 200, VOID)
    bench.holding.hide_longer(time.monotonic())
    assert lost.lost
    assert not lost.is_ours
    assert "somebody else's now" in caplog.text
    late.until = time.monotonic() - 1
    assert not late.is_ours


def test_one_that_comes_to_us_again_while_its_handler_runs_is_not_begun_twice(bench: Bench) -> None:
    (held,) = bench.taken("x", ago=VISIBILITY + 1)
    held.lost = True
    again = Message(bench.queue, held.message.id, "x", receipt="a newer one")
    assert bench.holding.take([again], time.monotonic()) == []
    assert held.receipt == "a newer one"  # an older one might not delete it
    assert held.is_ours


def test_what_was_given_back_is_not_hidden_after_that(bench: Bench) -> None:
    (held,) = bench.taken("x", ago=6)
    bench.holding.give_back([held])
    bench.holding.hide_longer(time.monotonic())
    assert bench.hidden == [[0]]
    assert counted(bench.cloud, bench.queue) == (1, 0)


def test_a_server_that_is_away_when_messages_are_given_back_is_no_error(bench: Bench) -> None:
    (held,) = bench.taken("x")
    bench.proxy.answer("ChangeMessageVisibilityBatch", 0, {})
    bench.holding.give_back([held])
    assert bench.holding.unfinished() == []


def test_deleting_is_given_up_at_the_end(bench: Bench) -> None:
    (held,) = bench.taken("x")
    for _ in range(1000):
        bench.proxy.answer("DeleteMessageBatch", 200, FAILED)
    bench.holding.start()
    bench.holding.delete(held)
    eventually(lambda: bench.proxy.count("DeleteMessageBatch") >= 2)
    assert not bench.holding.is_settled()
    bench.holding.close()
    eventually(bench.holding.is_settled)
    assert bench.settled == [(held, False)]


# -- the hands -------------------------------------------------------------------------------------------------------
def _held(body: str) -> HeldMessage:
    now = time.monotonic()
    return HeldMessage(Message("q", body, body), now, now + 1000)


def test_hands_that_stop_hand_out_what_nobody_has_begun_with_and_take_no_more() -> None:
    threads, begun, go = HandlerThreads(2), list[str](), threading.Event()

    def run(held: HeldMessage) -> None:
        begun.append(held.message.body)
        go.wait(PATIENCE)

    def task(body: str) -> Any:
        return HandlerTask(_held(body), run)

    assert threads.room() == 2
    assert threads.launch([task(body) for body in "abcd"])
    eventually(lambda: len(begun) == 2)
    assert sorted(one.held.message.body for one in threads.stop()) == ["c", "d"]
    assert not threads.launch([task("e")])
    assert threads.room() == 0
    assert threads.busy == 2
    go.set()
    eventually(lambda: threads.busy == 0)
    assert sorted(begun) == ["a", "b"]


def test_who_waits_for_a_hand_is_told_of_a_stop() -> None:
    threads, go, found = HandlerThreads(1), threading.Event(), list[int]()

    def run(_: HeldMessage) -> None:
        go.wait(PATIENCE)

    threads.launch([HandlerTask(_held("a"), run)])
    waiting = threading.Thread(target=lambda: found.append(threads.room()))
    waiting.start()
    threads.stop()
    waiting.join(PATIENCE)
    assert found == [0]
    go.set()


def test_hands_that_cannot_all_be_had_now_are_had_later(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, go, ran = HandlerThreads(3), threading.Event(), list[str]()
    start, room = threading.Thread.start, [1]

    def nearly_full(thread: threading.Thread) -> None:
        if not room:
            raise RuntimeError("can't start new thread")
        room.pop()
        start(thread)

    def run(held: HeldMessage) -> None:
        ran.append(held.message.body)
        go.wait(PATIENCE)

    monkeypatch.setattr(threading.Thread, "start", nearly_full)
    assert threads.launch([HandlerTask(_held(body), run) for body in "ab"]), "one of them does it"
    eventually(lambda: ran == ["a"])
    room += [1, 1]
    assert threads.launch([HandlerTask(_held("c"), run)])
    eventually(lambda: len(ran) == 2)
    go.set()
    eventually(lambda: threads.busy == 0)
    assert sorted(ran) == ["a", "b", "c"]
