"""Windows: what is accepted, how it is kept, and that the wall clock decides, minute by minute."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import cache
from itertools import permutations
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipq.errors import Invalid
from hipq.job.when import LATEST, moment, to_datetime
from hipq.job.windows import ALWAYS, Window, describe, dump, is_open, load, opening, window

MINUTE = 60_000_000
DAY = 1440 * MINUTE
WEEK = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
CHANGES = [
    ("Europe/Rome", "2026-03-29T01:00Z"),
    ("Europe/Rome", "2026-10-25T01:00Z"),
    ("Europe/Rome", "2090-03-26T01:00Z"),  # by the rule at the end of the zone's file
    ("Europe/Rome", "2090-10-29T01:00Z"),
    ("America/New_York", "2026-03-08T07:00Z"),
    ("America/New_York", "2026-11-01T06:00Z"),
    ("America/Sao_Paulo", "2018-02-18T02:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ("Africa/Casablanca", "2026-02-15T02:00Z"),
    ("Africa/Casablanca", "2026-03-22T02:00Z"),
    ("Asia/Tehran", "2021-03-21T20:30Z"),
    ("Asia/Tehran", "2021-09-21T19:30Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),  # the whole Friday is skipped
    ("Pacific/Apia", "2012-03-31T14:00Z"),
    ("America/St_Johns", "2010-03-14T03:31Z"),
    ("America/St_Johns", "2010-11-07T02:31Z"),  # from 00:01 back to 23:01 of the day before
    ("Europe/Dublin", "2026-03-29T01:00Z"),
    ("Europe/Dublin", "2026-10-25T01:00Z"),
    ("Antarctica/Troll", "2026-03-29T01:00Z"),
    ("Antarctica/Troll", "2026-10-25T01:00Z"),
]


def at(text: str, tz: str = "UTC", fold: int = 0) -> int:
    return moment(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz), fold=fold))


def instant(text: str) -> int:
    return moment(datetime.fromisoformat(text))


# The oracle: the definition, read off a zoneinfo clock minute by minute.

BEFORE, AFTER = 2 * 1440, 12 * 1440  # a weekly window may miss its day


@cache
def wall(tz: str, change: str) -> list[tuple[str, str, str]]:
    """What the clock says at each minute around the change: the time, the weekday, and yesterday's."""
    zone, middle = ZoneInfo(tz), datetime.fromisoformat(change)
    said = []
    for minute in range(-BEFORE, AFTER):
        local = (middle + timedelta(minutes=minute)).astimezone(zone)
        yesterday = date.fromordinal(local.toordinal() - 1)
        said.append((f"{local.hour:02}:{local.minute:02}", WEEK[local.weekday()], WEEK[yesterday.weekday()]))
    return said


def inside(item: Window, clock: str, today: str, yesterday: str) -> bool:
    days = item.days or WEEK
    if item.start < item.end:
        return item.start <= clock < item.end and today in days
    return (clock >= item.start and today in days) or (clock < item.end and yesterday in days)


class Oracle:
    def __init__(self, windows: Iterable[Window], change: str) -> None:
        self.clocks = [(item, wall(item.tz, change)) for item in windows]
        self.known: dict[int, bool] = {}

    def is_open(self, minute: int) -> bool:
        if minute not in self.known:
            self.known[minute] = any(inside(item, *clock[minute + BEFORE]) for item, clock in self.clocks)
        return self.known[minute]

    def opening(self, minute: int) -> int:
        return next(later for later in range(minute, AFTER) if self.is_open(later))


