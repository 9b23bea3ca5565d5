"""What a claim must take, found the slow way: every waiting job is looked at, one by one, in the queue's order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hipq.job.model import Row
from hipq.job.units import UNIT, counted
from hipq.limits.limit import Limit
from hipq.limits.per_lane import PerLane
from hipq.limits.rules import AnyLimit, Rules
from hipq.limits.share import Share


@dataclass
class Oracle:
    """Limits of running units (no rates), pauses, and windows by what the test says is open."""

    rules: Rules
    critical: tuple[str, ...]
    open: dict[str, bool]
    passed: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By pool: the heavy job that others pass, and the units that have."""

    def claim(self, live: Iterable[Row], types: tuple[str, ...], want: int) -> list[int]:
        rows = list(live)
        if self.rules.paused:
            return []
        held = [(row.lane, row.held) for row in rows if row.held]
        waiting = sorted((row for row in rows if row.phase == "ready"), key=lambda row: (row.rank, row.id))
        taken: list[int] = []
        first: dict[str, int] = {}
        for row in waiting:
            if len(taken) == want:
                return taken
            if not self._could(row):
                continue
            if row.job_type not in types or not self._fits(row, held, first):
                first |= {
                    name: job_id for name, (job_id, _) in self.passed.items() if job_id == row.id and name not in first
                }
            else:
                taken.append(row.id)
                if row.job_type not in self.critical:
                    held.append((row.lane, row.throttle_factor))
        return taken

    def _could(self, row: Row) -> bool:
        paused = row.job_type in self.rules.paused_types or row.lane in self.rules.paused_lanes
        return not paused and self.open[row.time_windows]

    def _fits(self, row: Row, held: list[tuple[str, int]], first: dict[str, int]) -> bool:
        if row.job_type in self.critical:
            return True
        names = [self._name(one, row.lane) for one in self.rules.in_force]
        for name in names:
            cap, used = self._cap(name), self._used(name, held)
            if used + row.throttle_factor > cap and not (row.throttle_factor > cap and used == 0):
                lightest = min([UNIT, *(units for _, units in held)])
                if row.throttle_factor > lightest and name not in first:
                    first[name] = row.id
                    self.passed[name] = (row.id, self.passed.get(name, (0, 0))[1])
                return False
        if any(name in first and self.passed[name][1] + row.throttle_factor > self._cap(name) for name in names):
            return False
        for name in names:
            if name in first:
                self.passed[name] = (first[name], self.passed[name][1] + row.throttle_factor)
            elif self.passed.get(name, (0, 0))[0] == row.id:
                del self.passed[name]
        return True

    def _name(self, one: AnyLimit, lane: str) -> str:
        kind = type(one).__name__
        if isinstance(one, Share) and lane not in one.percent:
            return f"{kind}/*"
        return kind if isinstance(one, Limit) else f"{kind}/{lane}"

    def _cap(self, name: str) -> int:
        kind, _, lane = name.partition("/")
        one = next(one for one in self.rules.in_force if type(one).__name__ == kind)
        if isinstance(one, Share):
            return counted(self.rules.most) * counted(one.percent.get(lane, one.other)) // (100 * UNIT)
        assert isinstance(one, (Limit, PerLane))
        return counted(one.n)

    def _used(self, name: str, held: list[tuple[str, int]]) -> int:
        kind, _, lane = name.partition("/")
        if kind == "Limit":
            return sum(units for _, units in held)
        if lane == "*":
            share = next(one for one in self.rules.in_force if isinstance(one, Share))
            return sum(units for where, units in held if where not in share.percent)
        return sum(units for where, units in held if where == lane)
