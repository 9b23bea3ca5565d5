"""Redis Streams against a real server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis

from hipq.errors import HipqError, Invalid, TransportUnavailable
from hipq.transports import redis as transport
from hipq.transports.address import address
from hipq.transports.base import Message, Outgoing
from hipq.transports.redis import RedisSource
from hipq.transports.redis_sender import RedisSender
from tests.brokers.redis import OwnRedis, redis_url
from tests.transports.quickly import check_quick


class NoPlaces:
    """Redis needs none."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"Places.{name} was asked for")


@contextmanager
def sender_of(url: str) -> Iterator[RedisSender]:
    with closing(transport.sender(address(url))) as sender:
        yield sender


@contextmanager
def source_of(url: str, group: str = "shop") -> Iterator[RedisSource]:
    with closing(transport.source(address(url), group, NoPlaces())) as source:
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


def collect(source: RedisSource, count: int, *, done: bool = True, seconds: float = 30) -> list[Message]:
    found: list[Message] = []
    until = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < until:
        some = source.receive(1000, 0.2)
        found += some
        if done:
            source.done(some)
    return found


def bodies(messages: Sequence[Message]) -> list[bytes]:
    return [message.body for message in messages]


def wrong(kind: type[HipqError], call: Callable[[], Any]) -> str:
    """The sentence of the error, which must show no password wherever it is looked for."""
    with pytest.raises(kind) as caught:
        call()
    everything = repr(caught.value) + "".join(traceback.format_exception(caught.value))
    assert "sesame" not in everything
    assert str(caught.value).count("\n") == 0
    return str(caught.value)


# -- what goes in comes out -----------------------------------------------------------------------------------------
def test_a_message_arrives_byte_for_byte_with_its_key_and_headers(url: str, name: str) -> None:
    with sender_of(url) as sender, source_of(url) as source:
        every = [bytes(range(256)), b"", b"x" * (1 << 20), b'{"a": 1}']
        for body in every:
            sender.send(Outgoing(body, "kä-1", {"Hipq-Key": "kä-1", "traceparent": "00-☃"}), 5)
        found = collect(source, 4)
        assert bodies(found) == every
        assert {message.key for message in found} == {"kä-1"}
        assert found[0].headers == {"hipq-key": "kä-1", "traceparent": "00-☃"}
        assert found[0].subject == name
        assert len({message.id for message in found}) == 4


def test_entries_made_by_others_are_read_too(url: str, name: str) -> None:
    with source_of(url) as source, raw() as client:
        client.xadd(name, {"ref": "7", "ok": "yes"})
        client.xadd(name, {b"\xff": b"\xfe"})
        client.xadd(name, {"body": b"\xff\x00", "key": b"\xff", "headers": "[1", "more": b"\xfft"})
        client.xadd(name, {"body": "", "headers": '{"n": 1, "deep": {"a": []}}'})
        client.xadd(name, {"body": "deep", "headers": "[" * 100_000})
        first, second, third, fourth, fifth = collect(source, 5)
        assert first.json == {"ref": "7", "ok": "yes"}
        assert second.json == {"\N{REPLACEMENT CHARACTER}": "\N{REPLACEMENT CHARACTER}"}
        assert (third.body, third.key) == (b"\xff\x00", "\N{REPLACEMENT CHARACTER}")
        assert third.headers == {"headers": "[1", "more": "\N{REPLACEMENT CHARACTER}t"}
        assert (fourth.body, fourth.json, fourth.headers) == (b"", None, {"n": "1", "deep": '{"a": []}'})
        assert fifth.headers["headers"].startswith("[[[")
        assert source.lag() == 0


def test_a_stream_may_be_in_another_database_and_have_slashes_in_its_name(name: str) -> None:
    url = f"{redis_url()}/3/{name}/in"
    try:
        with sender_of(url) as sender, source_of(url) as source, raw() as client:
            sender.send(Outgoing(b"there"), 5)
            assert bodies(collect(source, 1)) == [b"there"]
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
        again = collect(other, 3)
        assert time.monotonic() - started < 20
        assert [message.id for message in again] == [message.id for message in taken[2:]]
        assert bodies(again) == [b"2", b"3", b"4"]
        with raw() as client:
            assert client.xpending(name, "shop")["pending"] == 0
            names = [one["name"] for one in client.xinfo_consumers(name, "shop")]
            assert len(names) == 2  # the closed one has gone
            assert b"hipq-released" in names


def test_what_was_acknowledged_does_not_come_again(url: str) -> None:
    with sender_of(url) as sender:
        for number in range(10):
            sender.send(Outgoing(b"%d" % number), 5)
        with source_of(url) as source:
            assert len(collect(source, 10)) == 10
        with source_of(url) as source:
            assert source.receive(10, 1.5) == []


