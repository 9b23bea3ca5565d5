"""How much of a tenant's work runs at a time, over all its lanes and all engines: the daemon's quotas.

A lane belongs to the tenant that is named before its first `/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from hipq.job.units import counted
from hipq.limits.pool import Pool

BETWEEN: Final = "/"


def tenant_of(lane: str) -> str:
    return lane.partition(BETWEEN)[0]


class PerTenant(msgspec.Struct, frozen=True, tag="per tenant"):
    caps: dict[str, int]

    def knows(self, lane: str) -> bool:
        return tenant_of(lane) in self.caps

    def pool(self, lane: str, held: Mapping[str, int]) -> Pool:
        """For a lane it knows."""
        tenant = tenant_of(lane)
        used = sum(units for other, units in held.items() if tenant_of(other) == tenant)
        return Pool(f"tenant {tenant}", counted(self.caps[tenant]), used)

    def __str__(self) -> str:
        return "tenants " + ", ".join(f"{tenant} {most}" for tenant, most in sorted(self.caps.items()))
