"""Step 3, where a scheduler says which lane is next (seed 003): what it is asked, and the claims that come of it.

An engine that serves whatever there is cannot list its types. It looks which tenants have something to claim, and at
some lanes of each, round and round; asks the scheduler for one after the other; and claims a batch of each. So one who
comes is met at the next look, however many lanes another has.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from hipq.limits.tenants import tenant_of
from hipq.stores.claims import Claim
from hipq.stores.protocols import Store
from hipq.stores.values import TOP, WaitingLane

BATCH: Final = 100
"""Jobs of one lane in one claim: who comes next waits for no more than that."""
CLAIMS: Final = 16
"""Lanes claimed in one turn."""
LANES: Final = 256
"""Lanes looked at at once, of all tenants together: to list all of 10,000 takes some 70 ms."""
TENANTS: Final = 256
"""Tenants looked at at once: of each one lane at least."""
KNOWN: Final = 4096
"""Lanes remembered; who was known longest makes room, and is met again when the round comes to it."""
LEAST: Final = 25
"""Jobs claimed between two looks, at least, while there are lanes to claim: a look at many costs more than a turn."""
FUTILE: Final = 3
"""Claims of a tenant's lanes in a row that limits refused, after which no other lane of it is tried."""

_log = logging.getLogger("hipq")


class Spare(NamedTuple):
    """Slots beyond those that are for everybody: only for tenants that have nothing running and nothing waiting."""

    hands: int = 0
    """How many are free;"""
    busy: frozenset[str] = frozenset()
    """the tenants that get none of them;"""
    each: int = 1
    """and how many jobs are claimed for each hand."""


NO_SPARE: Final = Spare()


class Scheduler(Protocol):
    """Chooses the lane to run next; told what starts and stops. Lanes are named tenant/jobtype."""

    def select_jobtype_to_run(self, jobtypes: Sequence[str], jobcounts: Mapping[str, int]) -> str | None:
        """One of these lanes, in which jobs are waiting; None = nothing is to start now, and it is asked again when
        something has changed, or a second later. The counts are those of waiting jobs, up to a hundred. In one turn it
        is asked several times: with the same list, without the lane it has chosen."""

    def jobs_started(self, jobtype: str, count: int) -> None: ...
    def jobs_stopped(self, jobtype: str, count: int) -> None:
        """They run no more, whatever became of them."""


class Guarded:
    """A scheduler of somebody else's. If it raises, or chooses what it was not offered, the lane that was served
    longest ago is next, and the log says so once: work goes on."""

    def __init__(self, scheduler: Scheduler, warm: Callable[[], Collection[str]] = frozenset) -> None:
        self._scheduler = scheduler
        self._warm = warm
        self._complaints: set[str] = set()

    def select_jobtype_to_run(self, jobtypes: Sequence[str], jobcounts: Mapping[str, int]) -> str | None:
        self.contexts_warm(self._warm())
        try:
            chosen = self._scheduler.select_jobtype_to_run(list(jobtypes), dict(jobcounts))
        except Exception as error:
            self._complain("select_jobtype_to_run", error)
        else:
            if chosen is None or chosen in jobtypes:
                return chosen
            self._complain("select_jobtype_to_run", ValueError(f"it chose {chosen!r:.80}, which was not offered"))
        return jobtypes[0] if jobtypes else None

    def jobs_started(self, jobtype: str, count: int) -> None:
        try:
            self._scheduler.jobs_started(jobtype, count)
        except Exception as error:
            self._complain("jobs_started", error)

    def jobs_stopped(self, jobtype: str, count: int) -> None:
        try:
            self._scheduler.jobs_stopped(jobtype, count)
        except Exception as error:
            self._complain("jobs_stopped", error)

    def contexts_warm(self, jobtypes: Collection[str]) -> None:
        """A hint: the runner has contexts at hand in which jobs of these lanes start at once. A scheduler that has no
        such method is told nothing."""
        hear = getattr(self._scheduler, "contexts_warm", None)
        try:
            if hear is not None:
                hear(jobtypes)
        except Exception as error:
            self._complain("contexts_warm", error)

    def _complain(self, verb: str, error: Exception) -> None:
        if verb not in self._complaints:
            self._complaints.add(verb)
            _log.error("the scheduler's %s cannot be relied on", verb, exc_info=error)


