"""A server on a real socket that replies what it is told to, or hangs up; and remembers what it was asked."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

CUT: Final[tuple[int, Any, dict[str, str]]] = (0, None, {})
"""Hang up without a reply."""

Scripted = tuple[int, Any, dict[str, str]]


class Asked(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes


class Server:
    def __init__(self, *script: Scripted) -> None:
        self.asked: list[Asked] = []
        self._script = list(script)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._socket.accept()
            except OSError:
                return
            with link:
                link.settimeout(20)
                self._reply(link)

    def _reply(self, link: socket.socket) -> None:
        """One request a connection."""
        text = b""
        while b"\r\n\r\n" not in text:
            part = link.recv(65536)
            if not part:
                return
            text += part
        head, _, body = text.partition(b"\r\n\r\n")
        line, *rest = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (one.split(": ", 1) for one in rest)}
        while len(body) < int(headers.get("content-length", "0")):
            body += link.recv(65536)
        self.asked.append(Asked(line, headers, body))
        status, said, more = self._script.pop(0)
        if not status:
            return
        data = said if isinstance(said, bytes) else json.dumps(said).encode()
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(data)}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in more.items()]
        link.sendall("\r\n".join([*lines, "", ""]).encode() + data)


@contextmanager
def scripted(*script: Scripted) -> Iterator[Server]:
    server = Server(*script)
    try:
        yield server
    finally:
        server.close()
