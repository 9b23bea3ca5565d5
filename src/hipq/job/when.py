"""Moments and durations: what users write, as whole microseconds. What no store could keep is refused."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from hipq.errors import Invalid, shown

SECOND: Final = 1_000_000
LATEST: Final = 253_402_300_799 * SECOND  # 9999-12-31T23:59:59Z
LONGEST: Final = 3_155_760_000.0  # a hundred years, in seconds

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def moment(value: datetime, name: str = "at") -> int:
    if not isinstance(value, datetime):
        raise Invalid(f"{name} must be a datetime with a time zone, not {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise Invalid(f"{name} has no time zone: {value.isoformat()} could be any of some forty moments; add one")
    try:
        micros = (value - _EPOCH) // _MICROSECOND
    except OverflowError:
        raise Invalid(f"{name} must be between the years 1970 and 9999") from None
    if not 0 <= micros <= LATEST:
        raise Invalid(f"{name} must be between the years 1970 and 9999, not {value.isoformat()}")
    return micros


def seconds(value: float | timedelta, name: str, *, least: float = 0.0) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Invalid(f"{name} must be a number of seconds or a timedelta, not {type(value).__name__}")
    if not (isinstance(value, int) or math.isfinite(value)) or not least <= value <= LONGEST:
        raise Invalid(f"{name} must be between {least:g} seconds and a hundred years, not {shown(value)}")
    return float(value)


def duration(value: str | float, name: str, *, least: float = 0.0) -> float:
    """Seconds, from a number or a text like 90s, 5m, 12h or 30d."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)", str(value))
    if not match:
        raise Invalid(f"{name} must be a number of seconds, or like 90s, 5m, 12h or 30d, not {value!r:.40}")
    return seconds(float(match[1]) * _UNITS[match[2]], name, least=least)


def later(now: int, delay: float) -> int:
    return min(now + round(delay * SECOND), LATEST)


def to_datetime(micros: int) -> datetime:
    """A moment as a datetime. One that another program wrote and no calendar has becomes the nearest that hipq
    knows."""
    return _EPOCH + timedelta(microseconds=min(max(micros, 0), LATEST))


def utc_text(micros: int) -> str:
    """A moment as sentences have it: 2027-01-15 08:00:00 UTC, with milliseconds if it is not a whole second."""
    digits = "milliseconds" if micros % SECOND else "seconds"
    return to_datetime(micros).isoformat(" ", digits).replace("+00:00", " UTC")


def lasting(seconds: float) -> str:
    """A time in a table: 250ms, 1.5s, 42s, 5m12s, 3h05m, 4d02h."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.5:
        return f"{seconds:.2g}s"
    minutes, hours, days = round(seconds) // 60, round(seconds) // 3600, round(seconds) // 86_400
    if hours < 1:
        return f"{minutes}m{round(seconds) % 60:02}s"
    return f"{hours}h{minutes % 60:02}m" if days < 1 else f"{days}d{hours % 24:02}h"
