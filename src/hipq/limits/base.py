"""What every limit of a queue says about itself, so that claims, `why` and the command line need not know its kind.

A limit is one file: a subclass of `BaseLimit` and the function by which users make one. `AnyLimit` in
`hipq.limits.rules` lists the limits that can be stored. A limit tells jobs apart by their lanes only, since stores sum
up by lane what jobs hold: one that goes by anything else needs changes to `held.sql`, `Usage` and `Admission`. All
counts here are whole thousandths of units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, Self

import msgspec

from hipq.errors import Invalid
from hipq.job.units import number, units_text
from hipq.job.why import Reason
from hipq.limits.pool import Pool
from hipq.limits.slice import Slice

LEAST: Final = 0.001
MOST: Final = 1_000_000_000

StartLog = list[list[int]]
"""Entries of [first start, last start, units], oldest first; the starts in microseconds."""


class Usage(NamedTuple):
    """What is used of the limits of a queue at one moment."""

    held: Mapping[str, int]
    """The units that jobs hold, by lane."""
    starts: Mapping[str, StartLog]
    """The units that have started lately, by the microseconds for which the log remembers them."""
    whole: int
    """The queue's `limit(n)`; 0 if it has none."""
    now: int


class BaseLimit(msgspec.Struct, frozen=True):
    """Subclasses define `cap`, `pool_name` and `__str__`, and override what differs from most limits."""

    function: ClassVar[str] = ""
    """The name of the function by which users make this limit; "" if only hipq makes it."""
    reason: ClassVar[str] = Reason.LANE_FULL
    """The `reason` in `why` of a job for which this limit has no room."""
    of_whole_queue: ClassVar[bool] = False
    """Whether all jobs of the queue count in one pool, whatever their lane. `applies` must be True for every lane:
    claims do not ask it."""
    counts_starts: ClassVar[bool] = False
    """Whether jobs take units when they start, and do not give them back when they end."""
    set_by_daemon: ClassVar[bool] = False
    """Whether the daemon sets this limit: then it stays when an operator replaces the limits of the queue."""

    # -- what it counts ----------------------------------------------------------------------------------------------
    def applies(self, lane: str, whole: int) -> bool:
        """Whether jobs of this lane count at all. `whole`: the queue's `limit(n)`; 0 if it has none."""
        return True

    def pool_name(self, lane: str) -> str:
        """The name of the pool in which jobs of this lane count. Lanes for which the name is the same share a pool. No
        other kind of limit may use the name, and it must stay the same from claim to claim: queues store it."""
        raise NotImplementedError

    def cap(self, lane: str, whole: int) -> int:
        """The units of that pool."""
        raise NotImplementedError

    def used(self, lane: str, held: Mapping[str, int]) -> int:
        """The units of that pool that jobs hold."""
        name = self.pool_name(lane)
        return sum(units for other, units in held.items() if self.pool_name(other) == name)

    def pool(self, lane: str, usage: Usage) -> Pool:
        return Pool(self.pool_name(lane), self.cap(lane, usage.whole), self.used(lane, usage.held))

    def holds(self, other: str, lane: str) -> bool:
        """Whether a job that runs in the other lane takes units from jobs of this lane."""
        return not self.counts_starts and self.pool_name(other) == self.pool_name(lane)

    def cut(self, to: Slice) -> Self:
        """The part of this limit that one of several shards has."""
        return self

    # -- what it refuses ---------------------------------------------------------------------------------------------
    def check(self, limits: Sequence[BaseLimit]) -> None:
        """Raise Invalid if a queue cannot have all of these limits; this one is among them."""
        if sum(type(one) is type(self) for one in limits) > 1:
            raise Invalid(f"a queue has one {self.function} at most")

    def refusal(self, lane: str, factor: int, whole: int) -> str:
        """Why a job of this lane and weight never fits, even in an idle queue; "" if it does."""
        if factor <= self.cap(lane, whole):
            return ""
        return f"throttle_factor {number(factor)} is above {self.bound(lane, whole)}"

    # -- how it describes itself: `str(limit)` is the text in lists ----------------------------------------------------
    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes that this limit names."""
        return ()

    def bound(self, lane: str, whole: int) -> str:
        """The largest weight that a job in this lane may have."""
        return f"the queue's {self}"

    def subject(self, lane: str) -> str:
        """The name of what is full, for a job in this lane."""
        return f"its queue's {self}"

    def shortage(self, lane: str, pool: Pool, factor: int, room_at: int, holders: str) -> str:
        """Why a job of this weight has to wait. `holders` names jobs that hold units of the pool; "" if unknown."""
        subject, used, by = self.subject(lane), number(pool.used), f" by {holders}" if holders else ""
        needs = f"it needs {units_text(factor)}"
        if factor > pool.cap:
            return f"{needs} and {subject} has {number(pool.cap)}, so it runs alone: {used} taken{by}"
        if pool.full:
            return f"{subject} is full: {used} of {units_text(pool.cap)} taken{by}"
        return f"{needs} of {subject}, and {number(pool.cap - pool.used)} are left: {used} taken{by}"


def lane_text(lane: str) -> str:
    return f"lane {lane}" if lane else "the lane of jobs without one"
