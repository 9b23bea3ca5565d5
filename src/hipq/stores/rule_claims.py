"""Which jobs the rules of a queue let start now: the same for every store, which only reads for it. In the transaction
of the claim, under the queue's admission lock if the queue has limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from hipq.job.units import UNIT
from hipq.limits.admission import FRESH, Admission, passed_in
from hipq.limits.rules import Rules
from hipq.stores.claim_groups import ClaimGroup, Head, LaneTurns, RankPosition, Seen, in_order, seen
from hipq.stores.claims import Claim

After = tuple[str, str, int]
"""The lane, windows and factor of a claim group."""
START: Final[After] = ("", "", 0)
ALL: Final = 1 << 30
_STEP: Final = 2
LANES_AT_ONCE: Final = 64
"""Claim groups of each type that a fair claim reads at a time. Listing all of 10,000 lanes takes some 70 ms."""
_BEHIND: Final = "~"
"""Sorts after every list of windows."""
_REST: Final = 20
"""A full queue is not searched again for this many times as long as the last search took."""
_DEAR: Final = 2_000
"""Microseconds that the sum of what is held may take before a claim first looks whether any job is ready: with a
hundred thousand jobs that wait for their answers it takes tens of milliseconds."""
_LONGEST_REST: Final = FRESH // 4
"""Microseconds after which a full queue is searched again at the latest, since a heavy job must be met every so often
for others to wait for it."""


class Held(NamedTuple):
    """What counts against a queue's limits, in thousandths of units."""

    by_lane: dict[str, int]
    lightest: int
    """The least that one of these jobs holds."""

    @classmethod
    def of(cls, lanes: Iterable[tuple[str, int, int]]) -> Held:
        """From the sum and the least of each lane."""
        found = list(lanes)
        return cls({lane: units for lane, units, _ in found}, min((least for _, _, least in found), default=UNIT))


class Reader(Protocol):
    """Reads one queue for a claim."""

    def look_ahead(
        self, types: Sequence[str], asked: Sequence[str], after: After, depth: int, passed: Sequence[int], places: int
    ) -> None:
        """Read in one round trip what the claim is about to ask for: what counts against limits, unless no job of the
        `asked` types is ready; the heads of these types after a place; the jobs that others have passed; and this many
        places after the heads, in all."""

    def held(self) -> Held:
        """What counts against limits."""

    def heads(self, types: Sequence[str], after: After, depth: int) -> list[Head]:
        """The heads of these types' claim groups after a place, up to a number per type, in order within a type."""

    def more(self, lines: Sequence[tuple[ClaimGroup, RankPosition]], count: int) -> list[list[RankPosition]]:
        """For each of these claim groups, up to this many places after a given one, in order."""

    def these(self, ids: Sequence[int]) -> list[Head]:
        """Which of these jobs can still start, in order."""


@dataclass(slots=True)
class LaneReader:
    """The heads of one lane only."""

    reader: Reader
    lane: str

    def look_ahead(
        self, types: Sequence[str], asked: Sequence[str], after: After, depth: int, passed: Sequence[int], places: int
    ) -> None:
        self.reader.look_ahead(types, asked, max(after, (self.lane, *START[1:])), min(_STEP, depth), passed, places)

    def held(self) -> Held:
        return self.reader.held()

    def heads(self, types: Sequence[str], after: After, depth: int) -> list[Head]:
        """Read in steps: a lane hardly ever has more than one claim group, and those of other lanes would all be
        read."""
        step = _STEP
        while True:
            found = self.reader.heads(types, max(after, (self.lane, *START[1:])), min(step, depth))
            own = [head for head in found if head.group.lane == self.lane]
            if len(own) < len(found) or len(found) < step or step >= depth:
                return own
            step *= 8

    def more(self, lines: Sequence[tuple[ClaimGroup, RankPosition]], count: int) -> list[list[RankPosition]]:
        return self.reader.more(lines, count)

    def these(self, ids: Sequence[int]) -> list[Head]:
        return self.reader.these(ids)


def reading(reader: Reader, lane: str | None) -> Reader:
    return reader if lane is None else LaneReader(reader, lane)


