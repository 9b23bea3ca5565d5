"""The progress of a job, as its handler reports it: `job.progress(0.4, "page 4 of 10")`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from math import floor
from typing import Final

import msgspec

from hipq.errors import Invalid, shown
from hipq.job.fault import clean
from hipq.job.when import to_datetime

MESSAGE_LIMIT: Final = 200
"""The most characters of a message. The end of a longer one is cut off."""


class Reported(msgspec.Struct, array_like=True, frozen=True):
    """What a handler has reported of its progress. `at`: when that was stored; 0 = it is not yet."""

    fraction: float
    message: str
    at: int = 0


class Report(msgspec.Struct, frozen=True):
    """A report on its way to the store, for a job that still has this token."""

    id: int
    token: int
    attempt: int
    fraction: float
    message: str


class JobProgress:
    """The progress of a job in its present attempt, or its last one. A handler calls it to report."""

    __slots__ = ("_report", "at", "fraction", "message")

    def __init__(self, found: Reported | None, report: Callable[[Reported], None] | None = None) -> None:
        self.fraction: float | None = found.fraction if found else None
        """From 0 to 1; None = the handler has not said."""
        self.message: str = found.message if found else ""
        self.at: datetime | None = to_datetime(found.at) if found and found.at else None
        """When that was stored."""
        self._report = report

    def __call__(self, fraction: float, message: str = "") -> None:
        """Report how far the job has come, as often as you like: about once a second the last report is stored, which
        costs next to nothing. `message` is for people; its first 200 characters are kept."""
        if self._report is None:
            raise Invalid("job.progress(...) works inside a handler only; elsewhere look at job.progress.fraction")
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
            raise Invalid(f"progress takes a fraction from 0 to 1, not {shown(fraction)}")
        if not isinstance(message, str):
            raise Invalid(f"the message of a progress must be a text, not {type(message).__name__}")
        text = message if len(message) <= MESSAGE_LIMIT else f"{message[: MESSAGE_LIMIT - 1]}…"
        self._report(Reported(float(fraction), clean(text)))

    def __str__(self) -> str:
        return "" if self.fraction is None else in_words(self.fraction, self.message)

    def __repr__(self) -> str:
        return f"<JobProgress {self.fraction} {self.message!r}>"


def in_words(fraction: float, message: str) -> str:
    """Progress in words. It says 100% only at the very end."""
    return f"{floor(fraction * 100 + 1e-9)}% {message}".rstrip()
