"""`rate(n, per=s)`: at most n units start in any span of s seconds, over all engines.

The span may begin at any moment. A log of at most about a hundred entries a span remembers the starts; an entry counts
until its last start is a span ago, so that a rate is never exceeded, and at most a hundredth of it goes unused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from hipq.errors import Invalid
from hipq.job.units import Number, counted, given
from hipq.job.when import seconds, utc_text
from hipq.job.why import Reason
from hipq.limits.base import LEAST, MOST, BaseLimit, StartLog, Usage
from hipq.limits.pool import Pool
from hipq.limits.slice import Slice

GRAINS: Final = 100
"""Entries of a log per span: a start within a hundredth of the span joins the last entry."""


class Rate(BaseLimit, frozen=True, tag="rate"):
    n: Number
    per: float

    function: ClassVar[str] = "rate"
    reason: ClassVar[str] = Reason.RATE
    of_whole_queue: ClassVar[bool] = True
    counts_starts: ClassVar[bool] = True

    def cut(self, to: Slice) -> Rate:
        return replace(self, n=to.evenly(self.n))

    def pool_name(self, lane: str) -> str:
        return str(self)

    def cap(self, lane: str, whole: int) -> int:
        return counted(self.n)

    def pool(self, lane: str, usage: Usage) -> Pool:
        """A rate that was changed keeps its count: a new span begins with the log of the longest span before."""
        span, longest = round(self.per * 1e6), max(usage.starts, key=int, default="")
        log = _recent(usage.starts.get(str(span), usage.starts.get(longest, [])), span, usage.now)
        used = sum(units for _, _, units in log)
        return StartPool(self.pool_name(lane), self.cap(lane, usage.whole), used, span=span, log=log)

    def check(self, limits: Sequence[BaseLimit]) -> None:
        if limits.count(self) > 1:
            raise Invalid("the same rate is given twice")

    def shortage(self, lane: str, pool: Pool, factor: int, room_at: int, holders: str) -> str:
        return f"{self.subject(lane)} is used up: there is room for it at {utc_text(room_at)}"

    def __str__(self) -> str:
        return f"rate {self.n} in {self.per:.15g} s"


def rate(n: float, per: float = 1.0) -> Rate:
    """At most `n` units start in any `per` seconds. A job counts with its throttle_factor, however long it runs."""
    return Rate(given(n, "rate", LEAST, MOST), seconds(per, "per", least=0.001))


class StartPool(Pool, eq=False):
    """A pool of starts. Units return when the start that took them is a span ago."""

    span: int = 0
    """The span in microseconds."""
    log: StartLog = msgspec.field(default_factory=list)
    """The starts of the last span, before this claim."""

    def lets_pass(self, factor: int, lightest: int) -> bool:
        """Jobs that have ended count here, too, and how light these were is not known."""
        return factor > lightest or not self.full

    def room_at(self, factor: int, now: int) -> int:
        used = self.used - self.taken
        for _, last, units in self.log:
            used -= units
            if used + factor <= self.cap or used <= 0:
                return last + self.span
        return now + self.span  # this claim has taken what is missing


def remembered(logs: Mapping[str, StartLog], pools: Iterable[Pool], now: int) -> Mapping[str, StartLog]:
    """The logs to store after a claim: those of the rates in force, and of rates that may be in force again."""
    rates = [pool for pool in pools if isinstance(pool, StartPool)]
    taken = max((pool.taken for pool in rates), default=0)
    if not taken:
        return logs
    found = {int(span): _recent(log, int(span), now) for span, log in logs.items()}
    found |= {pool.span: pool.log for pool in rates}
    return {str(span): _with_start(log, span, taken, now) for span, log in found.items()}


def _recent(log: StartLog, span: int, now: int) -> StartLog:
    """The entries that count. One far in the future was written before a clock was set back: it would never expire."""
    return [entry for entry in log if now - span < entry[1] <= now + span]


def _with_start(log: StartLog, span: int, taken: int, now: int) -> StartLog:
    if log and now - log[-1][0] < span // GRAINS:
        return [*log[:-1], [log[-1][0], max(now, log[-1][1]), log[-1][2] + taken]]
    return [*log, [now, now, taken]]
