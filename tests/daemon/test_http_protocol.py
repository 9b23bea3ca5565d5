"""HTTP with bounds: a head that is too large, has too many lines, or never ends; and what is no HTTP at all."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from hipq.daemon.http import protocol
from hipq.daemon.http.connections import RESERVED, Connections, raise_descriptors
from hipq.daemon.http.protocol import HEAD_BYTES, HEAD_LINES, BoundedProtocol

Head = list[str]


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Replies with what it has got."""
    assert scope["type"] == "http"
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            break
    if scope["path"] == "/never":
        await receive()  # until it has gone
        return
    text = json.dumps({"path": scope["path"], "headers": len(scope["headers"]), "size": len(body)}).encode()
    length = (b"content-length", b"%d" % len(text))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": text})


class Impatient(BoundedProtocol):
    head_seconds = 0.5


class LessImpatient(BoundedProtocol):
    """For requests that must come in time, on a busy machine too."""

    head_seconds = 2.0


class Server:
    def __init__(self, protocol: type[BoundedProtocol]) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = listening.getsockname()[1]
        config = uvicorn.Config(echo, http=protocol, lifespan="off", log_config=None, access_log=False, ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]})
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def replies(self, text: bytes) -> list[tuple[int, Any]]:
        """What is replied until it hangs up, or to a last request that closes."""
        with self.connect() as link:
            try:
                link.sendall(text)
            except OSError:
                pass  # it has hung up already
            return parsed(until_closed(link))


def until_closed(link: socket.socket) -> bytes:
    found = b""
    try:
        while part := link.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def parsed(text: bytes) -> list[tuple[int, Any]]:
    found = []
    while text:
        head, _, rest = text.partition(b"\r\n\r\n")
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = int(lines[b"content-length"])
        found.append((int(head.split()[1]), json.loads(rest[:size])))
        text = rest[size:]
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server(BoundedProtocol)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def impatient() -> Iterator[Server]:
    found = Server(Impatient)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def less_impatient() -> Iterator[Server]:
    found = Server(LessImpatient)
    yield found
    found.stop()


