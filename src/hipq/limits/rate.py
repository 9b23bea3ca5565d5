"""`rate(n, per=s)`: at most n units start in any span of s seconds, over all engines.

Strict: the span may lie anywhere. What was started is remembered as at most some hundred entries of first start, last
start and units; an entry counts until its last start is a span ago, so a rate is never exceeded, and at most a
hundredth of it goes unused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from hipq.job.units import Number, counted, given
from hipq.job.when import seconds
from hipq.limits.limit import LEAST, MOST
from hipq.limits.pool import Pool

GRAINS: Final = 100
Log = list[list[int]]
"""[first start, last start, thousandths of units] each, in microseconds, oldest first."""


class Rate(msgspec.Struct, frozen=True, tag="rate"):
    n: Number
    per: float

    def log(self, logs: Mapping[str, Log]) -> Log:
        """What has started, as far as is remembered. A rate that was changed goes on counting: if its span is another,
        from what the longest one remembers."""
        longest = max(logs, key=int, default="")
        return logs.get(str(self._span), logs.get(longest, []))

    def pool(self, log: Log, now: int) -> Pool:
        kept = _recent(log, self._span, now)
        return Pool(str(self), counted(self.n), sum(units for _, _, units in kept), (self._span, kept))

    @property
    def _span(self) -> int:
        return round(self.per * 1e6)

    def __str__(self) -> str:
        return f"rate {self.n} in {self.per:.15g} s"


def rate(n: float, per: float = 1.0) -> Rate:
    """At most n units start in any `per` seconds. A job counts with its throttle_factor, however long it runs."""
    return Rate(given(n, "rate", LEAST, MOST), seconds(per, "per", least=0.001))


def remembered(logs: Mapping[str, Log], pools: Iterable[Pool], now: int) -> dict[str, Log]:
    """What is to be remembered after a claim: of the rates in force, and of others that may be in force again."""
    rates = [pool for pool in pools if pool.rate]
    taken = max((pool.taken for pool in rates), default=0)
    found = {int(span): _recent(log, int(span), now) for span, log in logs.items()}
    found |= dict(pool.rate for pool in rates if pool.rate)
    noted = {str(span): _noted(log, span, taken, now) for span, log in found.items()}
    return {span: log for span, log in noted.items() if log}


def _recent(log: Log, span: int, now: int) -> Log:
    return [entry for entry in log if now - span < entry[1] <= now + span]  # or a clock set back would block it


def _noted(log: Log, span: int, taken: int, now: int) -> Log:
    if not taken:
        return log
    if log and now - log[-1][0] < span // GRAINS:
        return [*log[:-1], [log[-1][0], max(now, log[-1][1]), log[-1][2] + taken]]
    return [*log, [now, now, taken]]


def room_at(pool: Pool, factor: int, now: int) -> int:
    """When a job of this weight fits, if nothing else starts before."""
    assert pool.rate is not None
    span, log = pool.rate
    used = pool.used - pool.taken
    for _, last, units in log:
        used -= units
        if used + factor <= pool.cap or used <= 0:
            return last + span
    return now + span  # what stands in its way starts now
