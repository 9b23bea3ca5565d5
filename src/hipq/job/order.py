"""In which order due jobs start: one number a job, its rank. Lower goes first; equal ranks go by id.

time      time rounded down to the grain, then priority: seed 000's table
priority  priority, then time
aged(s)   time + priority * s: each point of priority is worth s seconds of waiting, so nothing starves
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from hipq.errors import Invalid, shown
from hipq.job.when import SECOND, seconds

PRIORITY_BITS: Final = 15
MILLI_BITS: Final = 48  # milliseconds up to the year 9999
PRIORITY_MAX: Final = (1 << PRIORITY_BITS) - 1


class Order(Protocol):
    def rank(self, scheduled: int, priority: int) -> int: ...


class ByTime(msgspec.Struct, frozen=True, tag=True):
    grain: int = SECOND

    def rank(self, scheduled: int, priority: int) -> int:
        return scheduled // self.grain << PRIORITY_BITS | priority


class ByPriority(msgspec.Struct, frozen=True, tag=True):
    def rank(self, scheduled: int, priority: int) -> int:
        return priority << MILLI_BITS | scheduled // 1000


class Aged(msgspec.Struct, frozen=True, tag=True):
    worth: int
    """Microseconds a point of priority is worth."""

    def rank(self, scheduled: int, priority: int) -> int:
        return scheduled + priority * self.worth


AnyOrder = ByTime | ByPriority | Aged


def aged(seconds_per_point: float) -> Aged:
    """An order in which a job of priority p starts before one of priority 0 that came p * seconds later."""
    worth = seconds(seconds_per_point, "aged")
    if worth > 86_400:
        raise Invalid("aged: a point of priority is worth at most 86400 seconds")
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
