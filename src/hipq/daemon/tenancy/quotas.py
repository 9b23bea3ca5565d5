"""Whether a tenant may add more: whatever it can make grow counts. Over its quotas it is told when to try again.

`Gate` is for what comes over HTTP, `Chained` for what handlers ask for and come to. Both go by two backlogs: of what
waits (jobs, and answers that no job has taken), and of what has ended and is kept.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from anyio import CapacityLimiter, to_thread

from hipq.daemon.tenancy.backlog import Backlog
from hipq.daemon.tenancy.tenants import Quotas, Tenants
from hipq.errors import Invalid, OverQuota, StoreUnavailable

BURST: Final = 1.0
"""Seconds' worth of jobs that may come at once."""
ADDED: Final = "jobs and answers"
COUNT_SECONDS: Final = 1.0
"""Seconds that who is over a quota waits for the count that is under way."""
RETRY: Final = 5
"""Seconds after which a full queue is worth another try."""
NONE: Final = Quotas()


class TooMuchAtOnce(Invalid):
    """One request has more than the tenant may have at all."""


class _Limited:
    """What is known of tenants: what they may have, what waits, what has ended."""

    def __init__(self, tenants: Tenants, backlog: Backlog, ended: Backlog) -> None:
        self._tenants = tenants
        self._backlog = backlog
        self._ended = ended

    def _quotas(self, tenant: str) -> Quotas:
        found = self._tenants.latest.tenants.get(tenant)
        return found.quotas if found else NONE

    def _enter_backlog(self, tenant: str, quotas: Quotas, jobs: int, size: int) -> None:
        most = (quotas.waiting, quotas.bytes)
        over = self._backlog.enter(tenant, jobs, size, most) if any(most) else -1
        if over >= 0:
            what = ("waiting jobs", "bytes of waiting jobs")[over]
            raise OverQuota(f"the tenant's quota of {most[over]:,} {what} is used up; try again later", RETRY)


class Chained(_Limited):
    """Lets in what handlers ask for and come to. May wait for the store."""

    def keep(self, tenant: str, size: int) -> bool:
        """A job ends, and so much is to be kept of it: whether that counts, until `kept`. OverQuota, TooMuchAtOnce."""
        most = self._quotas(tenant).kept
        if not most:
            return False
        if size > most:
            raise TooMuchAtOnce(f"the job and its result have {size:,} bytes, and the tenant's quota is {most:,}")
        self._ended.count()
        if self._ended.enter(tenant, 1, size, (0, most)) >= 0:
            raise OverQuota(f"the tenant's quota of {most:,} bytes of ended jobs is used up", RETRY)
        return True

    def kept(self, tenant: str, size: int) -> None:
        self._ended.kept(tenant, 1, size)

    def enter(self, tenant: str, jobs: int, size: int, freed: tuple[int, int]) -> None:
        """As `Gate.enter`, but for the rate. `freed` is what goes as these come, the job that asked for them: so a
        chain of jobs goes on where nothing can be added."""
        quotas = self._quotas(tenant)
        if quotas.waiting or quotas.bytes:
            _check_at_all(quotas, jobs, size, "it asked for")
            self._backlog.count()
            jobs, size = jobs - freed[0], size - freed[1]
            self._enter_backlog(tenant, quotas, jobs, size)
            self._backlog.kept(tenant, jobs, size)


