"""Redis Streams against a real server."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlencode
from uuid import uuid4

import pytest
import redis

from hipq import transports
from hipq.errors import HipqError, Invalid, TransportUnavailable
from hipq.transports.address import address
from hipq.transports.base import Outgoing, Sender, Source
from tests.brokers.redis import OwnRedis, redis_url
from tests.transports.contract import (
    CrashContract,
    GroupContract,
    HoldContract,
    LagContract,
    SharingContract,
    StreamContract,
)
from tests.transports.link import Link, bodies, drained, wrong


class NoPlaces:
    """Redis needs none."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"Places.{name} was asked for")


@contextmanager
def sender_of(url: str) -> Iterator[Sender]:
    with closing(transports.open_sender(address(url))) as sender:
        yield sender


@contextmanager
def source_of(url: str, group: str = "shop") -> Iterator[Source]:
    with closing(transports.source(address(url), group, NoPlaces())) as source:
        yield source


@pytest.fixture
def name() -> Iterator[str]:
    """A stream nobody else has, removed afterwards."""
    name = f"hipq-test-{uuid4().hex}"
    yield name
    with raw() as client:
        client.delete(name)


@pytest.fixture
def url(name: str) -> str:
    return f"{redis_url()}/{name}?idle=1"


@contextmanager
def raw(url: str = "") -> Iterator[Any]:
    """The client library itself, to look and to do what others do."""
    client = redis.Redis.from_url(url or redis_url())
    with client:
        yield client


class RedisLink(Link):
    no_host = "there is no host nowhere.invalid:6379, or its name cannot be looked up now"
    headers: ClassVar = {"Hipq-Job": "7", "traceparent": "00-☃"}
    quick = (0.1, 5, 15)
    broke = Link.gone
    crash_options: ClassVar = {"idle": "1"}

    def __init__(self, server: str = "") -> None:
        super().__init__()
        self.server = server or redis_url()
        self.name = f"hipq-test-{uuid4().hex}"

    def url(self, **options: str) -> str:
        return f"{self.server}/{self.name}?{urlencode({'idle': '3600', **options})}"

    def put_odd(self) -> list[tuple[bytes, dict[str, str]]]:
        with raw() as client:
            client.xadd(self.name, {"ref": "7", "ok": "yes"})
            client.xadd(self.name, {b"\xff": b"\xfe"})
            client.xadd(self.name, {"body": b"\xff\x00", "key": b"\xff", "headers": "[1", "more": b"\xfft"})
            client.xadd(self.name, {"body": "", "headers": '{"n": 1, "deep": {"a": []}}'})
            client.xadd(self.name, {"body": "deep", "headers": "[" * 100_000})
        return [
            (b'{"ref": "7", "ok": "yes"}', {}),
            (rb'{"\ufffd": "\ufffd"}', {}),
            (b"\xff\x00", {"headers": "[1", "more": "\N{REPLACEMENT CHARACTER}t"}),
            (b"", {"n": "1", "deep": '{"a": []}'}),
            (b"deep", {"headers": "[" * 100_000}),
        ]

    def close(self) -> None:
        super().close()
        with raw(self.server) as client, suppress(redis.ConnectionError):  # a server of the test's own has gone already
            client.delete(self.name)


class TestContract(StreamContract, HoldContract, CrashContract, GroupContract, LagContract, SharingContract):
    kind, server = RedisLink, OwnRedis


# -- what goes in comes out -----------------------------------------------------------------------------------------


def test_a_stream_may_be_in_another_database_and_have_slashes_in_its_name(name: str) -> None:
    url = f"{redis_url()}/3/{name}/in"
    try:
        with sender_of(url) as sender, source_of(url) as source, raw() as client:
            sender.send(Outgoing(b"there"), 5)
            assert bodies(drained(source, 1)) == [b"there"]
            assert not client.exists(f"{name}/in")
    finally:
        with raw(f"{redis_url()}/3") as client:
            client.delete(f"{name}/in")


def test_a_stream_is_cut_to_maxlen(url: str, name: str) -> None:
    with sender_of(f"{url}&maxlen=100") as sender, raw() as client:
        for _ in range(50):
            client.xadd(name, {"body": "x" * 1000})
        for _ in range(250):
            sender.send(Outgoing(b"x"), 5)
        assert 100 <= client.xlen(name) < 300