@st.composite
def windows_near(draw: st.DrawFn, tz: str, change: str) -> Window:
    """A window whose edges, as often as not, are where the clock is changed, and whose days are those around it."""
    clock = wall(tz, change)
    near = st.integers(-150, 150).map(lambda minute: clock[minute + BEFORE][0])
    at_change = st.sampled_from([clock[minute + BEFORE][0] for minute in (-1, 0, 1, 30, 60)])
    anywhere = st.integers(0, 1439).map(lambda minute: f"{minute // 60:02}:{minute % 60:02}")
    edges = near | at_change | anywhere
    start = draw(edges)
    end = draw((edges | st.just("24:00")).filter(lambda end: end != start))
    around = sorted({day for minute in (-1440, -1, 0, 1440) for day in clock[minute + BEFORE][1:]})
    days = draw(st.none() | st.sets(st.sampled_from(around), min_size=1) | st.sets(st.sampled_from(WEEK), min_size=1))
    return window(start, end, draw(st.sampled_from([tz, tz, tz, "UTC", "Asia/Kathmandu"])), days)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[str, list[Window]]:
    tz, change = draw(st.sampled_from(CHANGES))
    return change, draw(st.lists(windows_near(tz, change), min_size=1, max_size=3))


@pytest.mark.parametrize(("tz", "change"), CHANGES)
def test_the_clocks_change_where_these_tests_say(tz: str, change: str) -> None:
    after = datetime.fromisoformat(change).astimezone(ZoneInfo(tz))
    before = (after.astimezone(UTC) - timedelta(minutes=1)).astimezone(ZoneInfo(tz))
    assert after.utcoffset() != before.utcoffset()


@settings(max_examples=200, deadline=None)
@given(jobs())
def test_a_window_is_open_at_exactly_the_minutes_its_clock_says(job: tuple[str, list[Window]]) -> None:
    change, windows = job
    text, middle, oracle = dump(windows), instant(change), Oracle(windows, change)
    for minute in range(-800, 800):
        assert is_open(text, middle + minute * MINUTE) == oracle.is_open(minute), minute


@settings(max_examples=300, deadline=None)
@given(
    jobs(),
    st.lists(st.integers(-180, 180) | st.integers(-BEFORE, BEFORE), min_size=1, max_size=8),
    st.integers(1, MINUTE - 1),
)
def test_a_window_opens_at_the_first_minute_its_clock_says(
    job: tuple[str, list[Window]], minutes: list[int], odd: int
) -> None:
    change, windows = job
    text, middle, oracle = dump(windows), instant(change), Oracle(windows, change)
    for minute in (-1, 0, *minutes):
        now = middle + minute * MINUTE
        assert opening(text, now) == middle + oracle.opening(minute) * MINUTE, minute
        if oracle.is_open(minute):
            assert opening(text, now + odd) == now + odd
        else:
            assert opening(text, now + odd) == middle + oracle.opening(minute + 1) * MINUTE, minute


@pytest.mark.parametrize(("tz", "change"), CHANGES)
def test_every_short_window_at_a_change_of_the_clock(tz: str, change: str) -> None:
    clock, middle = wall(tz, change), instant(change)
    edges = sorted({clock[minute + BEFORE][0] for minute in (*range(-120, 121, 20), -1, 1)})
    for start, end in permutations(edges, 2):
        made = window(start, end, tz)
        text, oracle = dump([made]), Oracle([made], change)
        for minute in (-121, -30, -1, 0, 29):
            assert opening(text, middle + minute * MINUTE) == middle + oracle.opening(minute) * MINUTE, made


def test_the_repeated_hour_counts_both_times() -> None:
    text = dump([window("01:00", "02:30", "Europe/Rome")])
    assert is_open(text, at("2026-10-25T02:29", "Europe/Rome"))
    assert not is_open(text, at("2026-10-25T02:30", "Europe/Rome"))
    assert is_open(text, at("2026-10-25T02:00", "Europe/Rome", fold=1))
    assert opening(text, at("2026-10-25T02:45", "Europe/Rome")) == instant("2026-10-25T01:00Z")
    assert opening(text, at("2026-10-25T02:30", "Europe/Rome", fold=1)) == at("2026-10-26T01:00", "Europe/Rome")
    late = dump([window("02:40", "02:50", "Europe/Rome")])
    assert opening(late, at("2026-10-25T02:50", "Europe/Rome")) == at("2026-10-25T02:40", "Europe/Rome", fold=1)


def test_a_window_that_would_open_in_a_skipped_hour_opens_after_it() -> None:
    text = dump([window("02:30", "04:00", "Europe/Rome")])
    assert opening(text, at("2026-03-29T01:59", "Europe/Rome")) == at("2026-03-29T03:00", "Europe/Rome")


