"""The Kafka transport, against a server."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import cache
from statistics import median
from typing import Any, ClassVar, cast
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from hipq.errors import HipqError, Invalid, TransportUnavailable
from hipq.transports import address, check, kafka, kafka_client, open_sender, source
from hipq.transports.base import Checkpoints, Message, Outgoing, Sender, Source
from hipq.transports.kafka import KafkaSource, give_up
from hipq.transports.kafka_client import settings
from tests.brokers.kafka import (
    FORBIDDEN,
    UNKNOWN_TOPIC,
    OwnKafka,
    fresh_topic,
    is_mock,
    send_with_header,
    with_options,
)
from tests.transports.contract import CrashContract, GroupContract, LagContract, StreamContract
from tests.transports.link import Link, eventually

# The mock cluster wakes no waiting fetch when a message comes, as Kafka does, and makes those who join a group wait for
# what a session has over a second; Kafka takes no sessions this short.
QUICK = "fetch.wait.max.ms=5&heartbeat.interval.ms=100&session.timeout.ms=1500&reconnect.backoff.max.ms=100"
NO_PLACES = cast(Checkpoints, None)
GONE = r"nobody listens at 127\.0\.0\.1:|reset by peer"
"""What is said of a mock cluster that was stopped: it resets a connection that comes at that moment."""


@pytest.fixture
def topic() -> Iterator[str]:
    with fresh_topic() as url:
        yield url


@pytest.fixture
def group() -> str:
    return f"hipq-test-{uuid4().hex}"


@pytest.fixture(scope="module")
def own() -> Iterator[OwnKafka]:
    with OwnKafka() as server:
        yield server


class Opened:
    """What a test opens, closed after it."""

    def __init__(self) -> None:
        self._all: list[Sender | Source] = []

    def sender(self, url: str) -> Sender:
        self._all.append(one := open_sender(address(with_options(url, "reconnect.backoff.max.ms=100"))))
        return one

    def source(self, url: str, group: str, more: str = "") -> Source:
        options = QUICK if is_mock(url) else "heartbeat.interval.ms=100"
        self._all.append(one := source(address(with_options(url, options + more)), group, NO_PLACES))
        return one

    def close(self) -> None:
        for one in self._all:
            one.close()


@pytest.fixture
def opened() -> Iterator[Opened]:
    opened = Opened()
    yield opened
    opened.close()


def drain(source: Source, count: int, seconds: float = 30, done: bool = True) -> list[Message]:
    """Receive until there are so many; what is there too soon would be too many."""
    got: list[Message] = []
    until = time.monotonic() + seconds
    while len(got) < count and time.monotonic() < until:
        some = source.receive(100, 0.2)
        got += some
        if done:
            source.done(some)
    assert len(got) == count
    return got


def bodies(messages: Sequence[Message]) -> list[bytes]:
    return [one.body for one in messages]


def send_all(sender: Sender, *messages: bytes, key: str = "") -> None:
    for body in messages:
        sender.send(Outgoing(body, key), 10)


@cache
def raw(server: str) -> Producer:
    """The client library itself, which is there at once: the first message of an idempotent producer takes a while."""
    return Producer({**settings(address(f"{server}/x")), "log_level": 0, "reconnect.backoff.max.ms": 100})


def put(url: str, *messages: bytes) -> None:
    """Have these on the topic, each with its number in its key."""
    where = address(url)
    out = raw(url.replace(f"/{where.name}", ""))
    for number, body in enumerate(messages):
        out.produce(where.name, body, f"key-{number}")
    assert out.flush(10) == 0


def numbers(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


class KafkaLink(Link):
    """A topic with one partition."""

    headers: ClassVar = {"hipq-job": "7", "Trace": "ü, ö"}
    quick = (0.1, 5, 15)
    broke = gone = GONE
    first_lag = None
    no_host = "there is no host called nowhere.invalid"

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic

    def url(self, **options: str) -> str:
        quick = QUICK if is_mock(self._topic) else "heartbeat.interval.ms=100"
        return with_options(with_options(self._topic, quick), urlencode(options))

    def put_odd(self) -> list[tuple[bytes, dict[str, str]]]:
        others = Producer({**settings(self.where), "log_level": 0})
        others.produce(self.where.name)  # no body, no key
        others.produce(self.where.name, b"", b"\xff\xfe", headers=[("broken", b"a\xffb"), ("none", None)])
        others.flush(10)
        send_with_header(self.url(), b"\xff\xfe", b"\x00\xff")  # which confluent-kafka cannot read
        return [(b"", {}), (b"", {"broken": "a\ufffdb", "none": ""}), (b"\x00\xff", {})]


class TestContract(StreamContract, CrashContract, GroupContract, LagContract):
    @pytest.fixture
    def link(self, topic: str) -> Iterator[KafkaLink]:
        with closing(KafkaLink(topic)) as link:
            yield link

    @pytest.fixture
    def own(self, own: OwnKafka, group: str) -> Iterator[tuple[KafkaLink, OwnKafka]]:
        with closing(KafkaLink(own.create(f"own-{group}"))) as link:
            yield link, own

    def test_many_come_in_big_batches_sent_by_twenty_threads(self, link: Link) -> None:
        super().test_many_come_in_big_batches_sent_by_twenty_threads(link)
        assert [one.name for one in threading.enumerate()].count("hipq-kafka") == 1  # so many producers are there


# -- what is sent is received ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message", [Outgoing(b"", "\ud800"), Outgoing(b"", "", {"\ud800": "x"}), Outgoing(b"", "", {"x": "\ud800"})]
)
def test_broken_unicode_is_refused(topic: str, opened: Opened, message: Outgoing) -> None:
    with pytest.raises(Invalid, match="broken Unicode"):
        opened.sender(topic).send(message, 5)


def test_the_order_of_a_key_is_kept_over_several_partitions(group: str, opened: Opened) -> None:
    with fresh_topic(3) as topic:
        out = opened.sender(topic)
        for number in range(60):
            out.send(Outgoing(str(number).encode(), f"key-{number % 6}"), 10)
        got = drain(opened.source(topic, group), 60)
    assert len({one.id.rpartition("-")[0] for one in got}) > 1
    for key in range(6):
        assert [int(one.body) for one in got if one.key == f"key-{key}"] == list(range(key, 60, 6))


def test_a_lone_message_is_not_kept_waiting_and_many_come_together(topic: str, group: str, opened: Opened) -> None:
    into = opened.source(topic, group)
    put(topic, b"0")
    drain(into, 1)
    took = []
    for _ in range(15):
        threading.Timer(0.02, lambda: put(topic, str(time.time()).encode())).start()
        (message,) = into.receive(1000, 5)
        took.append(time.time() - float(message.body))
        into.done([message])
    assert sorted(took)[4] < 0.1, "a quarter of them at least: the machine may have had other things to do"
    put(topic, *(5000 * [b"x" * 50]))
    sizes: list[int] = []
    while sum(sizes) < 5000:
        some = into.receive(1000, 5)
        into.done(some)
        sizes.append(len(some))
        assert some
    assert max(sizes) <= 1000
    assert median(sizes) >= 100


# -- acknowledging ---------------------------------------------------------------------------------------------------


def test_two_sources_of_a_group_share_and_together_see_everything(group: str, opened: Opened) -> None:
    with fresh_topic(4) as topic:
        one, two = opened.source(topic, group), opened.source(topic, group)
        got: tuple[list[bytes], list[bytes]] = ([], [])
        sent: list[bytes] = []
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if len(sent) < 40 or not (got[0] and got[1]):
                some_more = [f"{len(sent)}-{number}".encode() for number in range(4)]
                put(topic, *some_more)
                sent += some_more
            for into, its in zip((one, two), got, strict=True):
                some = into.receive(100, 0.02)
                its += bodies(some)
                into.done(some)
            if got[0] and got[1] and len(sent) >= 40 and {*got[0], *got[1]} == {*sent}:
                break
        assert {*got[0], *got[1]} == {*sent}
        assert got[0]
        assert got[1]


def test_partitions_taken_away_between_receive_and_done_do_no_harm(group: str, opened: Opened) -> None:
    with fresh_topic(2) as topic:
        put(topic, *numbers(20))
        first = opened.source(topic, group)
        had = drain(first, 20, done=False)
        second = opened.source(topic, group)
        message: list[Message] = []
        until = time.monotonic() + 30
        while not message and time.monotonic() < until:
            first.receive(1, 0.05)  # in here partitions are given up
            message = list(second.receive(100, 0.05))
        assert message, "the second source got no partition"
        put(topic, *(20 * [b"more"]))
        while some := second.receive(100, 0.3):
            second.done(some)
            first.receive(1, 0)
        assert second.lag() == 0
        first.done(had)  # among them those the second one has read since, and later ones
        assert second.lag() == 0
        assert first.lag()


def test_a_member_the_group_has_given_up_acknowledges_without_error(own: OwnKafka, group: str, opened: Opened) -> None:
    topic = own.create(f"lost-{group}")
    put(topic, *numbers(3))
    into = opened.source(topic, group)
    had = drain(into, 3, done=False)
    for error in (22, 25, 27):  # ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS
        own.tell("push_request_errors", 8, 1, error)
        into.done(had)
    own.tell("push_request_errors", 8, 1, 30)
    with pytest.raises(TransportUnavailable, match="does not permit it to anybody without a user name"):
        into.done(had)


def test_a_source_that_is_not_drained_does_not_take_everything(own: OwnKafka, group: str, opened: Opened) -> None:
    """80 MB wait on the server; the process may take some of it ahead."""
    server = address(own.create(f"much-{group}", 20))
    others = Producer({**settings(server), "log_level": 0})
    for number in range(400):
        others.produce(server.name, os.urandom(200_000), partition=number % 20)
    others.flush(20)
    del others
    before = _memory()
    into = opened.source(f"{own.url}/{server.name}", group)
    assert len(into.receive(1, 5)) == 1
    time.sleep(0.7)
    assert _memory() - before < 45_000_000
    assert into.lag() == 400


def _memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- a server that goes away -----------------------------------------------------------------------------------------
def test_over_a_restart_nothing_confirmed_is_lost_and_nothing_given_up_is_sent(
    own: OwnKafka, group: str, opened: Opened
) -> None:
    topic = own.create(f"restart-{group}")
    out, into = opened.sender(topic), opened.source(topic, group)
    send_all(out, *numbers(5))
    had = drain(into, 5, done=False)

    def late(seconds: float) -> float:
        began = time.monotonic()
        with pytest.raises(TransportUnavailable, match=GONE):
            out.send(Outgoing(b"never"), seconds)
        return time.monotonic() - began - seconds

    own.stop()
    try:
        with ThreadPoolExecutor() as threads:
            took = threads.map(late, (0.5, 1.5, 1.5))
            with pytest.raises(TransportUnavailable, match=GONE):
                drain(into, 1)
            short, *long = took
    finally:
        own.start()
    assert max(short, *long) < 10, "librdkafka itself would take five minutes"
    into.close()
    out.send(Outgoing(b"after"), 10)
    resumed = opened.source(topic, group)
    again = drain(resumed, 6)
    assert [one.id for one in again[:5]] == [one.id for one in had]
    assert bodies(again) == [*numbers(5), b"after"]
    assert resumed.receive(10, 0.3) == []


class Stuck:
    """A consumer whose commits last until `go_on` is set, as librdkafka's do at times when the server goes away."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.go_on = threading.Event()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*words: Any, **named: Any) -> Any:
            if name == "commit":
                assert self.go_on.wait(60)
            self.calls.append(name)
            return getattr(self._consumer, name)(*words, **named)

        return call


