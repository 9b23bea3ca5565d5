"""Tenants: what they may have, what they have of it, and what they run. Nothing here opens a door.

What they have is what the daemon has counted for their quotas: nothing is counted for a page.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.daemon.census import STEP, Census
from hipq.daemon.tenancy.backlog import Backlog
from hipq.daemon.tenancy.tenants import Tenant
from hipq.dashboard.seldom import Seldom
from hipq.dashboard.visit import Refused, Reply, Visit
from hipq.errors import shown
from hipq.job.units import number
from hipq.limits.tenants import tenant_of

if TYPE_CHECKING:
    from hipq.daemon.daemon import Daemon
    from hipq.dashboard.site import Site

ROWS: Final = 50
"""Tenants of a page."""
_PATIENCE: Final = 0.05
"""Seconds for which a page waits for the first count."""


class Use(NamedTuple):
    """How much of a quota is used. None: it is not counted, since there is no quota, or not yet."""

    used: int | None
    most: int


class Seen(NamedTuple):
    tenant: Tenant
    waiting: Use
    bytes: Use
    kept: Use
    running: Use
    """At all daemons, if there is a quota, else at this one."""
    share: float
    """Of the work, while all tenants have some: from 0 to 1."""


class TenantPages:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._counts = Seldom(self._count)

    def _count(self) -> bool:
        """As an addition does it: at most a twentieth of the time goes into that."""
        self._daemon.backlog.count()
        self._daemon.ended.count()
        return True

    def every(self, site: Site, visit: Visit) -> Reply:
        known, after = self._daemon.tenants.known().tenants, visit.asked("after")
        names = [name for name in sorted(known) if name > after]
        return site.render(
            "tenants.html", visit, now=site.store.now(), all=len(known), after=after,
            rows=self._seen(site, [known[name] for name in names[:ROWS]]),
            following=names[ROWS - 1] if len(names) > ROWS else "",
        )  # fmt: skip

    def one(self, site: Site, visit: Visit) -> Reply:
        name = visit.params["name"]
        tenant = self._daemon.tenants.known().tenants.get(name)
        if tenant is None:
            raise Refused(404, f"there is no tenant {shown(name)}")
        census = Census(site.store, self._daemon.queue.number, name)
        census.step()  # the first one only: live jobs
        sizes = self._daemon.handlers.sizes().get(name, {})
        (seen,) = self._seen(site, [tenant])
        return site.render(
            "tenant.html", visit, now=site.store.now(), one=seen, types=sorted({*census.types, *sizes}),
            live=census.types, most=STEP, is_all=sum(map(Counter.total, census.types.values())) < STEP, sizes=sizes,
        )  # fmt: skip

    def _seen(self, site: Site, tenants: list[Tenant]) -> list[Seen]:
        self._counts.latest(_PATIENCE)
        here = Counter(one.row.tenant for one in list(self._daemon.engine.in_flight.values()))
        held = Counter[str]()
        for lane, units in site.store.limits(self._daemon.queue.number).held.items():
            held[tenant_of(lane)] += units
        weights = sum(one.weight for one in self._daemon.tenants.latest.tenants.values())
        return [self._one(one, here, held, weights) for one in tenants]

    def _one(self, tenant: Tenant, here: Counter[str], held: Counter[str], weights: int) -> Seen:
        quotas, name = tenant.quotas, tenant.name
        jobs, size = _counted(self._daemon.backlog, name, is_limited=bool(quotas.waiting or quotas.bytes))
        _, kept = _counted(self._daemon.ended, name, is_limited=bool(quotas.kept))
        running = round(number(held[name])) if quotas.running else here[name]
        return Seen(
            tenant, Use(jobs, quotas.waiting), Use(size, quotas.bytes), Use(kept, quotas.kept),
            Use(running, quotas.running), tenant.weight / max(weights, 1),
        )  # fmt: skip


def _counted(backlog: Backlog, tenant: str, *, is_limited: bool) -> tuple[int | None, int | None]:
    return backlog.known(tenant) if is_limited and not backlog.is_new else (None, None)
