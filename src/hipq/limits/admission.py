"""One claim's view of a queue's limits: what is used, what still fits, who must not be passed any more.

A heavy job that does not fit lets lighter ones behind it pass, for a while: once a whole pool's worth of units has
passed it, nothing that uses that pool passes it any more, and what runs now makes room for it. So it waits for at most
one poolful of others (of each pool it does not fit), and for those that were running. Engines that have no code for it
wait for it too, as long as one that has comes to it every so often: one that is gone, or busy, holds nobody up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from hipq.job.units import UNIT, counted
from hipq.limits.limit import Limit, PerLane
from hipq.limits.pool import Pool
from hipq.limits.rate import Log, Rate, remembered, room_at
from hipq.limits.rules import AnyLimit, Rules
from hipq.limits.share import OTHERS, Share
from hipq.limits.tenants import PerTenant


class Remembered(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept from claim to claim, on the queue's row."""

    rates: dict[str, Log] = {}
    """By the microseconds of their span."""
    passed: dict[str, tuple[int, int, int]] = {}
    """By pool: the job that is passed, the units that have passed it, and when a claim of its type last met it."""


class Refusal(NamedTuple):
    """Why a job does not start now: the pool, and when to ask again (0 = when something changes)."""

    pool: Pool
    again: int = 0
    behind: int = 0
    """The job it may not pass any more."""


_decoder = msgspec.json.Decoder(Remembered)
_NOBODY: Final = (0, 0, 0)
FRESH: Final = 10_000_000
"""Microseconds for which claims of other types wait for a job that a claim of its own type has met."""
UNLIMITED: Final = 1 << 62
MOST_REMEMBERED: Final = 200
"""Pools of which it is remembered whom others pass: there may be one a lane. Those that most have passed come first."""