# -- acknowledged or not --------------------------------------------------------------------------------------------
def test_what_was_not_acknowledged_comes_again_to_another_source_at_once_after_close(url: str, name: str) -> None:
    url = url.replace("idle=1", "idle=3600")
    with sender_of(url) as sender, source_of(url) as other:
        assert other.receive(10, 0) == []  # it has looked for left behind entries, and will again in a second
        for number in range(5):
            sender.send(Outgoing(b"%d" % number), 5)
        with source_of(url) as first:
            taken = first.receive(5, 5)
            assert bodies(taken) == [b"0", b"1", b"2", b"3", b"4"]
            first.done(taken[:2])
            assert other.receive(10, 0.1) == []
        started = time.monotonic()
        again = drained(other, 3)
        assert time.monotonic() - started < 20
        assert [message.id for message in again] == [message.id for message in taken[2:]]
        assert bodies(again) == [b"2", b"3", b"4"]
        with raw() as client:
            assert client.xpending(name, "shop")["pending"] == 0
            names = [one["name"] for one in client.xinfo_consumers(name, "shop")]
            assert len(names) == 2  # the closed one has gone
            assert b"hipq-released" in names


def test_a_slow_source_loses_its_messages_to_another_and_may_still_acknowledge(url: str) -> None:
    with sender_of(url) as sender, source_of(url) as slow, source_of(url) as other:
        sender.send(Outgoing(b"x"), 5)
        taken = slow.receive(10, 5)
        again = drained(other, 1, done=False)
        assert [message.id for message in again] == [message.id for message in taken]
        slow.done(taken)
        other.done(again)
        assert other.lag() == 0


# -- how fast, how many ---------------------------------------------------------------------------------------------


def test_a_source_takes_no_more_than_it_may_hold(url: str, name: str) -> None:
    with source_of(url) as source, raw() as client:
        for number in range(100):
            client.xadd(name, {"body": number})
        first = source.receive(30, 5)
        assert len(first) == 30
        assert source.receive(30, 0.1) == []
        assert client.xpending(name, "shop")["pending"] == 30
        source.done(first[:10])
        assert bodies(source.receive(30, 5)) == [b"%d" % number for number in range(30, 40)]


def test_its_own_messages_do_not_come_again_to_a_source_that_still_has_them(url: str) -> None:
    with sender_of(url) as sender, source_of(url) as source:
        sender.send(Outgoing(b"x"), 5)
        assert len(source.receive(10, 5)) == 1
        assert source.receive(10, 2.5) == []


def test_lag_counts_what_was_not_read_and_what_was_not_acknowledged(url: str, name: str) -> None:
    with sender_of(url) as sender, source_of(url) as source, raw() as client:
        assert source.lag() == 0
        for _ in range(7):
            sender.send(Outgoing(b"x"), 5)
        assert source.lag() == 7  # before there is a group
        some = source.receive(3, 5)
        assert source.lag() == 7
        source.done(some)
        assert source.lag() == 4
        client.xgroup_destroy(name, "shop")
        assert source.lag() == 7


# -- servers that stop, lose their memory, are not there ------------------------------------------------------------


def test_a_sender_notices_that_the_server_was_restarted_before_it_writes() -> None:
    with OwnRedis() as server:
        url = f"{server.url}/stream"
        with sender_of(url) as sender, source_of(url) as source:
            sender.send(Outgoing(b"0"), 5)
            first = source.receive(1, 5)
            server.restart()
            sender.send(Outgoing(b"1"), 5)
            said = wrong(TransportUnavailable, lambda: source.done(first))
            assert said.startswith(f"{url}: the connection to 127.0.0.1:{server.port} broke (")
        with source_of(url) as source:
            assert sorted(bodies(drained(source, 2))) == [b"0", b"1"]


def test_a_source_goes_on_after_the_stream_and_its_group_are_gone(url: str, name: str) -> None:
    with sender_of(url) as sender, source_of(url) as source, raw() as client:
        sender.send(Outgoing(b"before"), 5)
        drained(source, 1)
        threading.Timer(0.2, client.delete, (name,)).start()
        assert source.receive(10, 0.6) == []  # it was deleted while the source was waiting
        sender.send(Outgoing(b"after"), 5)
        assert bodies(drained(source, 1)) == [b"after"]


def test_what_waits_behind_a_server_that_hangs_is_not_sent_later() -> None:
    with OwnRedis() as server:
        url = f"{server.url}/stream"
        with sender_of(url) as sender:
            sender.send(Outgoing(b"first"), 5)
            server.freeze()
            try:
                said = wrong(TransportUnavailable, lambda: sender.send(Outgoing(b"on its way"), 0.3))
                assert said == f"{url}: no reply within 0.3 seconds; whether it has the message is not known"
                said = wrong(TransportUnavailable, lambda: sender.send(Outgoing(b"never"), 0.3))
                assert said == f"{url}: no reply within 0.3 seconds; the message was not sent"
            finally:
                server.thaw()
            sender.send(Outgoing(b"last"), 5)
        with source_of(url) as source:
            assert bodies(drained(source, 3)) == [b"first", b"on its way", b"last"]


