"""Servers to send requests to."""

from __future__ import annotations

import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hipq.errors import TransportUnavailable

pytest.importorskip("httpx2")

from hipq.transports import http

HEADERS = {"authorization": "Bearer hush4"}
SECRETS = "user:hush1@{}/hush2?token=hush3"


class Web(ThreadingHTTPServer):
    """Notes what it gets, and replies with what `replies` says for the path."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[str, str, dict[str, str], bytes]] = []
        self.replies: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.connections = 0
        self.pause = 0.0
        self.url = f"http://127.0.0.1:{self.server_port}"

    def get_request(self) -> Any:
        found = super().get_request()
        self.connections += 1
        return found


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Web

    def handle_one_request(self) -> None:
        with suppress(ConnectionError, ValueError):
            super().handle_one_request()

    def reply(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.got.append((self.command, self.path, headers, body))
        time.sleep(self.server.pause)
        status, body, headers = self.server.replies.get(self.path.partition("?")[0], (200, b"ok " + body, {}))
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = reply  # noqa: N815

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def web() -> Iterator[Web]:
    with Web() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            http.close()
            server.shutdown()
            thread.join()


class Raw:
    """A server that does with each connection what it is told."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.serve = serve
        self.connections: list[socket.socket] = []
        self.host = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.url = f"http://{self.host}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with suppress(OSError):
            self.serve(connection)
            connection.close()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)  # or a thread in `accept` keeps it open
        self.listener.close()
        for connection in self.connections:
            connection.close()


@contextmanager
def raw(serve: Callable[[socket.socket], None] | bytes) -> Iterator[Raw]:
    def said(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(serve)  # type: ignore[arg-type]

    server = Raw(said if isinstance(serve, bytes) else serve)
    try:
        yield server
    finally:
        server.close()


def read_request(connection: socket.socket) -> bytes:
    """Up to the end of its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := connection.recv(65536)):
            return data
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def hold(connection: socket.socket) -> None:
    """Say nothing until the other side goes."""
    while connection.recv(65536):
        pass


def refused(url: str, seconds: float = 5.0, body: bytes = b"{}") -> str:
    """The sentence of the error, which shows no secret."""
    with pytest.raises(TransportUnavailable) as error:
        http.request("POST", url, body, HEADERS, seconds)
    assert "hush" not in "".join(traceback.format_exception(error.value)) + repr(error.value)
    return str(error.value)
