"""Step 3 in a daemon: a scheduler says which lane is next; here is what it is asked, and what is then claimed.

The engine of a daemon serves all job types, so it cannot list them. It looks which tenants have ready jobs, and at some
lanes of each tenant, round and round. It asks the scheduler for one lane after another, and claims a batch of each. So
the next look finds a new tenant, however many lanes another tenant has.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from hipq.limits.tenants import tenant_of
from hipq.stores.claims import Claim
from hipq.stores.protocols import Store
from hipq.stores.values import TOP, WaitingLane

BATCH: Final = 100
"""Jobs of one lane in one claim. The next lane waits for no more than these."""
CLAIMS: Final = 16
"""Lanes that are claimed in one turn."""
LANES: Final = 256
"""Lanes that one look returns, of all tenants together. Listing all of 10,000 lanes takes some 70 ms."""
TENANTS: Final = 256
"""Tenants that one look returns, with at least one lane of each."""
KNOWN: Final = 4096
"""Lanes that are remembered. A new one replaces the one that was known longest, which a later look finds again."""
LEAST: Final = 25
"""Jobs claimed between two looks, at least, while there are known lanes to claim: a look costs more than a turn."""
FUTILE: Final = 3
"""Refused claims in a row, of one tenant's lanes, after which no other lane of that tenant is tried."""

_log = logging.getLogger("hipq")


class Spare(NamedTuple):
    """Slots beyond those that everybody may use: for tenants that have no job in memory, running or waiting."""

    slots: int = 0
    """How many spare slots are free."""
    busy: frozenset[str] = frozenset()
    """The tenants that get no spare slot."""
    each: int = 1
    """Jobs to claim for one slot."""


NO_SPARE: Final = Spare()


class Scheduler(Protocol):
    """Chooses the lane to run next. It is told which jobs start and stop. Lanes are named `tenant/jobtype`."""

    def select_jobtype_to_run(self, jobtypes: Sequence[str], jobcounts: Mapping[str, int]) -> str | None:
        """One of these lanes, all of which have ready jobs; None = nothing may start now: the scheduler is asked again
        when something has changed, or after a second. The counts are those of ready jobs, up to a hundred. In one turn
        the scheduler is asked several times with the same list, less the lanes it has already chosen."""

    def jobs_started(self, jobtype: str, count: int) -> None: ...
    def jobs_stopped(self, jobtype: str, count: int) -> None:
        """This many jobs of the lane have stopped, whatever became of them."""


class Guarded:
    """Wraps a scheduler that users supply. If it raises, or chooses a lane that it was not offered, the lane that was
    served longest ago is next and the log says so once: work goes on."""

    def __init__(self, scheduler: Scheduler, warm: Callable[[], Collection[str]] = frozenset) -> None:
        self._scheduler = scheduler
        self._warm = warm
        self._complaints: set[str] = set()

    def select_jobtype_to_run(self, jobtypes: Sequence[str], jobcounts: Mapping[str, int]) -> str | None:
        self.contexts_warm(self._warm())
        try:
            chosen = self._scheduler.select_jobtype_to_run(list(jobtypes), dict(jobcounts))
            if chosen is None or chosen in jobtypes:
                return chosen
            raise ValueError(f"it chose {chosen!r:.80}, which was not offered")
        except Exception as error:
            self._complain("select_jobtype_to_run", error)
        return jobtypes[0] if jobtypes else None

    def jobs_started(self, jobtype: str, count: int) -> None:
        self._tell("jobs_started", jobtype, count)

    def jobs_stopped(self, jobtype: str, count: int) -> None:
        self._tell("jobs_stopped", jobtype, count)

    def contexts_warm(self, jobtypes: Collection[str]) -> None:
        """A hint: contexts in which jobs of these lanes can start at once are idle. A scheduler need not use it."""
        if hasattr(self._scheduler, "contexts_warm"):
            self._tell("contexts_warm", jobtypes)

    def _tell(self, verb: str, *given: Any) -> None:
        try:
            getattr(self._scheduler, verb)(*given)
        except Exception as error:
            self._complain(verb, error)

    def _complain(self, verb: str, error: Exception) -> None:
        if verb not in self._complaints:
            self._complaints.add(verb)
            _log.error("the scheduler's %s cannot be relied on", verb, exc_info=error)


