"""RabbitMQ, against a real server."""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import aiormq
import pytest
from aiormq.abc import ChannelFrame
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from hipq.errors import Invalid, TransportError, TransportUnavailable
from hipq.transports.address import Address, address
from hipq.transports.amqp import AmqpSource, check, sender, source
from hipq.transports.amqp_sender import AmqpSender
from hipq.transports.base import Message, Outgoing
from tests.brokers.amqp import OwnRabbit, amqp_url
from tests.transports.checkpoints import Nowhere
from tests.transports.quickly import check_quick

PASSWORD = "s3cret-pass"


def listen(where: Address) -> AmqpSource:
    return source(where, "shop", Nowhere())


def ask(server: str, work: Callable[[aiormq.abc.AbstractConnection, aiormq.abc.AbstractChannel], Any]) -> Any:
    async def asked() -> Any:
        connection = await aiormq.connect(f"{server}/")
        try:
            return await work(connection, await connection.channel())
        finally:
            await connection.close()

    return asyncio.run(asked())


def drained(one: AmqpSource, count: int, most: int = 1000, seconds: float = 30) -> list[Message]:
    """So many messages, acknowledged."""
    found: list[Message] = []
    until = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < until:
        some = one.receive(most, 0.2)
        one.done(some)
        found += some
    return found


def held(one: AmqpSource, count: int, most: int = 1000) -> list[Message]:
    """So many messages, not acknowledged."""
    found: list[Message] = []
    while len(found) < count:
        some = one.receive(most, 5)
        assert some
        found += some
    return found


