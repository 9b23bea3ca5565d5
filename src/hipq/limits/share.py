"""`share({"east": 40, "north": 30, "west": 30})`: each lane's part of the queue's limit, in percent, as a hard cap.

Of a limit of 10 the east gets 4 units and never more, whether or not the others want theirs; parts are rounded down to
whole thousandths of a unit. A job in a lane that is not listed is refused when it is added, unless `other=` gives all
such lanes together a part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from hipq.errors import Invalid, shown
from hipq.job import names
from hipq.job.units import UNIT, Number, counted, given, number
from hipq.limits.base import LEAST, BaseLimit, lane_text
from hipq.limits.limit import whole_queue
from hipq.limits.slice import Slice


class Share(BaseLimit, frozen=True, tag="share"):
    percent: dict[str, Number]
    other: Number = 0

    function: ClassVar[str] = "share"

    def cut(self, to: Slice) -> Share:
        percent = {lane: to.of_share(part) for lane, part in self.percent.items()}
        return replace(self, percent=percent, other=to.of_share(self.other))

    def applies(self, lane: str, whole: int) -> bool:
        return whole > 0  # an operator may take the queue's limit away: then there is nothing to have a share of

    def pool_name(self, lane: str) -> str:
        return f"share of {lane}" if lane in self.percent else "other shares"

    def cap(self, lane: str, whole: int) -> int:
        return whole * counted(self.percent.get(lane, self.other)) // (100 * UNIT)

    def used(self, lane: str, held: Mapping[str, int]) -> int:
        return held.get(lane, 0) if lane in self.percent else super().used(lane, held)

    def check(self, limits: Sequence[BaseLimit]) -> None:
        super().check(limits)
        whole = whole_queue(limits)
        if not whole:
            raise Invalid("shares are parts of a limit: give throttle_limit=, or limit(n), too")
        for lane in (*self.percent, *([""] if self.other else [])):
            if self.cap(lane, counted(whole)) < UNIT:
                least = min(filter(None, (*self.percent.values(), self.other)))
                raise Invalid(
                    f"the share of {lane or 'other lanes'} in a limit of {whole} is less than one unit: with these "
                    f"shares the limit must be at least {math.ceil(100 / least)}"
                )

    def refusal(self, lane: str, factor: int, whole: int) -> str:
        if lane not in self.percent and not self.other:
            return f"lane {shown(lane)} has no share in this queue: there are {', '.join(self.percent)}"
        return super().refusal(lane, factor, whole)

    @property
    def lanes(self) -> tuple[str, ...]:
        return tuple(self.percent)

    def bound(self, lane: str, whole: int) -> str:
        return f"the {number(self.cap(lane, whole))} units of {number(whole)} that lane {shown(lane)} has"

    def subject(self, lane: str) -> str:
        return f"the share of {lane_text(lane) if lane in self.percent else 'other lanes'}"

    def __str__(self) -> str:
        parts = [f"{lane} {percent} %" for lane, percent in self.percent.items()]
        return "shares " + ", ".join(parts + ([f"others {self.other} %"] if self.other else []))


def share(percent: Mapping[str, float], *, other: float | None = None) -> Share:
    """Each lane's part of the queue's limit, in `percent`: `{"east": 40, "north": 60}`. `other`: the part of all lanes
    not listed, together."""
    if not isinstance(percent, Mapping) or not percent:
        raise Invalid(f'share takes percentages by lane, like share({{"east": 40, "west": 60}}), not {shown(percent)}')
    parts: dict[str, Any] = {names.lane(lane): given(part, f"the share of {lane}", LEAST, 100)
                             for lane, part in percent.items()}  # fmt: skip
    rest = 0 if other is None else given(other, "other", LEAST, 100)
    whole = sum(map(counted, (*parts.values(), rest)))
    if whole > 100 * UNIT:
        raise Invalid(f"the shares add up to {number(whole)} percent; that is more than the whole")
    return Share(parts, rest)
