"""When a cron expression ticks in a time zone. cronsim reads the five fields; the clock changes are handled here.

Fields are those of Debian's cron: minute, hour, day-of-month, month, day-of-week, and no seconds. Day-of-month and
day-of-week: one match is enough, unless one of them begins with `*` (`*/2` too): then both must match.

When the clocks change, what counts is whether the minute or the hour begins with `*`:

                 one does: `*/10 2 * * *`    neither does: `30 2 * * *`, `0 0-23 * * *`
skipped times    do not tick                 tick once for all of them, at the moment the clock jumps
repeated times   tick both times             tick the first time

So `0 0 * * *` ticks once a day also where midnight is skipped or repeated, and `0 * * * *` goes on hour by hour. A tick
due at the very moment of the jump is one with those it skipped. A jump of any length is handled alike, half an hour at
Lord Howe or a day in Samoa: `0 12 * * *` ticked at 00:00 on 31 December 2011 for the 30th, which Samoa did not have.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from hipq.errors import Invalid, shown
from hipq.job.when import LATEST, SECOND, moment, to_datetime

LENGTH_LIMIT: Final = 1000
NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_FIELDS: Final = {
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, L or LW",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT",
}
_NOT_IANA: Final = (
    "posix",
    "right",
    "posixrules",
    "localtime",
)  # files beside the zones: known to this machine only
_EPOCH: Final = datetime(1970, 1, 1)  # by the wall clock
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = 86_400 * SECOND
_NEAR: Final = 2 * _DAY  # more than any clock ever jumped, and less than any two of its changes are apart (a week)
_CYCLE: Final = 500 * 366 * _DAY  # the calendar and the rules repeat after 400 years: no tick by then, no tick ever
_SOME_DAY: Final = moment(datetime(2100, 1, 1, tzinfo=UTC))


class Cron(msgspec.Struct, frozen=True):
    expression: str
    tz: str = "UTC"


def cron(expression: str, tz: str = "UTC") -> Cron:
    """A checked cron expression, such as cron("0 9 * * MON-FRI", "Europe/Berlin")."""
    if not isinstance(expression, str):
        raise Invalid(f'a cron expression must be text such as "0 9 * * MON-FRI", not {shown(expression)}')
    if len(expression) > LENGTH_LIMIT:
        raise Invalid(f"a cron expression has at most {LENGTH_LIMIT} characters, not {len(expression)}")
    parts = _spelled_out(expression).split()
    if len(parts) != len(_FIELDS):
        raise Invalid(
            f"a cron expression has the five fields {' '.join(_FIELDS)}, not {len(parts)}: {shown(expression)}"
        )
    for place, (name, allowed) in enumerate(_FIELDS.items()):
        if not _parses(" ".join(part if place == other else "*" for other, part in enumerate(parts))):
            raise Invalid(
                f"the {name} of a cron cannot be {shown(parts[place])}: it is made of {allowed}, ranges go up"
            )
    made = Cron(" ".join(parts), tz)
    _zone(tz)
    if not _parses(made.expression) or not after(made, _SOME_DAY):
        raise Invalid(f"the cron expression {shown(made.expression)} never ticks: there is no such day or time in {tz}")
    return made


def after(cron: Cron, at: int) -> int:
    """The first tick after `at`; 0 when there is none up to the year 9999."""
    return _first(cron, at, LATEST)


def latest(cron: Cron, after: int, until: int) -> int:
    """The last tick in (after, until], or 0: searched backwards, so years cost no more than minutes."""
    zone, fixed = _zone(cron.tz), _fixed(cron)
    after, at = max(after, 0), min(until, LATEST)
    while at > after:
        offset = _offset(zone, at)
        wall = _wall_by(cron.expression, at + offset)
        tick = wall - offset  # unless the clock changed since
        seen = max(tick, at - _NEAR)
        before = _offset(zone, seen)
        if before != offset:
            change = _change(zone, seen, at, before)
            if fixed and wall >= change + before:  # skipped by the jump
                return change if change > after else 0
            at = change - 1
        elif tick < seen:
            at = min(seen, tick + _NEAR)
        elif fixed and _repeated(zone, tick):
            at = tick - 1  # it ticked the first time
        else:
            return tick if tick > after else 0
    return 0


def between(cron: Cron, after: int, until: int, limit: int) -> list[int]:
    """The first `limit` ticks in (after, until], in order."""
    ticks: list[int] = []
    while len(ticks) < limit and (after := _first(cron, after, until)):
        ticks.append(after)
    return ticks


def _first(cron: Cron, after: int, until: int) -> int:
    """The first tick in (after, until], or 0. From one change of the clock to the next, it and UTC go side by side."""
    zone, fixed = _zone(cron.tz), _fixed(cron)
    at = max(after, 0)
    until = min(until, LATEST, at + _CYCLE)
    offset = _offset(zone, at)
    while at < until:
        wall = _wall_after(cron.expression, at + offset)
        tick = wall - offset  # unless the clock changes before it
        seen = min(tick, at + _NEAR)
        if _offset(zone, seen) != offset:
            change = _change(zone, at, seen, offset)
            offset = _offset(zone, change)
            if fixed and wall < change + offset:  # skipped by the jump
                return change if change <= until else 0
            at = change - 1  # not `change` itself: a tick may fall on it
        elif tick > seen:
            at = max(seen, tick - _NEAR)  # the clock may change on the way, but never by enough to tick there
            offset = _offset(zone, at)
        elif tick > until:
            return 0
        elif fixed and _repeated(zone, tick):
            at = tick  # it ticked the first time
        else:
            return tick
    return 0


def _fixed(cron: Cron) -> bool:
    minute, hour, *_ = cron.expression.split()
    return not (minute.startswith("*") or hour.startswith("*"))


# On the wall: a clock that never changes. cronsim is given no zone: with one, it loses ticks around a change of half an
# hour, makes one up where midnight is skipped, names a time that is over in a repeated hour, and in some never ends.


def _wall_after(expression: str, wall: int) -> int:
    try:
        found = next(CronSim(expression, _EPOCH + timedelta(microseconds=wall)))
    except (StopIteration, OverflowError):  # never, or not in a year Python can count
        return LATEST + 2 * _NEAR
    return (found - _EPOCH) // _MICROSECOND


def _wall_by(expression: str, wall: int) -> int:
    end = _EPOCH + timedelta(microseconds=min(wall, LATEST) + 1)  # or cronsim leaves out the end
    found = next(CronSim(expression, end, reverse=True), _EPOCH - timedelta(days=9))
    return (found - _EPOCH) // _MICROSECOND


def _offset(zone: tzinfo, at: int) -> int:
    """How far the clock on the wall is ahead of UTC."""
    here = to_datetime(min(at, LATEST - _DAY)).astimezone(zone)  # later, east of Greenwich, is the year 10000
    return (here.utcoffset() or timedelta()) // _MICROSECOND


def _repeated(zone: tzinfo, at: int) -> bool:
    return to_datetime(at).astimezone(zone).fold == 1


def _change(zone: tzinfo, after: int, until: int, offset: int) -> int:
    """The moment in (after, until] at which the clock of the zone leaves this offset."""
    span = range(after + 1, until + 1)
    return span[bisect_left(span, True, key=lambda at: _offset(zone, at) != offset)]


def _parses(expression: str) -> bool:
    try:
        CronSim(expression, datetime(2000, 1, 1))
    except CronSimError:
        return False
    return True


def _zone(tz: str) -> tzinfo:
    if tz == "UTC":
        return UTC  # a machine without zone files has this one
    try:
        if isinstance(tz, str) and tz.partition("/")[0] not in _NOT_IANA:
            return ZoneInfo(tz)
    except (LookupError, ValueError, OSError):
        pass
    raise Invalid(f"a time zone must be an IANA name this machine knows, such as Europe/Berlin, not {shown(tz)}")


def _spelled_out(expression: str) -> str:
    nickname = expression.strip().lower()
    if not nickname.startswith("@"):
        return expression
    if nickname == "@reboot":
        raise Invalid("@reboot is not a time: add such a job where your program starts")
    if nickname not in NICKNAMES:
        raise Invalid(f"a cron nickname is one of {', '.join(NICKNAMES)}, not {shown(expression)}")
    return NICKNAMES[nickname]