@pytest.fixture
def where() -> Iterator[Address]:
    """A queue that is not there yet; deleted afterwards."""
    queue = f"hipq-test-{uuid4().hex[:12]}"
    yield address(f"{amqp_url()}/{queue}")

    async def delete(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
        await channel.queue_delete(queue)

    ask(amqp_url(), delete)


@pytest.fixture(autouse=True)
def _clean(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No thread is left behind, and nothing is written to stderr."""
    before = set(threading.enumerate())
    yield
    until = time.monotonic() + 30
    while (left := set(threading.enumerate()) - before) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left
    assert not capfd.readouterr().err


# -- messages ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("body", [b"", bytes(range(256)), b"x" * 1_000_000], ids=["empty", "binary", "1 MB"])
def test_a_message_arrives_byte_for_byte_with_its_key_and_headers(where: Address, body: bytes) -> None:
    one, out = listen(where), sender(where)
    out.send(Outgoing(body, "key ü 1", {"Traceparent": "00-1", "hipq-job": "7\n"}), 5)
    (message,) = one.receive(10, 5)
    assert (message.body, message.key, message.subject) == (body, "key ü 1", where.name)
    assert message.headers == {"traceparent": "00-1", "hipq-job": "7\n"}
    assert message.id.isprintable()
    assert len(message.id) < 300
    one.close()
    out.close()


def test_a_key_too_long_for_a_correlation_id_goes_along_as_a_header(where: Address) -> None:
    one, out = listen(where), sender(where)
    out.send(Outgoing(b"", "ü" * 200), 5)
    assert one.receive(10, 5)[0].key == "ü" * 200
    one.close()
    out.close()


def test_what_was_not_acknowledged_comes_to_another_at_once_with_the_same_id(where: Address) -> None:
    first, out = listen(where), sender(where)
    for number in range(6):
        out.send(Outgoing(b"%d" % number), 5)
    got = held(first, 6)
    first.done([got[0], got[1], got[4]])  # two in one word, one by itself
    first.close()
    second = listen(where)
    rest = [got[2], got[3], got[5]]
    again = drained(second, 3)
    assert [(message.id, message.body) for message in again] == [(message.id, message.body) for message in rest]
    assert second.receive(10, 0.3) == []
    second.close()
    out.close()


def test_a_message_that_names_no_id_has_the_same_one_at_each_delivery(where: Address) -> None:
    first = listen(where)
    about = [
        Basic.Properties(message_id="theirs"),
        Basic.Properties(message_id="not\x00printable"),
        Basic.Properties(correlation_id="a"),
        Basic.Properties(correlation_id="b", timestamp=datetime(2026, 11, 1, tzinfo=UTC)),
        Basic.Properties(
            correlation_id="b", headers={"number": 1, "true": True, "none": None, "bytes": bytearray(b"\xff")}
        ),
    ]
    _publish(where, [(Raw(one.marshal(), 4), b"same") for one in about])
    got = held(first, 5)
    ids = [message.id for message in got]
    assert ids[0] == "theirs"
    assert len(set(ids)) == 5
    assert all(one.isprintable() for one in ids)
    assert got[4].headers == {"number": "1", "true": "true", "none": "", "bytes": "\ufffd"}
    first.done(got[:1])  # so that the deliveries' numbers are others
    first.close()
    second = listen(where)
    assert [message.id for message in drained(second, 4)] == ids[1:]
    second.close()


def test_what_a_killed_process_held_comes_again(where: Address) -> None:
    one, out = listen(where), sender(where)
    for number in range(4):
        out.send(Outgoing(b"%d" % number), 5)
    program = (
        "import sys, time\n"
        "from hipq.transports.address import address\n"
        "from hipq.transports.amqp import source\n"
        "one = source(address(sys.argv[1]), 'shop', None)\n"
        "got = []\n"
        "while len(got) < 4: got += one.receive(4, 5)\n"
        "one.done(got[:1])\n"
        "print(*(message.id for message in got), flush=True)\n"
        "time.sleep(60)\n"
    )
    url = f"{amqp_url()}/{where.name}"
    child = subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    ids = child.stdout.readline().split()
    child.kill()
    child.wait()
    child.stdout.close()
    assert len(ids) == 4
    assert [message.id for message in drained(one, 3)] == ids[1:]
    assert one.receive(10, 0.3) == []
    one.close()
    out.close()


def test_messages_come_in_the_order_they_were_sent(where: Address) -> None:
    one, out = listen(where), sender(where)
    for number in range(200):
        out.send(Outgoing(b"%d" % number), 5)
    assert [int(message.body) for message in drained(one, 200, most=70)] == list(range(200))
    one.close()
    out.close()


def test_two_that_listen_share(where: Address) -> None:
    both, out = [listen(where), listen(where)], sender(where)
    for one in both:
        assert one.receive(10, 0.01) == []
    for number in range(100):
        out.send(Outgoing(b"%d" % number), 5)
    seen: list[list[Message]] = [[], []]
    until = time.monotonic() + 30
    while sum(map(len, seen)) < 100 and time.monotonic() < until:
        for one, mine in zip(both, seen, strict=True):
            some = one.receive(10, 0.1)
            one.done(some)
            mine += some
    assert all(seen)
    assert sorted(int(message.body) for mine in seen for message in mine) == list(range(100))
    for one in both:
        one.close()
    out.close()


def test_an_exchange_gets_the_name_as_routing_key(where: Address) -> None:
    exchange = f"{where.name}-exchange"

    async def bind(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
        await channel.exchange_declare(exchange, exchange_type="topic", auto_delete=True)
        await channel.queue_bind(where.name, exchange, "orders.*")

    one = listen(where)
    ask(amqp_url(), bind)
    out = sender(where._replace(name="orders.new", options={"exchange": exchange}))
    out.send(Outgoing(b"1"), 5)
    assert [(message.body, message.subject) for message in drained(one, 1)] == [(b"1", "orders.new")]
    one.close()
    out.close()


def test_a_queue_that_is_there_is_taken_as_it_is(where: Address) -> None:
    async def declare(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
        await channel.queue_declare(where.name, durable=False, arguments={"x-max-length": 5})

    ask(amqp_url(), declare)
    one, out = listen(where), sender(where)
    out.send(Outgoing(b"1"), 5)
    assert len(drained(one, 1)) == 1
    one.close()
    out.close()


# -- speed and size ----------------------------------------------------------------------------------------------------
def test_a_single_message_comes_at_once(where: Address) -> None:
    one, out = listen(where), sender(where)
    with ThreadPoolExecutor(1) as pool:

        def measured() -> float:
            waiting = pool.submit(lambda: (one.receive(1000, 60), time.perf_counter()))
            time.sleep(0.01)
            started = time.perf_counter()
            out.send(Outgoing(b"1"), 60)
            found, message = waiting.result()
            assert len(found) == 1
            one.done(found)
            return message - started

        check_quick(measured, 0.1, count=6, of=20)
    one.close()
    out.close()


def test_many_come_in_big_batches_sent_by_twenty_threads(where: Address) -> None:
    listen(where).close()
    out = sender(where)
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda number: out.send(Outgoing(b"%d" % number), 10), range(2000)))
    one = listen(where)
    batches: list[Sequence[Message]] = []
    until = time.monotonic() + 30
    while sum(len(batch) for batch in batches) < 2000 and time.monotonic() < until:
        batches.append(one.receive(1000, 1))
        one.done(batches[-1])
    assert sorted(int(message.body) for batch in batches for message in batch) == list(range(2000))
    assert 200 <= max(len(batch) for batch in batches) <= 1000
    one.close()
    out.close()


@pytest.mark.parametrize("options", [{}, {"prefetch": "10"}], ids=["most", "prefetch"])
def test_who_does_not_acknowledge_gets_no_more_and_leaves_the_rest_to_others(
    where: Address, options: dict[str, str]
) -> None:
    greedy, other, out = listen(where._replace(options=options)), listen(where), sender(where)
    for number in range(100):
        out.send(Outgoing(b"%d" % number), 5)
    most = 50 if options else 10
    mine = held(greedy, 10, most)
    assert greedy.receive(most, 0.3) == []
    assert len(drained(other, 90)) == 90
    greedy.done(mine)
    assert greedy.lag() == 0
    greedy.close()
    other.close()
    out.close()


def test_lag_counts_what_was_not_acknowledged(where: Address) -> None:
    one, out = listen(where), sender(where)
    assert one.lag() == 0
    for _ in range(5):
        out.send(Outgoing(b"1"), 5)
    assert one.lag() == 5
    mine = held(one, 3, 3)
    assert one.lag() == 5
    one.done(mine)
    time.sleep(0.2)  # the server sends the rest, which leaves its count before it is in ours
    assert one.lag() == 2
    one.close()
    out.close()


# -- bad messages ------------------------------------------------------------------------------------------------------
class Raw(ContentHeader):
    """Properties as they are on the wire, whatever they are."""

    def __init__(self, properties: bytes, size: int) -> None:
        super().__init__()
        self._bytes = struct.pack(">HHQ", 60, 0, size) + properties

    def marshal(self) -> bytes:
        return self._bytes


class BadKey(Basic.Publish):
    """With a routing key that is not UTF-8."""

    def marshal(self) -> bytes:
        return super().marshal().replace(b"BAD", b"\xff\xfe\xfd")


def _publish(where: Address, messages: Sequence[tuple[Raw, bytes]], publish: Basic.Publish | None = None) -> None:
    async def put(connection: Any, channel: aiormq.abc.AbstractChannel) -> None:
        for header, body in messages:
            frames: list[Any] = [publish or Basic.Publish(routing_key=where.name), header, ContentBody(body)]
            await connection.write_queue.put(ChannelFrame.marshall(channel_number=channel.number, frames=frames))
        await channel.queue_declare(where.name, passive=True)  # answered when all before it was

    async def silent(connection: Any, _: Any) -> None:
        await put(connection, await connection.channel(publisher_confirms=False))

    ask(amqp_url(), silent)


def test_messages_that_the_library_cannot_decode_do_not_stop_the_queue(where: Address) -> None:
    one, out = listen(where), sender(where)
    table = b"\x01aS\x00\x00\x00\x02\xff\xfe"
    properties = [
        b"\x00\x40" + b"\xff" * 8,  # a time stamp beyond all years
        b"\x04\x00" + b"\x02\xff\xfe",  # a correlation id that is not UTF-8
        b"\x04\x00" + b"\x02\xff\xfd",  # another one
        b"\x20\x00" + len(table).to_bytes(4, "big") + table,  # a header that is not UTF-8
    ]
    _publish(where, [(Raw(bad, 6), b"poison") for bad in properties])
    exchange = f"{where.name}-exchange"

    async def bind(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
        await channel.exchange_declare(exchange, exchange_type="fanout", auto_delete=True)
        await channel.queue_bind(where.name, exchange)

    ask(amqp_url(), bind)
    _publish(where, [(Raw(b"\x00\x00", 6), b"poison")], BadKey(exchange=exchange, routing_key="BAD"))
    out.send(Outgoing(b"fine", "key"), 5)
    found = held(one, 6)
    assert [message.body for message in found] == [b"poison"] * 5 + [b"fine"]
    assert found[3].headers == {"a": "\ufffd\ufffd"}
    assert found[4].subject == "???"
    assert found[5].key == "key"
    assert len({message.id for message in found}) == 6
    one.close()
    again = listen(where)
    assert [message.id for message in drained(again, 6)] == [message.id for message in found]
    again.close()
    out.close()


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (Outgoing(b"", "\ud800"), "the key or a header cannot be carried by AMQP"),
        (Outgoing(b"", "", {"a": "\ud800"}), "the key or a header cannot be carried by AMQP"),
        (Outgoing(b"", "", {"n" * 129: "v"}), "the name of a header has 128 bytes at most"),
    ],
    ids=["key", "header", "name"],
)
def test_what_amqp_cannot_carry_is_refused(where: Address, message: Outgoing, sentence: str) -> None:
    one, out = listen(where), sender(where)
    with pytest.raises(Invalid, match=f"{where.name}: {sentence}$"):
        out.send(message, 5)
    out.send(Outgoing(b"fine"), 5)
    assert [message.body for message in drained(one, 1)] == [b"fine"]
    one.close()
    out.close()


# -- servers that end --------------------------------------------------------------------------------------------------
def test_after_a_restart_nothing_confirmed_is_lost_and_nothing_unconfirmed_is_sent_later() -> None:
    with OwnRabbit() as server:
        where = address(f"{server.url}/orders")
        broke = r"orders: the connection to 127.0.0.1:\d+ broke$"
        one, out = listen(where), sender(where)
        for number in range(20):
            out.send(Outgoing(b"%d" % number), 60)
        kept = held(one, 5, 60)
        one.done(kept)
        server.stop()
        with pytest.raises(TransportUnavailable, match=broke):
            drained(one, 20)  # what it has already may come first
        with pytest.raises(TransportUnavailable, match=broke):
            one.done(kept)
        with pytest.raises(TransportUnavailable, match=broke):
            one.lag()
        one.close()
        started = time.monotonic()
        with pytest.raises(TransportUnavailable, match=r"nobody listens at 127.0.0.1:\d+ \(connection refused\)$"):
            out.send(Outgoing(b"never"), 2)
        assert time.monotonic() - started < 15
        server.start()
        out.send(Outgoing(b"after"), 60)
        again = listen(where)
        found: list[bytes] = []
        while b"after" not in found:
            found += [message.body for message in drained(again, 1)]
        expected = [b"%d" % number for number in range(5, 20)] + [b"after"]
        assert [body for body in found if body in expected] == expected
        assert {*found} <= {*expected, *(message.body for message in kept)}  # it may have lost an acknowledgement
        again.close()
        out.close()


class Wall:
    """Stands before the server, and can stop letting anything through."""

    def __init__(self) -> None:
        parts = urlsplit(amqp_url())
        self._server = (parts.hostname or "", parts.port or 5672)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"amqp://{parts.username}:{parts.password}@127.0.0.1:{self._listener.getsockname()[1]}"
        self.open = threading.Event()
        self.open.set()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(self._server)
            self._sockets += [near, far]
            for pair in ((near, far), (far, near)):
                self._threads.append(threading.Thread(target=self._pass, args=pair))
                self._threads[-1].start()

    def _pass(self, here: socket.socket, there: socket.socket) -> None:
        try:
            while data := (self.open.wait() and here.recv(4096)):
                self.open.wait()
                there.sendall(data)
        except OSError:
            pass
        with suppress(OSError):
            there.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """All connections through it break."""
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # to close it would not wake who waits for it

    def close(self) -> None:
        self.open.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for one in self._sockets:
            one.close()
        for thread in self._threads:
            thread.join(30)


def test_what_a_hanging_server_did_not_take_in_time_is_not_sent_when_it_goes_on(where: Address) -> None:
    wall, one = Wall(), listen(where)
    far = address(f"{wall.url}/{where.name}")
    out = sender(far)
    out.send(Outgoing(b"1"), 5)
    wall.open.clear()

    def send(number: int) -> str:
        with pytest.raises(TransportUnavailable) as caught:
            out.send(Outgoing(b"x" * 1_000_000, str(number)), 1)
        return str(caught.value)

    started = time.monotonic()
    with ThreadPoolExecutor(20) as pool:  # more than the system's buffers hold
        said = set(pool.map(send, range(20)))
    assert time.monotonic() - started < 15
    assert f"{far}: not confirmed within 1 s; whether the message was stored is not known" in said
    wall.open.set()
    out.send(Outgoing(b"2"), 5)
    bodies: list[bytes] = []
    until = time.monotonic() + 60
    while b"2" not in bodies and time.monotonic() < until:
        bodies += [message.body[:1] for message in drained(one, 1, seconds=1)]
    bodies += [message.body[:1] for message in drained(one, 20, seconds=1)]
    assert bodies.count(b"x") < 15
    assert b"2" in bodies
    one.close()
    out.close()
    wall.close()


def test_a_server_that_is_back_may_not_have_its_queues_at_once(where: Address) -> None:
    """RabbitMQ lets clients in before its queues are there again: played by a queue that is away for a while."""
    wall = Wall()
    out = sender(address(f"{wall.url}/{where.name}"))
    listen(where).close()
    out.send(Outgoing(b"before"), 20)

    async def delete(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
        await channel.queue_delete(where.name)

    ask(amqp_url(), delete)
    wall.cut()
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(_sent_at_last, out, b"after")
        time.sleep(0.5)  # it comes back to it meanwhile, again and again
        one = listen(where)
        sent.result()
    assert [message.body for message in drained(one, 1)] == [b"after"]
    one.close()
    out.close()
    wall.close()


def _sent_at_last(out: AmqpSender, body: bytes) -> None:
    """The first attempt may meet the connection that broke; no attempt is told that there is no such queue."""
    with suppress(TransportUnavailable):
        return out.send(Outgoing(body), 20)
    return out.send(Outgoing(body), 20)


def test_a_source_says_so_when_its_queue_is_deleted(where: Address) -> None:
    one = listen(where)

    async def delete(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
        await channel.queue_delete(where.name)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.receive, 10, 5)
        time.sleep(0.2)
        ask(amqp_url(), delete)
        with pytest.raises(TransportUnavailable, match=r": the queue .* was deleted, or moved to another node$"):
            waiting.result()
    one.close()


# -- errors ------------------------------------------------------------------------------------------------------------
def test_a_queue_or_an_exchange_that_is_not_there_cannot_be_sent_to(where: Address) -> None:
    out, other = sender(where), sender(where._replace(options={"exchange": "hipq-test-none"}))
    with pytest.raises(TransportUnavailable, match=f"{where.name}: nobody would get it: no queue has this name, or is"):
        out.send(Outgoing(b""), 5)
    listen(where).close()
    out.send(Outgoing(b""), 5)
    for _ in range(2):
        with pytest.raises(
            TransportUnavailable, match=r"the server refuses it: NOT_FOUND - no exchange 'hipq-test-none'"
        ):
            other.send(Outgoing(b""), 5)
    out.close()
    other.close()


def test_a_full_queue_does_not_take_more(where: Address) -> None:
    async def declare(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
        limits: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
        await channel.queue_declare(where.name, durable=True, arguments=limits)

    ask(amqp_url(), declare)
    out = sender(where)
    out.send(Outgoing(b""), 5)
    with pytest.raises(
        TransportUnavailable, match=r"the server did not take the message \(nack\): its queue may be full$"
    ):
        out.send(Outgoing(b""), 5)
    out.close()


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{taken.getsockname()[1]}"
        for url, why in (
            (f"amqp://me:{PASSWORD}@{server}/a", f"nobody listens at {server} (connection refused)"),
            (f"amqp://{server.replace('127.0.0.1', 'localhost')}/a", f"nobody listens at localhost{server[9:]}"),
            (
                "amqp://no.such.host.invalid/a",
                "there is no host no.such.host.invalid:5672, or its name cannot be looked",
            ),
        ):
            where = address(url)
            for said in _said(where):
                assert said.startswith(f"{where}: {why}")


def test_who_may_not_come_in_is_told_so() -> None:
    host = urlsplit(amqp_url()).netloc.rpartition("@")[2]
    where = address(f"amqp://guest:{PASSWORD}@{host}/a")
    assert _said(where) == {f"{where}: {host} does not accept the user or password"}
    where = address(f"{amqp_url()}/hipq-none/a")
    assert _said(where) == {f"{where}: {host} ended the connection: NOT_ALLOWED - vhost hipq-none not found"}
    where = address(f"{amqp_url()}/amq.hipq-test")
    with pytest.raises(TransportUnavailable, match=r"the server refuses it: ACCESS_REFUSED - queue name"):
        listen(where)
    where = address(f"amqps://me:{PASSWORD}@{host}/a")
    assert _said(where) == {f"{where}: {host} and this program cannot agree on TLS (WRONG_VERSION_NUMBER)"}


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("amqp://a?durable=x", "there is no option 'durable'; there are exchange, group, prefetch"),
        ("amqp://a?prefetch=0", "prefetch must be a whole number from 1 to 65535, not '0'"),
        ("amqp://h/vhost/", "the name of the queue is missing; it looks like amqp://server/QUEUE"),
        (f"amqp://{'q' * 256}", "the name of the queue has 255 bytes at most"),
        (f"amqp://a?exchange={'q' * 256}", "the name of the exchange has 255 bytes at most"),
        ("amqp://h:99999/a", "'h:99999' is no server; one looks like server:5672"),
        ("amqp://h,i/a", "'h,i' is no server; one looks like server:5672"),
    ],
)
def test_a_url_that_can_never_work_is_refused(url: str, sentence: str) -> None:
    where = address(url)
    for refused in (check, sender, listen):
        with pytest.raises(Invalid) as caught:
            refused(where)
        assert str(caught.value) == f"{where}: {sentence}"


def test_the_usual_virtual_host_has_two_names(where: Address) -> None:
    check(address("amqps://me:x@[::1]:5671/vhost/queue?group=g&prefetch=5&exchange=e"))
    one, out = listen(address(f"{amqp_url()}/%2F/{where.name}")), sender(where)
    out.send(Outgoing(b"1"), 5)
    assert len(drained(one, 1)) == 1
    one.close()
    out.close()


def _said(where: Address) -> set[str]:
    """What a sender and a source of it raise; the password is nowhere, whichever way it is looked at."""
    said = set()
    out = sender(where)
    for attempt in (lambda: out.send(Outgoing(b""), 5), lambda: listen(where)):
        with pytest.raises(TransportError) as caught:
            attempt()
        assert PASSWORD not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)
        said.add(str(caught.value))
    assert PASSWORD not in repr(out) + repr(vars(out).get("_connection"))
    out.close()
    return said
