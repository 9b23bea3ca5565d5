"""Examples run as a user runs them: a process of their own, in a folder of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hipq import Hipq, Job
from tests import processes

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE = 120.0
"""Seconds until a run has failed, on a machine however busy; they take some seconds."""


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HIPQ_")} | more


def command(example: str, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / example), *arguments]


def run(example: str, folder: Path, *arguments: str, status: int = 0, **more: str) -> str:
    """Run an example to its end; what it printed."""
    done = processes.run(
        command(example, *arguments), cwd=folder, env=environment(**more), capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == status, f"{done.stdout}\n{done.stderr}"
    assert uncaught(done.stderr) == [], done.stderr
    return done.stdout


def uncaught(said: str) -> list[str]:
    """What comes before each traceback that is no part of a record of a job that failed. In a record of what another
    process ran, the exception comes before the traceback."""
    lines = ["", "", *filter(None, said.splitlines())]
    return [
        before
        for first, before, line in zip(lines, lines[1:], lines[2:], strict=False)
        if line.startswith("Traceback")
        and not re.search(r" job=\d+ |^The above exception|^During handling", f"{first}\n{before}", re.MULTILINE)
    ]


@contextmanager
def started(example: str, folder: Path, *arguments: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """An example under way; killed at the end, if it has not ended by itself."""
    pipe = subprocess.PIPE
    with processes.Popen(
        command(example, *arguments), cwd=folder, env=environment(**more), stdin=pipe, stdout=pipe, stderr=pipe,
        text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def jobs(database: Path | str, app: str, queue: str) -> list[Job[Any]]:
    """All jobs that an example has left in its database; every one of them is final."""
    reading = Hipq(app, database if isinstance(database, str) else f"sqlite:///{database}")
    reading.queue(queue)
    try:
        found = reading.jobs(queue, limit=10_000)
    finally:
        reading.close()
    assert {job.state for job in found} <= {"final"}, [job for job in found if job.state != "final"]
    return found


def events(job: Job[Any]) -> list[str]:
    return [entry["event"] for entry in job.history]