def test_what_is_wrong_is_said_in_a_sentence(url: str, name: str) -> None:
    def fails(url: str, kind: type[HipqError] = TransportUnavailable) -> str:
        with sender_of(url) as sender, source_of(url) as source:
            said = wrong(kind, lambda: sender.send(Outgoing(b"x"), 5))
            assert wrong(kind, lambda: source.receive(1, 1)) == said
        return said

    refused = "redis://me:sesame@127.0.0.1:1/s"
    assert fails(refused) == "redis://me@127.0.0.1:1/s: nobody listens at 127.0.0.1:1 (connection refused)"
    unknown = "redis://me:sesame@nowhere.invalid/s"
    assert fails(unknown) == f"redis://me@nowhere.invalid/s: {RedisLink.no_host}"
    with raw() as client:
        client.set(f"{name}", "text")
    assert fails(url, Invalid) == f"{url.partition('?')[0]}: {name!r} is there already, but is not a stream"
    with socket.create_server(("127.0.0.1", 0)) as plain:  # one that does not know of TLS
        threading.Thread(target=_greet, args=(plain,)).start()
        port = plain.getsockname()[1]
        with source_of(f"rediss://me:sesame@127.0.0.1:{port}/s") as source:
            said = wrong(TransportUnavailable, lambda: source.receive(1, 1))
        assert said.startswith(
            f"rediss://me@127.0.0.1:{port}/s: 127.0.0.1:{port} and this program cannot agree on TLS ("
        )


def _greet(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"-ERR who are you?\r\n")
        connection.recv(10_000)


def test_passwords_and_permissions() -> None:
    rights = ["--user", "reader", "on", ">sesame", "~other", "+@all"]
    with OwnRedis("--requirepass", "open-sesame", *rights) as server:
        good = server.url.replace("://", "://default:open-sesame@") + "/stream"
        wrong_one = server.url.replace("://", "://default:sesame@") + "/stream"
        where = f"127.0.0.1:{server.port}"
        with sender_of(good) as sender, source_of(good) as source:
            sender.send(Outgoing(b"x"), 5)
            assert bodies(drained(source, 1)) == [b"x"]
        for url, said in (
            (wrong_one, f"redis://default@{where}/stream: the server refuses the user name or the password"),
            (
                f"{server.url}/stream",
                f"redis://{where}/stream: the server wants a password; write redis://user:password@{where}/…",
            ),
        ):
            with sender_of(url) as sender, source_of(url) as source:
                assert wrong(TransportUnavailable, partial(sender.send, Outgoing(b"x"), 5)) == said
                assert wrong(TransportUnavailable, partial(source.receive, 1, 1)) == said
        reader = server.url.replace("://", "://reader:sesame@") + "/stream"
        with sender_of(reader) as sender, source_of(reader) as source:
            said = wrong(TransportUnavailable, lambda: sender.send(Outgoing(b"x"), 5))
            assert said.startswith(
                f"redis://reader@{where}/stream: the server does not let the user 'reader' do this ("
            )
            assert "does not let the user" in wrong(TransportUnavailable, lambda: source.receive(1, 1))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://h/s?size=1", "redis://h/s: there is no option 'size'; there are group, idle, maxlen"),
        ("redis://h/s?idle=0", "redis://h/s: idle must be a whole number from 1 to 86400, not '0'"),
        ("redis://h/s?maxlen=-1", "redis://h/s: maxlen must be a whole number from 1 to 1000000000, not '-1'"),
        ("redis://a,b/s", "redis://a,b/s: 'a,b' is no server; one looks like server:6379"),
        ("redis://h:x/s", "redis://h:x/s: 'h:x' is no server; one looks like server:6379"),
        ("redis://h/2/", "redis://h/2/ does not say which stream; it looks like redis://server:6379/2/STREAM"),
    ],
)
def test_a_url_that_cannot_work_is_refused_without_connecting(url: str, said: str) -> None:
    assert wrong(Invalid, lambda: transports.check(address(url))) == said
    assert wrong(Invalid, lambda: transports.open_sender(address(url))) == said


def test_headers_on_the_wire_are_plain_json(url: str, name: str) -> None:
    with sender_of(url) as sender, raw() as client:
        sender.send(Outgoing(b"x", "k", {"a": "ä"}), 5)
        ((_, fields),) = client.xrange(name)
        assert (fields[b"body"], fields[b"key"], json.loads(fields[b"headers"])) == (b"x", b"k", {"a": "ä"})