class Admission:
    def __init__(
        self,
        rules: Rules,
        critical: tuple[str, ...],
        held: Mapping[str, int],
        memory: str,
        now: int,
        lightest: int = UNIT,
    ) -> None:
        """`held`: what runs, by lane, and `lightest` the least that any job has of it, all in thousandths of units."""
        self._rules = rules
        self._critical = frozenset(critical)
        self._held = held
        self._lightest = min(lightest, UNIT)
        self._now = now
        self.unchanged = memory
        before = _decoder.decode(memory)
        self._rates = before.rates
        self._passed = before.passed
        self._ahead: dict[str, tuple[tuple[str, int], int]] = {}
        """By pool: the place of the job that others pass, and until when it is waited for (0 = as long as it waits)."""
        self._shared: dict[str, Pool] = {}
        """Pools of the whole queue, and of several lanes."""
        self._by_lane: dict[str, list[Pool]] = {}
        self._whole = [self._pool(one, "") for one in rules.in_force if isinstance(one, (Limit, Rate))]
        self.again = 0
        """When to claim again: the first moment at which a rate lets more start."""
        self.refused = False

    @property
    def passed(self) -> list[int]:
        """The jobs that others pass, as is remembered."""
        return [job_id for job_id, _, _ in self._passed.values()]

    def still(
        self, waiting: Collection[tuple[str, tuple[str, int]]], types: Collection[str], *, met: bool = True
    ) -> None:
        """Of those jobs these, by their type and place, wait still. This claim is for these types; those jobs of them
        are `met`, unless somebody has chosen what it is for."""
        known = {place[1]: (job_type, place) for job_type, place in waiting}
        kept = {}
        for pool, (job_id, units, before) in self._passed.items():
            job_type, place = known.get(job_id, ("", ("", 0)))
            ours = job_type in types
            last = self._met(before) if ours and met else before
            if ours or abs(self._now - last) < FRESH:  # it may be later than now: calendars are set back
                kept[pool] = (job_id, units, last)
                if job_type:
                    self._ahead[pool] = place, 0 if ours else last + FRESH
        self._passed = kept

    @property
    def room(self) -> int:
        """About how many jobs the limits of the whole queue leave room for, if each takes a unit."""
        return min((max(pool.cap - pool.used, 0) // UNIT for pool in self._whole), default=UNLIMITED)

    @property
    def full(self) -> bool:
        """Nothing that counts can start."""
        blocked = [pool for pool in self._whole if pool.full]
        for pool in blocked:
            self._refuse(self._later(pool, 1))
        return bool(blocked)

    def admits(self, job_type: str, lane: str, factor: int, place: tuple[str, int]) -> bool:
        """Whether this job starts. Asked in the order of the queue: what is refused now fits no more in this claim."""
        if job_type in self._critical:
            return True
        refusal = self.refusal(lane, factor, place)
        if refusal:
            self._refuse(refusal)
            return False
        self._lightest = min(self._lightest, factor)
        for pool in self._pools(lane):
            pool.take(factor, place)
            if self._passed.get(pool.name, _NOBODY)[0] == place[1]:
                pool.came = True
                pool.heavy = None if pool.heavy == place else pool.heavy
        return True

    def refusal(self, lane: str, factor: int, place: tuple[str, int]) -> Refusal | None:
        for pool in self._pools(lane):
            ahead, _ = self._ahead.get(pool.name, (place, 0))
            if place > ahead:
                self._pass(pool, ahead)
            if not pool.fits(factor):
                if factor > self._lightest or not pool.full:  # else nobody is light enough to pass it
                    self._pass(pool, place)
                return self._later(pool, factor)
        for pool in self._pools(lane):
            if pool.heavy and pool.passes(place) and pool.passed + factor > pool.cap:
                ahead, again = self._ahead.get(pool.name, (place, 0))
                return Refusal(pool, again if ahead == pool.heavy else 0, behind=pool.heavy[1])
        return None

    def memory(self) -> str:
        """What the next claim must know; the same text if nothing changed. A job that is passed is remembered until
        another is: this claim may not have come as far as it, or be for other types."""
        rates, passed = remembered(self._rates, self._all(), self._now), dict(self._passed)
        for pool in self._all():
            if pool.came:
                passed.pop(pool.name, None)
            if pool.heavy:
                passed[pool.name] = (pool.heavy[1], pool.passed, self._met_at(pool.name, pool.heavy[1]))
        return self._remember(rates, passed)

    def glimpsed(self) -> str:
        """The same, if nothing that was admitted starts for that: who was met, not who passed."""
        passed = dict(self._passed)
        for pool in self._all():
            if pool.heavy:
                units = passed.get(pool.name, _NOBODY)[1]
                passed[pool.name] = (pool.heavy[1], units, self._met_at(pool.name, pool.heavy[1]))
        return self._remember(self._rates, passed)

    def _remember(self, rates: dict[str, Log], passed: dict[str, tuple[int, int, int]]) -> str:
        most = sorted(passed.items(), key=lambda item: -item[1][1])[:MOST_REMEMBERED]
        passed = dict(most)
        if passed == _decoder.decode(self.unchanged).passed and not any(
            pool.taken for pool in self._all() if pool.rate
        ):
            return self.unchanged
        return msgspec.json.encode(Remembered(rates, passed)).decode()

    def _pass(self, pool: Pool, place: tuple[str, int]) -> None:
        """Those behind this job pass it. The count goes on if another was passed before: engines that have other types
        come to other jobs first, and must not begin anew with each of them."""
        if pool.came and self._ahead.get(pool.name, (None, 0))[0] == place:
            return  # it has started
        if pool.heavy is None:
            pool.passed = 0 if pool.came else self._passed.get(pool.name, _NOBODY)[1]
        if pool.heavy is None or place < pool.heavy:
            pool.heavy = place

    def _met_at(self, pool: str, job_id: int) -> int:
        """When the job that is passed there was met: now, unless it was known before."""
        known, _, before = self._passed.get(pool, _NOBODY)
        return before if job_id == known and pool in self._ahead else self._met(before)

    def _met(self, before: int) -> int:
        """When it was met, if that is now: not to the microsecond, or every claim would have to write it."""
        return before if 0 <= self._now - before < FRESH // 4 else self._now

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
            own = [one for one in self._rules.in_force if isinstance(one, (PerLane, PerTenant, Share))]
            own = [one for one in own if not isinstance(one, PerTenant) or one.knows(lane)]
            if not self._rules.most:  # an operator took the limit away: there is nothing to have a share of
                own = [one for one in own if not isinstance(one, Share)]
            self._by_lane[lane] = [*self._whole, *(self._pool(one, lane) for one in own)]
        return self._by_lane[lane]

    def _pool(self, one: AnyLimit, lane: str) -> Pool:
        match one:
            case Limit():
                found = one.pool(self._held)
            case Rate():
                found = one.pool(one.log(self._rates), self._now)
            case PerLane() | PerTenant():
                found = one.pool(lane, self._held)
            case Share():
                if OTHERS in self._shared and lane not in one.percent:
                    return self._shared[OTHERS]
                found = one.pool(lane, self._held, counted(self._rules.most))
        return self._shared.setdefault(found.name, found)
