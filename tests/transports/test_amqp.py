"""RabbitMQ, against a real server."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import aiormq
import pytest
from aiormq.abc import ChannelFrame
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from hipq.errors import Invalid, TransportUnavailable
from hipq.transports import amqp, check, open_sender, source
from hipq.transports.address import Address, address
from hipq.transports.base import Message, Outgoing, Sender, Source
from tests.brokers.amqp import OwnRabbit, amqp_url
from tests.transports.checkpoints import Nowhere
from tests.transports.contract import (
    CrashContract,
    HangingContract,
    HoldContract,
    LagContract,
    SharingContract,
    StreamContract,
)
from tests.transports.link import PASSWORD, Link, drained, held, said


def listen(where: Address) -> Source:
    return source(where, "shop", Nowhere())


def ask(server: str, work: Callable[[aiormq.abc.AbstractConnection, aiormq.abc.AbstractChannel], Any]) -> Any:
    async def asked() -> Any:
        connection = await aiormq.connect(f"{server}/")
        try:
            return await work(connection, await connection.channel())
        finally:
            await connection.close()

    return asyncio.run(asked())


@pytest.fixture
def where() -> Iterator[Address]:
    """A queue that is not there yet; deleted afterwards."""
    queue = f"hipq-test-{uuid4().hex[:12]}"
    yield address(f"{amqp_url()}/{queue}")
    delete_queue(queue)


def told(where: Address) -> set[str]:
    return said(where, Nowhere())


def delete_queue(name: str) -> None:
    async def delete(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
        await channel.queue_delete(name)

    ask(amqp_url(), delete)


pytestmark = pytest.mark.usefixtures("nothing_left")


class AmqpLink(Link):
    headers: ClassVar = {"Traceparent": "00-1", "hipq-job": "7\n"}
    acknowledged = (0, 1, 4)  # two in one word, one by itself
    no_host = "there is no host nowhere.invalid:5672, or its name cannot be looked up now"

    def __init__(self, server: str = "", through: str = "") -> None:
        """`through`: another way to the same server, for what is sent."""
        super().__init__()
        self.server = server or amqp_url()
        self.name = f"hipq-test-{uuid4().hex[:12]}"
        self.through = through

    def url(self, **options: str) -> str:
        return f"{self.server}/{self.name}" + (f"?{urlencode(options)}" if options else "")

    def sender(self) -> Sender:
        if not self.through:
            return super().sender()
        self._opened.append(made := open_sender(address(f"{self.through}/{self.name}")))
        return made

    def put_odd(self) -> list[tuple[bytes, dict[str, str]]]:
        table = b"\x01aS\x00\x00\x00\x02\xff\xfe"
        properties = [
            b"\x00\x40" + b"\xff" * 8,  # a time stamp beyond all years
            b"\x04\x00" + b"\x02\xff\xfe",  # a correlation id that is not UTF-8
            b"\x04\x00" + b"\x02\xff\xfd",  # another one
            b"\x20\x00" + len(table).to_bytes(4, "big") + table,  # a header that is not UTF-8
        ]
        _publish(self.where, [(Raw(bad, 6), b"poison") for bad in properties])
        unreadable = [
            (b"poison", {"hipq-unreadable": sha256(Raw(bad, 6).marshal()).hexdigest()}) for bad in properties[:3]
        ]
        return [*unreadable, (b"poison", {"a": "\ufffd\ufffd"})]

    def calls_that_break(self, source: Source, messages: Sequence[Message]) -> list[Callable[[], object]]:
        return [partial(source.done, messages), source.lag]

    def close(self) -> None:
        super().close()
        if self.server == amqp_url():
            delete_queue(self.name)


class TestContract(StreamContract, HoldContract, CrashContract, LagContract, SharingContract, HangingContract):
    kind = AmqpLink
    unknown = "not confirmed within 1 s; whether the message was stored is not known"

    @pytest.fixture
    def own(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[AmqpLink, OwnRabbit]]:
        monkeypatch.setattr(amqp, "RESTART_SECONDS", 60.0)  # on a busy machine its queues take long to be back
        with OwnRabbit() as server, closing(AmqpLink(server.url)) as link:
            server.queues.append(link.name)
            yield link, server

    @pytest.fixture
    def hanging(self) -> Iterator[tuple[AmqpLink, Callable[[bool], None]]]:
        def hang(on: bool) -> None:
            wall.open.clear() if on else wall.open.set()

        with closing(Wall()) as wall, closing(AmqpLink(through=wall.url)) as link:
            yield link, hang


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_key_too_long_for_a_correlation_id_goes_along_as_a_header(where: Address) -> None:
    one, out = listen(where), open_sender(where)
    out.send(Outgoing(b"", "ü" * 200), 5)
    assert one.receive(10, 5)[0].key == "ü" * 200
    one.close()
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


def test_an_exchange_gets_the_name_as_routing_key(where: Address) -> None:
    exchange = f"{where.name}-exchange"

    async def bind(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
        await channel.exchange_declare(exchange, exchange_type="topic", auto_delete=True)
        await channel.queue_bind(where.name, exchange, "orders.*")

    one = listen(where)
    ask(amqp_url(), bind)
    out = open_sender(where._replace(name="orders.new", options={"exchange": exchange}))
    out.send(Outgoing(b"1"), 5)
    assert [(message.body, message.subject) for message in drained(one, 1)] == [(b"1", "orders.new")]
    one.close()
    out.close()


def test_a_queue_that_is_there_is_taken_as_it_is(where: Address) -> None:
    async def declare(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
        await channel.queue_declare(where.name, durable=False, arguments={"x-max-length": 5})

    ask(amqp_url(), declare)
    one, out = listen(where), open_sender(where)
    out.send(Outgoing(b"1"), 5)
    assert len(drained(one, 1)) == 1
    one.close()
    out.close()


# -- speed and size ----------------------------------------------------------------------------------------------------


def test_prefetch_is_how_many_a_source_may_hold(where: Address) -> None:
    greedy, other, out = listen(where._replace(options={"prefetch": "10"})), listen(where), open_sender(where)
    for number in range(100):
        out.send(Outgoing(b"%d" % number), 5)
    mine = held(greedy, 10, 50)
    assert greedy.receive(50, 0.3) == []
    assert len(drained(other, 90)) == 90
    greedy.done(mine)
    assert greedy.lag() == 0
    for one in (greedy, other, out):
        one.close()


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


def test_a_routing_key_that_is_not_text_does_not_stop_the_queue(where: Address) -> None:
    one = listen(where)
    exchange = f"{where.name}-exchange"

    async def bind(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
        await channel.exchange_declare(exchange, exchange_type="fanout", auto_delete=True)
        await channel.queue_bind(where.name, exchange)

    ask(amqp_url(), bind)
    _publish(where, [(Raw(b"\x00\x00", 6), b"poison")], BadKey(exchange=exchange, routing_key="BAD"))
    assert [(message.body, message.subject) for message in drained(one, 1)] == [(b"poison", "???")]
    one.close()


def test_the_content_type_is_a_header(where: Address) -> None:
    one = listen(where)

    async def put(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
        for headers in ({}, {"content-type": "its own"}):
            about = Basic.Properties(content_type="text/xml", headers={**headers})
            await channel.basic_publish(b"<a/>", routing_key=where.name, properties=about)

    ask(amqp_url(), put)
    assert [message.headers["content-type"] for message in drained(one, 2)] == ["text/xml", "its own"]
    one.close()


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
    one, out = listen(where), open_sender(where)
    with pytest.raises(Invalid, match=f"{where.name}: {sentence}$"):
        out.send(message, 5)
    out.send(Outgoing(b"fine"), 5)
    assert [message.body for message in drained(one, 1)] == [b"fine"]
    one.close()
    out.close()


# -- servers that end --------------------------------------------------------------------------------------------------


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


def test_a_server_that_is_back_may_not_have_its_queues_at_once(where: Address) -> None:
    """RabbitMQ lets clients in before its queues are there again: played by a queue that is away for a while."""
    wall = Wall()
    out = open_sender(address(f"{wall.url}/{where.name}"))
    listen(where).close()
    out.send(Outgoing(b"before"), 20)

    delete_queue(where.name)
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


def test_a_queue_that_does_not_come_back_is_named_when_the_time_is_up(where: Address) -> None:
    with closing(Wall()) as wall, closing(open_sender(address(f"{wall.url}/{where.name}"))) as out:
        listen(where).close()
        out.send(Outgoing(b"before"), 20)
        delete_queue(where.name)
        wall.cut()

        def said() -> str:
            with pytest.raises(TransportUnavailable) as caught:
                out.send(Outgoing(b"after"), 3)
            return str(caught.value)

        assert "nobody would get it: no queue has this name" in said() + said()  # the first may meet what broke


def _sent_at_last(out: Sender, body: bytes) -> None:
    """The first attempt may meet the connection that broke; no attempt is told that there is no such queue."""
    with suppress(TransportUnavailable):
        out.send(Outgoing(body), 20)
        return
    out.send(Outgoing(body), 20)


def test_a_source_says_so_when_its_queue_is_deleted(where: Address) -> None:
    one = listen(where)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.receive, 10, 5)
        time.sleep(0.2)
        delete_queue(where.name)
        with pytest.raises(TransportUnavailable, match=r": the queue .* was deleted, or moved to another node$"):
            waiting.result()
    one.close()


# -- errors ------------------------------------------------------------------------------------------------------------
def test_a_queue_or_an_exchange_that_is_not_there_cannot_be_sent_to(where: Address) -> None:
    out, other = open_sender(where), open_sender(where._replace(options={"exchange": "hipq-test-none"}))
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
    out = open_sender(where)
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
            for sentence in told(where):
                assert sentence.startswith(f"{where}: {why}")


def test_who_may_not_come_in_is_told_so() -> None:
    host = urlsplit(amqp_url()).netloc.rpartition("@")[2]
    where = address(f"amqp://guest:{PASSWORD}@{host}/a")
    assert told(where) == {f"{where}: {host} does not accept the user or password"}
    where = address(f"{amqp_url()}/hipq-none/a")
    assert told(where) == {f"{where}: {host} ended the connection: NOT_ALLOWED - vhost hipq-none not found"}
    where = address(f"{amqp_url()}/amq.hipq-test")
    with pytest.raises(TransportUnavailable, match=r"the server refuses it: ACCESS_REFUSED - queue name"):
        listen(where)
    where = address(f"amqps://me:{PASSWORD}@{host}/a")
    assert told(where) == {f"{where}: {host} and this program cannot agree on TLS (WRONG_VERSION_NUMBER)"}


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
    for refused in (check, open_sender, listen):
        with pytest.raises(Invalid) as caught:
            refused(where)
        assert str(caught.value) == f"{where}: {sentence}"


def test_the_usual_virtual_host_has_two_names(where: Address) -> None:
    check(address("amqps://me:x@[::1]:5671/vhost/queue?group=g&prefetch=5&exchange=e"))
    one, out = listen(address(f"{amqp_url()}/%2F/{where.name}")), open_sender(where)
    out.send(Outgoing(b"1"), 5)
    assert len(drained(one, 1)) == 1
    one.close()
    out.close()
