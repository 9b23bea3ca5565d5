"""`limit(n)`: at most n units of a queue run at a time. `per_lane(n)`: at most n units of each lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from hipq.job.names import whole
from hipq.throttlers.pool import Pool

MOST: Final = 1_000_000_000
WHOLE_QUEUE: Final = "limit"


class Limit(msgspec.Struct, frozen=True, tag="limit"):
    n: int

    def pool(self, held: Mapping[str, int]) -> Pool:
        return Pool(WHOLE_QUEUE, self.n, sum(held.values()))

    def __str__(self) -> str:
        return f"limit {self.n}"


class PerLane(msgspec.Struct, frozen=True, tag="per lane"):
    n: int

    def pool(self, lane: str, held: Mapping[str, int]) -> Pool:
        return Pool(f"lane {lane}", self.n, held.get(lane, 0))

    def __str__(self) -> str:
        return f"{self.n} a lane"


def limit(n: int) -> Limit:
    """At most n units of the queue run at a time, over all engines."""
    return Limit(whole(n, "limit", 1, MOST))


def per_lane(n: int) -> PerLane:
    """At most n units of each lane run at a time, over all engines."""
    return PerLane(whole(n, "per_lane", 1, MOST))
