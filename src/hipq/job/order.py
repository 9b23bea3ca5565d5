"""In which order due jobs start: one text a job, its rank. Lower goes first, byte by byte; equal ranks go by id.

time      time rounded down to the grain, then priority
priority  priority, then time
aged(s)   time + priority * s: each point of priority is worth s seconds of waiting, so nothing starves

A time and a 32-bit priority do not fit into the 64 bits of a database's integer. So a rank is written in hexadecimal
digits, as many for every job of an order: then the order of the texts is the order of the numbers, in every database.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from hipq.errors import Invalid, shown
from hipq.job.when import SECOND, seconds

PRIORITY_MIN: Final = -(1 << 31)
PRIORITY_MAX: Final = (1 << 31) - 1
BEHIND: Final = "~"
"""A text that sorts after every rank."""
_MOST_WORTH: Final = 86_400
"""The most seconds that a point of priority is worth."""
UNRANKED: Final = ""
"""The rank, by the database's default, of a job that another program added in plain SQL: engines give it its own."""


class Order(Protocol):
    def rank(self, scheduled: int, priority: int) -> str: ...


class ByTime(msgspec.Struct, frozen=True, tag=True):
    grain: int = SECOND

    def rank(self, scheduled: int, priority: int) -> str:
        return f"{scheduled // self.grain:012x}{priority - PRIORITY_MIN:08x}"


class ByPriority(msgspec.Struct, frozen=True, tag=True):
    def rank(self, scheduled: int, priority: int) -> str:
        return f"{priority - PRIORITY_MIN:08x}{scheduled:015x}"


class Aged(msgspec.Struct, frozen=True, tag=True):
    worth: int
    """Microseconds a point of priority is worth."""

    def rank(self, scheduled: int, priority: int) -> str:
        return f"{scheduled + priority * self.worth - PRIORITY_MIN * _MOST_WORTH * SECOND:018x}"


AnyOrder = ByTime | ByPriority | Aged


def aged(seconds_per_point: float) -> Aged:
    """An order by time in which each point of priority is worth `seconds_per_point`: a job of priority 100 starts
    before one of priority 0 only if that came more than 100 times as many seconds later."""
    worth = seconds(seconds_per_point, "aged")
    if worth > _MOST_WORTH:
        raise Invalid(f"aged: a point of priority is worth at most {_MOST_WORTH} seconds")
    return Aged(round(worth * SECOND))


def order(wanted: str | Aged, grain: float = 1.0) -> AnyOrder:
    if isinstance(wanted, Aged):
        return wanted
    if wanted == "time":
        if not 0.001 <= seconds(grain, "grain") <= 86_400:
            raise Invalid("grain must be between 0.001 and 86400 seconds")
        return ByTime(round(grain * SECOND))
    if wanted == "priority":
        return ByPriority()
    raise Invalid(f'order must be "time", "priority" or aged(seconds), not {shown(wanted)}')
