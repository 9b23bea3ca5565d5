"""`Why`: what `app.why` returns for a job. `hipq.engine.why` finds it out."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hipq.job import states


class Reason:
    """The reasons why a job does not run now: names that do not change. Some are those of the phase that the job is
    in."""

    FINAL: Final = states.FINAL
    EXECUTING: Final = states.EXECUTING
    WAITING: Final = states.WAITING
    ANSWERED: Final = states.ANSWERED
    ANSWER_FAILED: Final = "answer failed"
    CANCELLING: Final = states.CANCELLING
    DECIDING: Final = states.DECIDING
    RETRY_PENDING: Final = "retry pending"
    WINDOW_CLOSED: Final = "window closed"
    SCHEDULED: Final = states.SCHEDULED
    NO_ENGINE: Final = "no engine"
    NO_CODE: Final = "no code"
    PAUSED: Final = "paused"
    WINDOW_UNKNOWN: Final = "window unknown"
    DUE: Final = "due"
    THROTTLER_FAILED: Final = "throttler failed"
    PARKED: Final = states.PARKED
    LIMIT_FULL: Final = "limit full"
    LANE_FULL: Final = "lane full"
    RATE: Final = "rate"
    BEHIND: Final = "behind"
    NEXT: Final = "next"


class Why(msgspec.Struct, frozen=True):
    """Why a job does not run now, or what it is doing."""

    reason: str
    """One of `Reason`, or the `reason` of a limit that users have written."""
    sentence: str
    details: dict[str, Any]
    """The facts: what JSON can have, and datetimes."""

    def __str__(self) -> str:
        return self.sentence
