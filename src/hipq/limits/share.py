"""`share({"east": 40, "north": 30, "west": 30})`: each lane's part of the queue's limit, in percent, as a hard cap.

Of a limit of 10 the east gets 4 units and never more, whether or not the others want theirs; parts are rounded down to
whole thousandths of a unit.
Lanes that are not listed are refused when a job is added, unless `other=` gives all of them together a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hipq.errors import Invalid, shown
from hipq.job import names
from hipq.job.units import UNIT, Number, counted, given, number
from hipq.limits.limit import LEAST
from hipq.limits.pool import Pool

OTHERS: Final = "other shares"
"""The pool of all lanes that are not listed."""


class Share(msgspec.Struct, frozen=True, tag="share"):
    percent: dict[str, Number]
    other: Number = 0

    def knows(self, lane: str) -> bool:
        return lane in self.percent or self.other > 0

    def cap(self, lane: str, limit: int) -> int:
        return limit * counted(self.percent.get(lane, self.other)) // (100 * UNIT)

    def pool(self, lane: str, held: Mapping[str, int], limit: int) -> Pool:
        if lane in self.percent:
            return Pool(f"share of {lane}", self.cap(lane, limit), held.get(lane, 0))
        used = sum(units for other, units in held.items() if other not in self.percent)
        return Pool(OTHERS, self.cap(lane, limit), used)

    def __str__(self) -> str:
        parts = [f"{lane} {percent} %" for lane, percent in self.percent.items()]
        return "shares " + ", ".join(parts + ([f"others {self.other} %"] if self.other else []))


def share(percent: Mapping[str, float], *, other: float | None = None) -> Share:
    """Each lane's part of the queue's limit, in percent. `other`: the part of all lanes not listed, together."""
    if not isinstance(percent, Mapping) or not percent:
        raise Invalid(f'share takes percentages by lane, like share({{"east": 40, "west": 60}}), not {shown(percent)}')
    parts: dict[str, Any] = {names.lane(lane): given(part, f"the share of {lane}", LEAST, 100)
                             for lane, part in percent.items()}  # fmt: skip
    rest = 0 if other is None else given(other, "other", LEAST, 100)
    whole = sum(map(counted, (*parts.values(), rest)))
    if whole > 100 * UNIT:
        raise Invalid(f"the shares add up to {number(whole)} percent; that is more than the whole")
    return Share(parts, rest)
