"""Connections are shared, and kept no longer than is good."""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from hipq.transports import http
from hipq.transports.base import Outgoing
from tests.engine.working import until
from tests.transports.http.servers import SECRETS, hold, raw, read_request, refused, web


def test_one_connection_serves_all_urls_of_a_server_one_after_the_other() -> None:
    with web() as server:
        for number in range(30):
            assert http.sender(f"{server.url}/{number}").send(Outgoing(b"1"), 5).status == 200
        assert server.connections == 1
        assert len(server.got) == 30


def test_twenty_threads_share_the_connections_and_each_gets_its_own_reply() -> None:
    def one(number: int) -> bool:
        body = str(number).encode()
        return http.request("POST", f"{server.url}/{number}", body, {}, 20).body == b"ok " + body

    with web() as server, ThreadPoolExecutor(20) as threads:
        assert all(threads.map(one, range(400)))
        assert server.connections <= 20
        assert sorted(int(path[1:]) for _, path, _, _ in server.got) == list(range(400))


def test_who_finds_all_connections_in_use_waits_and_then_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS", 1)
    with web() as server, ThreadPoolExecutor(1) as threads:
        server.pause = 0.4
        first = threads.submit(http.request, "GET", server.url)
        while not server.got:
            time.sleep(0.01)
        assert refused(server.url, 0.1) == f"{server.url}: all connections have been in use for 0.1 s"
        assert http.request("GET", server.url, seconds=5).status == 200
        assert first.result().status == 200
        assert (server.connections, len(server.got)) == (1, 2)


@pytest.mark.parametrize("half", [True, False])
def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again(half: bool) -> None:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        connection.shutdown(socket.SHUT_WR if half else socket.SHUT_RDWR)
        closed.set()
        if half:
            hold(connection)

    with raw(serve) as server:
        for number in range(1, 6):
            closed = threading.Event()
            assert http.request("POST", server.url, b"{}").body == b"ok"
            assert closed.wait(30)
            assert len(server.connections) == number


def test_what_was_sent_on_a_connection_that_then_broke_is_not_sent_again() -> None:
    """Keep-alive's old trap: nobody knows whether the server acted on it."""
    got: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        got.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        got.append(read_request(connection))

    with raw(serve) as server:
        assert http.request("POST", server.url, b"first").body == b"ok"
        sentence = refused(f"http://{SECRETS.format(server.host)}", body=b"second")
        assert sentence == f"{server.url}: it hung up without a reply; whether it has the request is not known"
        until(lambda: len(got) > 1)
        assert [data.rpartition(b"\r\n")[2] for data in got] == [b"first", b"second"]
        assert http.request("POST", server.url, b"third").body == b"ok"


def test_a_forked_child_opens_its_own_connections() -> None:
    with web() as server:
        http.request("GET", f"{server.url}/parent")
        with http._lock:  # as if another thread were busy with it
            child = os.fork()
        if child == 0:
            code = 1
            with suppress(BaseException):
                code = 0 if http.request("GET", f"{server.url}/child", seconds=5).status == 200 else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert http.request("GET", f"{server.url}/parent").status == 200
        assert server.connections == 2
    assert [path for _, path, _, _ in server.got] == ["/parent", "/child", "/parent"]


def test_a_forked_child_does_not_hold_the_connections_of_its_parent() -> None:
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        hold(connection)
        ended.set()

    with raw(serve) as server:
        assert http.request("GET", server.url).body == b"ok"
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)  # until the parent is done
            os._exit(0)
        os.close(reading)
        http.close()
        seen = ended.wait(30)
        os.close(writing)
        os.waitpid(child, 0)
        assert seen, "the server never learnt that the connection was closed"
