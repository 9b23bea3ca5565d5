"""The daemon's limits of single handlers: how many units of a lane run at a time, over all engines. A lane has one
tenant's jobs of one type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hipq.job.units import counted
from hipq.limits.base import BaseLimit
from hipq.limits.tenants import BETWEEN


class PerHandler(BaseLimit, frozen=True, tag="per handler"):
    caps: dict[str, int]
    """The units of each lane."""

    set_by_daemon: ClassVar[bool] = True

    def applies(self, lane: str, whole: int) -> bool:
        return lane in self.caps

    def pool_name(self, lane: str) -> str:
        return f"handler {lane}"

    def cap(self, lane: str, whole: int) -> int:
        return counted(self.caps[lane])

    def used(self, lane: str, held: Mapping[str, int]) -> int:
        return held.get(lane, 0)

    @property
    def lanes(self) -> tuple[str, ...]:
        return tuple(self.caps)

    def bound(self, lane: str, whole: int) -> str:
        return "what its handler may run at a time"

    def subject(self, lane: str) -> str:
        tenant, _, jobtype = lane.partition(BETWEEN)
        return f"the handler {jobtype} of {tenant}"

    def __str__(self) -> str:
        return "handlers " + ", ".join(f"{lane} {most}" for lane, most in sorted(self.caps.items()))
