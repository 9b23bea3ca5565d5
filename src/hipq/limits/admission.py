"""One claim's view of a queue's limits: what is used, what still fits, which jobs must not be passed any more.

A heavy job that does not fit lets lighter jobs behind it pass, for a while: once a whole pool's worth of units has
passed it, nothing that uses that pool passes it any more, and the running jobs make room for it as they end. So it
waits for at most one poolful of other jobs (of each pool it does not fit), and for those that were running. Engines
without code for the heavy job wait for it too, as long as claims of an engine that has the code meet it every so often:
an engine that is gone, or busy, holds nobody up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from hipq.job.units import UNIT, counted
from hipq.limits.base import StartLog, Usage
from hipq.limits.pool import Pool
from hipq.limits.rate import remembered
from hipq.limits.rules import AnyLimit, Rules


class Remembered(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a queue's row remembers from claim to claim."""

    rates: Mapping[str, StartLog] = {}
    """The log of starts, by the span of each rate in microseconds."""
    passed: dict[str, tuple[int, int, int]] = {}
    """By pool: the job that others pass, the units that have passed it, and when a claim for its type last met it."""


class Refusal(NamedTuple):
    """Why a limit does not let a job start."""

    pool: Pool
    """The pool that has no room."""
    again: int = 0
    """When to ask again; 0 = when something changes."""
    behind: int = 0
    """The job that this one may no longer pass; 0 = this one does not fit the pool."""


_decoder = msgspec.json.Decoder(Remembered)
_NOBODY: Final = (0, 0, 0)
FRESH: Final = 10_000_000
"""Microseconds for which claims of other types wait for a job that a claim of its own type has met."""
UNLIMITED: Final = 1 << 62
MOST_REMEMBERED: Final = 200
"""The most pools in `Remembered.passed`: there may be one per lane. Those that most units have passed are kept."""


def passed_in(memory: str) -> list[int]:
    """The jobs that others pass, as the queue remembers them."""
    return [job_id for job_id, _, _ in _decoder.decode(memory).passed.values()]


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
        """`held`: the units that jobs hold, by lane; `lightest`: the least that one of these jobs holds. Both in
        thousandths of units."""
        self._critical = frozenset(critical)
        self._is_cut = rules.is_cut
        self._lightest = min(lightest, UNIT)
        self._now = now
        self.unchanged = memory
        self._before = _decoder.decode(memory)
        self._passed = self._before.passed
        self._ahead: dict[str, tuple[tuple[str, int], int]] = {}
        """By pool: the place of the job that others pass, and until when they wait for it (0 = as long as it waits)."""
        self._usage = Usage(held, self._before.rates, counted(rules.most), now)
        self._by_name: dict[str, Pool] = {}
        self._by_lane: dict[str, list[Pool]] = {}
        self._whole = [self._pool(one, "") for one in rules.in_force if one.of_whole_queue]
        self._in_lanes = [one for one in rules.in_force if not one.of_whole_queue]
        self.again = 0
        """When to claim again: the first moment at which a rate lets more start."""
        self.refused = False

    def still(
        self, waiting: Collection[tuple[str, tuple[str, int]]], types: Collection[str], *, met: bool = True
    ) -> None:
        """Learn which of the `passed` jobs still wait, by type and place, in a claim for these types. The claim has
        `met` those of its types, unless it is for jobs that somebody else has chosen."""
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
        """About how many jobs the limits of the whole queue leave room for, if each takes one unit."""
        return min((max(pool.cap - pool.used, 0) // UNIT for pool in self._whole), default=UNLIMITED)

    @property
    def full(self) -> bool:
        """Whether no job that counts can start."""
        blocked = [pool for pool in self._whole if pool.full]
        for pool in blocked:
            self._refuse(self._later(pool, 1))
        return bool(blocked)

    def admits(self, job_type: str, lane: str, factor: int, place: tuple[str, int]) -> bool:
        """Whether this job starts. Jobs are asked about in the order of the queue: a job that is refused now will not
        fit later in this claim."""
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
                if pool.lets_pass(factor, self._lightest):
                    self._pass(pool, place)
                return self._later(pool, factor)
        for pool in self._pools(lane):
            if pool.heavy and pool.passes(place) and pool.passed + factor > pool.cap:
                ahead, again = self._ahead.get(pool.name, (place, 0))
                return Refusal(pool, again if ahead == pool.heavy else 0, behind=pool.heavy[1])
        return None

    def memory(self) -> str:
        """What the next claim must know: the same text, if nothing has changed. A job that others pass is remembered
        until another job takes its place: this claim may not have come as far, or be for other types."""
        pools, passed = self._by_name.values(), dict(self._passed)
        for pool in pools:
            if pool.came:
                passed.pop(pool.name, None)
            if pool.heavy:
                passed[pool.name] = (pool.heavy[1], pool.passed, self._met_at(pool.name, pool.heavy[1]))
        return self._remember(remembered(self._before.rates, pools, self._now), passed)

    def memory_after_look(self) -> str:
        """What the next claim must know if nothing starts although it was admitted: which jobs were met, but not which
        jobs passed them."""
        passed = dict(self._passed)
        for pool in self._by_name.values():
            if pool.heavy:
                units = passed.get(pool.name, _NOBODY)[1]
                passed[pool.name] = (pool.heavy[1], units, self._met_at(pool.name, pool.heavy[1]))
        return self._remember(self._before.rates, passed)

    def _remember(self, rates: Mapping[str, StartLog], passed: dict[str, tuple[int, int, int]]) -> str:
        most = sorted(passed.items(), key=lambda item: -item[1][1])[:MOST_REMEMBERED]
        found = Remembered(rates, dict(most))
        return self.unchanged if found == self._before else msgspec.json.encode(found).decode()

    def _pass(self, pool: Pool, place: tuple[str, int]) -> None:
        """Let the jobs behind this one pass it. The count of units goes on if another job was passed before: engines
        with other types come to other jobs first, and must not begin a new count with each of them."""
        if pool.came and self._ahead.get(pool.name, (None, 0))[0] == place:
            return  # it has started
        if pool.heavy is None:
            pool.passed = 0 if pool.came else self._passed.get(pool.name, _NOBODY)[1]
        if pool.heavy is None or place < pool.heavy:
            pool.heavy = place

    def _met_at(self, pool: str, job_id: int) -> int:
        """When a claim met the job that others pass in this pool: now, unless the queue remembers the job."""
        known, _, before = self._passed.get(pool, _NOBODY)
        return before if job_id == known and pool in self._ahead else self._met(before)

    def _met(self, before: int) -> int:
        """The present as a moment at which a job was met: not to the microsecond, or every claim would have to write
        it."""
        return before if 0 <= self._now - before < FRESH // 4 else self._now

    def _refuse(self, refusal: Refusal) -> None:
        self.refused = True
        if refusal.again:
            self.again = min(self.again or refusal.again, refusal.again)

    def _later(self, pool: Pool, factor: int) -> Refusal:
        return Refusal(pool, pool.room_at(factor, self._now))

    def _pools(self, lane: str) -> list[Pool]:
        if lane not in self._by_lane:
            own = [self._pool(one, lane) for one in self._in_lanes if one.applies(lane, self._usage.whole)]
            self._by_lane[lane] = [*self._whole, *own]
        return self._by_lane[lane]

    def _pool(self, one: AnyLimit, lane: str) -> Pool:
        name = one.pool_name(lane)
        if name not in self._by_name:
            self._by_name[name] = one.pool(lane, self._usage)
            self._by_name[name].alone = not self._is_cut
        return self._by_name[name]
