"""A program that takes callbacks over HTTP, in a process of its own; and a client that says what it likes."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests import processes
from tests.ending import at_the_end

SHOP = '''
"""The application of the tests of callbacks over HTTP."""
import os

from hipq import Hipq, Wait
from hipq.callback import http

http.BODY_SECONDS = float(os.environ.get("BODY_SECONDS", "30"))
app = Hipq("shop", callback_url="https://shop.example/hipq")
app.queue("orders").job("charge")(lambda job: Wait())
'''
COMMAND = """
import sys
from hipq.cli.callbacks import serve_callbacks
from hipq.cli.main import cli, run

cli.add_command(serve_callbacks)
sys.exit(run(["callbacks", *sys.argv[1:]]))
"""


class Got(NamedTuple):
    status: int
    json: Any


class Served:
    """A server on a port of its own. Its log is kept."""

    def __init__(self, folder: Path, url: str, *command: str, **environment: str) -> None:
        self._log = folder / f"server-{time.monotonic_ns()}.log"
        (folder / "shop.py").write_text(SHOP)
        with self._log.open("wb") as log:
            self.process = processes.Popen(
                command or hipq_callbacks(), cwd=folder, stdout=log, stderr=log,
                env={**os.environ, "HIPQ_DATABASE_URL": url, **environment},
            )  # fmt: skip
        at_the_end(self._end)  # a test that fails does not stop it
        self.port = self._listening()

    def _end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def _listening(self) -> int:
        until = time.monotonic() + 120
        while not (found := re.search(r"(?:listening|running) on http://127.0.0.1:(\d+)", self.log)):
            assert self.process.poll() is None, self.log
            assert time.monotonic() < until, self.log
            time.sleep(0.02)
        return int(found[1])

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def post(self, token: str, body: bytes = b"1", path: str = "/", **headers: str) -> Got:
        connection = self.connection()
        try:
            return send(
                connection, token, body, path, {name.replace("_", "-"): value for name, value in headers.items()}
            )
        finally:
            connection.close()

    def raw(self, text: bytes, replies: int = 1) -> list[int]:
        """The statuses that are replied to these bytes, so many at least, or fewer if the server hangs up."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as link:
            try:
                link.sendall(text)
            except OSError:
                pass  # it has hung up already
            return statuses(received(link, replies))

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)


def received(link: socket.socket, replies: int = 1 << 30) -> bytes:
    found = b""
    try:
        while len(statuses(found)) < replies and (part := link.recv(65536)):
            found += part
    except ConnectionResetError:
        pass
    return found


def hipq_callbacks(*options: str) -> list[str]:
    return [sys.executable, "-c", COMMAND, "shop:app", "--port", "0", *options]


def send(
    connection: http.client.HTTPConnection, token: str, body: bytes, path: str = "/", headers: Mapping[str, str] = {}
) -> Got:  # fmt: skip
    connection.request("POST", path + token, body, dict(headers))
    response = connection.getresponse()
    return Got(response.status, json.loads(response.read()))


def statuses(reply: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1.1 (\d+) ", reply)]
