"""`per_lane(n)`: at most n units of each lane run at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from hipq.job.units import Number, counted, given
from hipq.limits.base import LEAST, MOST, BaseLimit, lane_text
from hipq.limits.slice import Slice


class PerLane(BaseLimit, frozen=True, tag="per lane"):
    n: Number

    function: ClassVar[str] = "per_lane"

    def cut(self, to: Slice) -> PerLane:
        return replace(self, n=to.evenly(self.n))

    def pool_name(self, lane: str) -> str:
        return f"lane {lane}"

    def cap(self, lane: str, whole: int) -> int:
        return counted(self.n)

    def used(self, lane: str, held: Mapping[str, int]) -> int:
        return held.get(lane, 0)

    def subject(self, lane: str) -> str:
        return lane_text(lane)

    def __str__(self) -> str:
        return f"{self.n} a lane"


def per_lane(n: float) -> PerLane:
    """At most `n` units of each lane run at a time, over all engines."""
    return PerLane(given(n, "per_lane", LEAST, MOST))
