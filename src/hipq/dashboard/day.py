"""The next 24 hours as a picture: when windows are open, and when cron schedules tick."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from hipq.job.cron import between, cron
from hipq.job.when import SECOND, to_datetime
from hipq.job.windows import is_open

HOUR: Final = 3600 * SECOND
STEP: Final = 5 * 60 * SECOND
"""How exactly the picture tells when a window opens and closes."""
WIDTH: Final = 24 * HOUR // STEP
MOST_TICKS: Final = 96
"""Ticks of one schedule that are drawn one by one: more than these are a bar."""
MOST_ROWS: Final = 20


class Row(NamedTuple):
    name: str
    kind: str
    """"open" or "tick"."""
    spans: list[tuple[int, int]]
    """Where it is open, or ticks all the time: the place of the beginning, and how wide it is, in steps."""
    ticks: list[int]
    """Where it ticks."""
    says: str
    """The same in words."""


class Day(NamedTuple):
    rows: list[Row]
    hours: list[tuple[int, str]]
    """Places of full hours, and what they are called, in UTC."""
    width: int
    more: int
    """Rows that were left out."""


@lru_cache(maxsize=16)
def day_of(windows: tuple[tuple[str, str], ...], crons: tuple[tuple[str, str, str], ...], now: int) -> Day:
    """Of job types with their windows, and of schedules with their expressions and time zones. To compute it takes some
    tens of milliseconds: give a moment that stays the same for a while."""
    rows = [_windows(name, text, now) for name, text in windows[:MOST_ROWS]]
    rows += [_ticks(name, expression, tz, now) for name, expression, tz in crons[: MOST_ROWS - len(rows)]]
    first = -(-now // HOUR) * HOUR
    hours = [((at - now) // STEP, f"{to_datetime(at):%H:%M}") for at in range(first, now + 24 * HOUR, 3 * HOUR)]
    return Day(rows, hours, WIDTH, len(windows) + len(crons) - len(rows))


def _windows(name: str, text: str, now: int) -> Row:
    spans: list[tuple[int, int]] = []
    for place in range(WIDTH):
        if is_open(text, now + place * STEP):
            begun, wide = spans.pop() if spans and sum(spans[-1]) == place else (place, 0)
            spans.append((begun, wide + 1))
    says = ", ".join(f"{_clock(now, begun)} to {_clock(now, begun + wide)}" for begun, wide in spans)
    return Row(name, "open", spans, [], f"open {says}" if says else "not open in the next 24 hours")


def _ticks(name: str, expression: str, tz: str, now: int) -> Row:
    ticks = between(cron(expression, tz), now, now + 24 * HOUR, MOST_TICKS + 1)
    if len(ticks) > MOST_TICKS:
        return Row(name, "tick", [(0, WIDTH)], [], f"ticks more than {MOST_TICKS} times")
    places = [(at - now) // STEP for at in ticks]
    few = ", ".join(f"{to_datetime(at):%H:%M}" for at in ticks[:6])
    more = f" and {len(ticks) - 6} more" if len(ticks) > 6 else ""
    return Row(name, "tick", [], places, f"ticks at {few}{more}" if ticks else "does not tick in the next 24 hours")


def _clock(now: int, place: int) -> str:
    return f"{to_datetime(now + place * STEP):%H:%M}"