class Round:
    """The known lanes of one queue, and how far the round through all tenants has come."""

    def __init__(self, store: Store, queue: int, scheduler: Scheduler) -> None:
        self._store = store
        self._queue = queue
        self._scheduler = scheduler
        self._known: dict[str, WaitingLane] = {}
        """Lanes with ready jobs. The lane that was served last comes last."""
        self._todo: list[str] = []
        """Job types with jobs that wait for other code than their handler: the scheduler is not asked about these."""
        self._next_tenant = TOP
        """The tenant before which the next look begins: looks go backwards."""
        self._seen: set[str] = set()
        """The tenants that this round has found so far."""
        self._next_lane: dict[str, str] = {}
        """For each tenant with more lanes than one look shows, the lane before which its next look begins."""
        self._noticed: deque[tuple[str, str]] = deque(maxlen=KNOWN)
        """Types and lanes of jobs that were added in this process: these need no look. Of very many the first are
        dropped, and a look finds them."""
        self._rounds_left = 0
        """How many more times the round must reach its end until every tenant was looked at since the last change."""
        self._lane_rounds_left: dict[str, int] = {}
        """For each tenant with many lanes, the same count for its own round."""
        self._until_look = 0
        """Jobs to claim before the next look, while there are known lanes. The engine looks now and then even if nobody
        reports a change: an engine that is never idle does not hear of it."""
        self._steps = self._steps_before = 1
        """Looks of this round so far. `_steps_before`: of the whole round before."""
        self._has_forgotten = False
        """Whether some lanes were forgotten to make room for others."""
        self._refusals: dict[str, int] = {}
        """By tenant, how many claims in a row limits refused."""

    def __bool__(self) -> bool:
        """Whether there may be something to claim."""
        return bool(self.looking or self._known or self._todo or self._noticed)

    @property
    def looking(self) -> bool:
        """Whether some lanes have not been looked at since something may have changed."""
        return self._rounds_left > 0 or bool(self._lane_rounds_left)

    def stale(self) -> None:
        """Something may have changed: go round once more."""
        self._rounds_left = 1 if self._next_tenant == TOP else 2  # to the end, then from the beginning to here
        self._lane_rounds_left = dict.fromkeys(self._next_lane, 2)
        self._refusals = dict.fromkeys(self._refusals, FUTILE - 1)  # one try each: there may be room now

    def notice(self, job_type: str, lane: str) -> None:
        """A job was added in this lane. May be called from any thread."""
        self._noticed.append((job_type, lane))

    def wants(self, spare: Spare) -> bool:
        """Whether there may be something to claim for the spare slots, where there is no other room."""
        return spare.slots > 0 and bool(self.looking or self._todo or self._noticed or self._open(0, spare))

    # -- claims -----------------------------------------------------------------------------------------------------
    def claims(self, room: int, hands: int, spare: Spare = NO_SPARE) -> list[Claim]:
        """What to claim next; without room, only what tenants may start on spare slots."""
        while self._noticed:
            job_type, lane = self._noticed.popleft()
            if lane not in self._known:
                self._meet(WaitingLane(job_type, lane, 1))
        names = self._open(room, spare)
        for _ in range(self._steps_before):  # at most one round
            if (names and self._until_look <= 0) or (self.looking and not names):
                self._look()
                names = self._open(room, spare)
        self._until_look = max(self._until_look, 0)
        made = [Claim(self._queue, (name,), max(room, 1), lane="", hands=hands) for name in self._todo[:CLAIMS]]
        made += self._of_lanes(names, room, hands) if room > 0 else self._on_spare_slots(names, spare, hands)
        if not made:
            self._until_look = 0  # nothing will be claimed of these lanes: look for others
        return made

    def _open(self, room: int, spare: Spare) -> list[str]:
        """The lanes of which something may be claimed now."""
        if room > 0:
            return list(self._known)
        return [name for name in self._known if tenant_of(name) not in spare.busy] if spare.slots > 0 else []

    def _of_lanes(self, names: list[str], room: int, hands: int) -> list[Claim]:
        made: list[Claim] = []
        counts = {name: lane.jobs for name, lane in self._known.items()}
        while room > 0 and len(made) < CLAIMS and (lane := self._selected(names, counts)):
            names.remove(lane.lane)
            made.append(self._claim(lane, room, hands))
            room -= made[-1].limit
        return made

    def _on_spare_slots(self, names: list[str], spare: Spare, hands: int) -> list[Claim]:
        made: list[Claim] = []
        counts = {name: self._known[name].jobs for name in names}
        while len(made) < min(spare.slots, CLAIMS) and (lane := self._selected(names, counts)):
            names = [name for name in names if tenant_of(name) != tenant_of(lane.lane)]
            made.append(self._claim(lane, spare.each, max(hands, 1)))
        return made

    def _selected(self, names: list[str], counts: Mapping[str, int]) -> WaitingLane | None:
        chosen = self._scheduler.select_jobtype_to_run(names, counts) if names else None
        return self._known[chosen] if chosen is not None and chosen in names else None

    def _claim(self, lane: WaitingLane, room: int, hands: int) -> Claim:
        return Claim(self._queue, (lane.job_type,), min(room, BATCH, lane.jobs), lane=lane.lane, hands=hands)

    def claimed(self, claim: Claim, got: int, refused: bool = False) -> None:
        """A claim returned this many jobs. `refused`: limits kept some from starting. A lane with fewer jobs than were
        claimed is forgotten until a look finds it again."""
        assert claim.lane is not None
        if not claim.lane:
            self._todo = [name for name in self._todo if name not in claim.types]
            self._rounds_left = max(self._rounds_left, int(got > 0))  # there may be more
            return
        self._until_look -= got
        lane, tenant = self._known.pop(claim.lane, None), tenant_of(claim.lane)
        if got >= claim.limit:
            self._refusals.pop(tenant, None)
            if lane and lane.jobs >= BATCH:
                self._known[claim.lane] = lane
            elif lane and got < lane.jobs:
                self._known[claim.lane] = lane._replace(jobs=lane.jobs - got)
        elif refused:  # if not, another engine was first
            self._refuse(tenant)
        if not self._known and self._has_forgotten:
            self._has_forgotten = False
            self.stale()

    def _refuse(self, tenant: str) -> None:
        """Remember that limits refused this tenant. It may have a thousand lanes: trying them all would keep others
        waiting."""
        self._refusals[tenant] = self._refusals.get(tenant, 0) + 1
        if self._is_at_limit(tenant):
            self._lane_rounds_left.pop(tenant, None)
            self._known = {name: one for name, one in self._known.items() if tenant_of(name) != tenant}

    def _is_at_limit(self, tenant: str) -> bool:
        return self._refusals.get(tenant, 0) >= FUTILE

    # -- looks ------------------------------------------------------------------------------------------------------
    def _look(self) -> None:
        if self._next_tenant == TOP:
            self._todo = self._store.waiting_types(self._queue, CLAIMS, todo=True)
            self._steps, self._seen = 0, set()
        self._steps += 1
        tenants = self._store.tenants(self._queue, self._next_tenant, TENANTS)
        self._seen.update(tenants)
        self._look_at([name for name in tenants if not self._is_at_limit(name)])
        if len(tenants) == TENANTS:
            self._next_tenant = tenants[-1]
        else:
            self._next_tenant, self._steps_before = TOP, self._steps
            self._rounds_left = max(self._rounds_left - 1, 0)
            for places in (self._next_lane, self._lane_rounds_left):
                for name in places.keys() - self._seen:
                    del places[name]  # the tenant has nothing to claim any more
        self._until_look += max(BATCH // max(self._steps, self._steps_before), LEAST)

    def _look_at(self, tenants: Sequence[str]) -> None:
        """Look at the next lanes of each tenant: as many as one look shows."""
        each = max(LANES // max(len(tenants), 1), 1)
        found: dict[str, list[str]] = {name: [] for name in tenants}
        before = {name: self._next_lane.get(name, TOP) for name in tenants}
        for one in self._store.lanes(self._queue, before, each, BATCH) if tenants else ():
            self._meet(one)
            found[tenant_of(one.lane)].append(one.lane)
        for name, lanes in found.items():
            if len(lanes) == each:
                if name not in self._next_lane:
                    self._lane_rounds_left.setdefault(name, 1)
                self._next_lane[name] = lanes[-1]
            else:
                self._next_lane.pop(name, None)
                if (left := self._lane_rounds_left.pop(name, 0)) > 1:
                    self._lane_rounds_left[name] = left - 1

    def _meet(self, one: WaitingLane) -> None:
        if self._is_at_limit(tenant_of(one.lane)):
            return
        if one.lane not in self._known and len(self._known) >= KNOWN:
            self._known.pop(next(iter(self._known)))  # else a tenant with very many would be all that is known
            self._has_forgotten = True
        self._known[one.lane] = one
