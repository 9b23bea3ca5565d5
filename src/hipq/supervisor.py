"""The parent of several processes of hipq, as of `hipq worker --processes N`: starts them, replaces those that die,
starts them again when their code has changed, passes signals on, ends last.

No user code runs here and no database is open, so there is little that could take it down. If something does, the pipe
all processes hold an end of closes, and they stop.
"""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Final

from hipq.observe import logs
from hipq.signals import signal_name

HEALTHY: Final = 10.0
"""Seconds of life after which a death is not one of a series."""
LONGEST_PAUSE: Final = 30.0
FAILED: Final = 1
USAGE: Final = 2
HIPQ: Final = (sys.executable, "-m", "hipq.cli.main")
"""The beginning of a command line of hipq."""


class WorkerSlot:
    """One of the N places, and who is in it. `arguments`: what only workers in this place are told. `name`: what their
    lines of output begin with, if anything."""

    def __init__(self, arguments: Sequence[str], name: str = "") -> None:
        self.arguments = arguments
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.started = 0.0
        self.deaths = 0
        """In a row, each soon after its start."""
        self.due = 0.0
        """When the next worker starts here."""
        self.status: int | None = None
        """How the last one ended, once nobody follows it."""
        self.outdated = False
        """The one that is there has code that was changed, and was told to stop."""

    def ended(self, now: float) -> float:
        """Note a death; the seconds until its successor starts."""
        self.process = None
        self.deaths = self.deaths + 1 if now - self.started < HEALTHY else 0
        pause = min(0.1 * 2**self.deaths, LONGEST_PAUSE) if self.deaths else 0.0
        self.due = now + pause
        return pause


