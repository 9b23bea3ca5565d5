"""Worker processes to start, kill, stop and continue."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tests import processes

ROOT = Path(__file__).parents[2]


class Workers:
    """Some worker processes on one database; those killed are replaced by the test, not by themselves."""

    def __init__(self, url: str, folder: Path, count: int, lease: float = 1.0, which: str = "jobs") -> None:
        self._command = [sys.executable, "-m", "tests.crash.program", url, str(folder), str(lease), which]
        self._count = count
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, url: str = "") -> subprocess.Popen[str]:
        """One more; at another URL, if they differ."""
        command = [*self._command[:3], url or self._command[3], *self._command[4:]]
        process = processes.Popen(command, cwd=ROOT)
        self.processes.append(process)
        return process

    def kill(self, index: int) -> None:
        """kill -9, and a new one in its place."""
        self.processes[index].kill()
        self.processes[index].wait()
        self.processes[index] = processes.Popen(self._command, cwd=ROOT)

    def replace_dead(self) -> int:
        dead = [i for i, process in enumerate(self.processes) if process.poll() is not None]
        for index in dead:
            self.processes[index] = processes.Popen(self._command, cwd=ROOT)
        return len(dead)

    def __enter__(self) -> Workers:
        for _ in range(self._count):
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def eventually(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait for something other processes do; fail with what was waited for."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(0.02)
