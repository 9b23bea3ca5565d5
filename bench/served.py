"""The application that workers in other processes serve, and those processes.

Handlers report through a pipe, not through the queue that is measured.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hipq import Hipq, Job

PIPE, QUEUES, HOLD, COUNT = "BENCH_PIPE", "BENCH_QUEUES", "BENCH_HOLD", "BENCH_COUNT"
"""What a worker is told by its environment: where to report, how many queues there are, how long `hold` holds on, and
whether to count what it asks PostgreSQL."""
PATIENCE = 60.0
LONG_NAP = 0.05
_REPORT = struct.Struct("dqq")


def declare(url: str | None, queues: int = 1) -> Hipq:
    """The same application here and there. All types are in the first queue; the others are just there."""
    app = Hipq("around", url)
    first = app.queue("first")
    for number in range(1, queues):
        app.queue(f"other_{chr(ord('a') + number // 26)}{chr(ord('a') + number % 26)}").job("work")(_work)
    first.job("work")(_work)

    @first.job
    def nap(_: Job[Any]) -> None:
        time.sleep(0.005)

    @first.job
    def long_nap(_: Job[Any]) -> None:
        time.sleep(LONG_NAP)

    @first.job
    def tell(job: Job[Any]) -> None:
        """Say that it began, and when."""
        os.write(int(os.environ[PIPE]), _REPORT.pack(time.time(), job.id, os.getpid()))

    @first.job
    def hold(job: Job[Any]) -> None:
        """The same, and hold on to the job."""
        tell(job)
        time.sleep(float(os.environ.get(HOLD, "0")))

    return app


def _work(_: Job[Any]) -> None: ...


class Report(NamedTuple):
    at: float
    """On time.time(): all processes are on one machine."""
    job: int
    process: int


class Worker:
    """A real `hipq worker`, in a process of its own."""

    def __init__(self, url: str, *, queues: int = 1, hold: float = 0.0, count: bool = False, hands: int = 10) -> None:
        self._reading, writing = os.pipe()
        told = {"HIPQ_DATABASE_URL": url, PIPE: str(writing), QUEUES: str(queues), HOLD: str(hold)}
        hipq = Path(sys.executable).with_name("hipq")
        self._process = subprocess.Popen(
            [hipq, "worker", f"{__name__}:app", "--concurrency", str(hands), "--log-level", "warning"],
            cwd=Path(__file__).parents[1], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[writing],
            env=environment() | told | ({COUNT: "yes"} if count else {}),
        )  # fmt: skip
        os.close(writing)

    @property
    def pid(self) -> int:
        return self._process.pid

    def report(self) -> Report:
        """The next one. A report is written in one piece, so it is read in one piece."""
        if not select.select([self._reading], [], [], PATIENCE)[0]:
            raise TimeoutError(f"no job ran within {PATIENCE:.0f} s")
        found = os.read(self._reading, _REPORT.size)
        if not found:
            raise ChildProcessError(f"the worker ended by itself, with {self._process.wait()}")
        return Report(*_REPORT.unpack(found))

    def statements(self) -> int:
        """How many it has sent since the last look, if it counts."""
        found = b""
        while select.select([self._reading], [], [], 0)[0]:
            some = os.read(self._reading, 65_536)
            if not some:
                break
            found += some
        return len(found)

    def kill(self) -> float:
        """As kill -9 does; when that was."""
        at = time.time()
        self._process.kill()
        self._process.wait()
        return at

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._reading)


def until_alive(app: Hipq, count: int) -> None:
    """Until so many engines are at work."""
    until = time.monotonic() + PATIENCE
    while len(app.store.engines()) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"{count} workers did not start within {PATIENCE:.0f} s")
        time.sleep(0.02)


def environment() -> dict[str, str]:
    """For a process whose modules are compiled already, as they are where hipq is installed: to compile them takes
    memory and time that nobody else will see."""
    found = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return found | {"PYTHONPYCACHEPREFIX": _compiled().name}


@cache
def _compiled() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hipq-bench-")


def _counted() -> None:
    """Say so whenever a statement is sent. The server's own counters count its autovacuum as well."""
    import psycopg

    execute = psycopg.Cursor.execute

    def noted(*arguments: Any, **options: Any) -> Any:
        os.write(int(os.environ[PIPE]), b".")
        return execute(*arguments, **options)

    psycopg.Cursor.execute = noted  # type: ignore[method-assign]


if COUNT in os.environ:
    _counted()
app = declare(os.environ.get("HIPQ_DATABASE_URL"), int(os.environ.get(QUEUES, "1")))
