"""The parent of `hipq worker --processes N`: starts workers, replaces those that die, passes signals on, ends last.

No user code runs here and no database is open, so there is little that could take it down. If something does, the pipe
all workers hold an end of closes, and they stop.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from hipq.observe import logs
from hipq.signals import signal_name

HEALTHY: Final = 10.0
"""Seconds of life after which a death is not one of a series."""
LONGEST_PAUSE: Final = 30.0
USAGE: Final = 2


class WorkerSlot:
    """One of the N places, and who is in it. `arguments`: what only workers in this place are told."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None
        self.started = 0.0
        self.deaths = 0
        """In a row, each soon after its start."""
        self.due = 0.0
        """When the next worker starts here."""
        self.status: int | None = None
        """How the last one ended, once nobody follows it."""

    def ended(self, now: float) -> float:
        """Note a death; the seconds until its successor starts."""
        self.process = None
        self.deaths = self.deaths + 1 if now - self.started < HEALTHY else 0
        pause = min(0.1 * 2**self.deaths, LONGEST_PAUSE) if self.deaths else 0.0
        self.due = now + pause
        return pause


class Supervisor:
    def __init__(self, arguments: Sequence[str], apart: Sequence[Sequence[str]], until_empty: bool) -> None:
        self._until_empty = until_empty
        self._places = [WorkerSlot(some) for some in apart]
        self._stopping = 0
        self._lifeline, self._held = os.pipe()
        end = ["--lifeline", str(self._lifeline)]
        self._command = [sys.executable, "-m", "hipq.cli.main", "worker", *arguments, *end]

    def run(self) -> int:
        """Until all workers have ended and nobody is to follow them; the worst status among them."""
        with _signals() as news:
            while True:
                now = time.monotonic()
                for place in self._places:
                    self._serve_forks(place, now)
                if all(place.status is not None for place in self._places):
                    return max(place.status or 0 for place in self._places)
                select.select([news], [], [], self._pause(now))
                for number in _read(news):
                    if number in (signal.SIGINT, signal.SIGTERM):
                        self._stop(number)

    def _serve_forks(self, place: WorkerSlot, now: float) -> None:
        if place.process is not None and (status := place.process.poll()) is not None:
            self._reap(place, place.process.pid, status, now)
        if place.process is None and place.status is None and now >= place.due:
            self._start(place, now)

    def _start(self, place: WorkerSlot, now: float) -> None:
        place.started = now
        try:
            place.process = subprocess.Popen(
                [*self._command, *place.arguments],
                pass_fds=[self._lifeline],
                process_group=0,  # a terminal's Ctrl-C must reach a worker once, through us
            )
        except OSError as error:  # no room for another process just now
            pause = place.ended(now)
            logs.LOGGER.warning(logs.LogLine("worker not started", {"error": error.strerror, "after": pause}))
            return
        logs.LOGGER.info(logs.LogLine("worker started", {"worker": place.process.pid}))

    def _reap(self, place: WorkerSlot, pid: int, status: int, now: float) -> None:
        pause = place.ended(now)
        if self._stopping or (self._until_empty and status == 0):
            place.status = 1 if status > 0 else 0  # ended by our signal before it could listen: nothing was lost
        elif status == USAGE:
            place.status = USAGE
            self._stop(signal.SIGTERM)  # it has said what is wrong, and another one would say the same
        else:
            logs.LOGGER.warning(logs.LogLine("worker replaced", {"worker": pid, "ended": _how(status), "after": pause}))

    def _stop(self, number: int) -> None:
        self._stopping += 1
        logs.LOGGER.info(logs.LogLine("supervisor stopping", {"signal": signal.Signals(number).name}))
        for place in self._places:
            if place.process is not None:
                place.process.send_signal(number)
            elif place.status is None:
                place.status = 0

    def _pause(self, now: float) -> float | None:
        due = [place.due for place in self._places if place.process is None and place.status is None]
        return max(min(due) - now, 0.0) if due else None


def _how(status: int) -> str:
    return f"killed by {signal_name(-status)}" if status < 0 else f"exit status {status}"


@contextmanager
def _signals() -> Iterator[int]:
    """A descriptor that delivers the numbers of signals as they come: none is missed between two looks."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def _read(news: int) -> bytes:
    try:
        return os.read(news, 4096)
    except BlockingIOError:
        return b""
