"""Replies: large ones, late ones, and what is none at all."""

from __future__ import annotations

import gzip
import os
import socket
import time
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from hipq.transports import http
from tests.transports.http.servers import SECRETS, hold, raw, read_request, refused, web


# -- large ones --------------------------------------------------------------------------------------------------------
def test_a_reply_may_be_a_million_bytes_and_not_one_more() -> None:
    with web() as server:
        server.replies["/a"] = (200, b"x" * 1_000_000, {})
        assert len(http.request("GET", f"{server.url}/a").body) == 1_000_000
        server.replies["/a"] = (200, b"x" * 1_000_001, {})
        assert refused(f"{server.url}/a") == f"{server.url}: its reply is larger than 1,000,000 bytes"
        assert len(http.request("GET", f"{server.url}/a", largest=2_000_000).body) == 1_000_001
        server.replies["/a"] = (404, b"y" * 3_000_000, {})
        assert http.request("GET", f"{server.url}/a").body == b"y" * 1_000_000


def test_a_reply_without_an_end_is_left() -> None:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")

    with raw(serve) as server:
        assert refused(server.url) == f"{server.url}: its reply is larger than 1,000,000 bytes"


def test_gzip_is_unpacked() -> None:
    with web() as server:
        server.replies["/a"] = (200, gzip.compress(b'{"a": 1}' * 1000), {"Content-Encoding": "gzip"})
        server.replies["/none"] = (200, b"", {"Content-Encoding": "gzip"})
        assert http.request("GET", f"{server.url}/a").body == b'{"a": 1}' * 1000
        assert http.request("GET", f"{server.url}/none").body == b""
        assert server.got[0][2]["accept-encoding"] == "gzip"


@pytest.mark.parametrize("status", [200, 500])
def test_a_small_reply_that_unpacks_to_a_giant_one_takes_no_memory(status: int) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(200)) + packer.flush()
    with web() as server:
        server.replies["/a"] = (status, bomb, {"Content-Encoding": "gzip"})
        http.request("GET", server.url)
        tracemalloc.start()
        try:
            if status == 200:
                assert refused(f"{server.url}/a").endswith("its reply is larger than 1,000,000 bytes")
            else:
                assert http.request("GET", f"{server.url}/a").body == b"\0" * 1_000_000
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()


def test_gzip_that_is_none_or_not_all_or_more_than_once_is_an_error() -> None:
    packed = gzip.compress(os.urandom(1000))
    with web() as server:
        for body in (b"plain text", packed[:500], packed[:100] + b"\xff" * 500 + packed[600:]):
            server.replies["/a"] = (200, body, {"Content-Encoding": "gzip"})
            assert refused(f"{server.url}/a") == f"{server.url}: its reply is not the gzip it says it is"
        for coding in ("br", "gzip, gzip"):
            server.replies["/a"] = (200, packed, {"Content-Encoding": coding})
            assert "its reply is compressed as '" in refused(f"{server.url}/a")


# -- late ones ---------------------------------------------------------------------------------------------------------
def slowly(*pieces: bytes, every: float = 0.05) -> Callable[[socket.socket], None]:
    """Each piece at once, the last again and again."""

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        for piece in pieces[:-1]:
            connection.sendall(piece)
        while True:
            connection.sendall(pieces[-1])
            time.sleep(every)

    return serve


EMPTY_BLOCK = b"\x00\x00\x00\xff\xff"  # of deflate: it unpacks to nothing


@pytest.mark.parametrize(
    "serve",
    [
        hold,
        slowly(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        slowly(b"HTTP/1.1 100 Continue\r\n\r\n"),
        slowly(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", b"x"),
        slowly(b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        slowly(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
            EMPTY_BLOCK * 9,
        ),
    ],
    ids=["silent", "headers", "continue", "body", "endless body", "empty gzip"],
)
def test_a_reply_is_in_time_as_a_whole_or_not_at_all(serve: Callable[[socket.socket], None]) -> None:
    with raw(serve) as server:
        began = time.monotonic()
        sentence = refused(f"http://{SECRETS.format(server.host)}", 2)  # a busy machine needs some time to connect
        assert 1.9 < time.monotonic() - began < 15
        assert sentence == f"{server.url}: no complete reply within 2 s; whether it has the request is not known"


def test_a_server_that_reads_a_little_now_and_then_does_not_hold_a_request() -> None:
    def serve(connection: socket.socket) -> None:
        while connection.recv(100):
            time.sleep(0.02)

    with raw(serve) as server:
        began = time.monotonic()
        assert "no complete reply within 3 s" in refused(
            server.url, 3, b"x" * 10_000_000
        )  # 0.4 s were too short to connect
        assert time.monotonic() - began < 15


def test_a_connection_that_is_never_accepted_is_waited_for_so_long() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        full = [socket.socket() for _ in range(8)]
        for one in full:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        time.sleep(0.1)
        began = time.monotonic()
        assert refused(f"http://{SECRETS.format(host)}", 0.4) == f"http://{host}: no connection within 0.4 s"
        assert time.monotonic() - began < 15
        for one in full:
            one.close()


def test_a_request_without_time_fails_at_once() -> None:
    with web() as server:
        for seconds in (0.0, -1.0):
            assert "within" in refused(server.url, seconds)
        assert server.got == []


# -- none at all -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"", "it hung up without a reply; whether it has the request is not known"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "it hung up in the middle of its reply"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha", "it hung up in the middle of its reply"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n", "what it replied is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "what it replied is not HTTP"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "what it replied is not HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\nhush\r\n\r\n", "what it replied is not HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x46" + b"\x00" * 500 + b"\r\n\r\n", "what it replied is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 300_000, "what it replied is not HTTP"),
    ],
)
def test_a_reply_that_is_none_is_an_error_of_one_sentence(said: bytes, sentence: str) -> None:
    with raw(said) as server:
        assert refused(f"http://{SECRETS.format(server.host)}") == f"{server.url}: {sentence}"


def test_a_connection_that_is_reset_says_so() -> None:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with raw(serve) as server:
        assert refused(server.url) == f"{server.url}: the connection broke (Connection reset by peer)"


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
    assert refused(f"http://{SECRETS.format(host)}") == f"http://{host}: nobody listens there (connection refused)"
    assert refused(f"https://{SECRETS.format(host)}").startswith(f"https://{host}: nobody listens")


def test_no_such_host() -> None:
    sentence = refused(f"https://{SECRETS.format('no-such-host.invalid')}")
    assert sentence.startswith("https://no-such-host.invalid: its name is not found (")


def test_a_name_with_several_addresses_is_tried_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def two(host: str, port: int, *args: Any, **named: Any) -> Any:
        names = ["127.0.0.2", "127.0.0.1"] if host == "shop.invalid" else [host]
        return [found for name in names for found in ask(name, port, *args, **named)]

    ask = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", two)
    with web() as server:  # which listens at the second only
        assert http.request("GET", server.url.replace("127.0.0.1", "shop.invalid")).status == 200
        assert server.got[0][2]["host"] == f"shop.invalid:{server.server_port}"
