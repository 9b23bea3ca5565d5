"""Running handlers in a test: what began, what ended and how, what never began."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from hipq.sandbox import ContextJob, ContextPool, ContextSettings, Handler, JobReport

LANGUAGES = ("python", "node", "php", "shell")
_numbers = count(1)


def handler(lang: str, body: str, **more: Any) -> Handler:
    """One of its own; those that share no `eid` share no context."""
    number = next(_numbers)
    given = {"id": f"h{number}", "tenant": "acme", "type": f"type{number}", "lang": lang, "body": body}
    return msgspec.convert(given | more, Handler)


class Ran:
    """What a batch came to."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.reports: list[JobReport] = []
        self.left: list[ContextJob] = []

    @property
    def only(self) -> JobReport:
        (report,) = self.reports
        return report

    @property
    def statuses(self) -> list[int]:
        return [report.status for report in self.reports]


def run(
    contexts: ContextPool,
    given: Handler,
    *payloads: bytes,
    seconds: float | Mapping[bytes, float] = 60.0,
    on_start: Callable[[ContextJob], None] = lambda _: None,
) -> Ran:
    """Every promise about the two callbacks is checked here, for every test. `seconds` may be of some payloads: then
    the others have a minute."""
    ran = Ran()
    limits = seconds if isinstance(seconds, Mapping) else dict.fromkeys(payloads or (b"",), seconds)
    tasks = [
        ContextJob(f"job-{next(_numbers)}", payload, 1, limits.get(payload, 60.0)) for payload in payloads or (b"",)
    ]

    def started(task: ContextJob) -> None:
        assert task in tasks
        ran.started.append(task.id)
        on_start(task)

    def ended(report: JobReport) -> None:
        assert report.id in ran.started
        assert report.id not in [other.id for other in ran.reports]
        assert 100 <= report.status <= 599
        assert not 300 <= report.status <= 399
        assert report.seconds > 0
        ran.reports.append(report)

    ran.left = contexts.run(given, tasks, started, ended)
    assert sorted(ran.started) == sorted(report.id for report in ran.reports)
    assert sorted([*ran.started, *(task.id for task in ran.left)]) == sorted(task.id for task in tasks)
    return ran


def until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def processes(mark: str) -> list[int]:
    """Those with this in their command line or their environment, on the whole machine."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if mark in _words(pid)]


def _words(pid: int) -> str:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        return "" if state == "Z" else Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


ORDINARY = 65534
USERS = (os.geteuid(), ORDINARY) if os.geteuid() == 0 else (os.geteuid(),)


class AsUser(msgspec.Struct):
    """What a daemon of some user says."""

    reports: list[tuple[int, str, str]]
    """Status, data and error."""
    idle: int
    """Contexts that were kept, what they used after that, and what they have."""
    idle_cpu: float
    idle_memory: int


def as_user(user: int, *handlers: tuple[str, str], idle_seconds: float = 0.0, **settings: Any) -> AsUser:
    """Run handlers, each in a context of its own, in a daemon that this user has started."""
    told = {"settings": settings, "handlers": handlers, "idle_seconds": idle_seconds}
    found = subprocess.run(
        [sys.executable, "-m", "tests.executors.daemon", "run", "0", *([str(user)] if user != os.geteuid() else [])],
        input=json.dumps(told), cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return msgspec.json.decode(found.stdout, type=AsUser)


@contextmanager
def pool(**settings: Any) -> Iterator[ContextPool]:
    """Closed in the end, with nothing left."""
    contexts = ContextPool(ContextSettings(**settings))
    try:
        yield contexts
    finally:
        contexts.close()
    assert contexts.idle() == {}
