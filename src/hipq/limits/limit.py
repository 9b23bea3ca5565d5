"""`limit(n)`: at most n units of a queue run at a time. `per_lane(n)`: at most n units of each lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from hipq.job.units import Number, counted, given
from hipq.limits.pool import Pool

LEAST: Final = 0.001
MOST: Final = 1_000_000_000
WHOLE_QUEUE: Final = "limit"


class Limit(msgspec.Struct, frozen=True, tag="limit"):
    n: Number

    def pool(self, held: Mapping[str, int]) -> Pool:
        return Pool(WHOLE_QUEUE, counted(self.n), sum(held.values()))

    def __str__(self) -> str:
        return f"limit {self.n}"


class PerLane(msgspec.Struct, frozen=True, tag="per lane"):
    n: Number

    def pool(self, lane: str, held: Mapping[str, int]) -> Pool:
        return Pool(f"lane {lane}", counted(self.n), held.get(lane, 0))

    def __str__(self) -> str:
        return f"{self.n} a lane"


def limit(n: float) -> Limit:
    """At most n units of the queue run at a time, over all engines."""
    return Limit(given(n, "limit", LEAST, MOST))


def per_lane(n: float) -> PerLane:
    """At most n units of each lane run at a time, over all engines."""
    return PerLane(given(n, "per_lane", LEAST, MOST))