def test_a_window_wholly_in_a_skipped_hour_does_not_open_that_day() -> None:
    text = dump([window("02:15", "03:00", "Europe/Rome")])
    assert opening(text, at("2026-03-29T01:59", "Europe/Rome")) == at("2026-03-30T02:15", "Europe/Rome")
    weekly = dump([window("02:15", "03:00", "Europe/Rome", ["sun"])])
    assert opening(weekly, at("2026-03-22T03:00", "Europe/Rome")) == at("2026-04-05T02:15", "Europe/Rome")


def test_a_skipped_day_opens_nothing_but_its_night_goes_on_in_the_morning_after() -> None:
    thursday = at("2011-12-29T23:59", "Pacific/Apia")
    assert opening(dump([window("12:00", "13:00", "Pacific/Apia", ["fri"])]), thursday) == at(
        "2012-01-06T12:00", "Pacific/Apia"
    )
    night = dump([window("22:00", "05:00", "Pacific/Apia", ["fri"])])
    assert opening(night, thursday) == at("2011-12-31T00:00", "Pacific/Apia") == thursday + MINUTE


def test_two_changes_of_the_clock_in_the_week_that_a_window_waits() -> None:
    """Recife tried summer time from Sunday to Sunday in October 2000; no zone has changed its mind faster."""
    text = dump([window("23:15", "23:30", "America/Recife", ["sat"])])
    assert opening(text, instant("2000-10-08T02:30Z")) == instant("2000-10-15T01:15Z")


def test_an_offset_of_odd_seconds_opens_on_the_second() -> None:
    text = dump([window("12:00", "13:00", "Africa/Monrovia")])
    assert opening(text, instant("1971-06-01T00:00Z")) == instant("1971-06-01T12:44:30Z")
    assert opening(text, instant("1972-01-07T00:00Z")) == instant("1972-01-07T12:00:00Z")


def test_no_windows_are_always_open() -> None:
    assert dump([]) == ALWAYS == "[]"
    assert load(ALWAYS) == ()
    for now in (0, 12_345, LATEST):
        assert is_open(ALWAYS, now)
        assert opening(ALWAYS, now) == now


def test_a_window_opens_at_its_start_and_is_closed_at_its_end() -> None:
    text = dump([window("09:30", "17:00")])
    assert not is_open(text, at("2026-05-05T09:30") - 1)
    assert is_open(text, at("2026-05-05T09:30"))
    assert is_open(text, at("2026-05-05T17:00") - 1)
    assert not is_open(text, at("2026-05-05T17:00"))
    assert opening(text, at("2026-05-05T09:30") - 1) == at("2026-05-05T09:30")
    assert opening(text, at("2026-05-05T17:00") - 1) == at("2026-05-05T17:00") - 1
    assert opening(text, at("2026-05-05T17:00")) == at("2026-05-06T09:30")


def test_the_first_of_several_windows_in_several_zones() -> None:
    mornings = [window("09:00", "10:00", tz) for tz in ("America/New_York", "Asia/Tokyo")]
    text = dump([*mornings, window("05:00", "06:00")])
    assert opening(text, at("2026-05-05T00:30")) == at("2026-05-05T00:30")
    assert opening(text, at("2026-05-05T01:00")) == at("2026-05-05T05:00")
    assert opening(text, at("2026-05-05T06:00")) == at("2026-05-05T13:00")


@pytest.mark.parametrize("midnight", ["24:00", "00:00", time(0, 0)])
def test_a_day_ends_at_24_00(midnight: str | time) -> None:
    assert window("22:00", midnight) == window("22:00", "24:00")
    text = dump([window("22:00", midnight, days=["mon"])])
    assert is_open(text, at("2026-05-04T23:59"))
    assert not is_open(text, at("2026-05-05T00:00"))


