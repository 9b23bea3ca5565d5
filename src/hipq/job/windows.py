"""When on the clock a job may start: times of day in a time zone, on some weekdays.

A moment is in a window when the wall clock of the zone says so. An hour that the clock repeats counts both times; one
that it skips never comes, so a window that would open in it opens after it, or not at all that day.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from hipq.errors import Invalid, shown
from hipq.job.when import LATEST, SECOND

ALWAYS: Final = "[]"
MOST: Final = 50
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_CLOCK: Final = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")
# The names left out are another zone on another machine, or count leap seconds.
_ZONE: Final = re.compile(r"(?!localtime|posix|right/)[A-Za-z][A-Za-z0-9_+/-]{0,63}")
_DAY: Final = 86_400
_WEEK: Final = 7 * _DAY
_THURSDAY: Final = 3 * _DAY  # 1970 began on one
_LAST_READ: Final = LATEST // SECOND - 2 * _DAY  # a datetime in the year 10000 does not exist, east of Greenwich
_NO_SHIFT: Final = timedelta(0)


class Window(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A time of day; made by `window`, which checks it."""

    start: str
    end: str
    tz: str = "UTC"
    days: tuple[str, ...] = ()
    """The days on which it opens; none for every day."""


def window(start: str | time, end: str | time, tz: str = "UTC", days: Iterable[str] | None = None) -> Window:
    """From `start` until just before `end`, by the clock on the wall of the time zone `tz`; over midnight when the end
    comes before the start.

    `days` ("mon" to "sun"; all, without them) are those on which it opens: 22:00 to 05:00 on "fri" closes on Saturday.
    """
    made = _formed(start, end, tz, days)
    _zone(made.tz)
    return made


def dump(windows: Iterable[Window]) -> str:
    """As a job's row keeps them: the same windows always give the same text."""
    if not isinstance(windows, Iterable):
        raise Invalid(f"windows must be a list of windows, not {shown(windows)}")
    kept = set()
    for item in windows:
        if not isinstance(item, Window):
            raise Invalid(f"a window is made by window(start, end), not {shown(item)}")
        kept.add(window(item.start, item.end, item.tz, None if item.days == () else item.days))
        if len(kept) > MOST:
            raise Invalid(f"a job has at most {MOST} windows")
    ordered = sorted(kept, key=lambda item: (item.tz, item.start, item.end, item.days))
    return msgspec.json.encode(ordered).decode()


@lru_cache(maxsize=1024)
def load(text: str) -> tuple[Window, ...]:
    try:
        found = msgspec.json.decode(text, type=tuple[Window, ...])
    except msgspec.MsgspecError as error:
        raise Invalid(f"these windows cannot be read: {error}") from None
    return tuple(_formed(item.start, item.end, item.tz, item.days or None) for item in found)


def describe(text: str) -> str:
    return ", ".join(_described(item) for item in load(text)) or "at any time"


def is_open(text: str, now: int) -> bool:
    weeks, second = _weeks(text), now // SECOND
    for zone, edges in weeks:
        if _wait(edges, second + _offset(zone, second)) == 0:
            return True
    return not weeks


def opening(text: str, at: int) -> int:
    """The first moment, not before `at`, at which one of the windows is open; the end of time if that comes first."""
    second = at // SECOND
    first = min((_opening(week, second) for week in _weeks(text)), default=second)
    return at if first == second else min(first * SECOND, LATEST)


class _Week(NamedTuple):
    """The windows of one time zone, as one week of its wall clock: every week is the same, whatever the clock then
    does."""

    zone: tzinfo
    edges: tuple[int, ...]
    """Seconds since Monday began: open, close, open, close, ..."""


def _formed(start: str | time, end: str | time, tz: str, days: Iterable[str] | None) -> Window:
    """Checks all that can be checked without a time zone database: stored windows are shown even where their zone is
    missing."""
    start, end = _clock(start, "start"), _clock(end, "end")
    if start == end:
        raise Invalid(f'a window from {start} to {end} has no length; all day is "00:00" to "24:00"')
    name = _ZONE.fullmatch(tz) if isinstance(tz, str) else None
    if name is None:
        raise Invalid(f'tz must be the IANA name of a time zone, such as "Europe/Rome", not {shown(tz)}')
    # Interned: msgspec knows a default by identity, and another "UTC" would be written out.
    return Window(start, "24:00" if end == "00:00" else end, sys.intern(name[0]), _days(days))


