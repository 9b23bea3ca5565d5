"""The database's clock, without asking it each time, and never ahead of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from hipq.errors import StoreUnavailable

FRESH_SECONDS: Final = 4.0
"""Seconds for which a sample is good. Longer than an engine's poll and the renewal of its lease, which bring a new one
along: so an idle engine need not ask."""


class DatabaseClock:
    """A sample of the database's clock, and the time since its reply arrived, by a clock here."""

    def __init__(self, ask: Callable[[], int], in_vain: Callable[[StoreUnavailable, float], None]) -> None:
        """`ask` the database for its time. `in_vain` is told of a failure that need not be one, and when it began."""
        self._from_database, self._in_vain = ask, in_vain
        self._lock = threading.Lock()
        self._sample: tuple[int, int] | None = None
        self._fresh_until = 0.0
        self._failure: tuple[float, StoreUnavailable] | None = None
        """When the clock could not be asked, if that is what happened last."""

    def heard(self, micros: int) -> None:
        """A reply that has just arrived says what the clock showed."""
        self._sample = (micros, time.monotonic_ns())
        self._fresh_until = time.monotonic() + FRESH_SECONDS

    def now(self) -> int:
        began = time.monotonic()
        with self._lock:
            if time.monotonic() >= self._fresh_until:
                self._ask()
            if self._failure and self._failure[0] >= began:  # we have waited for it, or for the thread that asked
                self._in_vain(self._failure[1], began)
        assert self._sample
        micros, at = self._sample
        return micros + (time.monotonic_ns() - at) // 1000

    def _ask(self) -> None:
        try:
            self.heard(self._from_database())
            self._failure = None
        except StoreUnavailable as error:
            if self._sample is None:
                raise
            self._failure = (time.monotonic(), error)
            self._fresh_until = time.monotonic() + FRESH_SECONDS  # go on from the last one meanwhile