def test_all_day_is_00_00_to_24_00() -> None:
    assert opening(dump([window("00:00", "24:00")]), 12_345) == 12_345
    weekend = dump([window("00:00", "24:00", "Europe/Rome", ["sat", "sun"])])
    assert opening(weekend, at("2026-05-05T10:00")) == at("2026-05-09T00:00", "Europe/Rome")
    assert is_open(weekend, at("2026-05-10T23:59", "Europe/Rome"))
    assert not is_open(weekend, at("2026-05-11T00:00", "Europe/Rome"))


def test_the_weekday_of_a_night_is_the_one_on_which_it_opens() -> None:
    friday = dump([window("22:00", "05:00", days=["fri"])])
    assert not is_open(friday, at("2026-05-08T04:00"))
    assert is_open(friday, at("2026-05-08T22:00"))
    assert is_open(friday, at("2026-05-09T04:59"))
    assert not is_open(friday, at("2026-05-09T05:00"))
    assert opening(friday, at("2026-05-09T05:00")) == at("2026-05-15T22:00")
    sunday = dump([window("22:00", "05:00", days=["sun"])])
    assert is_open(sunday, at("2026-05-11T04:59"))
    assert opening(sunday, at("2026-05-11T05:00")) == at("2026-05-17T22:00")


@pytest.mark.parametrize("tz", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", *sorted({tz for tz, _ in CHANGES})])
def test_the_end_of_the_year_9999_is_no_error(tz: str) -> None:
    for made in (window("11:00", "12:00", tz), window("23:59", "00:01", tz, ["mon"]), window("00:00", "24:00", tz)):
        text = dump([made])
        for before in (0, 1, MINUTE, 3 * MINUTE * 60, DAY, 3 * DAY, 8 * DAY):
            opens = opening(text, LATEST - before)
            assert LATEST - before <= opens <= LATEST
            assert is_open(text, opens) or opens == LATEST
    assert opening(dump([window("11:00", "12:00")]), LATEST) == LATEST


def test_the_year_9999_still_has_summer_time() -> None:
    text = dump([window("12:00", "13:00", "Europe/Rome")])
    assert to_datetime(opening(text, at("9999-07-01T00:00"))).hour == 10
    assert to_datetime(opening(text, at("9999-12-30T00:00"))).hour == 11


def test_times_are_texts_or_times_and_days_come_in_week_order() -> None:
    assert window(time(9, 5), time(17), "Europe/Rome", (day for day in ["sun", "mon", "sun"])) == Window(
        "09:05", "17:00", "Europe/Rome", ("mon", "sun")
    )
    assert window("09:05", "17:00") == Window("09:05", "17:00", "UTC", ())


def test_the_same_windows_are_the_same_text() -> None:
    night, noon = window("22:00", "05:00", "Europe/Rome"), window("12:00", "13:00", days=["tue", "mon"])
    text = dump([noon, night, noon])
    assert text == dump(iter([night, noon])) == dump({night, noon}) == dump(load(text))
    assert text == (
        '[{"start":"22:00","end":"05:00","tz":"Europe/Rome"},{"start":"12:00","end":"13:00","days":["mon","tue"]}]'
    )
    assert load(text) == (night, noon)
    assert text.encode() > ALWAYS.encode()


def test_the_same_meaning_is_the_same_text() -> None:
    utc = "".join(["U", "TC"])  # equal to the default, not identical
    expected = '[{"start":"22:00","end":"24:00"}]'
    assert dump([window("22:00", "24:00")]) == expected
    assert dump([window("22:00", "00:00", utc, WEEK)]) == expected
    assert dump([Window("22:00", "00:00", utc, tuple(reversed(WEEK)))]) == expected
    assert dump([*load('[{"start":"22:00","end":"00:00","tz":"UTC","days":[]}]')]) == expected


def test_windows_are_described_in_a_line() -> None:
    text = dump([window("12:00", "13:00", days=["tue", "mon"]), window("22:00", "05:00", "Europe/Rome")])
    assert describe(text) == "22:00-05:00 Europe/Rome, 12:00-13:00 UTC on mon tue"
    assert describe(ALWAYS) == "at any time"


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "9:00",
        "09:00:00",
        "24:01",
        "25:00",
        "12:60",
        "٠٩:٠٠",
        "09:00\n",
        " 09:00",
        9,
        9.5,
        None,
        datetime(2026, 1, 1),
    ],
)
def test_bad_times_of_day(bad: Any) -> None:
    for start, end in ((bad, "12:34"), ("12:34", bad)):
        with pytest.raises(Invalid, match=r"must be a time of day") as caught:
            window(start, end)
        assert "\n" not in str(caught.value)


