"""A RabbitMQ server for the tests: the one named, the one that runs here, or one started from Debian's package."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.brokers.server import Server, shared_url
from tests.servers import free_port

PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's program itself: what is in the PATH is a wrapper that becomes another user."""


@cache
def amqp_url() -> str:
    """A server on which queues may be made."""
    return shared_url(OwnRabbit, "HIPQ_TEST_AMQP_URL", 5672)


class OwnRabbit(Server):
    """Its queues are in files. To start it takes some seconds."""

    name = "RabbitMQ"
    url_form = "amqp://guest:guest@127.0.0.1:{port}"
    start_seconds = 60.0

    def __init__(self) -> None:
        epmd = shutil.which("epmd")
        if not PROGRAM.exists() or not epmd:
            pytest.skip("no RabbitMQ server here: install Debian's rabbitmq-server, or set HIPQ_TEST_AMQP_URL")
        super().__init__()
        self.queues: list[str] = []
        """Those that it must not forget."""
        self._names_port = free_port()
        self._names = subprocess.Popen(  # the service by which Erlang's programs find each other; theirs never ends
            [epmd, "-address", "127.0.0.1", "-port", str(self._names_port)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        (self.folder / "rabbitmq.conf").write_text("disk_free_limit.absolute = 1MB\n")

    def command(self, port: int) -> Sequence[str | Path]:  # noqa: ARG002
        return [PROGRAM]

    def environment(self, port: int) -> Mapping[str, str]:
        return {
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self._names_port),
            "RABBITMQ_NODENAME": f"hipq{self._names_port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
        }

    @classmethod
    def answers(cls, port: int) -> bool:
        """Whether what listens there speaks AMQP: it answers the protocol's name with a frame."""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as conn:
                conn.sendall(b"AMQP\x00\x00\x09\x01")
                return conn.recv(1) == b"\x01"
        except OSError:
            return False

    def stop(self) -> None:
        """Kill it, once its own transactions are on its disk: it confirms the declaration of a queue before that, and
        killed in between it forgets the queue, with all the messages there that it has confirmed."""
        until = time.monotonic() + self.start_seconds
        while not self._has_written():
            assert time.monotonic() < until, "RabbitMQ leaves a transaction undecided"
            time.sleep(0.02)
        super().stop()

    def _has_written(self) -> bool:
        """Whether RabbitMQ's own database has the queues, and what became of its last transaction."""
        [log] = self.folder.glob("data/*/LATEST.LOG")
        written = log.read_bytes()
        is_decided = written.rfind(b"presume_abort") <= written.rfind(b"committed")  # neither is in a new log
        tables = b"".join(table.read_bytes() for table in log.parent.glob("rabbit_durable_queue.DC?"))
        return is_decided and all(name.encode() in written + tables for name in self.queues)

    def close(self) -> None:
        super().close()
        self._names.kill()
        self._names.wait(self.start_seconds)
