"""The program the crash tests run and kill: `python -m tests.crash.program URL FOLDER LEASE WHICH`.

Every run of a handler is written to a file before it does anything, so that the test knows what really happened.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from hipq import Hipq, Job, Wait, admit, backoff, fixed, share
from tests.crash.load import make_load


def note(folder: Path, job: Job[Any]) -> None:
    line = f"{job.id} {job.attempt} {os.getpid()} {job.data}\n"
    with open(folder / "ran", "ab", buffering=0) as file:
        file.write(line.encode())


def make_app(url: str, folder: Path) -> Hipq:
    app = Hipq("crash", url)
    queue = app.queue("jobs")

    @queue.job
    def work(job: Job[Any]) -> int:
        note(folder, job)
        time.sleep(job.id % 7 / 1000)
        return os.getpid()

    @queue.job(retry=backoff(attempts=3, base=0.05))
    def flaky(job: Job[Any]) -> int:
        note(folder, job)
        if job.failures == 0:
            raise OSError("the first try fails")
        return os.getpid()

    @queue.job(retry=backoff(attempts=3, base=0.05))
    def poison(job: Job[Any]) -> None:
        note(folder, job)
        os.kill(os.getpid(), signal.SIGSEGV)

    @queue.job
    def gate(job: Job[Any]) -> str:
        """Waits until somebody opens its gate, in the first process that runs it; later ones pass at once."""
        note(folder, job)
        try:
            os.mkdir(folder / f"first-{job.id}")
        except FileExistsError:
            return "second"
        while not (folder / "open").exists():
            time.sleep(0.01)
        return "first"

    return app


LIMIT = 10
TIMED_LIMIT = 3
SHARES = {"east": 40, "north": 30, "west": 30}


def make_limited(url: str, folder: Path) -> Hipq:
    app = Hipq("crash", url)
    queue = app.queue("limited", throttle_limit=LIMIT, limits=[share(SHARES)])

    @queue.job
    def work(job: Job[Any]) -> None:
        note(folder, job)
        time.sleep(job.id % 5 / 100)

    @queue.job(retry=fixed(0.01, attempts=9))
    def waits(job: Job[Any]) -> Wait | str:
        """The answer never comes; what it holds it holds until its time-out."""
        note(folder, job)
        return "timed out" if job.failures else Wait(timeout=0.2)

    @queue.job(critical=True)
    def urgent(job: Job[Any]) -> None:
        note(folder, job)
        time.sleep(0.05)

    return app


def make_timed(url: str, folder: Path) -> Hipq:
    """Each run notes when it began and ended: what runs is within what is held."""
    app = Hipq("timed", url)

    @app.queue("timed", throttle_limit=TIMED_LIMIT).job
    def work(job: Job[Any]) -> Any:
        began = time.monotonic_ns()
        time.sleep(job.id % 7 / 100)
        with open(folder / "ran", "ab", buffering=0) as file:
            file.write(f"{job.id} {began} {time.monotonic_ns()}\n".encode())
        return job.data

    @app.queue("answered").job(timeout=600)
    def asks(_job: Job[Any]) -> Wait:
        return Wait()

    return app


def make_throttled(url: str, folder: Path) -> Hipq:
    app = Hipq("crash", url)

    def throttler(due: list[Job[Any]], _running: list[Job[Any]], _now: Any) -> list[Any]:
        """The first process that is asked thinks for ever."""
        try:
            (folder / "asked").mkdir()
        except FileExistsError:
            return [admit(job) for job in due]
        while True:
            time.sleep(1)

    @app.queue("throttled", throttler=throttler).job
    def work(job: Job[Any]) -> None:
        note(folder, job)

    return app


MAKERS = {
    "jobs": make_app, "limited": make_limited, "throttled": make_throttled, "timed": make_timed, "load": make_load,
}  # fmt: skip

if __name__ == "__main__":
    url, folder, lease, which = sys.argv[1:]
    MAKERS[which](url, Path(folder)).run(lease=float(lease), poll=0.2)