def unasked(claim: Claim) -> Claim:
    """The part of a claim that may start without a throttler's consent: critical jobs."""
    return claim._replace(types=tuple(name for name in claim.types if name in claim.critical))


class Picked(NamedTuple):
    """The jobs that a claim may take, and what it learned about the others."""

    ids: list[int]
    memory: str = "{}"
    """What the queue's limits are to remember."""
    refused: bool = False
    again: int = 0
    closed: frozenset[str] = frozenset()
    group: Head | None = None
    """Instead of ids: the head of the only claim group that may start."""


@dataclass(slots=True)
class Past:
    """What this process remembers of its claims from a queue."""

    lane: str = ""
    """The lane that was served last, where lanes take turns."""
    rest_until: int = 0
    """Until when a full queue is not searched for heavy jobs."""
    summing: int = 0
    """Microseconds that the last sum of what counts against limits took."""


@dataclass(slots=True)
class Picking:
    """Picks the jobs for one claim of a queue, in a turn that began at `now`."""

    types: Sequence[str]
    critical: tuple[str, ...]
    want: int
    rules: Rules
    memory: str
    now: int
    reader: Reader
    clock: Callable[[], int]
    past: Past
    hands: int
    """The free hands. Where a rate counts starts, no more jobs than these are picked."""

    @property
    def _wanted(self) -> int:
        return min(self.want, max(self.hands, 0)) if self.rules.has_rate else self.want

    def pick(self) -> Picked:
        """The first jobs that may start."""
        if self.rules.paused or not self.types:
            return Picked([], self.memory, refused=True)
        if self.rules.in_force:
            self._look_ahead()
        if self.past.summing > _DEAR and not self.reader.heads(self.types, START, 1):
            return Picked([], self.memory)
        admission = self._admission()
        ids, found = self._first(admission)
        return self._picked(ids, found, admission, admission.memory())

    def pick_group(self) -> Picked:
        """The first jobs that may start where there are no limits; if all are of one claim group, its head."""
        if self.rules.paused or self.rules.lanes == "fair":
            return self.pick()
        found = seen(self.reader.heads(self.types, START, ALL), self.rules, self.now)
        admission = self._admission()
        if len(found.able) == 1:
            return self._picked([], found, admission, self.memory)._replace(group=found.able[0])
        ids = in_order(found.able, self._wanted, admission, self.reader.more)
        return self._picked(ids, found, admission, self.memory)

    def look(self) -> Picked:
        """The first jobs that may start, for a throttler to choose from: nothing starts yet."""
        if self.rules.paused:
            return Picked([], self.memory)
        admission, lane = self._admission(), self.past.lane
        ids, found = self._first(admission)
        self.past.lane = lane  # to look is not to take a turn
        return self._picked(ids, found, admission, admission.memory_after_look())

    def pick_of(self, ids: Sequence[int]) -> Picked:
        """Which of the jobs that a throttler admitted the other rules admit too."""
        admission = self._admission(met=False)
        found = seen(self.reader.these(ids), self.rules, self.now)
        able = [] if self.rules.paused else found.able
        if self.rules.lanes == "ordered":
            picked = in_order(able, self._wanted, admission, _no_more)
        else:
            turns = LaneTurns(self._wanted, admission, _no_more)
            turns.first(head for head in able if head.group.lane > self.past.lane)
            turns.first(head for head in able if head.group.lane <= self.past.lane)
            picked = self._served(turns)
        return self._picked(picked, found, admission, admission.memory())._replace(refused=True)

    def _look_ahead(self) -> None:
        after, depth = (START, ALL) if self.rules.lanes == "ordered" else ((self.past.lane, _BEHIND, 0), LANES_AT_ONCE)
        places = 2 * min(self.want, math.ceil(self.rules.most) or self.want)
        passed = passed_in(self.memory)
        self.reader.look_ahead(self._lookable(self.clock()), self.types, after, depth, passed, places)

    def _lookable(self, now: int) -> Sequence[str]:
        """The types that a full queue is looked through for."""
        if now < self.past.rest_until < now + _LONGEST_REST:
            return [name for name in self.types if name in self.critical]
        return self.types

    def _admission(self, *, met: bool = True) -> Admission:
        """The view of the queue's limits for this claim, at the time under the lock: a process may have been stopped
        since its turn began, and starts that are noted too early would let a rate be exceeded."""
        if not self.rules.in_force:
            return Admission(self.rules, self.critical, {}, self.memory, self.now)
        began = self.clock()
        held, now = self.reader.held(), self.clock()
        self.past.summing = now - began
        admission = Admission(self.rules, self.critical, held.by_lane, self.memory, now, held.lightest)
        if passed := passed_in(self.memory):
            able = seen(self.reader.these(passed), self.rules, self.now).able
            admission.still([(head.group.job_type, head.place) for head in able], self.types, met=met)
        return admission

    def _first(self, admission: Admission) -> tuple[list[int], Seen]:
        """The first jobs that may start. If a limit of the whole queue is full, only critical jobs can, and heavy jobs
        must be met: all lanes are searched for these, but not all the time."""
        began = self.clock()
        full = admission.full
        types = self._lookable(began) if full else self.types
        if self.rules.lanes == "ordered":
            found = seen(self.reader.heads(types, START, ALL), self.rules, self.now)
            ids = in_order(found.able, self._wanted, admission, self.reader.more)
        else:
            ids, found = self._fairly(types, admission)
        if full and types is self.types:
            now = self.clock()
            self.past.rest_until = now + _REST * (now - began)
        return ids, found

    def _picked(self, ids: list[int], found: Seen, admission: Admission, memory: str) -> Picked:
        refused = admission.refused or found.barred or bool(found.closed) or self._wanted < self.want
        return Picked(ids, memory, refused, admission.again, frozenset(found.closed))

    def _fairly(self, types: Sequence[str], admission: Admission) -> tuple[list[int], Seen]:
        turns = LaneTurns(self._wanted, admission, self.reader.more)
        closed, barred = set[str](), False
        for heads in self._round(types, self.past.lane):
            found = seen(heads, self.rules, self.now)
            closed |= found.closed
            barred |= found.barred
            turns.first(found.able)
            if turns.done or (admission.full and not self.critical):
                break
        return self._served(turns), Seen([], closed, barred)

    def _served(self, turns: LaneTurns) -> list[int]:
        turns.go_on()
        if turns.picked:
            self.past.lane = turns.last
        return turns.picked

    def _round(self, types: Sequence[str], last: str) -> Iterator[list[Head]]:
        """All lanes, a few at a time, from the one after `last` round to it again."""
        after: After | None = (last, _BEHIND, 0)
        while after:
            heads, horizon = self._whole_lanes(types, after)
            yield heads
            after = None if horizon is None else (horizon, _BEHIND, 0)
        after = START
        while after:
            heads, horizon = self._whole_lanes(types, after)
            yield [head for head in heads if head.group.lane <= last]
            after = None if horizon is None or horizon >= last else (horizon, _BEHIND, 0)

    def _whole_lanes(self, types: Sequence[str], after: After) -> tuple[list[Head], str | None]:
        """A few lanes, each with all its claim groups, and the last of these lanes; None = all that follow."""
        depth = LANES_AT_ONCE
        while True:
            heads = self.reader.heads(types, after, depth)
            cut = _cut(heads, depth)
            if cut is None:
                return heads, None
            whole = [head for head in heads if head.group.lane < cut]
            if whole:
                return whole, max(head.group.lane for head in whole)
            depth *= 4  # one lane has more claim groups than that


def _cut(heads: Sequence[Head], depth: int) -> str | None:
    """The first lane that may be listed incompletely: the last one of a type that may have more. None = there is
    none."""
    listed: dict[str, list[str]] = {}
    for head in heads:
        listed.setdefault(head.group.job_type, []).append(head.group.lane)
    return min((lanes[-1] for lanes in listed.values() if len(lanes) >= depth), default=None)


def _no_more(lines: Sequence[tuple[ClaimGroup, RankPosition]], _count: int) -> list[list[RankPosition]]:
    return [[] for _ in lines]
