"""What a handler may return (or raise): Ok, Failed, Retry, Wait. Anything else is a result, and means Ok."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from hipq.errors import Invalid, shown

UNSET: Final[Any] = object()
"""Told apart from None, which is data too."""


def _exitcode(value: int, hundreds: int, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value // 100 != hundreds:
        raise Invalid(f"{name}: exitcode must be {hundreds}00 to {hundreds}99, not {shown(value)}")
    return value


class Ok:
    """The job succeeded, with this result (JSON)."""

    __slots__ = ("exitcode", "result")
    __match_args__ = ("result",)

    def __init__(self, result: Any = None, *, exitcode: int = 200) -> None:
        self.result = result
        self.exitcode = _exitcode(exitcode, 2, "Ok")

    def __repr__(self) -> str:
        return f"Ok({self.result!r})"


class Failed(Exception):
    """The job ran and could not succeed; it is final at once, whatever the retry handler would say."""

    __match_args__ = ("reason",)

    def __init__(self, reason: Any = "failed", *, exitcode: int = 400) -> None:
        super().__init__(reason)
        self.reason = reason
        self.exitcode = _exitcode(exitcode, 4, "Failed")


class Retry(Exception):
    """Again: after `delay`, or at `at`, with other data if `data` is given.

    From a handler, with a time: the job goes again then, and it does not count as a failure. Without a time the
    retry handler is asked, as for an error. From a retry handler: the job goes again.
    """

    __match_args__ = ("delay", "at")

    def __init__(
        self,
        delay: float | timedelta | None = None,
        *,
        at: datetime | None = None,
        data: Any = UNSET,
        reason: str = "asked to run again",
        exitcode: int = 100,
    ) -> None:
        super().__init__(reason)
        reason = str(reason)
        if delay is not None and at is not None:
            raise Invalid("Retry takes delay or at, not both")
        self.delay, self.at, self.data, self.reason = delay, at, data, reason
        self.exitcode = _exitcode(exitcode, 1, "Retry")


class Wait:
    """The request was sent; the answer comes later. The job holds its place until then, or until `timeout` seconds."""

    __slots__ = ("timeout",)
    __match_args__ = ("timeout",)

    def __init__(self, *, timeout: float | timedelta | None = None) -> None:
        self.timeout = timeout

    def __repr__(self) -> str:
        return f"Wait(timeout={self.timeout!r})"
