"""`rate(n, per=s)`: at most n units start in any span of s seconds, over all engines.

Strict: the span may lie anywhere. What was started is remembered as at most some hundred entries of first start, last
start and units; an entry counts until its last start is a span ago, so a rate is never exceeded, and at most a
hundredth of it goes unused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from hipq.job.names import whole
from hipq.job.when import seconds
from hipq.throttlers.limit import MOST
from hipq.throttlers.pool import Pool

GRAINS: Final = 100
Log = list[list[int]]
"""[first start, last start, units] each, in microseconds, oldest first."""


class Rate(msgspec.Struct, frozen=True, tag="rate"):
    n: int
    per: float

    def log(self, logs: Mapping[str, Log]) -> Log:
        """What has started, as far as is remembered. A rate that was changed goes on counting: if its span is another,
        from what the longest one remembers."""
        longest = max(logs, key=float, default="")
        return logs.get(f"{self.per:g}", logs.get(longest, []))

    def pool(self, log: Log, now: int) -> Pool:
        span = round(self.per * 1e6)
        kept = [entry for entry in log if now - span < entry[1] <= now + span]  # or a clock set back would block it
        return Pool(str(self), self.n, sum(units for _, _, units in kept), (span, kept))

    def __str__(self) -> str:
        return f"rate {self.n} in {self.per:g} s"


def rate(n: int, per: float = 1.0) -> Rate:
    """At most n units start in any `per` seconds. A job counts with its throttle_factor, however long it runs."""
    return Rate(whole(n, "rate", 1, MOST), seconds(per, "per", least=0.001))


def noted(pool: Pool, now: int) -> Log:
    """What is to be remembered after a claim."""
    assert pool.rate is not None
    span, log = pool.rate
    if not pool.taken:
        return log
    if log and now - log[-1][0] < span // GRAINS:
        return [*log[:-1], [log[-1][0], max(now, log[-1][1]), log[-1][2] + pool.taken]]
    return [*log, [now, now, pool.taken]]


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
