"""Which lane runs next: tenants get shares by their weight, the lanes of a tenant take turns.

Each job that starts moves its tenant's account on by one part of its weight; who is least far on comes next. Who was
away does not save anything up: it comes back where the others are, and so is next, but not for long. Within a tenant
the lane that was served longest ago comes next: so a lane waits for at most one batch of each other lane of its tenant,
as often as its tenant has its turn. A lane for which a context is warm comes a little earlier than that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heapify, heappop
from typing import Final

from hipq.limits.tenants import tenant_of

BATCH: Final = 100
TENANTS: Final = 10_000
"""Accounts that are kept, about; of those that are behind all others none is needed."""
SERVED: Final = 20_000
"""Lanes and tenants of which it is known when they were served, about: more than are offered at once."""


WARM: Final = 8
"""Choices by which a lane comes earlier if a context is warm for it: others are held up by no more than that."""


class FairShare:
    def __init__(
        self,
        weight: Callable[[str], float] = lambda _tenant: 1.0,
        warm: Callable[[], Collection[str]] | None = None,
    ) -> None:
        self._weight = weight
        self._look_warm = warm
        self._warm: Collection[str] = frozenset()
        """Lanes for which the runner has a context at hand, as far as it has said."""
        self._accounts: dict[str, float] = {}
        self._most_accounts = TENANTS
        self._floor = 0.0
        """Where the furthest of those is that were chosen. Who is behind comes there, but not in a turn in which it was
        chosen itself: what it has started is not counted yet."""
        self._chosen: set[str] = set()
        """Tenants, in this turn."""
        self._offered: Sequence[str] = ()
        """The list of this turn: the same one comes again, without what was chosen."""
        self._left = 0
        self._lanes: dict[str, list[tuple[int, str]]] = {}
        """What is left of it: by tenant a heap of lanes, those first that were served longest ago."""
        self._expected: dict[str, dict[str, float]] = {}
        """What the lanes chosen in this turn are likely to cost, by tenant: jobs that start are told afterwards."""
        self._turn = 0
        self._served: dict[str, int] = {}
        """By lane, and by tenant, when it was chosen last."""
        self.running: dict[str, int] = {}
        """Jobs by lane."""

    def contexts_warm(self, jobtypes: Collection[str]) -> None:
        """The runner has contexts at hand in which jobs of these lanes would start at once."""
        self._warm = frozenset(jobtypes)

    def select_jobtype_to_run(self, jobtypes: Sequence[str], jobcounts: Mapping[str, int] | None = None) -> str | None:
        if not jobtypes:
            return None
        jobcounts = jobcounts or {}
        if jobtypes is not self._offered or len(jobtypes) != self._left:
            self._begin(jobtypes)
        tenant = min(self._lanes, key=lambda name: (self._place(name), self._served.get(name, 0), name))
        lane = heappop(self._lanes[tenant])[1]
        if not self._lanes[tenant]:
            del self._lanes[tenant]
        self._left -= 1
        self._accounts[tenant] = self._account(tenant)
        self._chosen.add(tenant)
        self._floor = max(self._floor, self._accounts[tenant])
        cost = min(jobcounts.get(lane, 1), BATCH) / self._weight_of(tenant)
        self._expected.setdefault(tenant, {})[lane] = cost
        self._turn += 1
        for name in (lane, tenant):
            self._served.pop(name, None)  # so that who was served last is last
            self._served[name] = self._turn
        return lane

    def _begin(self, jobtypes: Sequence[str]) -> None:
        """Another turn. What was chosen in the one before and did not start costs nothing."""
        self._offered, self._left, self._lanes, self._expected = jobtypes, len(jobtypes), {}, {}
        self._chosen = set()
        if self._look_warm is not None:
            self.contexts_warm(self._look_warm())
        for lane in jobtypes:
            served = self._served.get(lane, 0) - (WARM if lane in self._warm else 0)
            self._lanes.setdefault(tenant_of(lane), []).append((served, lane))
        for lanes in self._lanes.values():
            heapify(lanes)
        if len(self._served) > 2 * SERVED:
            self._served = dict(list(self._served.items())[-SERVED:])

    def jobs_started(self, jobtype: str, count: int) -> None:
        tenant = tenant_of(jobtype)
        if tenant in self._expected:
            self._expected[tenant].pop(jobtype, None)
        self._accounts[tenant] = self._account(tenant) + count / self._weight_of(tenant)
        self.running[jobtype] = self.running.get(jobtype, 0) + count
        if len(self._accounts) > self._most_accounts:
            ahead = {name: at for name, at in self._accounts.items() if at > self._floor or name in self._chosen}
            self._accounts = ahead
            self._most_accounts = max(2 * len(self._accounts), TENANTS)

    def jobs_stopped(self, jobtype: str, count: int) -> None:
        left = self.running.get(jobtype, 0) - count
        if left > 0:
            self.running[jobtype] = left
        else:
            self.running.pop(jobtype, None)

    def _account(self, tenant: str) -> float:
        return self._accounts[tenant] if tenant in self._chosen else max(self._accounts.get(tenant, 0.0), self._floor)

    def _place(self, tenant: str) -> float:
        """With what its lanes of this turn are likely to cost."""
        expected = self._expected.get(tenant)
        return self._account(tenant) + sum(expected.values()) if expected else self._account(tenant)

    def _weight_of(self, tenant: str) -> float:
        return max(self._weight(tenant), 0.001)
