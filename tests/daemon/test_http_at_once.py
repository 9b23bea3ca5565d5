"""Requests that are taken at once, beside those that are not: replies stay in order, and no bytes are mixed up."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from hipq.daemon.http import fast_protocol
from hipq.daemon.http.add import Head
from hipq.daemon.http.fast_protocol import AtOnceProtocol
from hipq.daemon.http.reply import Reply, sentence
from hipq.daemon.tenancy.tenants import Known
from tests.daemon.test_http_protocol import echo, parsed, until_closed


class Taking:
    """Takes what is posted to /now, and replies a moment later; `heads` are those it was asked for."""

    def __init__(self) -> None:
        self.heads = 0
        self.bodies: list[bytes] = []
        self.types: list[str] = []
        self.takes = True
        self.status = 200
        self.seconds = 0.01

    def head(self, url: bytes, headers: list[tuple[bytes, bytes]]) -> Head | None:
        self.heads += 1
        said = dict(headers)
        if url != b"/now" or b"content-length" not in said:
            return None
        return Head("acme", said.get(b"x-type", b"").decode(), "", Known({}, {}))

    def take(self, head: Head, body: bytes, reply: Callable[[Reply], None]) -> bool:
        if self.takes:
            self.bodies.append(body)
            self.types.append(head.jobtype)
            text = {"path": "at once", "size": len(body)}
            said = Reply(200, json.dumps(text).encode(), bare=True) if self.status == 200 else sentence(507, "full")
            asyncio.get_running_loop().call_later(self.seconds, reply, said)
        return self.takes


class App:
    def __init__(self) -> None:
        self.adding = Taking()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/early":  # it does not wait for the body
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"18")]})
            await send({"type": "http.response.body", "body": b'{"path": "/early"}'})
            return
        await echo(scope, receive, send)


class Server:
    def __init__(self) -> None:
        self.app = App()
        listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = listening.getsockname()[1]
        config = uvicorn.Config(
            self.app, http=AtOnceProtocol, lifespan="off", log_config=None, access_log=False, ws="none",
            proxy_headers=False,
        )  # fmt: skip
        self.uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(target=self.uvicorn.run, kwargs={"sockets": [listening]})
        self._thread.start()

    def stop(self) -> None:
        self.uvicorn.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def said(self, *pieces: bytes) -> list[tuple[int, str, int]]:
        """Status, path and size of each reply to these pieces, sent one by one; the last of them must end it."""
        with self.connect() as link:
            for number, piece in enumerate(pieces):
                if number:
                    time.sleep(0.03)  # so that they come apart: if they do not, the replies are the same
                link.sendall(piece)
            return [(status, said.get("path", ""), said.get("size", 0)) for status, said in parsed(until_closed(link))]

    def sizes(self, *pieces: bytes) -> list[int]:
        """Whichever way they went."""
        found = self.said(*pieces)
        assert {status for status, _, _ in found} == {200}
        return [size for _, _, size in found]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(fast_protocol, "BODY_SECONDS", 60.0)  # on a busy machine the rest of a body may be late
    found = Server()
    yield found
    found.stop()


def post(body: bytes, path: str = "/now", *lines: str, version: str = "1.1") -> bytes:
    head = [f"POST {path} HTTP/{version}", "Host: x", f"Content-Length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode() + body


LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
NOW = (200, "at once")
THE_END = (200, "/last", 0)


def test_a_request_that_came_whole_is_taken_and_its_head_is_read_once(server: Server) -> None:
    with server.connect() as link:
        bodies = [b"abc", b"def", b"", b"g" * 1000, b"h"]
        for body in bodies:
            link.sendall(post(body, "/now", "X-Type: a"))
            found = link.recv(65536)
            assert parsed(found) == [(200, {"path": "at once", "size": len(body)})]
            assert b"\r\ndate: " in found
        assert server.app.adding.heads == 1
        link.sendall(post(b"i", "/now", "X-Type: b"))
        assert parsed(link.recv(65536)) == [(200, {"path": "at once", "size": 1})]
    assert server.app.adding.heads == 2
    assert server.app.adding.bodies == [*bodies, b"i"]
    assert server.app.adding.types == ["a"] * 5 + ["b"]


def test_a_head_is_not_taken_for_that_of_a_request_behind_it(server: Server) -> None:
    first, second = post(b"1", "/now", "X-Type: a"), post(b"2", "/now", "X-Type: b")
    with server.connect() as link:
        link.sendall(post(b"0", "/usual") + second)
        while len(parsed(link.recv(65536, socket.MSG_PEEK))) < 2:
            time.sleep(0.005)
        link.recv(65536)
        for text in (first, second, post(b"0", "/usual"), first):
            link.sendall(text)
            assert parsed(link.recv(65536))
    assert server.app.adding.types == ["a", "b", "a"], "that behind another went the usual way"


def test_replies_are_in_order_however_requests_come_together(server: Server) -> None:
    """With and without heads that are remembered: the first round and the second."""
    server.app.adding.seconds = 0.1
    for _ in range(2):
        text = post(b"a") + post(b"bb", "/usual") + post(b"ccc") + post(b"dddd") + LAST
        assert server.said(text) == [
            (*NOW, 1), (200, "/usual", 2), (200, "/now", 3), (200, "/now", 4), THE_END,
        ]  # fmt: skip
        assert server.sizes(post(b"eeeee"), post(b"ffffff") + post(b"g", "/usual"), LAST) == [5, 6, 1, 0]


def test_a_request_may_come_in_pieces(server: Server) -> None:
    whole = post(b"abcdef")
    for cut in (1, 10, len(whole) - 7, len(whole) - 6, len(whole) - 5, len(whole) - 1):
        assert server.said(whole[:cut], whole[cut:], LAST) == [(*NOW, 6), THE_END], cut
        assert server.sizes(whole, whole[:cut], whole[cut:], LAST) == [6, 6, 0], cut  # a head that is known
        assert server.sizes(whole[:cut], whole[cut:] + whole, LAST) == [6, 6, 0], cut
    assert set(server.app.adding.bodies) == {b"abcdef"}


def test_a_body_that_takes_its_time_goes_the_usual_way(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_protocol, "BODY_SECONDS", 0.001)
    monkeypatch.setattr(AtOnceProtocol, "head_seconds", 1.5)
    whole = post(b"abcdef")
    with server.connect() as link:
        link.sendall(whole[:-4])
        time.sleep(2.0)  # longer than a head may take: a body may
        link.sendall(whole[-4:])
        assert parsed(link.recv(65536)) == [(200, {"path": "/now", "headers": 2, "size": 6})]
    assert not server.app.adding.bodies


def test_who_goes_before_the_body_has_come_leaves_nothing_behind(server: Server) -> None:
    link = server.connect()
    link.sendall(post(b"abcdef")[:-3])
    time.sleep(0.03)
    link.close()
    assert server.said(post(b"abc"), LAST) == [(*NOW, 3), THE_END]
    assert server.app.adding.bodies == [b"abc"]


def test_a_head_with_other_line_ends_is_parsed_each_time(server: Server) -> None:
    """Where it ends is for the parser to say: what looks like its end may be in the body."""
    strange = b"POST /now HTTP/1.1\nHost: x\nContent-Length: 8\n\nab\r\n\r\ncd"
    with server.connect() as link:
        for _ in range(3):
            link.sendall(strange)
            found = parsed(link.recv(65536))
            if found[0][0] == 400:
                break  # a parser that is as strict as that will do
            assert found == [(200, {"path": "at once", "size": 8})]
    assert set(server.app.adding.bodies) <= {b"ab\r\n\r\ncd"}
    assert server.app.adding.heads == len(server.app.adding.bodies)


KNOWN = post(b"abc")


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (b"GET /usual HTTP/1.1\r\nHost: x\r\nX: ", (200, "/usual")),
        (b"P", (400, None)),
        (b"POST /usual HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(KNOWN), (200, "/usual")),
        (b"POST /early HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(KNOWN), (200, "/early")),
    ],
    ids=["in a head", "in a method", "in a body", "in a body that was replied to"],
)
def test_a_known_head_is_none_where_no_request_begins(
    server: Server, before: bytes, said: tuple[int, str | None]
) -> None:
    with server.connect() as link:
        link.sendall(KNOWN)
        assert parsed(link.recv(65536)) == [(200, {"path": "at once", "size": 3})]
        link.sendall(before)
        if b"early" in before:
            assert b'"/early"' in link.recv(65536)
        time.sleep(0.03)
        link.sendall(KNOWN)
        if b"early" not in before:
            ((status, told),) = parsed(link.recv(65536))
            assert (status, told.get("path")) == said
        if said[0] == 200:  # what follows is read as if nothing had been
            link.sendall(LAST)
            assert [told["path"] for _, told in parsed(until_closed(link))] == ["/last"]
    assert server.app.adding.bodies == [b"abc"]


def test_what_is_not_taken_goes_the_usual_way_and_is_whole(server: Server) -> None:
    assert server.said(post(b"abc"), LAST) == [(*NOW, 3), THE_END]
    server.app.adding.takes = False
    assert server.said(post(b"abc"), post(b"abc") + post(b"abcd") + LAST) == [
        (200, "/now", 3), (200, "/now", 3), (200, "/now", 4), THE_END,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        post(b"abc", "/now", "Connection: close"),
        post(b"abc", version="1.0"),
        b"POST /now HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"PUT /now HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
    ],
    ids=["close", "1.0", "chunked", "PUT"],
)
def test_what_is_unusual_goes_the_usual_way(server: Server, text: bytes) -> None:
    assert server.said(text) == [(200, "/now", 3)]
    assert not server.app.adding.bodies


def test_a_refusal_is_said_with_all_its_headers(server: Server) -> None:
    server.app.adding.status = 507
    with server.connect() as link:
        link.sendall(post(b"abc"))
        found = link.recv(65536)
        assert found.startswith(b"HTTP/1.1 507 Insufficient Storage\r\n")
        assert b"\r\ncache-control: no-store\r\n" in found
        assert parsed(found) == [(507, {"error": "full"})]
        link.sendall(LAST)
        assert parsed(until_closed(link))[0][1]["path"] == "/last"


def test_who_has_gone_is_not_waited_for(server: Server) -> None:
    server.app.adding.seconds = 0.2
    link = server.connect()
    link.sendall(post(b"abc"))
    link.close()
    assert server.said(post(b"abc"), LAST) == [(*NOW, 3), THE_END]


def test_a_stopping_server_replies_first(server: Server) -> None:
    server.app.adding.seconds = 1.0
    with server.connect() as link:
        link.sendall(post(b"abc"))
        until = time.monotonic() + 60
        while not server.app.adding.bodies:
            assert time.monotonic() < until
            time.sleep(0.005)
        server.stop()
        found = until_closed(link)
    assert parsed(found) == [(200, {"path": "at once", "size": 3})]
    assert b"connection: close" in found


def test_rubbish_behind_a_request_ends_the_connection(server: Server) -> None:
    for _ in range(2):
        with server.connect() as link:
            link.sendall(post(b"abc") + b"\x00\x01rubbish\r\n\r\n")
            assert [status for status, _ in parsed(until_closed(link))] in ([200], [200, 400])
        assert server.said(post(b"abc"), LAST) == [(*NOW, 3), THE_END]


@pytest.mark.parametrize("sent", [KNOWN, KNOWN + KNOWN, KNOWN[:-1]], ids=["one", "two", "half a body"])
def test_who_sends_no_more_hears_what_is_still_to_come(
    server: Server, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    server.app.adding.seconds = 0.1
    with server.connect() as link:
        link.sendall(sent)
        link.shutdown(socket.SHUT_WR)
        found = until_closed(link)
    assert [(status, told["size"]) for status, told in parsed(found)] == [(200, 3)] * (len(sent) // len(KNOWN))
    if sent == KNOWN:  # behind it nothing is read before it is replied to: there it is not known that no more comes
        assert b"connection: close" in found
    assert not [record for record in caplog.records if record.exc_info], caplog.text


def test_who_hangs_up_after_a_reply_is_no_surprise(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        with server.connect() as link:
            for _ in range(2):
                link.sendall(KNOWN)
                assert parsed(link.recv(65536)) == [(200, {"path": "at once", "size": 3})]
            link.shutdown(socket.SHUT_WR)
            assert until_closed(link) == b""
    assert not [record for record in caplog.records if record.exc_info], caplog.text
