"""NATS JetStream, against a real server."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import nats
import pytest
from nats.js import JetStreamContext

from hipq.errors import Invalid, TransportUnavailable
from hipq.transports import check, open_sender, source
from hipq.transports.address import Address, address
from hipq.transports.base import Message, Outgoing, Source, quoted
from hipq.transports.nats import NatsSource
from tests.brokers.nats import OwnNats, nats_url
from tests.transports.checkpoints import Nowhere
from tests.transports.contract import (
    CrashContract,
    GroupContract,
    HangingContract,
    HoldContract,
    LagContract,
    SharingContract,
    StreamContract,
)
from tests.transports.link import PASSWORD, Link, drained, eventually, said


def at(server: str, subject: str, **options: object) -> Address:
    return address(f"{server}/{subject}" + (f"?{urlencode(options)}" if options else ""))


def listen(where: Address, group: str = "shop") -> Source:
    return source(where, group, Nowhere())


def ask(server: str, work: Callable[[JetStreamContext], Any]) -> Any:
    async def asked() -> Any:
        client = await nats.connect(server)
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(asked())


@pytest.fixture
def where() -> Iterator[Address]:
    """A subject that no stream takes yet; the stream that the test makes for it is deleted."""
    subject = f"hipq-test-{uuid4().hex[:12]}.in"
    yield at(nats_url(), subject)
    delete_streams(subject.partition(".")[0])


def told(where: Address) -> set[str]:
    return said(where, Nowhere())


def delete_streams(word: str) -> None:
    """All streams that take subjects with this word."""

    async def delete(js: JetStreamContext) -> None:
        for stream in await js.streams_info():
            if any(word in one for one in stream.config.subjects or []):
                await js.delete_stream(stream.config.name or "")

    ask(nats_url(), delete)


pytestmark = pytest.mark.usefixtures("nothing_left")


class NatsLink(Link):
    ordered_again = False
    drops_odd_headers = True  # 2.9 does not, 2.15 does
    broke = r": the connection broke$"
    gone = Link.gone + "|nats: connection closed"  # a sender may not have noticed yet

    def __init__(self, server: str = "") -> None:
        super().__init__()
        self.server = server or nats_url()
        self.word = f"hipq-test-{uuid4().hex[:12]}"

    def url(self, **options: str) -> str:
        return f"{self.server}/{self.word}.in?{urlencode({'ack_wait': '2', **options})}"

    def received(self, key: str, headers: Mapping[str, str]) -> dict[str, str]:
        """A subject has no key: the key is a header of its own."""
        return {**super().received(key, headers), **({"hipq-key": quoted(key)} if key else {})}

    def put_odd(self) -> list[tuple[bytes, dict[str, str]]]:
        parts, subject = urlsplit(self.server), f"{self.word}.in".encode()
        with socket.create_connection((parts.hostname or "", parts.port or 4222)) as conn:
            conn.sendall(b'CONNECT {"headers": true, "verbose": false, "pedantic": false}\r\n')
            for header in (
                b"NATS/1.0\r\nname: \xff\xfe\r\n\r\n",
                b"NATS/1.0 \xff\xff\xff\r\n\r\n",
                b"NATS/1.0 404\r\n\r\n",
            ):
                conn.sendall(b"HPUB %s %d %d\r\n%spoison\r\n" % (subject, len(header), len(header) + 6, header))
            conn.sendall(b"PING\r\n")
            _until_pong(conn)
        return [
            (b"poison", {"name": "\ufffd\ufffd"}),
            (b"poison", {"hipq-unreadable": "the headers"}),
            (b"poison", {"status": "404"}),
        ]

    def calls_that_break(self, source: Source, messages: Sequence[Message]) -> list[Callable[[], object]]:
        return [partial(source.done, messages), source.lag]

    def close(self) -> None:
        super().close()
        if self.server == nats_url():
            delete_streams(self.word)


class TestContract(
    StreamContract, HoldContract, CrashContract, GroupContract, LagContract, SharingContract, HangingContract
):
    unknown = "not confirmed within 1 s; whether the message was stored is not known"

    kind, server = NatsLink, OwnNats

    @pytest.fixture
    def hanging(self, own: tuple[NatsLink, OwnNats]) -> tuple[NatsLink, Callable[[bool], None]]:
        link, server = own
        return link, server.pause


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_key_in_the_headers_is_left_as_it_is(where: Address) -> None:
    one, out = listen(where), open_sender(where)
    out.send(Outgoing(b"", "partition", {"hipq-key": "mine"}), 5)
    assert one.receive(10, 5)[0].key == "mine"
    one.close()
    out.close()


def test_while_a_transaction_takes_its_time_nobody_else_gets_its_messages(where: Address) -> None:
    where = where._replace(options={"ack_wait": "2"})
    slow, other, out = listen(where), listen(where), open_sender(where)
    out.send(Outgoing(b"1"), 5)
    held = slow.receive(10, 5)
    assert len(held) == 1
    assert other.receive(10, 4.5) == []
    slow.done(held)
    for one in (slow, other, out):
        one.close()


def test_a_group_may_listen_to_several_subjects_of_one_stream(where: Address) -> None:
    word = where.name.partition(".")[0]
    everything = listen(where._replace(name=f"{word}.>"))  # this makes the stream
    ins, outs = listen(where), listen(where._replace(name=f"{word}.out"))
    for name in ("in", "out"):
        out = open_sender(where._replace(name=f"{word}.{name}"))
        out.send(Outgoing(name.encode()), 5)
        out.close()
    assert [message.body for message in drained(ins, 1)] == [b"in"]
    assert [message.body for message in drained(outs, 1)] == [b"out"]
    assert [message.subject for message in drained(everything, 2)] == [f"{word}.in", f"{word}.out"]
    assert ins.receive(10, 0.2) == []
    for one in (everything, ins, outs):
        one.close()


def test_a_message_sent_for_a_pull_while_its_source_closes_is_given_back_at_once(
    where: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, out = listen(where), open_sender(where)
    assert one.receive(10, 0) == []
    assert isinstance(one, NatsSource)
    client, late = one._connection.client, list[Any]()
    process = client._process_msg

    async def after_the_confirmation(sid: int, *message: Any) -> None:
        """As a busy server does: it confirms the end of a subscription, and then sends what it had picked for it."""
        if sid == one._subscription._id:
            late.append(message)
            return
        while late:
            await process(one._subscription._id, *late.pop(0))
        await process(sid, *message)

    monkeypatch.setattr(client, "_process_msg", after_the_confirmation)
    out.send(Outgoing(b"1"), 5)
    eventually(lambda: len(late), 1)
    one.close()
    with closing(listen(where)) as other:
        assert [message.body for message in drained(other, 1, seconds=5)] == [b"1"]
    out.close()


# -- bad messages ------------------------------------------------------------------------------------------------------
def test_a_subject_that_is_not_text_does_not_stop_the_stream(where: Address) -> None:
    word = where.name.partition(".")[0]
    one, out = listen(where._replace(name=f"{word}.>")), open_sender(where)
    parts = urlsplit(nats_url())
    with socket.create_connection((parts.hostname or "", parts.port or 4222)) as conn:
        conn.sendall(b"CONNECT {}\r\nPUB %s.\xff 6\r\npoison\r\nPING\r\n" % word.encode())
        _until_pong(conn)
    out.send(Outgoing(b"fine"), 5)
    assert [(message.body, message.subject) for message in drained(one, 2)] == [
        (b"poison", f"{word}.\ufffd"),
        (b"fine", where.name),
    ]
    one.close()
    out.close()


def _until_pong(conn: socket.socket) -> None:
    conn.settimeout(5)
    answer = b""
    while b"PONG" not in answer:
        answer += conn.recv(4096)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (Outgoing(b"x" * (2 << 20)), "are too many: the server's max_payload is 1048576"),
        (Outgoing(b"x" * ((1 << 20) - 20), "a key of some length"), "are too many: the server's max_payload is"),
        (Outgoing(b"", "", {"x": "two\nlines"}), "the header 'x' starts or ends with a space, or has several lines"),
        (Outgoing(b"", "", {"a b": "c"}), "a header has characters that NATS cannot carry"),
    ],
    ids=["too big", "too big with headers", "two lines", "header name"],
)
def test_what_nats_cannot_carry_is_refused(where: Address, message: Outgoing, sentence: str) -> None:
    one, out = listen(where), open_sender(where)
    with pytest.raises(Invalid, match=f"^{where}: .*{sentence}"):
        out.send(message, 5)
    out.send(Outgoing(b"fine"), 5)
    assert [message.body for message in drained(one, 1)] == [b"fine"]
    one.close()
    out.close()


# -- servers that end --------------------------------------------------------------------------------------------------


def test_a_source_says_so_when_its_consumer_is_deleted(where: Address) -> None:
    one = listen(where)

    async def delete(js: JetStreamContext) -> None:
        stream = await js.find_stream_name_by_subject(where.name)
        (consumer,) = await js.consumers_info(stream)
        await js.delete_consumer(stream, consumer.name)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.receive, 10, 5)
        time.sleep(0.2)
        ask(nats_url(), delete)
        with pytest.raises(TransportUnavailable, match=r"does not deliver any more \(Consumer Deleted\)$"):
            waiting.result()
    one.close()


# -- errors ------------------------------------------------------------------------------------------------------------
def test_a_subject_without_a_stream_cannot_be_sent_to(where: Address) -> None:
    out = open_sender(where)
    with pytest.raises(TransportUnavailable, match=f"^{where}: no JetStream stream takes subject {where.name}: create"):
        out.send(Outgoing(b""), 5)
    listen(where).close()
    out.send(Outgoing(b""), 5)
    out.close()


def test_a_stream_that_is_named_must_be_there_and_take_the_subject(where: Address) -> None:
    named = where._replace(options={"stream": "hipq-test-none"})
    with pytest.raises(TransportUnavailable, match=f"^{where}: there is no stream hipq-test-none: create it"):
        listen(named)
    listen(where).close()
    out = open_sender(named)
    with pytest.raises(TransportUnavailable, match=f"^{where}: the stream did not take it: expected stream does not"):
        out.send(Outgoing(b""), 5)
    out.close()


def test_who_may_not_come_in_and_who_may_not_send_is_told_so() -> None:
    settings = (
        f'authorization {{ users: [ {{ user: me, password: "{PASSWORD}" }}, '
        f'{{ user: guest, password: "{PASSWORD}", permissions: {{ publish: "other", subscribe: ">" }} }} ] }}'
    )
    with OwnNats(settings) as server:
        host = urlsplit(server.url).netloc
        out = open_sender(address(f"nats://me:{PASSWORD}@{host}/orders"))
        listen(address(f"nats://me:{PASSWORD}@{host}/orders")).close()
        out.send(Outgoing(b""), 5)
        out.close()
        for login in (f"me:wrong-{PASSWORD}@", f"nobody:{PASSWORD}@", ""):
            where = address(f"nats://{login}{host}/orders")
            assert told(where) == {f"{where}: {host} does not accept the user, password or token"}
        token = address(f"nats://{host}/orders?token=wrong-{PASSWORD}")
        assert told(token) == {f"{token}: {host} does not accept the user, password or token"}
        guest = address(f"nats://guest:{PASSWORD}@{host}/orders")
        sentences = told(guest)
        assert f'{guest}: its user has no permission (permissions violation for publish to "orders")' in sentences
        assert all("has no permission" in sentence for sentence in sentences)


def test_a_token_lets_in_and_tls_is_not_given_up() -> None:
    with OwnNats(f"authorization {{ token: {PASSWORD} }}") as server:
        listen(at(server.url, "orders", token=PASSWORD)).close()
        with pytest.raises(
            Invalid, match=r"orders: the server does not insist on TLS, so that tls=true cannot be had$"
        ):
            listen(at(server.url, "orders", token=PASSWORD, tls="true"))
    with OwnNats(f'authorization {{ user: me, password: "{PASSWORD}" }}') as server:
        host = urlsplit(server.url).netloc
        with pytest.raises(Invalid, match=r"orders: the server does not insist on TLS"):
            listen(address(f"nats://me:{PASSWORD}@{host}/orders?tls=true"))


@pytest.mark.parametrize(("login", "options"), [(f"me:{PASSWORD}@", "tls=true"), ("", f"tls=true&token={PASSWORD}")])
def test_a_password_is_not_given_to_a_server_without_tls(login: str, options: str) -> None:
    heard = []

    def serve(listener: socket.socket) -> None:
        conn = listener.accept()[0]
        with conn:
            conn.sendall(b'INFO {"version": "2.10.0", "max_payload": 1024, "headers": true, "auth_required": true}\r\n')
            while data := conn.recv(4096):
                heard.append(data)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve, listener)
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(Invalid, match="does not insist on TLS"):
            listen(address(f"nats://{login}{host}/orders?{options}"))
        with suppress(ConnectionResetError):
            serving.result(30)
    assert PASSWORD.encode() not in b"".join(heard)


def test_a_server_without_jetstream_is_told_apart() -> None:
    with OwnNats("accounts: { PLAIN: { users: [ { user: me, password: x } ] } }\nno_auth_user: me") as server:
        where = at(server.url, "orders")
        with pytest.raises(TransportUnavailable, match=r"has no JetStream for this account"):
            listen(where)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("nats://a?durable=x", "there is no option 'durable'; there are ack_wait, group, stream, tls, token"),
        ("nats://a?ack_wait=0", "ack_wait must be a whole number from 1 to 86400, not '0'"),
        ("nats://a?tls=yes", "tls must be true or false, not 'yes'"),
        ("nats://me:x@h/a?token=t", "a token and a user are one too many"),
        ("nats://a?stream=a.b", "'a.b' is no name of a stream"),
        ("nats://a..b", "'a..b' is no subject; one looks like payments.in"),
        ("nats://a.>.b", "'a.>.b' is no subject; one looks like payments.in"),
        ("nats://a.b*", "'a.b*' is no subject; one looks like payments.in"),
        ("nats://a%20b", "'a b' is no subject; one looks like payments.in"),
        ("nats://h:99999/a", "'h:99999' is no server; one looks like server:4222"),
        ("nats://h,,i/a", "'' is no server; one looks like server:4222"),
    ],
)
def test_a_url_that_can_never_work_is_refused(url: str, sentence: str) -> None:
    where = address(url)
    for refused in (check, open_sender, listen):
        with pytest.raises(Invalid) as caught:
            refused(where)
        assert str(caught.value) == f"{where}: {sentence}"


def test_a_url_may_name_several_subjects_to_listen_to_and_one_to_send_to() -> None:
    check(address("nats://h1:1,h2,[::1]:4/a.*.b.>?group=g&stream=S&ack_wait=2&tls=true&token=t"))
    with pytest.raises(Invalid, match=r"messages are sent to one subject, without \* and >$"):
        open_sender(address("nats://a.*"))
