"""Step 3 in a daemon, where a scheduler says which lane is next: what the scheduler is asked, and what is claimed then.

The engine of a daemon serves whatever job types there are, so it cannot list them. It looks which tenants have ready
jobs, and at some lanes of each tenant, round and round; it asks the scheduler for one lane after the other, and claims
a batch of each. So a new tenant is found by the next look, however many lanes another tenant has.
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
"""Jobs of one lane in one claim: the next lane waits for no more than these."""
CLAIMS: Final = 16
"""Lanes that are claimed in one turn."""
LANES: Final = 256
"""Lanes that one look shows, of all tenants together: to list all of 10,000 lanes takes some 70 ms."""
TENANTS: Final = 256
"""Tenants that one look shows, with at least one lane of each."""
KNOWN: Final = 4096
"""Lanes that are remembered. The lane that was known longest makes room for a new one, and is found again later."""
LEAST: Final = 25
"""Jobs claimed between two looks, at least, while lanes to claim are known: a look at many costs more than a turn."""
FUTILE: Final = 3
"""Claims in a row, of one tenant's lanes, that limits refused: after these no other lane of the tenant is tried."""

_log = logging.getLogger("hipq")


class Spare(NamedTuple):
    """Slots beyond those that are for everybody: only for tenants that have no job running or waiting in memory."""

    slots: int = 0
    """The spare slots that are free."""
    busy: frozenset[str] = frozenset()
    """The tenants that get no spare slot."""
    each: int = 1
    """The jobs that are claimed for one slot."""


NO_SPARE: Final = Spare()


class Scheduler(Protocol):
    """Chooses the lane to run next; told what starts and stops. Lanes are named tenant/jobtype."""

    def select_jobtype_to_run(self, jobtypes: Sequence[str], jobcounts: Mapping[str, int]) -> str | None:
        """One of these lanes, in which jobs are waiting. None = nothing is to start now: the scheduler is asked again
        when something has changed, or a second later. The counts are those of waiting jobs, up to a hundred. In one
        turn the scheduler is asked several times: with the same list, without the lanes it has chosen."""

    def jobs_started(self, jobtype: str, count: int) -> None: ...
    def jobs_stopped(self, jobtype: str, count: int) -> None:
        """These jobs run no more, whatever became of them."""


class Guarded:
    """A scheduler of somebody else's. If it raises, or chooses a lane that it was not offered, the lane that was served
    longest ago is next, and the log says so once: work goes on."""

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
        """A hint: contexts are at hand in which jobs of these lanes start at once. A scheduler need not want it."""
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
    """The lanes of one queue, as far as they are known, and how far the round through all tenants has come."""

    def __init__(self, store: Store, queue: int, scheduler: Scheduler) -> None:
        self._store = store
        self._queue = queue
        self._scheduler = scheduler
        self._known: dict[str, WaitingLane] = {}
        """Lanes with ready jobs; the lane that was served last is last."""
        self._todo: list[str] = []
        """Job types with jobs that wait for other code than their handler: the scheduler is not asked about these."""
        self._next_tenant = TOP
        """The tenant before which the next look begins: looks go backwards."""
        self._seen: set[str] = set()
        """The tenants that this round has found so far."""
        self._next_lane: dict[str, str] = {}
        """For each tenant with more lanes than one look shows, the lane before which its next look begins."""
        self._noticed: deque[tuple[str, str]] = deque(maxlen=KNOWN)
        """Types and lanes of jobs that were added in this process, which need no look. Of very many, the first are
        dropped: a look finds them."""
        self._rounds_left = 0
        """How often the end of the tenants is to be reached until all were looked at since something changed."""
        self._lane_rounds_left: dict[str, int] = {}
        """The same for the lanes of each tenant that has many."""
        self._until_look = 0
        """Jobs to claim before the next look, while lanes to claim are known. The engine looks now and then even if
        nobody says that something changed: an engine that is never idle does not hear it."""
        self._steps = self._steps_before = 1
        """Looks of this round so far, and of the whole round before."""
        self._has_forgotten = False
        """Some lanes had to make room for others."""
        self._refusals: dict[str, int] = {}
        """By tenant, claims in a row that limits refused."""

    def __bool__(self) -> bool:
        """There may be something to claim."""
        return bool(self.looking or self._known or self._todo or self._noticed)

    @property
    def looking(self) -> bool:
        """Not all lanes were looked at since something may have changed."""
        return self._rounds_left > 0 or bool(self._lane_rounds_left)

    def stale(self) -> None:
        """Something may have changed: go round once more."""
        self._rounds_left = 1 if self._next_tenant == TOP else 2  # to the end, then from the beginning to here
        self._lane_rounds_left = dict.fromkeys(self._next_lane, 2)
        self._refusals = dict.fromkeys(self._refusals, FUTILE - 1)  # one try each: there may be room now

    def notice(self, job_type: str, lane: str) -> None:
        """A job was added there. Any thread."""
        self._noticed.append((job_type, lane))

    def wants(self, spare: Spare) -> bool:
        """Whether there may be something to claim where there is no room but on spare slots."""
        return spare.slots > 0 and bool(self.looking or self._todo or self._noticed or self._open(0, spare))

    # -- claims -----------------------------------------------------------------------------------------------------
    def claims(self, room: int, hands: int, spare: Spare = NO_SPARE) -> list[Claim]:
        """What to claim next; without room, only what tenants may start on spare slots."""
        while self._noticed:
            job_type, lane = self._noticed.popleft()
            if lane not in self._known:
                self._meet(WaitingLane(job_type, lane, 1))
        names = self._open(room, spare)
        for _ in range(self._steps_before):  # no further than round once
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

    def fed(self, claim: Claim, got: int, refused: bool = False) -> None:
        """A claim brought so many jobs; `refused`: limits kept some from starting. A lane that gave less than was
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
        elif refused:  # else another engine was first
            self._refuse(tenant)
        if not self._known and self._has_forgotten:
            self._has_forgotten = False
            self.stale()

    def _refuse(self, tenant: str) -> None:
        """A tenant at its limit may have a thousand lanes: to try them all would keep others waiting."""
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
