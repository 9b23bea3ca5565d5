"""The daemon's quotas: how many units of all lanes of a tenant run at a time, over all engines.

A lane belongs to the tenant that is named before its first `/`.
"""

from __future__ import annotations

from typing import ClassVar, Final

from hipq.job.units import counted
from hipq.limits.base import BaseLimit

BETWEEN: Final = "/"


def tenant_of(lane: str) -> str:
    return lane.partition(BETWEEN)[0]


class PerTenant(BaseLimit, frozen=True, tag="per tenant"):
    caps: dict[str, int]

    set_by_daemon: ClassVar[bool] = True

    def applies(self, lane: str, whole: int) -> bool:
        return tenant_of(lane) in self.caps

    def pool_name(self, lane: str) -> str:
        return f"tenant {tenant_of(lane)}"

    def cap(self, lane: str, whole: int) -> int:
        return counted(self.caps[tenant_of(lane)])

    def bound(self, lane: str, whole: int) -> str:
        return "what its tenant may run at a time"

    def subject(self, lane: str) -> str:
        return self.pool_name(lane)

    def __str__(self) -> str:
        return "tenants " + ", ".join(f"{tenant} {most}" for tenant, most in sorted(self.caps.items()))
