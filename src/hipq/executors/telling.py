"""The messages between a child process and the engine's while a handler runs in the child: heartbeats and progress one
way, and the other way that nobody waits for it any more."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from hipq.executors.execution import Execution, Run
from hipq.job.progress import Reported

PAUSE: Final = 0.1
"""Seconds between two messages: a handler may report any number of times a second."""

_Told = tuple[bool, Reported | None]


class Telling:
    """In a child: sends at most one message per PAUSE, the first one at once. Later reports wait in a thread for the
    end of the pause, since the handler may send nothing more for hours."""

    def __init__(self, run: Run, send: Callable[[bytes], None]) -> None:
        self._run = run
        self._send = send
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a signal handler may report while the code that it interrupts reports
        self._last = 0.0
        self._timer: threading.Timer | None = None
        self._over = False
        run.tell = self._tell

    def _tell(self) -> None:
        if os.getpid() != self._pid:
            return  # in a process that the handler forked: the engine listens to its parent only
        with self._lock:
            if self._timer or self._over:
                return
            pause = self._last + PAUSE - time.monotonic()
            if pause <= 0:
                self._now()
                return
            self._timer = threading.Timer(pause, self._late)
            self._timer.daemon = True
            self._timer.start()

    def _late(self) -> None:
        with self._lock:
            self._timer = None
            if not self._over:
                self._now()

    def _now(self) -> None:
        self._last = time.monotonic()
        beat, self._run.beat = self._run.beat, False
        self._send(msgspec.json.encode((beat, self._run.reported)))

    def end(self) -> None:
        """The handler has ended: what comes next is the reply, and nothing may come in between."""
        with self._lock:
            self._over = True
            if self._timer:
                self._timer.cancel()


def hear(told: bytes, run: Run) -> None:
    """In the engine's process: take in what the child has reported."""
    beat, run.reported = msgspec.json.decode(told, type=_Told)
    run.beat = run.beat or beat


@contextmanager
def told_by_signal(execution: Execution, is_told: Callable[[], bool]) -> Iterator[None]:
    """In a child: a SIGTERM from the engine means that nobody waits for this handler any more. The handler gets an
    exception, so that it can tidy up; if it takes no notice, its process is killed a while later.

    Others send that signal too, as a service manager does to all processes of a service. In that case the engine
    decides when this process ends.
    """
    inside = True

    def told(_number: int, _frame: object) -> None:
        if inside and not execution.abandoned and is_told():
            execution.abandon()
            raise SystemExit("told to stop: its job was cancelled")

    before = signal.signal(signal.SIGTERM, told)
    try:
        yield
    except BaseException:
        if not execution.abandoned:
            raise
    finally:
        inside = False
        signal.signal(signal.SIGTERM, before)
