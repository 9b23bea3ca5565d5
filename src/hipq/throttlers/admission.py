"""One claim's view of a queue's limits: what is used, what still fits, who must not be passed any more.

A heavy job that does not fit lets lighter ones behind it pass, for a while: once a whole pool's worth of units has
passed it, nothing that uses that pool passes it any more, and what runs now makes room for it. So it waits for at most
one poolful of others (of each pool it does not fit), and for those that were running.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from hipq.throttlers.limit import Limit, PerLane
from hipq.throttlers.pool import Pool
from hipq.throttlers.rate import Log, Rate, noted, room_at
from hipq.throttlers.rules import Rules
from hipq.throttlers.share import OTHERS, Share


class Remembered(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept from claim to claim, on the queue's row."""

    rates: dict[str, Log] = {}
    """By the seconds of their span."""
    passed: dict[str, tuple[int, int]] = {}
    """By pool: the job that is passed, and the units that have passed it."""


class Refusal(NamedTuple):
    """Why a job does not start now: the pool, and when to ask again (0 = when something changes)."""

    pool: Pool
    again: int = 0
    behind: int = 0
    """The job it may not pass any more."""


_decoder = msgspec.json.Decoder(Remembered)
MOST_REMEMBERED = 1000
"""Pools of which it is remembered whom others pass: there may be one a lane. Those that most have passed come first."""


class Admission:
    def __init__(self, rules: Rules, critical: tuple[str, ...], held: Mapping[str, int], memory: str, now: int) -> None:
        self._rules = rules
        self._critical = frozenset(critical)
        self._held = held
        self._now = now
        self.unchanged = memory
        self._remembered = _decoder.decode(memory)
        self._shared: dict[str, Pool] = {}
        """Pools of the whole queue, and of several lanes."""
        self._by_lane: dict[str, list[Pool]] = {}
        self._whole = [self._pool(one, "") for one in rules.in_force if isinstance(one, (Limit, Rate))]
        self.again = 0
        """When to claim again: the first moment at which a rate lets more start."""
        self.refused = False

    @property
    def full(self) -> bool:
        """Nothing that counts can start."""
        blocked = [pool for pool in self._whole if pool.full]
        for pool in blocked:
            self._refuse(self._later(pool, 1))
        return bool(blocked)

    def admits(self, job_type: str, lane: str, factor: int, id: int) -> bool:
        """Whether this job starts. Asked in the order of the queue: what is refused now fits no more in this claim."""
        if job_type in self._critical:
            return True
        refusal = self.refusal(lane, factor, id)
        if refusal:
            self._refuse(refusal)
            return False
        for pool in self._pools(lane):
            pool.take(factor)
            if self._remembered.passed.get(pool.name, (0, 0))[0] == id:
                pool.came = True
        return True

    def refusal(self, lane: str, factor: int, id: int) -> Refusal | None:
        for pool in self._pools(lane):
            if not pool.fits(factor):
                if not pool.full and not pool.first_refused:
                    # The count goes on if another was passed before: engines that have other types come to other jobs
                    # first, and must not begin anew with each of them.
                    pool.first_refused, pool.passed = id, 0 if pool.came else self._passed(pool)
                return self._later(pool, factor)
        for pool in self._pools(lane):
            if pool.first_refused and pool.passed + factor > pool.cap:
                return Refusal(pool, behind=pool.first_refused)
        return None

    def memory(self) -> str:
        """What the next claim must know; the same text if nothing changed. A job that is passed is remembered until
        another is: this claim may not have come as far as it, or be for other types."""
        rates, passed = {}, dict(self._remembered.passed)
        for pool in self._all():
            if pool.rate:
                rates[f"{pool.rate[0] / 1e6:g}"] = noted(pool, self._now)
            if pool.came:
                passed.pop(pool.name, None)
            if pool.first_refused:
                passed[pool.name] = (pool.first_refused, pool.passed)
        most = sorted(passed.items(), key=lambda item: -item[1][1])[:MOST_REMEMBERED]
        passed = {name: (id, units) for name, (id, units) in most if units}
        if passed == self._remembered.passed and not any(pool.taken for pool in self._all() if pool.rate):
            return self.unchanged
        return msgspec.json.encode(Remembered(rates, passed)).decode()

    def _passed(self, pool: Pool) -> int:
        return self._remembered.passed.get(pool.name, (0, 0))[1]

    def _refuse(self, refusal: Refusal) -> None:
        self.refused = True
        if refusal.again:
            self.again = min(self.again or refusal.again, refusal.again)

    def _later(self, pool: Pool, factor: int) -> Refusal:
        return Refusal(pool, room_at(pool, factor, self._now) if pool.rate else 0)

    def _all(self) -> list[Pool]:
        lanes = [pool for pools in self._by_lane.values() for pool in pools]
        return list({id(pool): pool for pool in [*self._whole, *lanes]}.values())

    def _pools(self, lane: str) -> list[Pool]:
        if lane not in self._by_lane:
            own = [one for one in self._rules.in_force if isinstance(one, (PerLane, Share))]
            if not self._rules.most:  # an operator took the limit away: there is nothing to have a share of
                own = [one for one in own if not isinstance(one, Share)]
            self._by_lane[lane] = [*self._whole, *(self._pool(one, lane) for one in own)]
        return self._by_lane[lane]

    def _pool(self, one: Limit | PerLane | Share | Rate, lane: str) -> Pool:
        match one:
            case Limit():
                found = one.pool(self._held)
            case Rate():
                found = one.pool(one.log(self._remembered.rates), self._now)
            case PerLane():
                found = one.pool(lane, self._held)
            case Share():
                if OTHERS in self._shared and lane not in one.percent:
                    return self._shared[OTHERS]
                found = one.pool(lane, self._held, self._rules.most)
        return self._shared.setdefault(found.name, found)
