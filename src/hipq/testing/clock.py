"""A clock to turn by hand: time passes when a test says so, and at no other moment."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from hipq.errors import Invalid
from hipq.job.when import SECOND

START: Final = 1_800_000_000 * SECOND  # 2027-01-15T08:00:00Z


class HandClock:
    """Both times a store needs. They start far apart, so that code which takes one for the other is found out."""

    def __init__(self, start: int = START, steady: int = 1_000 * SECOND) -> None:
        self._now = start
        self._steady = steady

    def now(self) -> int:
        return self._now

    def steady(self) -> int:
        return self._steady

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let time pass."""
        passed = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days) // timedelta(microseconds=1)
        if passed < 0:
            raise Invalid("time does not run backwards; step() sets the calendar back")
        self._now += passed
        self._steady += passed

    def step(self, seconds: float) -> None:
        """Somebody sets the calendar, forwards or back; no time passes."""
        self._now += round(seconds * SECOND)
