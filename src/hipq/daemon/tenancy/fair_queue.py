"""Jobs that wait for a hand, and who may have one: tenants take turns, and so do the lanes of each.

Up to `hands` batches run at once, whoever they belong to. A few more, the spare hands, are only for tenants that have
none: a tenant whose handlers never return can fill all the others, and still keeps nobody else waiting.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

from hipq.engine.lanes import Spare
from hipq.executors.execution import Execution

AHEAD: Final = 0.1
"""Seconds of work a context gets in one batch: who comes behind a slow one waits for it."""
BATCH: Final = 100


def spare_hands(hands: int) -> int:
    """Half as many again, and two at least."""
    return max(hands // 2, 2)


class FairQueue:
    """Whoever uses it holds a lock, but for `measure`."""

    def __init__(self, hands: int) -> None:
        self._hands = hands
        self._most = hands + spare_hands(hands)
        self._tenants: dict[str, dict[str, deque[Execution]]] = {}
        """What waits, by tenant and lane; whose turn it is comes first."""
        self._holding: Counter[str] = Counter()
        """Slots in use, by tenant."""
        self._pace: dict[str, float] = {}
        """By lane the seconds a job takes, about."""
        self.waiting = 0

    @property
    def usable(self) -> int:
        """How many slots there can be work for: while one tenant is alone, the spare ones are of no use."""
        alone = len(self._tenants) <= 1 and self._holding.keys() <= self._tenants.keys()
        return self._hands if alone else self._most

    def put(self, execution: Execution) -> None:
        lanes = self._tenants.setdefault(execution.row.tenant, {})
        lanes.setdefault(execution.row.lane, deque()).append(execution)
        self.waiting += 1

    def take(self, idle: int) -> list[Execution]:
        """The next batch, for a hand that its tenant has until `give`; none if nobody who waits may have one. So many
        hands are idle beside this one."""
        total = self._holding.total()
        tenant = next((name for name in self._tenants if self._may_have_one(name, total)), None)
        if tenant is None:
            return []
        lanes = self._tenants.pop(tenant)
        lane = next(iter(lanes))
        some = lanes.pop(lane)
        batch = [some.popleft()]
        most = self._size(lane, len(some) + 1, min(idle, max(self._hands - total - 1, 0)))
        while some and len(batch) < most and not (batch[0].row.alone or some[0].row.alone):
            batch.append(some.popleft())
        self.waiting -= len(batch)
        if some:
            lanes[lane] = some  # behind the others
        if lanes:
            self._tenants[tenant] = lanes
        self._holding[tenant] += 1
        return batch

    def _may_have_one(self, tenant: str, total: int) -> bool:
        return total < self._hands or (total < self._most and not self._holding[tenant])

    def _size(self, lane: str, waiting: int, idle: int) -> int:
        """As many as take a moment; and no more than leave some for the hands that are idle."""
        pace = self._pace.get(lane)
        quick = 1 if pace is None else int(AHEAD / max(pace, 1e-6))
        return max(min(quick, BATCH, -(-waiting // (idle + 1))), 1)

    def give(self, tenant: str) -> None:
        """Give a slot back. Tenants without one are not remembered."""
        self._holding -= Counter([tenant])

    def clear(self) -> Iterable[Execution]:
        """All that waits, which waits no more."""
        found = [one for lanes in self._tenants.values() for lane in lanes.values() for one in lane]
        self._tenants, self.waiting = {}, 0
        return found

    def spare(self) -> Spare:
        """What tenants that have nothing here could start, although there is no room for more."""
        promised = sum(not self._holding[name] for name in self._tenants)
        free = self._most - max(self._holding.total(), self._hands) - promised
        return Spare(max(free, 0), frozenset(self._holding) | frozenset(self._tenants))

    def measure(self, lane: str, seconds: float) -> None:
        before = self._pace.get(lane, seconds)
        self._pace[lane] = before + 0.2 * (seconds - before)
        if len(self._pace) > 10_000:
            self._pace.clear()
