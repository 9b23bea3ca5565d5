"""Waking one sleeping thread from any other, from a signal handler, or because a file descriptor has news."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence


class Bell:
    """A pipe with a flag in front: ringing costs a system call only while somebody sleeps."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._rung = False
        self._sleeping = False

    @property
    def rung(self) -> bool:
        return self._rung

    def ring(self) -> None:
        self._rung = True
        if self._sleeping:
            try:
                os.write(self._writing, b"!")
            except BlockingIOError:
                pass  # the pipe is full of rings nobody has heard yet

    def wait(self, seconds: float, also: Sequence[int] = ()) -> tuple[bool, list[int]]:
        """Sleep; whether the bell rang, and those of the other descriptors that have something to read."""
        self._sleeping = True  # before looking at the flag: a ring from here on writes to the pipe
        try:
            ready = _readable([self._reading, *also], 0 if self._rung else max(seconds, 0))
        finally:
            self._sleeping = False
        rang = self._rung or self._reading in ready
        if rang:  # else a ring that comes between the look and here would be lost
            self._rung = False
        if self._reading in ready:
            ready.remove(self._reading)
            try:
                os.read(self._reading, 65536)
            except BlockingIOError:
                pass  # a forked child, which has the same pipe, was faster
        return rang, ready

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


def _readable(descriptors: list[int], seconds: float) -> list[int]:
    poll = select.poll()  # not select(): that one fails from descriptor 1024 on
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(seconds * 1000)]
