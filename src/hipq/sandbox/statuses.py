"""The meaning of a job's end, as a status: 1xx again, 2xx ok, 4xx failed, 5xx error."""

from __future__ import annotations

from typing import Final

from hipq.signals import how_ended

OK: Final = 200
TOO_LARGE: Final = 413
ERROR: Final = 500
TIMED_OUT: Final = 504
KILLED: Final = 509
"""The status of a job that had to be killed, except for a time-out: `ERROR` and the number of SIGKILL."""
_DATA_ERROR: Final = 65
_TRY_AGAIN: Final = 75
"""EX_DATAERR and EX_TEMPFAIL of sysexits.h: the two exit codes that say more than failure."""


def from_exit(code: int) -> int:
    """The status of a job whose program ended with this exit code."""
    if code == 0:
        return OK
    if code == _DATA_ERROR:
        return 400 + _DATA_ERROR
    if code == _TRY_AGAIN:
        return 100 + _TRY_AGAIN
    return ERROR + min(code - 128 if 128 < code <= 192 else abs(code), 99)


def checked(status: object) -> tuple[int, str]:
    """A status that may be stored, and what was wrong with the given one if it differs."""
    if not isinstance(status, int) or isinstance(status, bool) or not 100 <= status <= 599:
        return ERROR, f"it returned the status {status!r:.20}, which is not within 100..599"
    if 300 <= status <= 399:
        return ERROR, f"it returned the status {status}, and 3xx has no meaning for a job"
    return status, ""


def how(returncode: int) -> str:
    """How a process ended, in words."""
    return how_ended(128 - returncode if 128 < returncode <= 192 else returncode)