def test_only_the_end_may_be_24_00() -> None:
    with pytest.raises(Invalid, match="start must be a time of day"):
        window("24:00", "05:00")


@pytest.mark.parametrize("bad", [time(9, 0, 1), time(9, 0, 0, 1), time(9, 0, tzinfo=UTC), time(9, tzinfo=timezone.min)])
def test_times_are_whole_minutes_of_no_zone(bad: time) -> None:
    with pytest.raises(Invalid, match="whole minute"):
        window(bad, "12:00")
    with pytest.raises(Invalid, match="whole minute"):
        window("12:00", bad)


@pytest.mark.parametrize("same", ["09:00", "00:00", time(9)])
def test_a_window_of_no_length_is_refused_with_how_to_write_all_day(same: str | time) -> None:
    with pytest.raises(Invalid, match='all day is "00:00" to "24:00"'):
        window(same, same)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "Europe",
        "Europe/Roma",
        "europe rome",
        "../UTC",
        "/etc/localtime",
        "UTC\x00",
        "UTC\n",
        "Europe/Rome/",
        "localtime",
        "posixrules",
        "right/UTC",
        "\ud800",
        "a" * 5000,
        None,
        1,
        UTC,
    ],
)
def test_bad_time_zones(bad: Any) -> None:
    with pytest.raises(Invalid, match="IANA name") as caught:
        window("09:00", "10:00", bad)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([], "at least one weekday"),
        (iter(()), "at least one weekday"),
        (["mon", "Tue"], "no weekday 'Tue'"),
        (["monday"], "no weekday"),
        ([0], "no weekday 0"),
        ([["mon"]], "no weekday"),
        ("mon", "list of weekdays"),
        (1, "list of weekdays"),
    ],
)
def test_bad_days(bad: Any, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        window("09:00", "10:00", days=bad)


@pytest.mark.parametrize(
    "bad", [None, 5, window("09:00", "10:00"), "09:00", ["09:00-10:00"], [("09:00", "10:00")], [None], {"start": 1}]
)
def test_only_windows_are_stored(bad: Any) -> None:
    with pytest.raises(Invalid, match="window"):
        dump(bad)


@pytest.mark.parametrize(
    "bad",
    [
        Window("9", "10"),
        Window("10:00", "10:00"),
        Window("09:00", "10:00", "Mars/Base"),
        Window("09:00", "10:00", days=("x",)),
    ],
)
def test_a_window_made_by_hand_is_checked_when_it_is_stored(bad: Window) -> None:
    with pytest.raises(Invalid):
        dump([bad])


def test_a_job_has_at_most_fifty_windows() -> None:
    fifty = [window(time(9, minute), "10:00") for minute in range(50)]
    assert len(load(dump(fifty + fifty))) == 50
    with pytest.raises(Invalid, match="at most 50 windows"):
        dump([*fifty, window("10:00", "11:00")])


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "{}",
        "[",
        "[1]",
        '[{"start":"09:00"}]',
        '[{"start":"09:00","end":"9"}]',
        '[{"start":"09:00","end":"10:00","until":1}]',
    ],
)
def test_a_text_that_dump_did_not_write_is_refused(bad: str) -> None:
    with pytest.raises(Invalid):
        load(bad)


def test_a_zone_this_machine_does_not_have_is_described_but_not_followed() -> None:
    text = '[{"start":"09:00","end":"10:00","tz":"Mars/Base"}]'
    assert describe(text) == "09:00-10:00 Mars/Base"
    with pytest.raises(Invalid, match="time zone database of this machine has no Mars/Base"):
        is_open(text, 0)
    with pytest.raises(Invalid, match="time zone database of this machine has no Mars/Base"):
        opening(text, 0)
