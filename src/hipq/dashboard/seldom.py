"""What is dear to read, and need not be of this moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
REST: Final = 20
"""It rests this many times as long as reading took."""
LEAST: Final = 2.0
"""Seconds of rest, at least."""


class Seldom(Generic[T]):
    """It is read in a thread of its own while somebody asks for it, a twentieth of the time at most. `read` raises
    nothing: who asks could not be told."""

    def __init__(
        self, read: Callable[[], T], steady: Callable[[], float] = time.monotonic, least: float = LEAST
    ) -> None:
        """`least`: seconds for which it rests."""
        self._read = read
        self._steady = steady
        self._least = least
        self._lock = threading.Lock()
        self._value: T | None = None
        self._there = threading.Event()
        self._reads = False
        self._again = -1e9

    def latest(self, patience: float = 0.0, *, fresh: bool = False) -> T | None:
        """What was read last; the next reading begins, if it is time. None: nothing was read yet, and for so many
        seconds nothing came. `fresh`: it waits as long for a reading that has begun."""
        with self._lock:
            begins = not self._reads and self._steady() >= self._again
            self._reads = self._reads or begins
            if begins and fresh:
                self._there.clear()
        if begins:
            threading.Thread(target=self.read, name="hipq-dashboard", daemon=True).start()
        if patience:
            self._there.wait(patience)
        return self._value

    def read(self) -> None:
        """Read it now."""
        began = self._steady()
        try:
            self._value = self._read()
            self._there.set()
        finally:
            ended = self._steady()
            with self._lock:
                self._again, self._reads = ended + max(self._least, REST * (ended - began)), False
