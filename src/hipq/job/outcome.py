"""What a handler may return (or raise): Ok, Failed, Retry, Wait; an answer handler also Progress. Anything else is a
result, and means Ok."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from hipq.errors import Invalid, shown

UNSET: Final[Any] = object()
"""A default that is told apart from None, which is data too."""


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
    """Run again: after `delay`, or at `at`; with other data, if `data` is given.

    From a handler, with a time: the job runs again then, and that is not a failure. Without a time its retry handler is
    asked, as for an error. From a retry handler: the job runs again.
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


class ServiceError(Exception):
    """Raised by a handler when the service it asked could not do the work. An error like any other, for the retry
    handler, but the next try is not before `retry_after` seconds, if the service asked for that."""

    def __init__(self, reason: str, *, exitcode: int = 500, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.exitcode = _exitcode(exitcode, 5, "ServiceError")
        self.retry_after = retry_after


class Wait:
    """The request was sent; the answer comes later. The job holds its place until then, or until `timeout` seconds.

    `key`: what the answer will name, where that is known only now. Answers find the job under this key and under its
    own, which does not change. `heartbeat`: seconds without a sign of life (an answer that is `Progress`) after which
    it is over before that. `on_timeout`: what no answer means, as Ok, Failed or Retry; without it, an error.
    """

    __slots__ = ("heartbeat", "key", "on_timeout", "timeout")
    __match_args__ = ("key", "timeout")

    def __init__(
        self,
        *,
        key: str | None = None,
        timeout: float | timedelta | None = None,
        heartbeat: float | timedelta | None = None,
        on_timeout: Ok | Failed | Retry | None = None,
    ) -> None:
        self.key, self.timeout, self.heartbeat, self.on_timeout = key, timeout, heartbeat, on_timeout

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name in ("key", "timeout", "heartbeat", "on_timeout")}
        return f"Wait({', '.join(f'{name}={value!r}' for name, value in given.items() if value is not None)})"


class Progress:
    """From an answer handler: this was not the last answer, and the job goes on waiting. `extend`: its time-out is this
    many seconds from now; without it the time-out stays."""

    __slots__ = ("extend",)
    __match_args__ = ("extend",)

    def __init__(self, *, extend: float | timedelta | None = None) -> None:
        self.extend = extend

    def __repr__(self) -> str:
        return f"Progress(extend={self.extend!r})"