def _clock(value: str | time, name: str) -> str:
    if isinstance(value, time):
        if value.tzinfo is not None or value.second or value.microsecond:
            raise Invalid(f"{name} must be a whole minute with no time zone of its own, not {shown(value)}")
        return f"{value.hour:02}:{value.minute:02}"
    if name == "end" and value == "24:00":
        return "24:00"
    matched = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if matched is None:
        raise Invalid(f'{name} must be a time of day such as "09:30", not {shown(value)}')
    return matched[0]


def _days(wanted: Iterable[str] | None) -> tuple[str, ...]:
    if wanted is None:
        return ()
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise Invalid(f'days must be a list of weekdays, such as ["mon", "tue"], not {shown(wanted)}')
    given = set()
    for day in wanted:
        if not isinstance(day, str) or day not in DAYS:
            raise Invalid(f"there is no weekday {shown(day)}; there are {', '.join(DAYS)}")
        given.add(day)
    if not given:
        raise Invalid("days must name at least one weekday; leave it out for every day")
    return () if len(given) == 7 else tuple(day for day in DAYS if day in given)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # most programs have no windows

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise Invalid(
            f'the time zone database of this machine has no {name}; use an IANA name such as "Europe/Rome"'
        ) from None


def _described(item: Window) -> str:
    days = f" on {' '.join(item.days)}" if item.days else ""
    return f"{item.start}-{item.end} {item.tz}{days}"


@lru_cache(maxsize=1024)
def _weeks(text: str) -> tuple[_Week, ...]:
    spans: dict[str, list[tuple[int, int]]] = {}
    for item in load(text):
        spans.setdefault(item.tz, []).extend(_spans(item))
    return tuple(_Week(_zone(name), _edges(found)) for name, found in spans.items())


def _spans(item: Window) -> Iterable[tuple[int, int]]:
    for day in item.days or DAYS:
        midnight = DAYS.index(day) * _DAY
        opens, closes = midnight + _seconds(item.start), midnight + _seconds(item.end)
        if closes < opens:
            closes += _DAY
        if closes > _WEEK:  # Sunday night ends in the Monday at the other end of the week
            yield 0, closes - _WEEK
        yield opens, min(closes, _WEEK)


def _seconds(clock: str) -> int:
    return int(clock[:2]) * 3600 + int(clock[3:]) * 60


def _edges(spans: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    edges: list[int] = []
    for opens, closes in sorted(spans):
        if edges and opens <= edges[-1]:
            edges[-1] = max(edges[-1], closes)
        else:
            edges += opens, closes
    return tuple(edges)


def _offset(zone: tzinfo, second: int) -> int:
    shift = datetime.fromtimestamp(min(second, _LAST_READ), zone).utcoffset() or _NO_SHIFT
    return shift.days * _DAY + shift.seconds


def _wait(edges: tuple[int, ...], local: int) -> int:
    """Seconds until the windows open, on a clock that nobody changes."""
    second = (local + _THURSDAY) % _WEEK
    passed = bisect_right(edges, second)
    if passed % 2:
        return 0
    return edges[passed] - second if passed < len(edges) else edges[0] + _WEEK - second


def _opening(week: _Week, second: int) -> int:
    """The moment at which one of the windows is open next. This search ends: a clock that is not changed for a week
    opens every window, and no zone changes its clock every week."""
    while True:
        offset = _offset(week.zone, second)
        hoped = second + _wait(week.edges, second + offset)
        changed = _change(week.zone, offset, second, hoped)
        if changed is None:
            return hoped
        second = changed


def _change(zone: tzinfo, offset: int, after: int, until: int) -> int | None:
    """The first second in (after, until] with another offset from UTC. Searched day by day: no zone has changed twice
    within six days."""
    while after < until:
        probe = min(after + _DAY, until)
        if _offset(zone, probe) != offset:
            span = range(after + 1, probe + 1)
            return span[bisect_left(span, True, key=lambda at: _offset(zone, at) != offset)]
        after = probe
    return None
