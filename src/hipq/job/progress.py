"""How far a job has come, as its handler says while it runs: `job.progress(0.4, "page 4 of 10")`."""

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
"""Characters kept of a message: the beginning of a longer one."""


class Reported(msgspec.Struct, array_like=True, frozen=True):
    """What a handler has said of its progress. `at`: when that was stored; 0 = it is not yet."""

    fraction: float
    message: str
    at: int = 0


class Report(msgspec.Struct, frozen=True):
    """The same on its way to the store: of a job that still has this token."""

    id: int
    token: int
    attempt: int
    fraction: float
    message: str


class JobProgress:
    """How far a job has come in this attempt, or in its last one. In a handler, calling it says so."""

    __slots__ = ("_report", "at", "fraction", "message")

    def __init__(self, found: Reported | None, report: Callable[[Reported], None] | None = None) -> None:
        self.fraction: float | None = found.fraction if found else None
        """From 0 to 1; None = the handler has not said."""
        self.message: str = found.message if found else ""
        self.at: datetime | None = to_datetime(found.at) if found and found.at else None
        """When that was stored."""
        self._report = report

    def __call__(self, fraction: float, message: str = "") -> None:
        """Say how far the job has come, as often as you like: about once a second the last word is stored. It costs
        nothing to speak of. `message` is for people; of a longer one the first 200 characters are kept."""
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
    """It is 100% at the end, and not a moment before."""
    return f"{floor(fraction * 100 + 1e-9)}% {message}".rstrip()
