"""What the servers that tests start have in common: a folder, a port, a log, a beginning and an end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Self

from tests.ending import at_the_end
from tests.servers import free_port


class Server:
    """A server of one's own, in a process of its own, for tests that stop and start it.

    What is special to one is what it is called, how it is started (`command`, `environment`), how one sees that it is
    there (`answers`), and whether one that runs here already may be used too (`will_do`).
    """

    name: ClassVar[str]
    url_form: ClassVar[str]
    """Like "redis://127.0.0.1:{port}"."""
    start_seconds: ClassVar[float] = 20.0
    stop_signal: ClassVar[signal.Signals] = signal.SIGKILL
    """Killed at once, as a crash would, unless it needs to be told to save what it has."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hipq-server-"))
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    # -- what each says for itself ----------------------------------------------------------------------------------
    def command(self, port: int) -> Sequence[str | Path]:
        raise NotImplementedError

    def environment(self, port: int) -> Mapping[str, str]:  # noqa: ARG002
        """What it needs beyond ours."""
        return {}

    @classmethod
    def answers(cls, port: int) -> bool:
        """Whether it is there: here, that anybody takes connections."""
        try:
            socket.create_connection(("127.0.0.1", port), 2).close()
        except OSError:
            return False
        return True

    @classmethod
    def will_do(cls, port: int) -> bool:
        """Whether the one that runs here already has what tests need."""
        return cls.answers(port)

    # -- what all do ------------------------------------------------------------------------------------------------
    @property
    def url(self) -> str:
        return self.url_form.format(port=self.port)

    def start(self) -> None:
        """Start it and wait until it answers. The port stays the same from the first start on."""
        for _ in range(5):  # somebody may take the port between our look and the server's
            port = self.port or free_port()
            process = self._process = self._launched(port)
            until = time.monotonic() + self.start_seconds
            while process.poll() is None and time.monotonic() < until:
                if self.answers(port) and process.poll() is None:
                    self.port = port
                    return
                time.sleep(0.02)
            self._end(signal.SIGKILL)
        said = (self.folder / "log").read_text(errors="replace")[-2000:]
        self.close()
        raise RuntimeError(f"{self.name} did not start:\n{said}")

    def stop(self) -> None:
        self._end(self.stop_signal)

    def restart(self) -> None:
        self.stop()
        self.start()

    def freeze(self) -> None:
        """From now on it takes connections and bytes, and says nothing."""
        assert self._process
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process
        os.killpg(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill it, and remove all it had."""
        self._end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- how --------------------------------------------------------------------------------------------------------
    def _launched(self, port: int) -> subprocess.Popen[str]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                self.command(port), env={**os.environ, **self.environment(port)}, cwd=self.folder, text=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _end(self, how: signal.Signals) -> None:
        """End it with all processes it has started: until the last is gone, a new one may find its place taken."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        process.wait(self.start_seconds)
        until = time.monotonic() + self.start_seconds
        with suppress(ProcessLookupError):
            while time.monotonic() < until:
                os.killpg(process.pid, 0)
                time.sleep(0.01)


def shared_url(own: type[Server], variable: str, port: int) -> str:
    """The server that tests share: the one this environment variable names, the one on the usual port (0 = there is
    none), else one of our own, which ends with this process."""
    if url := os.environ.get(variable):
        return url.rstrip("/")
    if port and own.will_do(port):
        return own.url_form.format(port=port)
    server = own()
    at_the_end(server.close)
    server.start()
    return server.url
