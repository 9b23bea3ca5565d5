"""Whether a tenant may add more: jobs that wait, their bytes, jobs a second. Over that it is told when to try again.

`Gate` is for what comes over HTTP, `Chained` for what handlers ask for. Both go by the same backlog.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from anyio import CapacityLimiter, to_thread

from hipq.daemon.backlog import Backlog
from hipq.daemon.tenants import Quotas, Tenants
from hipq.errors import Invalid, OverQuota, StoreUnavailable

BURST: Final = 1.0
"""Seconds' worth of jobs that may come at once."""
RETRY: Final = 5
"""Seconds after which a full queue is worth another try."""


class TooMuchAtOnce(Invalid):
    """One request has more than the tenant may have at all."""


def _check_at_all(quotas: Quotas, jobs: int, size: int, who: str) -> None:
    for what, most, wanted in (("jobs", quotas.waiting, jobs), ("bytes", quotas.bytes, size)):
        if most and wanted > most:
            raise TooMuchAtOnce(f"{who} {wanted:,} {what}, and the tenant's quota is {most:,}")


def _enter(backlog: Backlog, tenant: str, quotas: Quotas, jobs: int, size: int) -> None:
    most = (quotas.waiting, quotas.bytes)
    over = backlog.enter(tenant, jobs, size, most)
    if over >= 0:
        what = ("waiting jobs", "bytes of waiting jobs")[over]
        raise OverQuota(f"the tenant's quota of {most[over]:,} {what} is used up; try again later", RETRY)


class Chained:
    """Lets in what handlers ask for. May wait for the store."""

    def __init__(self, tenants: Tenants, backlog: Backlog) -> None:
        self._tenants = tenants
        self._backlog = backlog

    def enter(self, tenant: str, jobs: int, size: int, freed: tuple[int, int]) -> None:
        """As `Gate.enter`, but for the rate. `freed` is what goes as these come, the job that asked for them: so a
        chain of jobs goes on where nothing can be added."""
        found = self._tenants.latest.tenants.get(tenant)
        if found is None or not (found.quotas.waiting or found.quotas.bytes):
            return
        _check_at_all(found.quotas, jobs, size, "it asked for")
        self._backlog.count()
        jobs, size = jobs - freed[0], size - freed[1]
        _enter(self._backlog, tenant, found.quotas, jobs, size)
        self._backlog.kept(tenant, jobs, size)


class Gate:
    """Lets in what comes over HTTP. Lives on one event loop."""

    def __init__(self, tenants: Tenants, backlog: Backlog, steady: Callable[[], float] = time.monotonic) -> None:
        self._tenants = tenants
        self._backlog = backlog
        self._steady = steady
        self._counting: asyncio.Task[Any] | None = None
        self._buckets: dict[str, tuple[float, float]] = {}
        """What each had left, and when; below 0 it is in debt."""
        self._one = CapacityLimiter(1)

    async def enter(self, tenant: str, jobs: int, size: int) -> None:
        """Count these jobs as added; OverQuota if they are too many, and then they do not count."""
        quotas = self._quotas(tenant)
        if quotas is not None:
            _check_at_all(quotas, jobs, size, "this request has")
            if quotas.waiting or quotas.bytes:
                self._count()
                if self._backlog.is_new and self._counting is not None:  # only the first count is waited for
                    await asyncio.shield(self._counting)
            self._enter(tenant, quotas, jobs, size)

    def enter_now(self, tenant: str, jobs: int, size: int) -> bool:
        """The same for who cannot wait: False, and nothing is counted, if it is not known yet how much waits."""
        quotas = self._quotas(tenant)
        if quotas is not None:
            _check_at_all(quotas, jobs, size, "this request has")
            if quotas.waiting or quotas.bytes:
                if self._backlog.is_new:
                    return False
                self._count()
            self._enter(tenant, quotas, jobs, size)
        return True

    def _quotas(self, tenant: str) -> Quotas | None:
        """None if it has no quota at all, so that nothing needs to be asked."""
        found = self._tenants.latest.tenants.get(tenant)
        if found is None or not (found.quotas.waiting or found.quotas.bytes or found.quotas.rate):
            return None
        return found.quotas

    def _enter(self, tenant: str, quotas: Quotas, jobs: int, size: int) -> None:
        if quotas.waiting or quotas.bytes:
            _enter(self._backlog, tenant, quotas, jobs, size)
        if quotas.rate:
            try:
                self._take(tenant, jobs, quotas.rate)
            except OverQuota:
                self.leave(tenant, jobs, size)
                raise

    @asynccontextmanager
    async def entered(self, tenant: str, jobs: int, size: int) -> AsyncIterator[None]:
        """Around adding these jobs: `enter` before, `kept` or `leave` after."""
        await self.enter(tenant, jobs, size)
        try:
            yield
        except (asyncio.CancelledError, StoreUnavailable):
            self.kept(tenant, jobs, size)  # they may be stored all the same: the next count knows
            raise
        except BaseException:
            self.leave(tenant, jobs, size)
            raise
        self.kept(tenant, jobs, size)

    def kept(self, tenant: str, jobs: int, size: int) -> None:
        """These jobs are in the journal or in the store, where a count finds them."""
        self._backlog.kept(tenant, jobs, size)

    def leave(self, tenant: str, jobs: int, size: int) -> None:
        """These jobs were not added after all."""
        self._backlog.leave(tenant, jobs, size)

    def _take(self, tenant: str, jobs: int, rate: int) -> None:
        """A request larger than what may come at once leaves a debt: the average is what counts."""
        now = self._steady()
        most = max(rate * BURST, 1.0)
        left, at = self._buckets.get(tenant, (most, now))
        left = min(left + (now - at) * rate, most)
        if left < min(jobs, 1):
            raise OverQuota(
                f"the tenant's quota of {rate:,} jobs a second is used up; try again later",
                max(1, math.ceil((1 - left) / rate)),
            )
        self._buckets[tenant] = (left - jobs, now)

    def _count(self) -> None:
        """Begin to, if it is time."""
        if self._backlog.is_due and (self._counting is None or self._counting.done()):
            counting = to_thread.run_sync(self._backlog.count, self._backlog.added(), limiter=self._one)
            self._counting = asyncio.get_running_loop().create_task(counting)
