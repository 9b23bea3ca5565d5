"""Cron in a time zone, against a clock watched minute by minute; what is refused, and in which words."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from time import thread_time
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipq.errors import Invalid
from hipq.job.cron import NICKNAMES, Cron, after, between, cron, latest
from hipq.job.when import LATEST, SECOND, moment, to_datetime

MINUTE = timedelta(minutes=1)
HOUR = 3600 * SECOND
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
CHANGES = [
    ("Europe/Berlin", "2024-03-31"),
    ("Europe/Berlin", "2024-10-27"),
    ("Europe/Dublin", "2024-03-31"),  # summer is its standard time
    ("Europe/Dublin", "2024-10-27"),
    ("America/New_York", "2024-03-10"),
    ("America/New_York", "2024-11-03"),
    ("Australia/Lord_Howe", "2024-10-06"),  # half an hour
    ("Australia/Lord_Howe", "2024-04-07"),
    ("Pacific/Chatham", "2024-09-29"),  # 12:45 ahead of UTC
    ("Pacific/Chatham", "2024-04-07"),
    ("America/Santiago", "2024-09-08"),  # midnight is skipped
    ("America/Santiago", "2024-04-07"),  # 23:00 to 24:00 is repeated
    ("America/Havana", "2024-03-10"),
    ("America/Havana", "2024-11-03"),  # midnight is repeated
    ("Africa/Casablanca", "2024-03-10"),
    ("Africa/Casablanca", "2024-04-14"),
    ("Antarctica/Troll", "2024-03-31"),  # two hours
    ("Antarctica/Troll", "2024-10-27"),
    ("America/St_Johns", "2010-03-14"),  # at 00:01
    ("America/St_Johns", "2010-11-07"),  # at 00:01, back into the day before
    ("Antarctica/Casey", "2018-03-11"),  # three hours, back into the day before
    ("Pacific/Apia", "2011-04-02"),
    ("Pacific/Apia", "2011-12-31"),  # a whole day
]


class Seen(NamedTuple):
    """A minute as a clock on the wall shows it."""

    at: int
    shown: datetime
    skipped: tuple[datetime, ...]
    """What the clock would have shown since the minute before, and did not."""
    repeated: bool


class Field(NamedTuple):
    text: str
    values: frozenset[int]


class Expression(NamedTuple):
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(field.text for field in self)

    def shows(self, time: datetime) -> bool:
        if time.minute not in self.minute.values or time.hour not in self.hour.values:
            return False
        if time.month not in self.month.values:
            return False
        of_month, of_week = time.day in self.day.values, time.isoweekday() % 7 in self.weekday.values
        if self.day.text.startswith("*") or self.weekday.text.startswith("*"):
            return of_month and of_week
        return of_month or of_week

    def ticks(self, minutes: tuple[Seen, ...]) -> list[int]:
        """What the docstring of the module says, of a clock that is watched all the time."""
        if self.minute.text.startswith("*") or self.hour.text.startswith("*"):
            return [seen.at for seen in minutes if self.shows(seen.shown)]
        return [
            seen.at
            for seen in minutes
            if (self.shows(seen.shown) and not seen.repeated) or any(map(self.shows, seen.skipped))
        ]


@cache
def watched(tz: str, day: str) -> tuple[Seen, ...]:
    """Three days of a clock, minute by minute, with the change of that day in the middle."""
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=1, hours=12)
    zone = ZoneInfo(tz)
    minutes: list[Seen] = []
    before = furthest = (start - MINUTE).astimezone(zone).replace(tzinfo=None)
    for number in range(3 * 1440):
        at = start + number * MINUTE
        now = at.astimezone(zone).replace(tzinfo=None, fold=0)
        skipped = tuple(before + step * MINUTE for step in range(1, (now - before) // MINUTE))
        minutes.append(Seen(moment(at), now, skipped, now <= furthest))
        before, furthest = now, max(now, furthest)
    assert any(seen.skipped or seen.repeated for seen in minutes), "the clock does not change that day"
    return tuple(minutes)


@st.composite
def fields(draw: st.DrawFn, low: int, high: int, likely: list[int], names: list[str], star: bool) -> Field:
    """A text, and the values it stands for."""
    values = st.sampled_from(likely) | st.integers(low, high)
    step = draw(st.just(1) | st.integers(1, 4) | st.integers(1, high))
    if star:
        return Field(f"*/{step}" if step > 1 else "*", frozenset(range(low, high + 1, step)))
    texts, chosen = [], set[int]()
    for kind in draw(st.lists(st.sampled_from(["5", "5-9", "5-9/2", "5/2"]), min_size=1, max_size=3)):
        first, last = sorted((draw(values), draw(values)))
        start, stop = (draw(st.sampled_from([str(value), *names[value - low :][:1]])) for value in (first, last))
        if kind == "5" or (kind == "5-9/2" and first == last):  # cronsim takes 5-5/2 for 5/2
            texts.append(start)
            chosen.add(first)
        elif kind == "5-9":
            texts.append(f"{start}-{stop}")
            chosen.update(range(first, last + 1))
        elif kind == "5-9/2":
            texts.append(f"{start}-{stop}/{step}")
            chosen.update(range(first, last + 1, step))
        else:
            texts.append(f"{start}/{step}")
            chosen.update(range(first, high + 1, step))
    return Field(",".join(texts), frozenset(chosen))


@st.composite
def crons(draw: st.DrawFn) -> tuple[Expression, str, str]:
    """An expression with a fair chance to tick while the clocks change, and the zone and day in which they do."""
    tz, day = draw(st.sampled_from(CHANGES))
    minutes = watched(tz, day)
    odd = [time for seen in minutes for time in [*seen.skipped, *[seen.shown] * seen.repeated]]
    hours = sorted({time.hour for time in odd})
    days = sorted({time.date() for time in odd} | {datetime.fromisoformat(day).date()})
    star, date_star = st.sampled_from([True, False, False]), st.sampled_from([True, True, False])
    weekday = draw(fields(0, 7, [day.isoweekday() for day in days], WEEKDAYS, draw(date_star)))
    expression = Expression(
        draw(fields(0, 59, [0, 1, 15, 30, 45, 59], [], draw(star))),
        draw(fields(0, 23, [*hours, (hours[-1] + 1) % 24], [], draw(star))),
        draw(fields(1, 31, [day.day for day in days], [], draw(date_star))),
        draw(fields(1, 12, [day.month for day in days], MONTHS, draw(date_star))),
        Field(weekday.text.lower(), frozenset(value % 7 for value in weekday.values)),
    )
    return expression, tz, day


def at(text: str, tz: str = "UTC") -> int:
    return moment(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)))


def local(ticks: list[int], tz: str) -> list[str]:
    """As the clock showed them; the second time it did has a mark."""
    times = [to_datetime(tick).astimezone(ZoneInfo(tz)) for tick in ticks]
    return [f"{time:%d %H:%M}{chr(39) * time.fold}" for time in times]


@settings(max_examples=150, deadline=None)
@given(crons(), st.data())
def test_it_ticks_as_a_clock_watched_minute_by_minute_says(
    example: tuple[Expression, str, str], data: st.DataObject
) -> None:
    expression, tz, day = example
    minutes = watched(tz, day)
    expected = expression.ticks(minutes)
    try:
        made = cron(expression.text, tz)
    except Invalid:
        assert not expected
        return
    first, last = minutes[0].at - 1, minutes[-1].at
    middle = next(seen.at for seen in minutes if seen.skipped or seen.repeated)
    starts = st.integers(first, last) | st.integers(middle - 4 * HOUR, middle + 4 * HOUR)
    for start in (first, middle - 1, middle, data.draw(starts), data.draw(starts)):
        done = bisect_right(expected, start)
        assert between(made, start, last, 100) == expected[done : done + 100]
        assert latest(made, first, start) == (expected[done - 1] if done else 0)


@settings(max_examples=150, deadline=None)
@given(crons(), st.integers(0, at("2100-01-01")), st.integers(0, 400 * 24 * HOUR))
def test_after_latest_and_between_agree(example: tuple[Expression, str, str], start: int, length: int) -> None:
    expression, tz, _ = example
    try:
        made = cron(expression.text, tz)
    except Invalid:
        return
    until = start + length
    ticks = between(made, start, until, 40)
    assert ticks == sorted(set(ticks))
    assert all(start < tick <= until for tick in ticks)
    assert ticks[:1] == [tick for tick in [after(made, start)] if tick <= until]
    for tick, following in pairwise(ticks):
        assert after(made, tick) == after(made, following - 1) == following
        assert latest(made, start, following) == following
        assert latest(made, 0, following - 1) == latest(made, tick - 1, following - 1) == tick
        assert latest(made, tick, following - 1) == 0
    if len(ticks) < 40:
        assert latest(made, start, until) == (ticks[-1] if ticks else 0)
    assert between(made, start, until, 3) == ticks[:3]


@pytest.mark.parametrize(
    ("expression", "tz", "start", "hours", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", "2024-03-31", 12, ["31 03:00"]),
        ("0 2 * * *", "Europe/Berlin", "2024-03-31", 12, ["31 03:00"]),
        ("0-59 2 * * *", "Europe/Berlin", "2024-03-31", 12, ["31 03:00"]),
        ("0 2,3 * * *", "Europe/Berlin", "2024-03-31", 12, ["31 03:00"]),
        ("30 1-3 * * *", "Europe/Berlin", "2024-03-31", 12, ["31 01:30", "31 03:00", "31 03:30"]),
        ("*/30 2 * * *", "Europe/Berlin", "2024-03-31", 12, []),
        ("30 */2 * 3 *", "Europe/Berlin", "2024-03-31", 6, ["31 00:30", "31 04:30", "31 06:30"]),
        ("30 2 * * *", "Europe/Berlin", "2024-10-27", 12, ["27 02:30"]),
        ("30 1-3 * * *", "Europe/Berlin", "2024-10-27", 12, ["27 01:30", "27 02:30", "27 03:30"]),
        ("*/30 2 * * *", "Europe/Berlin", "2024-10-27", 12, ["27 02:00", "27 02:30", "27 02:00'", "27 02:30'"]),
        ("30 * * * *", "Europe/Berlin", "2024-10-27T02:00", 3, ["27 02:30", "27 02:30'", "27 03:30"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2024-10-06", 12, ["06 02:30"]),
        ("45 * * * *", "Australia/Lord_Howe", "2024-10-06T01:00", 2, ["06 01:45", "06 02:45"]),
        ("45 * * * *", "Australia/Lord_Howe", "2024-04-07T01:00", 3, ["07 01:45", "07 01:45'", "07 02:45"]),
        ("*/20 3 * * *", "Australia/Lord_Howe", "2024-04-07", 12, ["07 03:00", "07 03:20", "07 03:40"]),
        ("*/30 3 * * *", "Pacific/Chatham", "2026-04-05", 12, ["05 03:00", "05 03:30", "05 03:00'", "05 03:30'"]),
        ("0 0 * * *", "America/Santiago", "2024-09-07T12:00", 36, ["08 01:00", "09 00:00"]),
        ("*/20 0 * * SUN", "America/Santiago", "2024-09-07T12:00", 36, []),
        ("0 0 * * *", "America/Havana", "2024-11-02T12:00", 24, ["03 00:00"]),
        ("0 12 * * *", "Pacific/Apia", "2011-12-29", 40, ["29 12:00", "31 00:00", "31 12:00"]),
        ("0 12 30 12 *", "Pacific/Apia", "2011-12-29", 40, ["31 00:00"]),
    ],
)
def test_when_the_clocks_change(expression: str, tz: str, start: str, hours: int, expected: list[str]) -> None:
    made, begin = cron(expression, tz), at(start, tz) - 1
    ticks = between(made, begin, begin + hours * HOUR, 10)
    assert local(ticks, tz) == expected
    for number, tick in enumerate(ticks):
        assert between(made, begin, tick, 10) == ticks[: number + 1]
        assert between(made, begin, tick - 1, 10) == ticks[:number]
        assert latest(made, begin, tick) == latest(made, tick - 1, tick + 1) == tick
        assert latest(made, tick, tick + 1) == 0


def test_a_fixed_time_that_ticked_does_not_tick_again_for_one_who_asks_in_the_second_pass() -> None:
    made = cron("30 2 * * *", "Europe/Berlin")
    second_pass = at("2024-10-27T01:15")  # in UTC; 02:15 in Berlin
    assert local([latest(made, 0, second_pass), after(made, second_pass)], "Europe/Berlin") == ["27 02:30", "28 02:30"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 13 * FRI", ["06 00:00", "13 00:00", "20 00:00"]),
        ("0 0 */2 * FRI", ["13 00:00", "27 00:00", "11 00:00"]),
        ("0 0 L * *", ["30 00:00", "31 00:00", "30 00:00"]),
        ("0 0 * * 7", ["01 00:00", "08 00:00", "15 00:00"]),
        ("0 0 * * mon#1", ["02 00:00", "07 00:00", "04 00:00"]),
        ("20/20 9 * sep-dec 1-5", ["02 09:20", "02 09:40", "03 09:20"]),
    ],
)
def test_fields(expression: str, expected: list[str]) -> None:
    assert local(between(cron(expression), at("2024-09-01") - 1, LATEST, 3), "UTC") == expected


@pytest.mark.parametrize(
    ("nickname", "expected"),
    [
        ("@hourly", "2024-09-04T15:00"),
        ("@daily", "2024-09-05"),
        ("@midnight", "2024-09-05"),
        ("@weekly", "2024-09-08"),
        ("@monthly", "2024-10-01"),
        ("@yearly", "2025-01-01"),
        (" @Annually ", "2025-01-01"),
    ],
)
def test_nicknames(nickname: str, expected: str) -> None:
    made = cron(nickname, "America/New_York")
    assert after(made, at("2024-09-04T14:30", made.tz)) == at(expected, made.tz)
    assert made == cron(NICKNAMES[nickname.strip().lower()], made.tz)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("60 * * * *", "the minute .* cannot be '60'"),
        ("* 24 * * *", "the hour .* cannot be '24'"),
        ("* * 0 * *", "the day-of-month .* cannot be '0'"),
        ("* * * 13 *", "the month .* cannot be '13'"),
        ("* * * * 8", "the day-of-week .* cannot be '8'"),
        ("* * * * FRI-MON", "the day-of-week .* ranges go up"),
        ("*/0 * * * *", "the minute"),
        ("- * * * *", "the minute"),
        ("* ? * * *", "the hour"),
        ("1,,2 * * * *", "the minute"),
        ("* * * * \ud800", "the day-of-week"),
        ("٣ * * * *", "the minute"),
        ("*/" + "9" * 900 + " * 30 2 *", "never ticks"),
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("*/15 * * * * *", "five fields minute hour day-of-month month day-of-week, not 6"),
        ("* " * 600, "at most 1000 characters"),
        ("9" * 5000 + " * * * *", "at most 1000 characters"),
        ("@reboot", "not a time"),
        ("@fortnightly", "one of @hourly, @daily"),
        ("@", "one of @hourly, @daily"),
        (None, "must be text"),
        (5, "must be text"),
        ("0 0 30 2 *", "'0 0 30 2 \\*' never ticks"),
        ("0 0 31 2,4,6 *", "never ticks"),
        ("* * */20 * 1L", "never ticks"),
        ("0 0 */29 2 MON#5", "never ticks"),
    ],
    ids=lambda value: None if isinstance(value, str) and len(value) < 40 else type(value).__name__,
)
def test_what_never_ticks_or_is_no_cron_is_refused_at_once_in_one_sentence(bad: Any, said: str) -> None:
    begun = thread_time()
    with pytest.raises(Invalid, match=said) as caught:
        cron(bad)
    assert thread_time() - begun < 0.5
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_time_that_the_clocks_skip_every_year_never_ticks() -> None:
    expression = "*/10 2 8-14 3 */7"  # the second Sunday in March
    assert after(cron(expression, "Europe/Berlin"), 0)
    begun = thread_time()
    with pytest.raises(Invalid, match="no such day or time in America/New_York"):
        cron(expression, "America/New_York")
    assert thread_time() - begun < 1


@pytest.mark.parametrize(
    "bad",
    ["", "Berlin", "europe/nowhere", "America", "../UTC", "/etc/passwd", "a\x00", "x" * 5000, "\ud800", "localtime",
     "right/Europe/Berlin", "zone.tab", "+02:00", None, 5, UTC],
)  # fmt: skip
def test_bad_time_zones(bad: Any) -> None:
    with pytest.raises(Invalid, match="must be an IANA name") as caught:
        cron("0 0 * * *", bad)
    assert len(str(caught.value)) < 200


def test_a_cron_is_a_value_that_can_be_kept() -> None:
    made = cron("  0   9 * *\tMON-FRI ", "Europe/Berlin")
    assert made == Cron("0 9 * * MON-FRI", "Europe/Berlin")
    assert msgspec.json.decode(msgspec.json.encode(made), type=Cron) == made
    assert hash(made) == hash(cron("0 9 * * MON-FRI", "Europe/Berlin"))


@pytest.mark.parametrize("tz", ["UTC", "Asia/Tokyo", "Pacific/Kiritimati", "America/Los_Angeles", "Etc/GMT+12"])
@pytest.mark.parametrize("expression", ["* * * * *", "0 0 * * *", "30 11 31 12 *", "0 0 29 2 */7"])
def test_nothing_ticks_beyond_the_year_9999(expression: str, tz: str) -> None:
    made = cron(expression, tz)
    last = latest(made, 0, LATEST)
    assert at("9900-01-01") < last <= LATEST
    assert after(made, last - 1) == last
    assert after(made, last) == after(made, LATEST) == after(made, LATEST + 1) == 0
    assert latest(made, last, LATEST + 1) == 0
    assert between(made, last - 1, LATEST + 1, 10) == [last]


def test_the_last_minute_of_the_year_9999_ticks() -> None:
    assert latest(cron("* * * * *"), 0, LATEST) == at("9999-12-31T23:59")
    assert after(cron("59 23 31 12 *"), at("9999-01-01")) == at("9999-12-31T23:59")


@pytest.mark.parametrize("tz", ["UTC", "Europe/Berlin", "America/Los_Angeles"])
def test_nothing_ticks_before_1970_nor_at_zero_which_means_never(tz: str) -> None:
    made = cron("* * * * *", tz)
    assert after(made, 0) == after(made, -1) == after(made, -(10**20)) == 60 * SECOND
    assert latest(made, -(10**20), 60 * SECOND - 1) == latest(made, -5, -1) == latest(made, 5, 4) == 0
    assert between(made, -5, 120 * SECOND, 5) == [60 * SECOND, 120 * SECOND]
    assert between(made, 0, LATEST, 0) == []


@pytest.mark.parametrize("tz", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize(
    "expression", ["* * * * *", "* * 1 1 *", "0 0 * * *", "0 0 1 1 *", "0 0 29 2 *", "0 0 29 2 */7", "* * * 2 MON#5"]
)
def test_the_latest_tick_of_thirty_years_is_found_at_once(expression: str, tz: str) -> None:
    made = cron(expression, tz)
    start, until = at("2010-06-15T12:34"), at("2040-06-15T12:34")
    begun = thread_time()
    last = latest(made, start, until)
    assert thread_time() - begun < 0.2
    assert last
    assert not between(made, last, until, 1)
