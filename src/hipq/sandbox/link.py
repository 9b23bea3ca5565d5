"""The conversation with a context's process: one request, one reply. Meanwhile its output is read and its time and
memory are watched; whatever it does, only a bounded amount of its output is held here."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

import msgspec

from hipq.sandbox.handler import MOST_DATA
from hipq.sandbox.output import Output
from hipq.sandbox.process import MOST_FILES, Process
from hipq.sandbox.settings import ContextSettings
from hipq.sandbox.statuses import ERROR, KILLED, TIMED_OUT, from_exit, how

_BLOCK: Final = 1 << 18
_MOST_LINE: Final = 1 << 16
"""Bytes of a reply without its data."""
_LOOK: Final = 0.25
"""Seconds between two looks at the resources in use."""
_LAST_WORDS: Final = 3.0
"""Seconds a process has to end after it hung up, or announced its end."""
_CHATTER: Final = 200
"""Turns after which the loop runs a thousand times a second: else bytes written one by one keep it busy."""
_FORGED: Final = "it wrote something of its own on its private channel"
_SLACK: Final = 64 << 20
"""Bytes of memory an interpreter has before it runs anything."""


class ContextReply(msgspec.Struct):
    """A reply of a process on its channel."""

    kind: str
    """hello, begun, done, exited (the handler called exit, with this code), exit (the process is about to end)."""
    status: int = 200
    size: int = 0
    error: str = ""
    retire: bool = False
    """Whether the context should run nothing more."""
    data: bytes = b""

    @property
    def is_ok(self) -> bool:
        return self.kind == "done" and 200 <= self.status <= 299


class Gone(Exception):
    """The process died, or had to be killed, with the status of the job that ran in it."""

    def __init__(self, status: int, error: str, innocent: bool = False) -> None:
        super().__init__(error)
        self.status, self.error = status, error
        self.innocent = innocent
        """Whether it was killed on request, not for what it did."""


class Link:
    def __init__(self, process: Process, settings: ContextSettings) -> None:
        self._process, self._settings = process, settings
        self._streams = {process.stdout: 0, process.stderr: 1}
        self._poll = select.poll()
        for number in (process.answers, process.handle, *self._streams):
            self._poll.register(number, select.POLLIN)
        self._inbox = bytearray()
        self._reply: ContextReply | None = None
        """The beginning of a reply whose data have not arrived whole."""
        self._outbox: dict[int, memoryview] = {}
        self._looked, self._cpu, self._turns = 0.0, -1.0, 0
        self._dead = False
        self._hung_up = ""
        """The channel that the process closed although it should not have."""
        self._end, self._seconds = 0.0, 0.0
        """When it must have replied, and how long that was."""
        self.killed = ""
        """Why it is to be killed."""
        self.mute = False
        """Whether it has closed its standard output or error."""

    def ask(
        self, line: bytes, payload: bytes, seconds: float, output: Output, begun: Callable[[], None] | None = None
    ) -> ContextReply:
        """The reply to a request; Gone if there is none. With `begun`, time counts from when the process says so."""
        if self._inbox or self._reply:  # a reply without a request
            self._fail(KILLED, _FORGED)
        self._turns = 0
        self._time(self._settings.start_seconds if begun else seconds)
        self._looked, self._cpu = time.monotonic(), -1.0
        self._write(self._process.asks, memoryview(line))
        self._write(self._process.stdin, memoryview(payload))
        leaving = False
        while True:
            reply = self._next()
            if reply is None:
                if self._dead:
                    return self._left(leaving)
                self._turn(output)
            elif reply.kind == "begun" and begun:
                self._time(seconds)
                begun()
                begun = None
            elif reply.kind == "exit":
                leaving = True
                self._hang_up("it said that it exits, and did not")
            elif reply.kind in ("hello", "done", "exited") and begun is None and not self._outbox:
                self._drain(output)
                return reply
            else:
                self._fail(KILLED, _FORGED)

    def tell(self, line: bytes, payload: bytes) -> None:
        """Send a message that has no reply."""
        self._write(self._process.asks, memoryview(line + payload))

    def _time(self, seconds: float) -> None:
        self._end, self._seconds = time.monotonic() + seconds, seconds

    def _turn(self, output: Output) -> None:
        """Wait for whatever happens next, but not for long."""
        now = time.monotonic()
        if now >= self._end:
            if self._hung_up:
                self._fail(KILLED, self._hung_up)
            self._fail(TIMED_OUT, f"it took longer than {self._seconds:g} s")
        if now >= self._looked + _LOOK:
            self._look(now)
        self._turns += 1
        if self._turns > _CHATTER:
            time.sleep(0.001)
        for number, _ in self._poll.poll(min(self._end - now, _LOOK) * 1000):
            if number in self._streams:
                self._read(number, output)
            elif number == self._process.handle:
                self._dead = True
            elif number == self._process.answers:
                self._receive()
            elif number in self._outbox:
                self._write(number, self._outbox.pop(number))
        if self._dead:  # read its last output
            self._drain(output)
            while self._receive():
                pass

    def _write(self, number: int, rest: memoryview) -> None:
        """Write as much as the pipe takes; the rest waits in the outbox."""
        if number in self._outbox:
            self._outbox[number] = memoryview(bytes(self._outbox[number]) + rest)
            return
        try:
            while rest:
                rest = rest[os.write(number, rest[: 1 << 20]) :]
        except BlockingIOError:
            self._outbox[number] = rest
            self._poll.register(number, select.POLLOUT)
            return
        except OSError:
            self._hang_up("it closed what it is told on")
        self._forget(number)

    def _forget(self, number: int) -> None:
        with suppress(KeyError):
            self._poll.unregister(number)

    def _hang_up(self, why: str) -> None:
        """Close the channel: the process has only to end now."""
        self._hung_up = self._hung_up or why
        self._end = min(self._end, time.monotonic() + _LAST_WORDS)

    def _read(self, number: int, output: Output) -> bool:
        """Read a block of output; returns whether there was one."""
        try:
            block = os.read(number, _BLOCK)
        except BlockingIOError:
            return False
        if not block:
            self._poll.unregister(number)
            del self._streams[number]
            self.mute = True
            return False
        output.feed(self._streams[number], block)
        if output.bytes > self._settings.output:
            self._fail(KILLED, f"it printed more than {self._settings.output:,} bytes")
        return True

    def _drain(self, output: Output) -> None:
        """Read the output that was printed before the reply: it is in the pipes by now."""
        for number in list(self._streams):
            while self._read(number, output):
                pass

    def _receive(self) -> bool:
        try:
            block = os.read(self._process.answers, _BLOCK)
        except BlockingIOError:
            return False
        if not block:
            self._forget(self._process.answers)
            self._hang_up("it closed its private channel")
            return False
        self._inbox += block
        return True

    def _next(self) -> ContextReply | None:
        """The next reply that has arrived whole."""
        if self._reply is None:
            line, newline, _ = self._inbox.partition(b"\n") if self._inbox else (b"", b"", b"")
            if not newline:
                if len(self._inbox) > _MOST_LINE:
                    self._fail(KILLED, _FORGED)
                return None
            try:
                self._reply = msgspec.json.decode(line, type=ContextReply)
            except (msgspec.DecodeError, RecursionError):
                self._fail(KILLED, _FORGED)
            if not 0 <= self._reply.size <= MOST_DATA:
                self._fail(KILLED, _FORGED)
            del self._inbox[: len(line) + 1]
        reply = self._reply
        if len(self._inbox) < reply.size:
            return None
        reply.data = bytes(self._inbox[: reply.size])
        del self._inbox[: reply.size]
        self._reply = None
        return reply

    def _look(self, now: float) -> None:
        self._looked = now
        most = self._settings.memory + _SLACK
        used = self._process.usage(most)
        if used.memory > most:
            self._fail(KILLED, f"its processes used more than {self._settings.memory >> 20} MB of memory together")
        if used.processes > self._settings.processes + 2:  # where the kernel does not count them, or not for root
            self._fail(KILLED, f"it had more than {self._settings.processes} processes")
        if self._process.scratch().files > MOST_FILES:
            self._fail(KILLED, f"it made more than {MOST_FILES:,} files")
        if self._cpu < 0:
            self._cpu = used.cpu
        if used.cpu - self._cpu > self._settings.cpu:
            self._fail(TIMED_OUT, f"it used more than {self._settings.cpu:g} s of processor time")

    def _left(self, leaving: bool) -> ContextReply:
        """The reply for a process that ended by itself."""
        code = self._process.wait(_LAST_WORDS)
        if self.killed:
            raise Gone(KILLED, self.killed, innocent=True)
        if leaving and code is not None:
            return ContextReply("exited", status=code)
        if code is None or code == 0:
            raise Gone(ERROR, "its process ended before it answered")
        raise Gone(from_exit(code), f"its process {how(code)}")

    def _fail(self, status: int, error: str) -> NoReturn:
        self._process.kill()
        if self.killed:
            raise Gone(KILLED, self.killed, innocent=True)
        raise Gone(status, error)