def head(*lines: str, path: str = "/", method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


LAST = head("Connection: close", path="/last", method="GET")


def test_ordinary_requests_are_served_one_after_the_other(server: Server) -> None:
    text = head("Content-Length: 3", path="/a") + b"abc" + head("Content-Length: 0", path="/b") + LAST
    found = server.replies(text)
    assert [(status, said["path"], said["size"]) for status, said in found] == [
        (200, "/a", 3), (200, "/b", 0), (200, "/last", 0),
    ]  # fmt: skip


def test_a_head_may_be_as_large_as_allowed(server: Server) -> None:
    lines = [f"h{number}: {'x' * 300}" for number in range(HEAD_LINES - 5)]
    ((status, said),) = server.replies(head(*lines, "Connection: close", "Content-Length: 0"))
    assert (status, said["headers"]) == (200, HEAD_LINES - 2)


@pytest.mark.parametrize(
    "lines",
    [
        [f"h{number}: x" for number in range(10_000)],
        [f"h{number}: x" for number in range(HEAD_LINES + 1)],
        ["h: " + "x" * HEAD_BYTES],
        [f"h{number}: {'x' * 1000}" for number in range(80)],
    ],
    ids=["10,000 lines", "a line too many", "one long line", "together too large"],
)
def test_a_head_that_is_too_large_is_431(server: Server, lines: Head) -> None:
    found = server.replies(head(*lines, "Content-Length: 0") + LAST)
    assert [status for status, _ in found] in ([431], []), "a client that still sends may not hear it"
    for _, said in found:
        assert "head may have" in said["error"]


@pytest.mark.parametrize("begins", [b"0\r\nX: ", b"0\r\n", b"3;"])
def test_what_comes_behind_a_body_without_an_end_is_hung_up_on(server: Server, begins: bytes) -> None:
    head = b"POST /small HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    with server.connect() as link:
        link.sendall(head + begins)
        with pytest.raises(ConnectionError):
            link.sendall(b"y" * (64 << 20))


def test_a_path_that_is_too_long_is_431(server: Server) -> None:
    ((status, said),) = server.replies(head("Connection: close", path="/" + "a" * HEAD_BYTES, method="GET"))
    assert status == 431
    assert set(said) == {"error"}


def test_a_head_that_has_no_end_is_cut_off(server: Server) -> None:
    with server.connect() as link:
        try:
            link.sendall(b"GET / HTTP/1.1\r\n")
            for number in range(1000):
                link.sendall(f"h{number}: {'x' * 1000}\r\n".encode())
        except OSError:
            pass
        assert [status for status, _ in parsed(until_closed(link))] in ([431], [])


@pytest.mark.parametrize(
    "text",
    [
        head("Content-Length: 1", "Content-Length: 2") + b"ab",
        head("Content-Length: 1", "Content-Length: 1") + b"a",
        head("Content-Length: 1, 2") + b"ab",
        head("Content-Length: x"),
        head("Content-Length: -1"),
        head("Content-Length: 99999999999999999999999"),
        head("Content-Length: 3", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        head("Transfer-Encoding: chunked") + b"zz\r\n",
        head("No colon"),
        head("bad\x00name: x"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        "GET /é HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 1000,
    ],
    ids=lambda text: repr(text[:200])[-60:],
)
def test_what_is_no_http_is_400_in_one_sentence(server: Server, text: bytes) -> None:
    ((status, said),) = server.replies(text)
    assert status == 400
    assert said == {"error": "this is no HTTP request that can be read"}
    assert server.replies(LAST)[0][0] == 200


def test_who_asks_for_another_protocol_is_served_in_this_one(server: Server) -> None:
    for upgrade in ("websocket", "h2c"):
        lines = ["Connection: Upgrade, close", f"Upgrade: {upgrade}"]
        assert server.replies(head(*lines, method="GET"))[0][0] == 200


@pytest.mark.parametrize(
    "start", [b"", b"\r\n", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST / HTTP/1.1\r\nh: "]
)
def test_a_head_that_takes_too_long_is_408(impatient: Server, start: bytes) -> None:
    with impatient.connect() as link:
        link.sendall(start)
        ((status, said),) = parsed(until_closed(link))
    assert status == 408
    assert "took longer than 0.5 seconds" in said["error"]


def test_a_second_head_that_drips_is_cut_off_too(less_impatient: Server) -> None:
    with less_impatient.connect() as link:
        link.sendall(head("Content-Length: 1") + b"x")
        first = link.recv(65536)
        assert b" 200 " in first
        link.sendall(b"GET / HTTP/1.1\r\nslo")
        rest = until_closed(link)
    assert b"HTTP/1.1 408 " in rest


def test_a_body_that_takes_its_time_is_not_a_head_that_does(less_impatient: Server) -> None:
    """That is for the application to bound: here it waits."""
    with less_impatient.connect() as link:
        link.sendall(head("Content-Length: 2", "Connection: close") + b"a")
        link.settimeout(LessImpatient.head_seconds + 0.5)
        with pytest.raises(TimeoutError):
            link.recv(10)
        link.settimeout(60)
        link.sendall(b"b")
        assert parsed(until_closed(link))[0][0] == 200


@pytest.mark.parametrize("length", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_a_body_behind_an_upgrade_is_refused_and_not_lost(server: Server, length: str) -> None:
    """The parser would take it for another protocol's: the request would be served without it."""
    upgrade = "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"
    with server.connect() as link:
        link.sendall(head(length, *upgrade) + b"hello")
        ((status, said),) = parsed(until_closed(link))
    assert (status, "without Upgrade" in said["error"]) == (400, True)
    with server.connect() as link:
        link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        link.shutdown(socket.SHUT_WR)
        assert [status for status, _ in parsed(until_closed(link))] == [200]


def test_many_requests_that_come_together_are_no_large_head(server: Server) -> None:
    text = b"POST /%d HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 700 + b"\r\nContent-Length: 5\r\n\r\nhello"
    whole = b"".join(text % n for n in range(150))
    assert len(whole) > protocol.HEAD_BYTES
    with server.connect() as link:
        link.sendall(whole[:40])
        time.sleep(0.05)
        link.sendall(whole[40:])
        link.shutdown(socket.SHUT_WR)
        replies = parsed(until_closed(link))
    assert [said["path"] for _, said in replies] == [f"/{n}" for n in range(150)]


def test_replies_that_are_owed_come_before_the_end_that_rubbish_makes(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    get = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"
    with server.connect() as link:
        link.sendall(get % 1 + get % 2 + b"\x00rubbish\r\n\r\n")
        replies = parsed(until_closed(link))
    assert [said["path"] for status, said in replies if status == 200] == ["/1", "/2"]
    assert not [record for record in caplog.records if record.exc_info], caplog.text


# -- clients that say no more -----------------------------------------------------------------------------------------
def test_a_client_that_shuts_down_its_side_after_its_requests_gets_all_replies(server: Server) -> None:
    post = b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
    for count in (1, 3):
        with server.connect() as link:
            link.sendall(b"".join(post % n for n in range(count)))
            link.shutdown(socket.SHUT_WR)
            replies = parsed(until_closed(link))
        assert [(status, said["path"], said["size"]) for status, said in replies] == [
            (200, f"/{n}", 5) for n in range(count)
        ]


def test_a_client_that_shuts_down_in_the_midst_of_its_request_has_gone(server: Server) -> None:
    with server.connect() as link:
        link.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel")
        link.shutdown(socket.SHUT_WR)
        assert until_closed(link) == b""


def test_a_client_that_shuts_down_and_is_not_replied_to_for_long_has_gone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HALF_CLOSED_SECONDS", 0.2)
    with server.connect() as link:
        link.sendall(b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n")
        link.shutdown(socket.SHUT_WR)
        assert until_closed(link) == b""


# -- how many connections ---------------------------------------------------------------------------------------------
def asked(link: socket.socket) -> int:
    link.sendall(b"GET /here HTTP/1.1\r\nhost: x\r\n\r\n")
    return int(link.recv(4096).split()[1])


def test_one_address_has_a_part_of_the_connections_and_all_have_no_more_than_there_are() -> None:
    server = Server(BoundedProtocol.within(60, Connections(8, 3)))
    try:
        mine = [server.connect() for _ in range(3)]
        assert [asked(link) for link in mine] == [200] * 3
        ((status, said),) = server.replies(b"")
        assert (status, said["error"]) == (503, "there are 3 connections from this address already; try again")
        others = [socket.create_connection(("127.0.0.1", server.port), 60, (f"127.0.0.{n}", 0)) for n in range(2, 7)]
        assert [asked(link) for link in others] == [200] * 5
        with socket.create_connection(("127.0.0.1", server.port), 60, ("127.0.0.9", 0)) as link:
            ((status, said),) = parsed(until_closed(link))
        assert (status, said["error"]) == (503, "there are 8 connections already; try again")
        for link in (*mine, *others):
            link.close()
        until = time.monotonic() + 60
        while (found := server.replies(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))[0][0] == 503:
            assert time.monotonic() < until, "those that were closed still count"
        assert found[0][0] == 200
    finally:
        server.stop()


def test_a_connection_that_was_refused_counts_no_longer_than_it_lasts() -> None:
    server = Server(BoundedProtocol.within(60, Connections(1, 1)))
    try:
        with server.connect() as link:
            assert asked(link) == 200
            for _ in range(20):
                assert server.replies(b"")[0][0] == 503
        until = time.monotonic() + 60
        while server.replies(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")[0][0] == 503:
            assert time.monotonic() < until
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "found"),
    [(256, 8192, 4096, 4096), (256, 2048, 4096, 2048 - RESERVED), (300, 600, 4096, 300)],
)
def test_descriptors_are_raised_as_far_as_they_may(soft: int, hard: int, wanted: int, found: int) -> None:
    program = (
        "import resource, sys\n"
        "from hipq.daemon.http.connections import raise_descriptors\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        f"print(raise_descriptors({wanted}), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.split() == [str(found), str(min(wanted + RESERVED, hard))]
    assert raise_descriptors(1) == 1