class Gate(_Limited):
    """Lets in what comes over HTTP. Lives on one event loop."""

    def __init__(
        self, tenants: Tenants, backlog: Backlog, ended: Backlog, steady: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(tenants, backlog, ended)
        self.kept = backlog.kept
        self.leave = backlog.leave
        self._steady = steady
        self._counting: dict[Backlog, asyncio.Task[Any]] = {}
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}
        """Of what, by tenant: what each had left, and when; below 0 it is in debt."""
        self._one = CapacityLimiter(1)

    async def enter(self, tenant: str, jobs: int, size: int) -> None:
        """Count these jobs as added; OverQuota if they are too many, and then they do not count."""
        quotas = self._quotas(tenant)
        _check_at_all(quotas, jobs, size, "this request has")
        await self._counted(quotas)
        try:
            self._enter(tenant, quotas, jobs, size)
        except OverQuota:
            if not await self._is_counted_anew(quotas):
                raise
            self._enter(tenant, quotas, jobs, size)

    async def _is_counted_anew(self, quotas: Quotas) -> bool:
        """Whether a count has just ended that was under way: the one before may be of hours ago, when a tenant that
        has nothing by now had all it may have."""
        counting = [task for one in self._used(quotas) if (task := self._counting.get(one)) and not task.done()]
        if counting:
            await asyncio.wait(counting, timeout=COUNT_SECONDS)
        return bool(counting)

    def enter_now(self, tenant: str, jobs: int, size: int) -> bool:
        """The same for who cannot wait: False, and nothing is counted, if it is not known yet how much there is."""
        quotas = self._quotas(tenant)
        if quotas != NONE:
            _check_at_all(quotas, jobs, size, "this request has")
            used = self._used(quotas)
            if any(backlog.is_new for backlog in used):
                return False
            for backlog in used:
                self._count(backlog)
            self._enter(tenant, quotas, jobs, size)
        return True

    def request(self, tenant: str) -> None:
        """Somebody looks at something, or changes it; OverQuota if that is too often."""
        self._take("requests", tenant, 1, self._quotas(tenant).requests)

    @asynccontextmanager
    async def answering(
        self, tenant: str, size: int, is_awaited: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[None]:  # fmt: skip
        """Around bringing an answer: as `entered`. But where a job waits for it nothing more waits than before, so it
        may come where nothing can be added: else that job would wait for ever."""
        quotas = self._quotas(tenant)
        if (quotas.waiting or quotas.bytes) and await is_awaited():
            await self._counted(quotas)
            self._check_kept(tenant, quotas.kept)
            self._take(ADDED, tenant, 1, quotas.rate)
            yield
            return
        async with self.entered(tenant, 1, size):
            yield

    def _used(self, quotas: Quotas) -> list[Backlog]:
        """The backlogs that these quotas are about."""
        waiting = [self._backlog] if quotas.waiting or quotas.bytes else []
        return [*waiting, self._ended] if quotas.kept else waiting

    async def _counted(self, quotas: Quotas) -> None:
        for backlog in self._used(quotas):
            self._count(backlog)
            if backlog.is_new and (counting := self._counting.get(backlog)):  # only the first count is waited for
                await asyncio.shield(counting)

    def _check_kept(self, tenant: str, most: int) -> None:
        if most and self._ended.size(tenant) >= most:
            raise OverQuota(f"the tenant's quota of {most:,} bytes of ended jobs is used up; try again later", RETRY)

    def _enter(self, tenant: str, quotas: Quotas, jobs: int, size: int) -> None:
        self._check_kept(tenant, quotas.kept)
        self._enter_backlog(tenant, quotas, jobs, size)
        try:
            self._take(ADDED, tenant, jobs, quotas.rate)
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

    def _take(self, what: str, tenant: str, count: int, rate: int) -> None:
        """A request larger than what may come at once leaves a debt: the average is what counts. 0 = any rate."""
        if not rate:
            return
        now = self._steady()
        most = max(rate * BURST, 1.0)
        left, at = self._buckets.get((what, tenant), (most, now))
        left = min(left + (now - at) * rate, most)
        if left < min(count, 1):
            again = max(1, math.ceil((1 - left) / rate))
            raise OverQuota(f"the tenant's quota of {rate:,} {what} a second is used up; try again later", again)
        self._buckets[what, tenant] = (left - count, now)

    def _count(self, backlog: Backlog) -> None:
        """Begin to, if it is time."""
        before = self._counting.get(backlog)
        if backlog.is_due and (before is None or before.done()):
            counting = to_thread.run_sync(backlog.count, backlog.added(), limiter=self._one)
            self._counting[backlog] = asyncio.get_running_loop().create_task(counting)


def _check_at_all(quotas: Quotas, jobs: int, size: int, who: str) -> None:
    for what, most, wanted in (("jobs", quotas.waiting, jobs), ("bytes", quotas.bytes, size)):
        if most and wanted > most:
            raise TooMuchAtOnce(f"{who} {wanted:,} {what}, and the tenant's quota is {most:,}")