class Supervisor:
    def __init__(
        self,
        command: Sequence[str],
        places: Sequence[WorkerSlot],
        *,
        check: WorkerSlot | None = None,
        changes: int | None = None,
        until_empty: bool = False,
    ) -> None:
        """`command` begins the command line in every place. `check` is a place of which a process says what is wrong
        with the code, once and not once a worker: no worker starts until one has ended well. `changes` is a descriptor
        that delivers something whenever the code has changed."""
        self._command, self._places, self._check, self._changes = command, places, check, changes
        self._until_empty = until_empty
        self._is_checked = check is None
        self._stopping = 0
        self._lifeline, self._held = os.pipe()
        self._relays: list[threading.Thread] = []

    def run(self) -> int:
        """Until all workers have ended and nobody is to follow them; the worst status among them."""
        descriptors = [] if self._changes is None else [self._changes]
        with _signals() as news:
            while True:
                now = time.monotonic()
                for place in self._running_places():
                    self._serve(place, now)
                if all(place.status is not None for place in self._places):
                    for relay in self._relays:
                        relay.join(1)  # of what they have printed, also the end; a grandchild may hold on to it
                    return max(place.status or 0 for place in self._places)
                ready, _, _ = select.select([news, *descriptors], [], [], self._pause(now))
                for number in _read(news):
                    if number in (signal.SIGINT, signal.SIGTERM):
                        self._stop(number)
                if self._changes in ready and not self._stopping:
                    os.read(ready[-1], 4096)
                    self._reload()

    def _running_places(self) -> Sequence[WorkerSlot]:
        """The places in which there may be a process now."""
        return self._places if self._is_checked or self._check is None else [*self._places, self._check]

    def _serve(self, place: WorkerSlot, now: float) -> None:
        if place.process is not None and (status := place.process.poll()) is not None:
            self._reap(place, place.process.pid, status, now)
        may_start = place is self._check or self._is_checked
        if place.process is None and place.status is None and now >= place.due and may_start:
            self._start(place, now)

    def _start(self, place: WorkerSlot, now: float) -> None:
        place.started, place.outdated = now, False
        end = [] if place is self._check else ["--lifeline", str(self._lifeline)]
        try:
            place.process = subprocess.Popen(
                [*self._command, *place.arguments, *end],
                pass_fds=[self._lifeline],
                process_group=0,  # a terminal's Ctrl-C must reach a worker once, through us
                stdout=subprocess.PIPE if place.name else None,
                stderr=subprocess.STDOUT if place.name else None,
            )
        except OSError as error:  # no room for another process just now
            pause = place.ended(now)
            logs.LOGGER.warning(logs.LogLine("worker not started", {"error": error.strerror, "again_in": pause}))
            return
        if place.process.stdout is not None:
            relay = threading.Thread(target=_relay, args=(place.process.stdout, place.name), daemon=True)
            relay.start()
            self._relays = [one for one in self._relays if one.is_alive()] + [relay]
        if place is not self._check:
            what = {"of": place.name.strip()} if place.name else {}
            logs.LOGGER.info(logs.LogLine("worker started", {"worker": place.process.pid, **what}))

    def _reap(self, place: WorkerSlot, pid: int, status: int, now: float) -> None:
        pause = place.ended(now)
        if place is self._check:
            self._checked(place, status, now)
        elif self._stopping or (self._until_empty and status == 0):
            place.status = 1 if status > 0 else 0  # ended by our signal before it could listen: nothing was lost
        elif place.outdated:
            place.due, place.deaths = now, 0
        elif self._changes is not None and status in (FAILED, USAGE):
            self._wait_for_change(place, f"{place.name.strip() or 'worker'} failed")
        elif status == USAGE:
            place.status = USAGE
            self._stop(signal.SIGTERM)  # it has said what is wrong, and another one would say the same
        else:
            logs.LOGGER.warning(
                logs.LogLine("worker replaced", {"worker": pid, "ended": _how(status), "again_in": pause})
            )

    def _checked(self, check: WorkerSlot, status: int, now: float) -> None:
        if self._stopping:
            return
        if check.outdated:
            check.due, check.deaths = now, 0
        elif status == 0:
            self._is_checked = True
            for place in self._places:
                self._serve(place, now)
        elif self._changes is not None:
            self._wait_for_change(check, "not started")
        else:
            for place in self._places:
                place.status = status if status > 0 else FAILED

    def _wait_for_change(self, place: WorkerSlot, event: str) -> None:
        """It has said what is wrong. Its successor would say the same, unless somebody mends that."""
        place.due, place.deaths = math.inf, 0
        logs.LOGGER.warning(logs.LogLine(event, {"until": "the code changes, or this is started again"}))

    def _reload(self) -> None:
        """The code has changed. Jobs that run may finish, once told: a second signal would give them back."""
        logs.LOGGER.info(logs.LogLine("reloading", {"after": "running handlers have ended"}))
        self._is_checked = self._check is None
        for place in self._running_places():
            place.due = 0.0
            if place.process is not None and not place.outdated:
                place.outdated = True
                place.process.terminate()

    def _stop(self, number: int) -> None:
        self._stopping += 1
        logs.LOGGER.info(logs.LogLine("supervisor stopping", {"signal": signal.Signals(number).name}))
        if self._check is not None and self._check.process is not None:
            self._check.process.kill()
        for place in self._places:
            if place.process is None:
                place.status = place.status or 0
            elif not (place.outdated and self._stopping == 1):  # else that were its second one
                place.process.terminate()  # SIGINT would print a traceback of what is still importing its code

    def _pause(self, now: float) -> float | None:
        places = self._places if self._is_checked else self._running_places()[-1:]
        due = [place.due for place in places if place.process is None and place.status is None]
        first = min(due, default=math.inf)
        return None if first == math.inf else max(first - now, 0.0)


def end_with(lifeline: int) -> None:
    """Stop as for a signal when the other end of this pipe closes: a supervisor that was killed cannot say so."""
    os.set_inheritable(lifeline, False)

    def watch() -> None:
        os.read(lifeline, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="hipq-lifeline", daemon=True).start()


def _relay(lines: IO[bytes], name: str) -> None:
    """Print what a process prints, with its name before each line."""
    for line in lines:
        sys.stderr.buffer.write(f"{name} | ".encode() + line.rstrip(b"\n") + b"\n")
        sys.stderr.buffer.flush()


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