def test_a_commit_without_an_answer_is_given_up_and_nothing_is_closed_under_it(
    topic: str, group: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COMMIT_SECONDS", "CLOSE_SECONDS"):
        monkeypatch.setattr(kafka, name, 0.1)
    put(topic, b"1")
    into = opened.source(topic, group)
    had = drain(into, 1, done=False)
    assert isinstance(into, KafkaSource)
    stuck = into._handle = Stuck(into._handle)
    with pytest.raises(TransportUnavailable, match="the server did not answer in time"):
        into.done(had)
    into.close()
    into.close()
    assert not {"unsubscribe", "close"} & {*stuck.calls}, "the commit still runs"
    with pytest.raises(TransportUnavailable, match="this source was closed"):
        into.receive(1, 0)
    stuck.go_on.set()
    eventually(lambda: "close" in stuck.calls, True)
    assert stuck.calls.index("commit") < stuck.calls.index("unsubscribe") < stuck.calls.index("close")


def test_a_producer_gives_up_in_time_and_few_do_for_all() -> None:
    for seconds in (2.5, 3.0, 5.0, 10.0, 25.0, 30.0, 60.0, 300.0, 3600.0):
        assert (seconds - 1.25) * 7 / 8 < give_up(seconds) <= seconds - 1.25
    assert [give_up(seconds) for seconds in (-1, 0, 0.1, 0.5, 1, 2)] == [0.25, 0.25, 0.25, 0.25, 0.5, 1.0]
    assert len({give_up(1 + tenth / 10) for tenth in range(3000)}) < 80


def test_a_server_that_hangs_gets_each_message_once_at_most(
    group: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "CLOSE_SECONDS", 1.0)
    with OwnKafka() as own:
        topic = own.create("hanging")
        out, into = opened.sender(topic), opened.source(topic, group)
        send_all(out, b"before")
        drain(into, 1)
        own.freeze()
        closing = threading.Thread(target=into.close)
        try:
            closing.start()
            began = time.monotonic()
            with pytest.raises(TransportUnavailable, match="did not answer in time"):
                out.send(Outgoing(b"perhaps"), 2)
            assert time.monotonic() - began < 30
            with pytest.raises(TransportUnavailable, match="did not answer in time"):
                out.send(Outgoing(b"never"), 1)
            closing.join(30)
            assert not closing.is_alive()
        finally:
            own.thaw()
        out.send(Outgoing(b"after"), 10)
        another = opened.source(topic, f"{group}-2")
        got: list[bytes] = []
        while b"after" not in got:
            got += bodies(another.receive(10, 5))
        got += bodies(another.receive(10, 0.5))
        assert got.count(b"perhaps") <= 1
        assert [body for body in got if body != b"perhaps"] == [b"before", b"after"]


def test_one_sender_giving_up_does_not_disturb_the_others(own: OwnKafka, group: str, opened: Opened) -> None:
    """One partition's leader is away: messages to the other partitions go on."""
    topic = own.create(f"partly-{group}", 3)
    for partition, leader in enumerate((1, 2, 3)):
        own.tell("partition_set_leader", topic.rpartition("/")[2], partition, leader)
    out = opened.sender(topic)
    failed: list[float] = []
    fine: list[float] = []
    stop = threading.Event()

    def send(key: str) -> None:
        while not stop.is_set():
            began = time.monotonic()
            try:
                out.send(Outgoing(b"x", key), 2)
                fine.append(time.monotonic() - began)
            except TransportUnavailable:
                failed.append(time.monotonic() - began)

    with suppress(TransportUnavailable):  # librdkafka may take a second to make a new producer known
        out.send(Outgoing(b"warm"), 2)
    own.tell("broker_set_down", 2)
    threads = [threading.Thread(target=send, args=(f"key-{number}",)) for number in range(6)]
    try:
        for thread in threads:
            thread.start()
        until = time.monotonic() + 10
        while not (failed and len(fine) > 20) and time.monotonic() < until:
            time.sleep(0.02)
        stop.set()
        for thread in threads:
            thread.join()
    finally:
        own.tell("broker_set_up", 2)
    assert failed, "no key belongs to the partition whose leader is away"
    assert all(0.9 < took < 30 for took in failed), failed
    assert len(fine) > 20


# -- what is said ------------------------------------------------------------------------------------------------
def said(*urls: str) -> list[HipqError]:
    """What a sender says of each, and then what a source says of each; all at once, since they take their time."""

    def send(url: str) -> HipqError:
        out = open_sender(address(url))
        with pytest.raises(HipqError) as caught:
            out.send(Outgoing(b"x"), 5)  # on a busy machine a second is over before the reason is known
        out.close()
        return caught.value

    def listen(url: str) -> HipqError:
        with pytest.raises(HipqError) as caught:
            source(address(url), "g", NO_PLACES)
        return caught.value

    with ThreadPoolExecutor() as threads:
        told = [threads.submit(ask, url) for ask in (send, listen) for url in urls]
        return [one.result() for one in told]


def test_what_is_wrong_is_said_in_a_sentence(own: OwnKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "CREATION_SECONDS", 1.0)
    refused, unknown = "kafka://user:sesame@127.0.0.1:1/x", "kafka://nowhere.invalid/x"
    missing, forbidden = own.refuse("missing", UNKNOWN_TOPIC), own.refuse("forbidden", FORBIDDEN)
    errors = said(refused, unknown, missing, forbidden)
    assert all(isinstance(error, TransportUnavailable) for error in errors)
    for first, second, third, fourth in (errors[:4], errors[4:]):
        assert str(first) == "kafka://user@127.0.0.1:1/x: nobody listens at 127.0.0.1:1 (connection refused)"
        assert str(second) == "kafka://nowhere.invalid/x: there is no host called nowhere.invalid"
        assert str(third) == f"{missing}: there is no topic missing; create it on the server"
        assert str(fourth).startswith(f"{forbidden}: the server does not permit it to anybody without a user name (")


def test_a_topic_that_goes_away_and_comes_back(own: OwnKafka, group: str, opened: Opened) -> None:
    topic = own.create(name := f"gone-{group}")
    into = opened.source(topic, group, "&topic.metadata.refresh.interval.ms=100")
    put(topic, b"1")
    drain(into, 1)
    own.refuse(name, FORBIDDEN)
    with pytest.raises(TransportUnavailable, match="does not permit"):
        drain(into, 1)
    own.refuse(name, 0)
    into.close()
    put(topic, b"2")
    assert bodies(drain(opened.source(topic, group), 1)) == [b"2"]


def test_a_message_that_is_too_big_is_never_taken(own: OwnKafka, group: str, opened: Opened) -> None:
    out = opened.sender(own.create(f"big-{group}"))
    own.tell("push_request_errors", 0, 1, 10)
    with pytest.raises(Invalid, match="the server does not take this message"):
        out.send(Outgoing(b"x" * 100), 5)
    send_all(out, b"small")


def test_no_password_is_shown_and_nothing_is_written_to_standard_error(
    own: OwnKafka, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    errors = said(f"kafka://user:sesame@{own.url.partition('://')[2]}/x")
    for error in errors:
        assert isinstance(error, TransportUnavailable)
        assert "the server does not accept the user name or the password" in str(error)
    shown = "".join("".join(traceback.format_exception(error)) + repr(error) for error in errors)
    out, err = capfd.readouterr()
    assert "sesame" not in shown + out + err + caplog.text
    assert (out, err) == ("", "")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("kafka://b/t?speed=9", "there is no option 'speed'; there are group"),
        ("kafka://b/t?no.such.option=9", 'No such configuration property: "no.such.option"'),
        ("kafka://b/t?session.timeout.ms=soon", 'Invalid value for configuration property "session.timeout.ms"'),
        ("kafka://b/t?ssl.key.password=sesame&enable.auto.commit=true", "the option enable.auto.commit cannot be set"),
        ("kafka://b/t?bootstrap.servers=other", "the option bootstrap.servers cannot be set here"),
        ("kafka://b:99999/t", "'b:99999' is no server; one looks like server:9092"),
        ("kafka://b,,c/t", "'' is no server; one looks like server:9092"),
        ("kafka://b/^t", "a topic's name has letters, digits, dots, dashes and underscores, 249 at most"),
    ],
)
def test_what_cannot_work_is_refused_without_connecting(url: str, sentence: str) -> None:
    with pytest.raises(Invalid) as caught:
        check(address(url))
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(url.partition("?")[0])


def test_good_urls_are_accepted_whether_or_not_anybody_listens() -> None:
    for url in (
        "kafka://t",
        "kafka://b/t?group=g",
        "kafka://u:p@b1,[::1]:9093/t?security.protocol=sasl_ssl&linger.ms=3",
    ):
        check(address(url))
    with pytest.raises(Invalid, match="say which group"):
        source(address("kafka://b/t"), "", NO_PLACES)


def test_a_forked_child_ends_and_the_parent_goes_on(
    topic: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hipq.transports.kafka.CLOSE_SECONDS", 60.0)
    out = opened.sender(topic)
    send_all(out, b"1")
    gc.collect()  # what other tests left
    child = os.fork()
    if child == 0:
        opened._all.clear()
        del out
        gc.collect()
        os._exit(0)
    until = time.monotonic() + 30  # or never: it would wait for threads that only its parent has
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < until:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
    send_all(out, b"2")