CHILD = """
import sys, time
from hipq.transports import redis as transport
from hipq.transports.address import address
source = transport.source(address(sys.argv[1]), "shop", None)
print(",".join(message.id for message in source.receive(10, 10)), flush=True)
time.sleep(60)
"""


def test_what_a_killed_process_had_comes_to_another_source(url: str) -> None:
    with sender_of(url) as sender:
        for number in range(3):
            sender.send(Outgoing(b"%d" % number), 5)
    child = subprocess.Popen([sys.executable, "-c", CHILD, url], stdout=subprocess.PIPE, text=True, env=_environment())
    try:
        assert child.stdout is not None
        ids = child.stdout.readline().strip().split(",")
    finally:
        child.kill()
        child.communicate()
    with source_of(url) as source:
        again = collect(source, 3)
        assert [message.id for message in again] == ids
        assert len(ids) == 3


def _environment() -> dict[str, str]:
    package = Path(transport.__file__).parents[2]
    return {**os.environ, "PYTHONPATH": str(package)}


def test_a_slow_source_loses_its_messages_to_another_and_may_still_acknowledge(url: str) -> None:
    with sender_of(url) as sender, source_of(url) as slow, source_of(url) as other:
        sender.send(Outgoing(b"x"), 5)
        taken = slow.receive(10, 5)
        again = collect(other, 1, done=False)
        assert [message.id for message in again] == [message.id for message in taken]
        slow.done(taken)
        other.done(again)
        assert other.lag() == 0


def test_order_is_kept_and_two_sources_share(url: str) -> None:
    url = url.replace("idle=1", "idle=3600")  # neither takes from the other what a busy machine keeps it from
    seen: dict[int, list[int]] = {0: [], 1: []}
    stop = threading.Event()

    def work(number: int, source: RedisSource) -> None:
        while not stop.is_set():
            some = source.receive(20, 0.1)
            seen[number] += [int(message.body) for message in some]
            source.done(some)
            time.sleep(0.002)

    with sender_of(url) as sender, source_of(url) as one, source_of(url) as two:
        threads = [threading.Thread(target=work, args=(number, source)) for number, source in enumerate((one, two))]
        for thread in threads:
            thread.start()
        for number in range(500):
            sender.send(Outgoing(b"%d" % number), 5)
        until = time.monotonic() + 30
        while len(seen[0]) + len(seen[1]) < 500 and time.monotonic() < until:
            time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
    assert sorted(seen[0] + seen[1]) == list(range(500))
    assert seen[0] == sorted(seen[0])
    assert seen[1] == sorted(seen[1])
    assert min(len(seen[0]), len(seen[1])) > 20


def test_two_groups_each_get_everything(url: str) -> None:
    with sender_of(url) as sender, source_of(url, "a") as one, source_of(f"{url}&group=b", "a") as two:
        sender.send(Outgoing(b"x"), 5)
        assert bodies(collect(one, 1)) == [b"x"]
        assert bodies(collect(two, 1)) == [b"x"]


# -- how fast, how many ---------------------------------------------------------------------------------------------
def test_a_single_message_comes_quickly_and_many_come_in_big_batches(url: str, name: str) -> None:
    with sender_of(url) as sender, source_of(url) as source, raw() as client:
        source.receive(1, 0)

        def measured() -> float:
            sent: list[float] = []

            def publish_one() -> None:
                sent.append(time.monotonic())
                sender.send(Outgoing(b"x"), 60)

            publish = threading.Timer(0.03, publish_one)
            publish.start()
            some = source.receive(1000, 60)
            took = time.monotonic() - sent[0]
            assert len(some) == 1
            source.done(some)
            publish.join()
            return took

        check_quick(measured, 0.1, count=5, of=15)
        with client.pipeline(transaction=False) as pipeline:
            for number in range(3000):
                pipeline.xadd(name, {"body": number})
            pipeline.execute()
        assert len(source.receive(1000, 5)) == 1000


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


def test_twenty_threads_send_through_one_sender(url: str) -> None:
    with sender_of(url) as sender, source_of(url) as source, raw() as client:
        before = len(client.client_list())

        def work(number: int) -> None:
            for count in range(50):
                sender.send(Outgoing(b"%d-%d" % (number, count)), 10)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        assert len(client.client_list()) <= before + 10  # the shared server has other clients; ours is one
        for thread in threads:
            thread.join()
        found = bodies(collect(source, 1000))
        assert sorted(found) == sorted(b"%d-%d" % (number, count) for number in range(20) for count in range(50))
        assert [body for body in found if body.startswith(b"7-")] == [b"7-%d" % count for count in range(50)]


