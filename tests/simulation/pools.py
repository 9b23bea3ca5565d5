"""What limits count, by an audit's own sums: of the product it takes only how rules are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hipq.job.units import UNIT, counted
from hipq.limits.handlers import PerHandler
from hipq.limits.limit import Limit
from hipq.limits.per_lane import PerLane
from hipq.limits.rules import Rules
from hipq.limits.share import Share
from hipq.limits.tenants import PerTenant

Row = Mapping[str, Any]


class Pool(NamedTuple):
    name: str
    cap: int
    used: int

    def fits(self, row: Row) -> bool:
        """A job that is heavier than all there is runs alone."""
        factor = int(row["throttle_factor"])
        return self.used + factor <= self.cap or (factor > self.cap and self.used == 0)


def pools(rules: Rules, held: Iterable[tuple[str, int]], lane: str) -> list[Pool]:
    """The limits a job of this lane counts in, that of the whole queue first. `held`: lanes and units. (No rates.)"""
    held = list(held)
    found = []
    whole = next((counted(one.n) for one in rules.in_force if isinstance(one, Limit)), 0)
    if whole:
        found.append(Pool("limit", whole, sum(units for _, units in held)))
    for one in rules.in_force:
        if isinstance(one, PerLane):
            found.append(Pool(f"lane {lane}", counted(one.n), sum(units for where, units in held if where == lane)))
        elif isinstance(one, PerTenant) and (tenant := lane.partition("/")[0]) in one.caps:
            sharing = [units for where, units in held if where.partition("/")[0] == tenant]
            found.append(Pool(f"tenant {tenant}", counted(one.caps[tenant]), sum(sharing)))
        elif isinstance(one, PerHandler) and lane in one.caps:
            own = sum(units for where, units in held if where == lane)
            found.append(Pool(f"handler {lane}", counted(one.caps[lane]), own))
        elif isinstance(one, Share) and whole:
            listed = lane in one.percent
            percent = one.percent[lane] if listed else one.other
            name = f"share of {lane}" if listed else "share of others"
            sharing = [units for where, units in held if (where == lane if listed else where not in one.percent)]
            found.append(Pool(name, whole * counted(percent) // (100 * UNIT), sum(sharing)))
    return found