class Round:
    """One queue's lanes, as far as they are known."""

    def __init__(self, store: Store, queue: int, scheduler: Scheduler) -> None:
        self._store = store
        self._queue = queue
        self._scheduler = scheduler
        self._known: dict[str, WaitingLane] = {}
        """Who was served last is last."""
        self._todo: list[str] = []
        """Types of which jobs wait for other code than their handler: no lane keeps those waiting."""
        self._before = TOP
        """Where among the tenants the next look begins."""
        self._met: set[str] = set()
        """Those between there and the beginning."""
        self._places: dict[str, str] = {}
        """Of tenants with more lanes than one look shows, where the next look begins."""
        self._noticed: deque[tuple[str, str]] = deque(maxlen=KNOWN)
        """Types and lanes of jobs that were added here: to look for them would take longer. If they are very many the
        first are forgotten, which a look meets."""
        self._looks = 0
        """Times the end of the tenants must be reached until all were looked at since something may have changed;"""
        self._ends: dict[str, int] = {}
        """and the end of the lanes of those that have many."""
        self._rest = 0
        """Jobs to be claimed until the next look, while there are lanes to claim. Nobody need say that something has
        changed: an engine that is never idle does not hear it."""
        self._steps = self._steps_before = 1
        """Looks from the beginning to here; and to the end, the last time."""
        self._full = False
        """Lanes had to make room for others."""
        self._futile: dict[str, int] = {}
        """By tenant, claims in a row that limits refused."""

    def __bool__(self) -> bool:
        """There may be something to claim."""
        return bool(self.looking or self._known or self._todo or self._noticed)

    @property
    def looking(self) -> bool:
        """Not all lanes were looked at since something may have changed."""
        return self._looks > 0 or bool(self._ends)

    def stale(self) -> None:
        """Something may have changed: go round once more."""
        self._looks = 1 if self._before == TOP else 2  # from here to the end, and from the beginning to here
        self._ends = dict.fromkeys(self._places, 2)
        self._futile = dict.fromkeys(self._futile, FUTILE - 1)  # one try each: there may be room now

    def notice(self, job_type: str, lane: str) -> None:
        """A job was added there. Any thread."""
        self._noticed.append((job_type, lane))

    def claims(self, room: int, hands: int, spare: Spare = NO_SPARE) -> list[Claim]:
        """What to claim next. If there is no room: of tenants that may have a spare hand."""
        self._meet_noticed()
        names = self._open(room, spare)
        for _ in range(self._steps_before):  # no further than round once
            if (names and self._rest <= 0) or (self.looking and not names):
                self._look()
                names = self._open(room, spare)
        self._rest = max(self._rest, 0)
        made = [Claim(self._queue, (name,), max(room, 1), lane="", hands=hands) for name in self._todo[:CLAIMS]]
        made += self._of_lanes(names, room, hands) if room > 0 else self._of_newcomers(names, spare, hands)
        if not made:
            self._rest = 0  # nothing will be claimed of these: go on with the others
        return made

    def _meet_noticed(self) -> None:
        while self._noticed:
            job_type, where = self._noticed.popleft()
            if where not in self._known:
                self._meet(WaitingLane(job_type, where, 1))

    def _open(self, room: int, spare: Spare) -> list[str]:
        """The lanes of which something may be claimed now."""
        if room > 0:
            return list(self._known)
        return [name for name in self._known if tenant_of(name) not in spare.busy] if spare.hands > 0 else []

    def wants(self, spare: Spare) -> bool:
        """Whether there may be something to claim where there is no room for more."""
        return spare.hands > 0 and bool(self.looking or self._todo or self._noticed or self._open(0, spare))

    def _of_lanes(self, names: list[str], room: int, hands: int) -> list[Claim]:
        made: list[Claim] = []
        counts = {name: lane.jobs for name, lane in self._known.items()}
        while names and room > 0 and len(made) < CLAIMS:
            chosen = self._scheduler.select_jobtype_to_run(names, counts)
            if chosen is None or chosen not in names:
                break
            names.remove(chosen)
            lane = self._known[chosen]
            limit = min(room, BATCH, lane.jobs)
            made.append(Claim(self._queue, (lane.job_type,), limit, lane=chosen, hands=hands))
            room -= limit
        return made

    def _of_newcomers(self, names: list[str], spare: Spare, hands: int) -> list[Claim]:
        made: list[Claim] = []
        while names and len(made) < min(spare.hands, CLAIMS):
            chosen = self._scheduler.select_jobtype_to_run(names, {name: self._known[name].jobs for name in names})
            if chosen is None or chosen not in names:
                break
            names = [name for name in names if tenant_of(name) != tenant_of(chosen)]
            lane = self._known[chosen]
            limit = min(spare.each, BATCH, lane.jobs)
            made.append(Claim(self._queue, (lane.job_type,), limit, lane=chosen, hands=max(hands, 1)))
        return made

    def _look(self) -> None:
        if self._before == TOP:
            self._todo = self._store.todo_types(self._queue, CLAIMS)
            self._steps, self._met = 0, set()
        self._steps += 1
        tenants = self._store.tenants(self._queue, self._before, TENANTS)
        self._met.update(tenants)
        self._look_at([name for name in tenants if self._futile.get(name, 0) < FUTILE])
        if len(tenants) < TENANTS:
            self._before, self._looks, self._steps_before = TOP, max(self._looks - 1, 0), self._steps
            for name in self._places.keys() - self._met:
                del self._places[name]  # it has nothing to claim any more
            self._ends = {name: left for name, left in self._ends.items() if name in self._met}
        else:
            self._before = tenants[-1]
        self._rest += max(BATCH // max(self._steps, self._steps_before), LEAST)

    def _look_at(self, tenants: Sequence[str]) -> None:
        """At the next lanes of each: as many as there is room for."""
        if not tenants:
            return
        each = max(LANES // len(tenants), 1)
        last: dict[str, list[str]] = {name: [] for name in tenants}
        before = {name: self._places.get(name, TOP) for name in tenants}
        for one in self._store.lanes(self._queue, before, each, BATCH):
            self._meet(one)
            last[tenant_of(one.lane)].append(one.lane)
        for name, lanes in last.items():
            if len(lanes) < each:
                self._places.pop(name, None)
                if (left := self._ends.pop(name, 0)) > 1:
                    self._ends[name] = left - 1
            else:
                if name not in self._places:
                    self._ends.setdefault(name, 1)
                self._places[name] = lanes[-1]

    def _meet(self, one: WaitingLane) -> None:
        if self._futile.get(tenant_of(one.lane), 0) >= FUTILE:
            return
        if one.lane not in self._known and len(self._known) >= KNOWN:
            self._known.pop(next(iter(self._known)))  # else a tenant with very many would be all that is known
            self._full = True
        self._known[one.lane] = one

    def fed(self, claim: Claim, got: int, refused: bool = False) -> None:
        """So many came of a claim; `refused`: limits kept some from starting. A lane that gave less than was asked for
        has no more, until it is seen again."""
        assert claim.lane is not None
        if not claim.lane:
            self._todo = [name for name in self._todo if name not in claim.types]
            self._looks = max(self._looks, int(got > 0))  # there may be more
            return
        self._rest -= got
        lane = self._known.pop(claim.lane, None)
        if got < claim.limit:
            self._disappoint(tenant_of(claim.lane), refused)
        else:
            self._futile.pop(tenant_of(claim.lane), None)
            if lane and lane.jobs >= BATCH:
                self._known[claim.lane] = lane
            elif lane and got < lane.jobs:
                self._known[claim.lane] = lane._replace(jobs=lane.jobs - got)
        if not self._known and self._full:
            self._full = False
            self.stale()

    def _disappoint(self, tenant: str, refused: bool) -> None:
        """A tenant at its limit may have a thousand lanes: to try them all would keep others waiting."""
        if not refused:
            return  # somebody else was first
        self._futile[tenant] = self._futile.get(tenant, 0) + 1
        if self._futile[tenant] >= FUTILE:
            self._ends.pop(tenant, None)
            self._known = {name: one for name, one in self._known.items() if tenant_of(name) != tenant}
