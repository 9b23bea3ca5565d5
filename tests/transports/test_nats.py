"""NATS JetStream, against a real server."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import nats
import pytest
from nats.js import JetStreamContext

from hipq.errors import Invalid, TransportError, TransportUnavailable
from hipq.transports.address import Address, address
from hipq.transports.base import Message, Outgoing
from hipq.transports.nats import NatsSource, check, sender, source
from tests.brokers.nats import OwnNats, nats_url
from tests.transports.checkpoints import Nowhere
from tests.transports.quickly import check_quick

PASSWORD = "s3cret-pass"


def at(server: str, subject: str, **options: object) -> Address:
    return address(f"{server}/{subject}" + (f"?{urlencode(options)}" if options else ""))


def listen(where: Address, group: str = "shop") -> NatsSource:
    return source(where, group, Nowhere())


def ask(server: str, work: Callable[[JetStreamContext], Any]) -> Any:
    async def asked() -> Any:
        client = await nats.connect(server)
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(asked())


def drained(one: NatsSource, count: int, most: int = 1000, seconds: float = 30) -> list[Message]:
    """So many messages, acknowledged."""
    found: list[Message] = []
    until = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < until:
        some = one.receive(most, 0.2)
        one.done(some)
        found += some
    return found


def lag(one: NatsSource, expected: int) -> int | None:
    """The server counts acknowledgements a moment after it has them."""
    until = time.monotonic() + 30
    while one.lag() != expected and time.monotonic() < until:
        time.sleep(0.02)
    return one.lag()


@pytest.fixture
def where() -> Iterator[Address]:
    """A subject that no stream takes yet; the stream that the test makes for it is deleted."""
    subject = f"hipq-test-{uuid4().hex[:12]}.in"
    yield at(nats_url(), subject)

    async def delete(js: JetStreamContext) -> None:
        for stream in await js.streams_info():
            if any(subject.partition(".")[0] in one for one in stream.config.subjects or []):
                await js.delete_stream(stream.config.name or "")

    ask(nats_url(), delete)


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
    out.send(Outgoing(b"%", "50%25off"), 5)
    (odd,) = drained(one, 1)
    assert odd.key == "50%25off"
    out.send(Outgoing(body, "key ü 1", {"Traceparent": "00-1", "hipq-job": "7"}), 5)
    (message,) = one.receive(10, 5)
    assert (message.body, message.key, message.subject) == (body, "key ü 1", where.name)
    assert message.headers == {"traceparent": "00-1", "hipq-job": "7", "hipq-key": "key %C3%BC 1"}
    assert message.id.isprintable()
    assert len(message.id) < 300
    one.close()
    out.close()


def test_a_key_in_the_headers_is_left_as_it_is(where: Address) -> None:
    one, out = listen(where), sender(where)
    out.send(Outgoing(b"", "partition", {"hipq-key": "mine"}), 5)
    assert one.receive(10, 5)[0].key == "mine"
    one.close()
    out.close()


def test_what_was_not_acknowledged_comes_to_another_at_once_with_the_same_id(where: Address) -> None:
    first, out = listen(where), sender(where)
    for number in range(6):
        out.send(Outgoing(b"%d" % number), 5)
    got: list[Message] = []
    while len(got) < 6:
        got += first.receive(6, 5)
    first.done(got[:2])
    first.close()
    second = listen(where)
    started = time.monotonic()
    again = drained(second, 4)
    assert time.monotonic() - started < 20, "ack_wait is 30 s"
    assert {message.id: message.body for message in again} == {message.id: message.body for message in got[2:]}
    assert second.receive(10, 0.3) == []
    second.close()
    out.close()


def test_what_a_killed_process_held_comes_again_after_ack_wait(where: Address) -> None:
    where = where._replace(options={"ack_wait": "2"})
    one, out = listen(where), sender(where)
    for number in range(4):
        out.send(Outgoing(b"%d" % number), 5)
    program = (
        "import sys, time\n"
        "from hipq.transports.address import address\n"
        "from hipq.transports.nats import source\n"
        "one = source(address(sys.argv[1]), 'shop', None)\n"
        "got = []\n"
        "while len(got) < 4: got += one.receive(4, 5)\n"
        "one.done(got[:1])\n"
        "print(*(message.id for message in got), flush=True)\n"
        "time.sleep(60)\n"
    )
    url = f"nats://{where.hosts}/{where.name}?ack_wait=2"
    child = subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    ids = child.stdout.readline().split()
    child.kill()
    child.wait()
    child.stdout.close()
    assert len(ids) == 4
    assert sorted(message.id for message in drained(one, 3)) == sorted(ids[1:])
    assert one.receive(10, 0.3) == []
    one.close()
    out.close()


def test_while_a_transaction_takes_its_time_nobody_else_gets_its_messages(where: Address) -> None:
    where = where._replace(options={"ack_wait": "2"})
    slow, other, out = listen(where), listen(where), sender(where)
    out.send(Outgoing(b"1"), 5)
    held = slow.receive(10, 5)
    assert len(held) == 1
    assert other.receive(10, 4.5) == []
    slow.done(held)
    for one in (slow, other, out):
        one.close()


def test_messages_come_in_the_order_they_were_sent(where: Address) -> None:
    one, out = listen(where), sender(where)
    for number in range(300):
        out.send(Outgoing(b"%d" % number), 5)
    assert [int(message.body) for message in drained(one, 300, most=70)] == list(range(300))
    one.close()
    out.close()


def test_two_of_a_group_share_and_another_group_sees_everything(where: Address) -> None:
    both, other, out = [listen(where), listen(where)], listen(where, "another group"), sender(where)
    bodies = {b"%d" % number for number in range(200)}
    for body in bodies:
        out.send(Outgoing(body), 5)
    seen: list[list[Message]] = [[], []]
    until = time.monotonic() + 30
    while sum(map(len, seen)) < 200 and time.monotonic() < until:
        for one, mine in zip(both, seen, strict=True):
            some = one.receive(20, 0.1)
            one.done(some)
            mine += some
    assert all(seen)
    assert sorted(message.body for mine in seen for message in mine) == sorted(bodies)
    assert {message.body for message in drained(other, 200)} == bodies
    for one in (*both, other):
        one.close()
    out.close()


def test_a_group_may_listen_to_several_subjects_of_one_stream(where: Address) -> None:
    word = where.name.partition(".")[0]
    everything = listen(where._replace(name=f"{word}.>"))  # this makes the stream
    ins, outs = listen(where), listen(where._replace(name=f"{word}.out"))
    for name in ("in", "out"):
        out = sender(where._replace(name=f"{word}.{name}"))
        out.send(Outgoing(name.encode()), 5)
        out.close()
    assert [message.body for message in drained(ins, 1)] == [b"in"]
    assert [message.body for message in drained(outs, 1)] == [b"out"]
    assert [message.subject for message in drained(everything, 2)] == [f"{word}.in", f"{word}.out"]
    assert ins.receive(10, 0.2) == []
    for one in (everything, ins, outs):
        one.close()


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
    one, out = listen(where), sender(where)
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda number: out.send(Outgoing(b"%d" % number), 10), range(2000)))
    batches: list[Sequence[Message]] = []
    until = time.monotonic() + 30
    while sum(len(batch) for batch in batches) < 2000 and time.monotonic() < until:
        batches.append(one.receive(1000, 1))
        one.done(batches[-1])
    assert sorted(int(message.body) for batch in batches for message in batch) == list(range(2000))
    assert 200 <= max(len(batch) for batch in batches) <= 1000
    one.close()
    out.close()


def test_who_does_not_acknowledge_gets_no_more_and_leaves_the_rest_to_others(where: Address) -> None:
    greedy, other, out = listen(where), listen(where), sender(where)
    for number in range(100):
        out.send(Outgoing(b"%d" % number), 5)
    held: list[Message] = []
    while len(held) < 10:
        held += greedy.receive(10, 5)
    assert greedy.receive(10, 0.3) == []
    assert len(drained(other, 90)) == 90
    greedy.done(held)
    assert lag(greedy, 0) == 0
    for one in (greedy, other, out):
        one.close()


def test_lag_counts_what_nobody_has_acknowledged(where: Address) -> None:
    one, out = listen(where), sender(where)
    assert one.lag() == 0
    for _ in range(5):
        out.send(Outgoing(b"1"), 5)
    assert one.lag() == 5
    held: list[Message] = []
    while len(held) < 3:
        held += one.receive(3, 5)
    assert one.lag() == 5
    one.done(held)
    assert lag(one, 2) == 2
    one.close()
    out.close()


# -- bad messages ------------------------------------------------------------------------------------------------------
def test_messages_that_the_library_cannot_decode_do_not_stop_the_stream(where: Address) -> None:
    word = where.name.partition(".")[0]
    one, out = listen(where._replace(name=f"{word}.>")), sender(where)
    parts = urlsplit(nats_url())
    with socket.create_connection((parts.hostname or "", parts.port or 4222)) as conn:
        conn.sendall(b'CONNECT {"headers": true, "verbose": false, "pedantic": false}\r\n')
        for header in (
            b"NATS/1.0\r\nname: \xff\xfe\r\n\r\n",
            b"NATS/1.0 \xff\xff\xff\r\n\r\n",
            b"NATS/1.0 404\r\n\r\n",
        ):
            body = b"poison"
            subject = where.name.encode()
            conn.sendall(b"HPUB %s %d %d\r\n%s%s\r\n" % (subject, len(header), len(header + body), header, body))
        conn.sendall(b"PUB %s.\xff 6\r\npoison\r\nPING\r\n" % word.encode())
        conn.settimeout(5)
        answer = b""
        while b"PONG" not in answer:
            answer += conn.recv(4096)
    out.send(Outgoing(b"fine"), 5)
    found = drained(one, 5)
    assert [message.body for message in found] == [b"poison"] * 4 + [b"fine"]
    assert found[0].headers == {"name": "\ufffd\ufffd"}
    assert found[3].subject == f"{word}.\ufffd"
    assert len({message.id for message in found}) == 5
    one.close()
    out.close()


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
    one, out = listen(where), sender(where)
    with pytest.raises(Invalid, match=f"^{where}: .*{sentence}"):
        out.send(message, 5)
    out.send(Outgoing(b"fine"), 5)
    assert [message.body for message in drained(one, 1)] == [b"fine"]
    one.close()
    out.close()


# -- servers that end --------------------------------------------------------------------------------------------------
def test_after_a_restart_nothing_confirmed_is_lost_and_nothing_unconfirmed_is_sent_later() -> None:
    with OwnNats() as server:
        where = at(server.url, "orders", ack_wait=1)
        one, out = listen(where), sender(where)
        confirmed = set()
        for number in range(20):
            out.send(Outgoing(b"%d" % number), 5)
            confirmed.add(b"%d" % number)
        kept = one.receive(5, 5)
        one.done(kept)
        server.stop()
        with pytest.raises(TransportUnavailable, match=r"orders: the connection broke$"):
            one.receive(5, 5)
        with pytest.raises(TransportUnavailable, match=r"orders: the connection broke$"):
            one.done(kept)
        with pytest.raises(TransportUnavailable, match=r"orders: the connection broke$"):
            one.lag()
        one.close()
        started = time.monotonic()
        gone = r"nobody listens at 127.0.0.1:\d+ \(connection refused\)$|nats: connection closed"
        with pytest.raises(TransportUnavailable, match=gone):  # it may not have noticed yet
            out.send(Outgoing(b"never"), 2)
        assert time.monotonic() - started < 15
        server.start()
        out.send(Outgoing(b"after"), 5)
        again = listen(where)
        rest = {message.body for message in drained(again, 16 + len(kept), seconds=3)}
        assert {message.body for message in kept} | rest == confirmed | {b"after"}
        again.close()
        out.close()


def test_what_a_hanging_server_did_not_take_in_time_is_not_sent_when_it_goes_on() -> None:
    with OwnNats() as server:
        where = at(server.url, "orders")
        one, out = listen(where), sender(where)
        out.send(Outgoing(b"1"), 5)
        server.pause()

        def send(number: int) -> str:
            with pytest.raises(TransportUnavailable) as caught:
                out.send(Outgoing(b"x" * 1_000_000, str(number)), 1)
            return str(caught.value)

        started = time.monotonic()
        with ThreadPoolExecutor(20) as pool:  # more than the system's buffers hold
            said = set(pool.map(send, range(20)))
        assert time.monotonic() - started < 15
        assert f"{where}: no receipt within 1 s; whether the message was stored is not known" in said
        server.pause(False)
        out.send(Outgoing(b"2"), 5)
        bodies: list[bytes] = []
        until = time.monotonic() + 60
        while b"2" not in bodies and time.monotonic() < until:
            bodies += [message.body[:1] for message in drained(one, 1, seconds=1)]
        bodies += [message.body[:1] for message in drained(one, 20, seconds=1)]
        assert bodies.count(b"x") < 15
        assert bodies[-1] == b"2"
        one.close()
        out.close()


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
    out = sender(where)
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
    out = sender(named)
    with pytest.raises(TransportUnavailable, match=f"^{where}: the stream did not take it: expected stream does not"):
        out.send(Outgoing(b""), 5)
    out.close()


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{taken.getsockname()[1]}"
        for url, why in (
            (f"nats://{server}/a", f"nobody listens at {server} (connection refused)"),
            (f"nats://me:{PASSWORD}@{server},{server}/a", f"nobody listens at {server},{server} (connection refused)"),
            (
                "nats://no.such.host.invalid/a",
                "there is no host no.such.host.invalid, or its name cannot be looked up now",
            ),
        ):
            where = address(url)
            said = _said(where)
            assert said == {f"{where}: {why}"}


def test_who_may_not_come_in_and_who_may_not_send_is_told_so() -> None:
    settings = (
        f'authorization {{ users: [ {{ user: me, password: "{PASSWORD}" }}, '
        f'{{ user: guest, password: "{PASSWORD}", permissions: {{ publish: "other", subscribe: ">" }} }} ] }}'
    )
    with OwnNats(settings) as server:
        host = urlsplit(server.url).netloc
        out = sender(address(f"nats://me:{PASSWORD}@{host}/orders"))
        listen(address(f"nats://me:{PASSWORD}@{host}/orders")).close()
        out.send(Outgoing(b""), 5)
        out.close()
        for login in (f"me:wrong-{PASSWORD}@", f"nobody:{PASSWORD}@", ""):
            where = address(f"nats://{login}{host}/orders")
            assert _said(where) == {f"{where}: {host} does not accept the user, password or token"}
        token = address(f"nats://{host}/orders?token=wrong-{PASSWORD}")
        assert _said(token) == {f"{token}: {host} does not accept the user, password or token"}
        guest = address(f"nats://guest:{PASSWORD}@{host}/orders")
        said = _said(guest)
        assert f'{guest}: its user has no permission (permissions violation for publish to "orders")' in said
        assert all("has no permission" in sentence for sentence in said)


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
    for refused in (check, sender, listen):
        with pytest.raises(Invalid) as caught:
            refused(where)
        assert str(caught.value) == f"{where}: {sentence}"


def test_a_url_may_name_several_subjects_to_listen_to_and_one_to_send_to() -> None:
    check(address("nats://h1:1,h2,[::1]:4/a.*.b.>?group=g&stream=S&ack_wait=2&tls=true&token=t"))
    with pytest.raises(Invalid, match=r"messages are sent to one subject, without \* and >$"):
        sender(address("nats://a.*"))


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