# -- servers that stop, lose their memory, are not there ------------------------------------------------------------
def test_nothing_confirmed_is_lost_when_the_server_is_killed_and_started() -> None:
    with OwnRedis() as server:
        url = f"{server.url}/stream"
        with sender_of(url) as sender, source_of(url) as source:
            sender.send(Outgoing(b"0"), 5)
            sender.send(Outgoing(b"1"), 5)
            first = source.receive(1, 5)
            server.restart()
            sender.send(Outgoing(b"2"), 5)  # it notices that the connection is gone before it writes
            said = wrong(TransportUnavailable, lambda: source.done(first))
            assert said.startswith(f"{url}: the connection to 127.0.0.1:{server.port} broke (")
        with source_of(url) as source:
            assert sorted(bodies(collect(source, 3))) == [b"0", b"1", b"2"]


def test_a_source_goes_on_after_the_stream_and_its_group_are_gone(url: str, name: str) -> None:
    with sender_of(url) as sender, source_of(url) as source, raw() as client:
        sender.send(Outgoing(b"before"), 5)
        collect(source, 1)
        threading.Timer(0.2, client.delete, (name,)).start()
        assert source.receive(10, 0.6) == []  # it was deleted while the source was waiting
        sender.send(Outgoing(b"after"), 5)
        assert bodies(collect(source, 1)) == [b"after"]


def test_a_message_to_a_dead_server_is_not_sent_when_it_is_back() -> None:
    with OwnRedis() as server:
        url = f"{server.url}/stream"
        with sender_of(url) as sender:
            sender.send(Outgoing(b"first"), 5)
            server.stop()
            started = time.monotonic()
            said = wrong(TransportUnavailable, lambda: sender.send(Outgoing(b"never"), 2))
            assert time.monotonic() - started < 15
            assert said == f"{url}: nobody listens at 127.0.0.1:{server.port} (connection refused)"
            server.start()
            sender.send(Outgoing(b"last"), 5)
        with source_of(url) as source:
            assert bodies(collect(source, 2)) == [b"first", b"last"]


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
            assert bodies(collect(source, 3)) == [b"first", b"on its way", b"last"]


def test_what_is_wrong_is_said_in_a_sentence(url: str, name: str) -> None:
    def fails(url: str, kind: type[HipqError] = TransportUnavailable) -> str:
        with sender_of(url) as sender, source_of(url) as source:
            said = wrong(kind, lambda: sender.send(Outgoing(b"x"), 5))
            assert wrong(kind, lambda: source.receive(1, 1)) == said
        return said

    refused = "redis://me:sesame@127.0.0.1:1/s"
    assert fails(refused) == "redis://me@127.0.0.1:1/s: nobody listens at 127.0.0.1:1 (connection refused)"
    unknown = "redis://me:sesame@nowhere.invalid/s"
    assert fails(unknown) == "redis://me@nowhere.invalid/s: there is no host nowhere.invalid"
    with raw() as client:
        client.set(f"{name}", "text")
    assert fails(url, Invalid) == f"{url.partition('?')[0]}: {name!r} is there already, but is not a stream"
    with socket.create_server(("127.0.0.1", 0)) as plain:  # one that does not know of TLS
        threading.Thread(target=_greet, args=(plain,)).start()
        port = plain.getsockname()[1]
        with source_of(f"rediss://me:sesame@127.0.0.1:{port}/s") as source:
            said = wrong(TransportUnavailable, lambda: source.receive(1, 1))
        assert said.startswith(f"rediss://me@127.0.0.1:{port}/s: no encrypted connection with 127.0.0.1:{port} (")


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
            assert bodies(collect(source, 1)) == [b"x"]
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
        ("redis://a,b/s", "redis://a,b/s: 'a,b' is not a server and its port, like server:6379"),
        ("redis://h:x/s", "redis://h:x/s: 'h:x' is not a server and its port, like server:6379"),
        ("redis://h/2/", "redis://h/2/ does not say which stream; it looks like redis://server:6379/2/STREAM"),
    ],
)
def test_a_url_that_cannot_work_is_refused_without_connecting(url: str, said: str) -> None:
    assert wrong(Invalid, lambda: transport.check(address(url))) == said
    assert wrong(Invalid, lambda: transport.sender(address(url))) == said


def test_nothing_is_left_behind(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with sender_of(url) as sender, source_of(url) as source:
            sender.send(Outgoing(b"x"), 5)
            source.receive(1, 5)
    with sender_of("redis://127.0.0.1:1/s") as sender, pytest.raises(TransportUnavailable):
        sender.send(Outgoing(b"x"), 5)
    assert set(threading.enumerate()) == before
    assert len(os.listdir("/proc/self/fd")) <= files
    sender.close()
    assert capfd.readouterr() == ("", "")


def test_headers_on_the_wire_are_plain_json(url: str, name: str) -> None:
    with sender_of(url) as sender, raw() as client:
        sender.send(Outgoing(b"x", "k", {"a": "ä"}), 5)
        ((_, fields),) = client.xrange(name)
        assert (fields[b"body"], fields[b"key"], json.loads(fields[b"headers"])) == (b"x", b"k", {"a": "ä"})
