"""The engine: seed 000's batch algorithm, turn after turn.

1. Stage what is due. Time out what waited too long. Rescue what crashed engines left.
2. Take from memory the jobs that stopped, each through its retry handler, on a copy.
3. Save those and claim the next ones: one transaction.
4. Forget what was saved. Nothing ever runs again from memory: a job runs again only when it is claimed again.
5. Launch what was claimed. Handlers overlap with the next turn.

A crash between any two of these loses nothing: until step 3 commits the rows are as they were, owned by a lease that
runs out; after it they are saved, and what was claimed but never launched is rescued or given back.
"""

from __future__ import annotations

import os
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from hipq.engine import prune, rescue
from hipq.engine.claim import UNSTARTED_FOR, ClaimPlanner, Prefetch
from hipq.engine.descriptors import Descriptors
from hipq.engine.executor import Executor
from hipq.engine.lanes import NO_SPARE, Spare
from hipq.engine.launch import Execution
from hipq.engine.locked_queues import LockedQueues
from hipq.engine.pulse import LEASE, LINGER, POLL, PollBudget
from hipq.engine.queues import EngineQueue
from hipq.engine.settle import overran, save_apart, settle
from hipq.engine.stage import STEP, rank, stage
from hipq.engine.throttle import Spawn, Throttling, spawn
from hipq.errors import Conflict, NotFound, StoreBusy, StoreRefused, StoreUnavailable
from hipq.events import Events
from hipq.job import transitions
from hipq.job.answer import MATCHED, Kept, waited
from hipq.job.model import Change, New, Row, queue_of
from hipq.job.run_result import GivenBack, RunResult
from hipq.job.states import ANSWERED, CANCELLING, DECIDING, DONE, ERROR, FINAL, PARKED, READY, SCHEDULED, WAITING
from hipq.job.transitions import CANCELLED
from hipq.job.windows import is_open
from hipq.stores.claims import Claim, Peek, Turned
from hipq.stores.inbox_transaction import KEYS_AT_ONCE
from hipq.stores.protocols import Store
from hipq.stores.values import STRATEGIES, Stored

if TYPE_CHECKING:
    from hipq.engine.tick import Ticks

BLOCKED_FOR = 5_000_000
"""Microseconds until a save that somebody's transaction stood in the way of is tried again: a try may take a second."""
PRUNE_EVERY = 60_000_000
"""Microseconds between looks for answers that came too late, or need not be kept any longer."""
TIDYING = 5_000_000
"""Microseconds in which a handler that was told to stop, since its time was over, may end by itself."""
BROUGHT = 50
"""Answers in plain SQL that a turn matches, each in a transaction of its own: no lease may end meanwhile."""
FEW_BUSY = 2
"""Of these, so many wait for a row that somebody has locked: each wait may take a second or two."""
NOTABLE = 5_000_000
"""Microseconds by which a calendar must be set back to be worth a word."""
STORE_AWAY = 30_000_000
"""Microseconds that a stop waits for a store that is away, unless `drain` says otherwise."""
FEW_QUEUES = 8
"""Up to so many queues are asked directly when something wakes the engine; more are peeked at first."""


class Engine:
    def __init__(
        self,
        store: Store,
        queues: Sequence[EngineQueue],
        hands: Executor,
        events: Events,
        steady: Callable[[], int],
        *,
        concurrency: int = 10,
        lease: float = LEASE,
        poll: float = POLL,
        drain: float | None = None,
        chance: random.Random | None = None,
        added: Callable[[Sequence[New], Sequence[Stored]], None] = lambda _news, _stored: None,
        bring: Callable[[Kept], None] | None = None,
        run_spawned: Spawn = spawn,
        spare: Callable[[], Spare] = lambda: NO_SPARE,
    ) -> None:
        self.store = store
        self.queues = {queue.number: queue for queue in queues}
        self.hands = hands
        self.events = events
        self.steady = steady
        self.concurrency = concurrency
        self.lease = lease
        self.poll = poll
        self.drain = drain
        """Seconds a stop may take: then handlers that still run are given back. None = they are waited for."""
        self.added = added
        """Told of the jobs that handlers added."""
        self._bring = bring
        """Matches an answer that another program put into the inbox in plain SQL."""
        self._spare = spare
        """Executor that only tenants with nothing running may have, on top of `concurrency`."""
        self._next_bring = 0
        self._more_brought = False
        self._chance = chance or random.Random()
        self.engine_id = 0
        self.now = 0
        """The store's time at the last turn."""
        self._ahead = -(1 << 63)
        """By how much the calendar was ahead of the steady clock then."""
        self.in_flight: dict[int, Execution] = {}
        """The current batch: claimed here and not yet saved. Nothing else remembers them but their rows."""
        self.stopping = 0
        """1 after the first request to stop: claim nothing, let handlers finish. 2: give the rest back."""
        self.idle = False
        """Nothing was due and nothing executed at the last look."""
        self.unfit = ""
        """Why this process must be replaced, once it must."""
        self.torn = False
        """Descriptors of this process were closed by a handler: nothing that has some is to be used or closed."""
        self._stopped: list[Execution] = []
        self._blocked: list[Execution] = []
        """Ended, but somebody else's transaction is in the way of saving them: tried again every so often."""
        self._next_blocked = 0
        self._prefetch = Prefetch(concurrency)
        self._locked = LockedQueues(store, self.queues)
        self._planner = ClaimPlanner(queues, store, self._locked)
        self._next_start = dict.fromkeys(self.queues, 0)
        self._next_deadline = dict.fromkeys(self.queues, 0)
        self._ticks: Ticks | None = None
        self._throttling = {
            queue.number: Throttling(store, queue, events, run_spawned) for queue in queues if queue.throttler
        }
        self._refused: dict[int, int] = {}
        """Queues whose rules kept jobs from starting at the last claim, and when to claim again (0 = not by time)."""
        self._closed: dict[int, frozenset[str]] = {}
        """By queue, windows of ready jobs that were found closed,"""
        self._closed_types: dict[int, set[str]] = {}
        """and the types that were claimed there."""
        self._owned = True
        """Some engine had a job when we last looked, or nobody has looked yet."""
        self._next_roll = 0
        self._next_sweep = 0
        self._next_overrun = 0
        self._next_peek = 0
        self._awaited = False
        """Somebody waits until nothing is left to do."""
        self._peeks = PollBudget()
        self._rescues = PollBudget()
        self._next_prune = 0
        self._stuck = 0

    # -- one turn ---------------------------------------------------------------------------------------------------
    def turn(self) -> float:
        """One turn; the seconds nothing needs doing after it, unless something wakes us."""
        before = set(self._locked)
        try:
            return self._turn()
        except StoreBusy:
            if not (set(self._locked) - before or self._leave_out_locked()):
                raise
            return 0.0  # and once more, without them

    def _turn(self) -> float:
        self.now = now = self.store.now()
        steady = self.steady()
        self._watch_calendar(now, steady)
        if self._locked:
            self._take_back_freed(now)
        if steady >= self._next_sweep:
            self._sweep(now, steady)
        if steady >= self._next_prune:
            more = prune.answers(self.store, self._locked.others(), self.events, now)
            self._next_prune = steady + (0 if more else PRUNE_EVERY)
        if self._bring and steady >= self._next_bring:
            self._bring_answers(steady)
        if self._blocked and steady >= self._next_blocked:
            self._save_blocked(now, steady)
        changes = self._due(now, steady)
        self._take_stopped(now, steady)
        if self._locked:
            self._hold_back(steady)
        changes += [self._settled(running, now) for running in self._stopped]
        claims = [] if self.stopping else self._claims(changes, now, steady)
        if self.stopping:
            for throttling in self._throttling.values():
                throttling.leave()
        if changes or claims:
            full = len(self._stopped) >= KEYS_AT_ONCE
            turned = self._save(changes, claims, now)
            self._forget(self._stopped)  # saved first: from here on only the store knows them
            self._stopped = []
            if full:
                self.store.notify()  # more have ended than one transaction can lock keys for: the next turn has them
            self._announce(changes, turned, now)
            self._launch(turned, claims, now)
            if turned.won or changes:
                self._peek_later(steady + LINGER if self.in_flight else 0)  # at once if that was perhaps all
        return self._until_next(now, steady)

    def _watch_calendar(self, now: int, steady: int) -> None:
        """Say it when the calendar was set back: jobs and schedules wait until it has caught up."""
        back = self._ahead - (now - steady)
        if back > NOTABLE:
            self.events.emit("clock set back", now, seconds=round(back / 1e6))
        self._ahead = now - steady

    def _bring_answers(self, steady: int) -> None:
        """Answers that other programs brought in plain SQL (docs/tables.md) are matched now."""
        assert self._bring
        self._next_bring = steady + round(self.poll * 1e6)
        found = self.store.brought(self._locked.others(), BROUGHT)
        busy = 0
        for one in found:
            try:
                self._bring(one)
                self._hungry(one.queue)
            except (NotFound, Conflict, StoreRefused):
                pass  # another engine was faster; or nobody can store it: it is left where it is
            except StoreBusy:
                if self._leave_out_locked():
                    raise
                busy += 1
            if busy == FEW_BUSY:
                break  # each has waited for a row: the others come at the next poll, with the lease renewed
        self._more_brought = len(found) == BROUGHT and busy < FEW_BUSY
        if self._more_brought:
            self._next_bring = steady

    def _claims(self, changes: list[Change], now: int, steady: int) -> list[Claim]:
        """What to ask for: of each hungry queue some, and what code throttlers have admitted (and decided else). Where
        rules kept jobs from starting, they may start when these changes are saved: in the same transaction."""
        if self._refused:
            freed = {queue_of(change.before.id) for change in changes if change.after.held < change.before.held}
            for queue in freed & self._refused.keys():
                self._planner.at(queue)
        room = self._room()
        admitted: list[Claim] = []
        for number, throttling in self._throttling.items():
            if number in self._locked:
                continue
            if throttling.hung:
                self._retire("a throttler has not answered, time and again")
            claims, decided = throttling.answered(room, now, steady)
            admitted += claims
            changes += decided
            room -= sum(len(claim.admitted) for claim in claims)
            if claims:
                self._peek_by(0)  # what was added while it was asked
            else:
                throttling.ask(self.engine_id, room, now, steady)
        return admitted + self._planner.claims(room, self._hands_free(), self._spare_hands(room))

    def _roll(self, now: int) -> list[Change]:
        """Jobs that did not start before their window closed are scheduled for its next opening. Claims pass them over
        meanwhile, so there is no hurry: a few at a time while there is other work."""
        found: list[Change] = []
        step = max((STEP // 10 if self.in_flight else STEP) // len(self._closed), 1)
        more = set(self._closed)
        for number, windows in self._closed.items():
            if number in self._locked:
                continue
            queue = self.queues[number]
            rows = self.store.ready_outside_window(number, tuple(self._closed_types[number]), tuple(windows), step)
            shut = [row for row in rows if not is_open(row.time_windows, now)]
            found += [
                Change(row, transitions.to_next_window(row, queue.order, now), (), "window closed") for row in shut
            ]
            if len(shut) < step:
                more.discard(number)
                del self._closed_types[number]
        self._closed = {number: self._closed[number] for number in more}
        return found

    def _due(self, now: int, steady: int) -> list[Change]:
        """What time alone brings about: scheduled jobs start, waiting jobs time out, schedules tick, windows close."""
        changes: list[Change] = []
        self._tick(now)
        for number, again in self._refused.items():
            if 0 < again <= now and number not in self._locked:
                self._hungry(number)
        if self._closed and steady >= self._next_roll:
            changes += self._roll(now)
            self._next_roll = steady + round(self.poll * 1e6) if self.in_flight else 0
        for queue in self._locked.others():
            if 0 < self._next_start[queue] <= now:
                count, more = stage(self.store, queue, now)
                self._next_start[queue] = now if more else 0
                if not more:  # what is due still was added in plain SQL; or somebody has it locked, until the next poll
                    changes += rank(self.store, queue, self.queues[queue].order, now)
                if count:
                    self._hungry(queue)
                    self.events.emit("staged", now, self.queues[queue].name, count=count)
                    self._peek_later(0)
            if 0 < self._next_deadline[queue] <= now:
                changes += rescue.overdue(self.store, queue, self.queues[queue].order, now)
                self._next_deadline[queue] = 0
                self._peek_later(0)
        return changes

    def _take_stopped(self, now: int, steady: int) -> None:
        """Move to `_stopped` what ended, what overran its time, and what waited too long for a free hand."""
        ended = self.hands.stopped(max(KEYS_AT_ONCE - len(self._stopped), 0))
        self._prefetch.measure([running.stopped - running.started for running in ended])
        self._stopped += ended
        if self.hands.broken:
            self._retire("no child process can be started any more")
        if steady >= self._next_overrun:
            self._next_overrun = steady + UNSTARTED_FOR // 4
            self._count_stuck(now, steady)  # of those abandoned at an earlier look: the others may yet end
            for running in list(self.in_flight.values()):
                if running.ending is None and running.started and steady >= running.started + running.limit:
                    self._overran(running)
            if any(not r.started and steady - r.launched > UNSTARTED_FOR for r in self.in_flight.values()):
                self._give_back_unstarted("no hand was free")
                self._prefetch.unknown()
        if self.stopping:
            self._give_back_unstarted("the worker is stopping")
        if self.stopping > 1:
            for running in [r for r in self.in_flight.values() if r.ending is None]:
                self.hands.abandon(running)
                self._end(running, GivenBack("the worker was stopped", running.started > 0))

    def _overran(self, running: Execution) -> None:
        running.bears_until = self.steady() + TIDYING
        self.hands.abandon(running)
        self._end(running, overran(running))

    def _count_stuck(self, now: int, steady: int) -> None:
        """What could not be stopped runs on. When that is all our hands, this process is of no use any more."""
        stuck = self.hands.stuck(steady)
        if stuck > self._stuck:
            self.events.emit("handler stuck", now, stuck=stuck)
        if stuck >= self.concurrency:
            self._retire("every hand is held by a handler that outlived its time-out")
        self._stuck = stuck

    def _retire(self, why: str) -> None:
        self.unfit = why
        self.stopping = max(self.stopping, 1)

    def _give_back_unstarted(self, reason: str) -> None:
        for running in self.hands.unstarted():
            if not running.abandoned:  # an abandoned one is not ours to give
                self._end(running, GivenBack(reason, False))

    def _end(self, running: Execution, ending: RunResult) -> None:
        ended = running.ended(ending)
        self.in_flight[running.row.id] = ended
        self._stopped.append(ended)

    def _settled(self, running: Execution, now: int) -> Change:
        return settle(running, self.queues[queue_of(running.row.id)].order, now)

    def _hands_free(self) -> int:
        """Those that only wait to be saved hold no hand; but memory is not without end."""
        waiting = len(self._stopped) + min(len(self._blocked), self.concurrency)
        return self.concurrency - len(self.in_flight) + waiting

    def _room(self) -> int:
        return self._prefetch.room(self._hands_free())

    def _spare_hands(self, room: int) -> Spare:
        """For where there is no room; else nobody need ask."""
        return NO_SPARE if room > 0 else self._spare()._replace(each=self._prefetch.for_one())

    def _save(self, changes: list[Change], claims: list[Claim], now: int) -> Turned:
        """One transaction. If a row stands in its way, or they are very many, several, and nothing is claimed; what
        cannot be saved yet waits a while."""
        try:
            if len(changes) <= KEYS_AT_ONCE:
                return self.store.turn(self.engine_id, changes, claims, now)
        except StoreBusy:
            if self._leave_out_locked():
                raise
        except StoreRefused:
            pass
        saved, turned, blocked = save_apart(self.store, self.engine_id, changes, now)
        self._blocked += [running for running in self._stopped if running.row.id in blocked]
        self._stopped = [running for running in self._stopped if running.row.id not in blocked]
        self._next_blocked = self.steady() + BLOCKED_FOR
        changes[:], claims[:] = saved, []
        return turned

    def _save_blocked(self, now: int, steady: int) -> None:
        """Apart from the turn: while they are in nobody's way, everything else goes on."""
        self._next_blocked = steady + BLOCKED_FOR
        held = [running for running in self._blocked if self._needs_locked(running)]
        tried = [running for running in self._blocked if not self._needs_locked(running)]
        changes = [self._settled(running, now) for running in tried]
        saved, turned, blocked = save_apart(self.store, self.engine_id, changes, now)
        self._forget(running for running in tried if running.row.id not in blocked)
        self._blocked = held + [running for running in tried if running.row.id in blocked]
        self._announce(saved, turned, now)

    # -- queues that somebody has locked ----------------------------------------------------------------------------
    def _leave_out_locked(self) -> bool:
        """Something stood in the way: leave out the queues that are locked; whether there are any."""
        found = self._locked.found(self.steady())
        for queue in found:
            self.events.emit("queue locked", self.now, self.queues[queue].name)
        return bool(found)

    def _take_back_freed(self, now: int) -> None:
        for queue in self._locked.freed(self.steady):
            ours = [running for running in self.in_flight.values() if queue_of(running.row.id) == queue]
            try:
                if any(running.row.owner != self.engine_id for running in ours):  # their lease ended meanwhile
                    self._new_lease(now, ours)
            except StoreBusy:
                continue  # locked once more
            self._locked.take_back(queue, self.steady())  # after they are adopted: else a sweep might rescue them
            self.events.emit("queue free", now, self.queues[queue].name)
            self._next_blocked = 0
            self._hungry(queue)
            self._peek_by(0)

    def _needs_locked(self, running: Execution) -> bool:
        """Whether it cannot be saved now: its own queue, or that of a job it added, is locked."""
        return any(
            queue in self._locked for queue in (queue_of(running.row.id), *(one.queue for one in running.children))
        )

    def _hold_back(self, steady: int) -> None:
        """What ended and cannot be saved now stays in memory; its lease is renewed like that of all others."""
        self._blocked += [running for running in self._stopped if self._needs_locked(running)]
        self._stopped = [running for running in self._stopped if not self._needs_locked(running)]
        self._next_blocked = self._next_blocked or steady + BLOCKED_FOR

    def _reachable(self) -> list[Execution]:
        """What is in memory, but for jobs of queues that are locked."""
        if not self._locked:
            return list(self.in_flight.values())
        return [running for running in self.in_flight.values() if queue_of(running.row.id) not in self._locked]

    def _forget(self, saved: Iterable[Execution]) -> None:
        for running in saved:
            if self.in_flight.get(running.row.id) is running:
                del self.in_flight[running.row.id]
                self._left(running)

    def _left(self, running: Execution) -> None:
        """It is not in memory any more."""
        if scheduler := self.queues[queue_of(running.row.id)].scheduler:
            scheduler.jobs_stopped(running.row.lane, 1)

    def _announce(self, changes: Sequence[Change], turned: Turned, now: int) -> None:
        freed: set[int] = set()
        for change in changes:
            name, after, queue = change.event, change.after, queue_of(change.before.id)
            if change.before.id in turned.lost:
                name = "lost"
            elif change.before.id in turned.answered:
                after = turned.answered[change.before.id]
                if change.seeking and change.seeking.state == ERROR:
                    name = "error"  # nothing follows from it: its answer was there
            if after.phase != DONE:
                self._expect(queue, after)
            if after.held < change.before.held:
                freed.add(queue)
            if self.events.wanted(name):
                self.events.emit(name, now, self._name(change.before), after)
            if name == "timed out" and after.phase == CANCELLING:
                self.events.emit(CANCELLING, now, self._name(change.before), after)
            if (
                name in ("cancel handler ended", "cancel handler failed")
                and after.state == FINAL
                and after.exitcode == CANCELLED
            ):
                self.events.emit("cancelled", now, self._name(change.before), after)
        for queue in freed:
            self._made_room(queue)
        self._announce_answers(changes, turned, now)
        if turned.children:
            self.added([child for child, _ in turned.children], [stored for _, stored in turned.children])

    def _announce_answers(self, changes: Sequence[Change], turned: Turned, now: int) -> None:
        """Answers that were early and have found their jobs; and those that jobs left behind."""
        by_id = {change.before.id: change for change in changes} if turned.placed else {}
        for one in turned.placed:
            row = turned.answered.get(one.job, by_id[one.job].after)
            if self.events.wanted(one.state):
                more = {"waited": waited(by_id[one.job].before, now)} if one.state == MATCHED else {}
                self.events.emit(one.state, now, self._name(row), row, answer=one.id, key=row.job_key, **more)

    def _made_room(self, queue: int) -> None:
        """A job that counted counts no more: where rules kept others from starting, they may start now."""
        if self._refused.pop(queue, None) is not None:
            self._planner.at(queue)
        if queue in self._throttling:
            self._throttling[queue].work_available(ended=True)

    def _expect(self, queue: int, row: Row) -> None:
        """A job was saved that will want something again: now, or at a known moment."""
        if row.phase in (READY, DECIDING, ANSWERED, CANCELLING):
            self._hungry(queue)
        elif row.phase == SCHEDULED:
            self._next_start[queue] = min(self._next_start[queue] or row.scheduled_run_time, row.scheduled_run_time)
        elif row.phase == WAITING:
            self._next_deadline[queue] = min(self._next_deadline[queue] or row.deadline, row.deadline)

    def _launch(self, turned: Turned, claims: Sequence[Claim], now: int) -> None:
        steady = self.steady()
        batch = []
        got: Counter[tuple[int, str | None]] = Counter()
        for row in turned.won:
            queue = queue_of(row.id)
            got.update([(queue, None), (queue, row.lane)])
            running = Execution(row, self.queues[queue].specs[row.job_type], steady, turned.answers.get(row.id))
            if row.id in self.in_flight:  # its answer came while another piece of its code ran here
                self._drop(self.in_flight[row.id], now)
            self.in_flight[row.id] = running
            batch.append(running)
            if scheduler := self.queues[queue].scheduler:
                scheduler.jobs_started(row.lane, 1)
        self._next_overrun = min([self._next_overrun, *(steady + running.limit for running in batch)])
        if self.events.wanted("claimed"):  # told before its handler can do anything that is told
            for row in turned.won:
                self.events.emit("claimed", now, self._name(row), row)
        self.hands.launch(batch)
        for claim in claims:
            self._planner.fed(claim, got[claim.queue, claim.lane or None], claim.queue in turned.refused)
            if claim.admitted:
                self._throttling[claim.queue].claimed(got[claim.queue, None])
            self._refused.pop(claim.queue, None)
            if claim.queue in turned.closed:  # an engine that serves whatever there is learns here what that is
                self._closed_types.setdefault(claim.queue, set()).update(claim.types)
        self._refused |= turned.refused
        self._closed |= turned.closed

    # -- leases, rescue, what was lost -------------------------------------------------------------------------------
    def _sweep(self, now: int, steady: int) -> None:
        """Prove that we live, and look for what others, or we ourselves, left behind."""
        if not self.engine_id or not self.store.renew_lease(self.engine_id, self.lease):
            self._new_lease(now)
        orphans: list[Change] = []
        changes: list[Change] = []
        taken: list[Execution] = []
        owned = self._owned or self.in_flight or steady > self._peeks.ended + self.lease / 3 * 1e6
        if owned and steady >= self._rescues.rested:
            began = self.steady()
            served = self._locked.others()
            orphans = rescue.orphans(self.store, {queue: self.queues[queue] for queue in served}, now)
            in_flight = {running.row.id: running for running in self._reachable()}
            back, taken = rescue.forgotten(self.store, served, self.engine_id, in_flight, now)
            changes = orphans + back
            if len(orphans) < rescue.STEP:
                self._rescues.looked(began, self.steady())
        self._part(
            [running for running in taken if running.ending is None], now
        )  # the others' tokens decide when saved
        if changes:
            self._announce(changes, self._save(changes, [], now), now)
        if len(orphans) < rescue.STEP:  # else more are waiting: sweep again at once
            self._next_sweep = steady + round(
                self.lease / 3 * 1e6 * self._chance.uniform(0.8, 1.0)
            )  # engines spread out

    def _new_lease(self, now: int, freed: Sequence[Execution] = ()) -> None:
        """The lease ran out, so our jobs may be somebody else's; their tokens say which. What nobody took goes on under
        a new lease; the rest is dropped. `freed`: jobs of an older lease still, whose queue was locked when that ended.
        They need another lease, too: in one that we have, rows whose adoption was not confirmed look unstarted."""
        served = {str(queue.number): queue.published for queue in self.queues.values()}
        serves = msgspec.json.encode(served | {STRATEGIES: self._strategies}).decode()
        label = f"{socket.gethostname()}:{os.getpid()}"
        expired, engine_id = self.engine_id, self.store.take_lease(self.lease, label, serves)
        held = [*self._reachable(), *freed]  # those that have ended too: else we would take them for a dead engine's
        lost = self._adopt(held, engine_id, now)
        self.engine_id = (
            engine_id  # only now: rows of a lease whose adoption was not confirmed must not look unstarted to us
        )
        if expired and not freed:
            self.events.emit("lease lost", now, engine_id=expired, jobs=len(held))
        self._part(lost, now)

    def _adopt(self, held: Sequence[Execution], engine_id: int, now: int) -> list[Execution]:
        """Jobs of an older lease of ours are taken into this one; those that somebody else has taken."""
        changes = [Change(r.row, transitions.adopted(r.row, engine_id, now), (), "claimed") for r in held]
        gone = self.store.turn(engine_id, changes, [], now).lost if changes else frozenset[int]()
        for running, change in zip(held, changes, strict=True):
            if change.before.id not in gone:
                running.row = change.after
        return [running for running in held if running.row.id in gone]

    def _call_back(self, now: int, steady: int) -> None:
        """Handlers whose jobs were cancelled, or taken from us, are told: nobody waits for what they come to. Those
        that have hardly begun can wait for the next look: they may well be through by then."""
        some = [r for r in self._reachable() if r.ending is None and steady - r.launched >= LINGER]
        tokens = self.store.tokens([running.row.id for running in some]) if some else {}
        gone = [r for r in some if r.ending is None and tokens.get(r.row.id) != r.row.token]
        self._part(gone, now, tokens)

    def _part(self, gone: Sequence[Execution], now: int, tokens: Mapping[int, int] | None = None) -> None:
        """Their rows are not ours any more. One that is not live was cancelled: its handler is told, and may tidy up,
        whoever notices it first. One that is live is another engine's by now. `tokens`: of those that are live."""
        if tokens is None:
            tokens = self.store.tokens([running.row.id for running in gone]) if gone else {}
        for running in gone:
            told = running.ending is None and running.row.id not in tokens
            self._drop(running, now, "told to stop" if told else "lost")

    def _drop(self, running: Execution, now: int, event: str = "lost") -> None:
        """Its claim was lost: whatever it comes to, or has come to, nothing of it is kept."""
        if running.ending is None:
            self.hands.abandon(running, gently=event == "told to stop")
        running.abandoned = True
        self._stopped = [one for one in self._stopped if one is not running]
        self._blocked = [one for one in self._blocked if one is not running]
        if self.in_flight.pop(running.row.id, None):
            self._left(running)
        self.events.emit(event, now, self._name(running.row), running.row)

    # -- looking ahead ----------------------------------------------------------------------------------------------
    def _until_next(self, now: int, steady: int) -> float:
        if steady >= self._next_peek:
            self._peek(now)
        served = self._locked.others()
        times = [t - now for queue in served for t in (self._next_start[queue], self._next_deadline[queue]) if t]
        room = self._room()
        if not self.stopping and self._planner.wants(room, self._spare_hands(room)):
            return 0.0
        if not self.stopping and room > 0:
            times += [again - now for queue, again in self._refused.items() if again and queue in served]
            asking = [one for queue, one in self._throttling.items() if queue in served]
            times += [one.next_ask - steady for one in asking if one.next_ask]
        if self._ticks and (tick := self._ticks.next(self._locked)):
            times.append(tick - now)
        if any(queue in served for queue in self._closed):
            times.append(self._next_roll - steady)
        if self._bring:
            times.append(self._next_bring - steady)
        if self._locked:
            times.append(self._locked.next_look - steady)
        times += [self._next_sweep - steady, self._next_peek - steady, self._next_prune - steady]
        if self._blocked:
            times.append(self._next_blocked - steady)
        if self.in_flight or self.hands.stuck(steady) > self._stuck:
            times.append(self._next_overrun - steady)
        return max(min(times) / 1e6, 0.0)

    def _peek(self, now: int) -> None:
        began = self.steady()
        wanted = [(queue, self.queues[queue].types) for queue in self._locked.others()]
        found = self.store.peek(wanted, self._strategies)
        self._call_back(now, began)
        self._peeks.looked(began, self.steady())
        for peek in found:
            if peek.ready:
                self._planner.at(peek.queue)
            self._next_start[peek.queue] = peek.next_start
            self._next_deadline[peek.queue] = peek.next_deadline
        self._owned = bool(self._locked) or any(peek.owned for peek in found)
        due = self._owned or any(0 < time <= now for g in found for time in (g.next_start, g.next_deadline))
        due |= any((g.ready and self._refused.get(g.queue, 1)) for g in found)
        for peek in found:
            if peek.parked or peek.ready:
                due |= self._remind(peek)
        asking = any(one.busy for one in self._throttling.values())
        self.idle = not (self.in_flight or due or asking or self._closed or self._more_brought)
        self._next_peek = began + round(self.poll * 1e6)
        if not self._awaited:
            self._next_peek = max(self._next_peek, self._peeks.rested)

    def _hungry(self, queue: int) -> None:
        self._planner.at(queue)
        if queue in self._throttling:
            self._throttling[queue].work_available()

    def _remind(self, peek: Peek) -> bool:
        """Jobs wait there: ask about them (again) or, where no throttler is left, make parked ones ready; whether some
        are."""
        if peek.queue in self._throttling:
            self._throttling[peek.queue].remind(peek.ready, round(self.poll * 1e6))
            return False
        if not peek.parked or self.store.rules(peek.queue).throttled:
            return False
        self._planner.at(peek.queue)
        return self.store.stage(peek.queue, PARKED, 0, STEP) > 0

    def _tick(self, now: int) -> None:
        if self._ticks is None:
            if not any(queue.crons for queue in self.queues.values()):
                return
            from hipq.engine.tick import Ticks  # what reads cron expressions costs an import most can do without

            self._ticks = Ticks(self.store, self.queues.values(), self.events)
        if self._ticks.turn(now, self.added, self._locked):
            self._planner.everywhere()
            self._peek_by(0)

    def notice(self, queue: int, lanes: Iterable[tuple[str, str]]) -> None:
        """Jobs of these types and lanes were added in this process. Any thread; who adds them rings the store too."""
        self._planner.notice(queue, lanes)

    def wake(self) -> None:
        """Something may have changed: look for it."""
        if len(self.queues) <= FEW_QUEUES:
            self._planner.everywhere()
            for throttling in self._throttling.values():
                throttling.wake()
            self._peek_later(self.steady() + LINGER)
            if self._throttling:
                self._peek_by(0)  # which sees if there is more to ask
        else:
            self._peek_by(0)

    def _peek_by(self, steady: int) -> None:
        self._next_peek = min(self._next_peek, steady)

    def _peek_later(self, steady: int) -> None:
        """The same where that can wait, if looks have become dear; but not while somebody waits for the end of work."""
        self._peek_by(steady if self._awaited else max(steady, self._peeks.rested))

    @property
    def _strategies(self) -> tuple[str, ...]:
        """The retry strategies that are registered here."""
        return tuple(sorted({name for queue in self.queues.values() for name in queue.strategies}))

    def _name(self, row: Row) -> str:
        return self.queues[queue_of(row.id)].name

    def ahead(self) -> tuple[int, int]:
        """For whoever turns the clocks by hand: when there is something to do by the calendar, and when by the steady
        clock (a throttler is to be asked); 0 = never. Leases, polls and pruning can wait for the turn after."""
        self._peek(self.now)
        ticks = self._ticks.next() if self._ticks else 0
        times = (*self._next_start.values(), *self._next_deadline.values(), *self._refused.values(), ticks)
        asking = [one.next_ask or 1 for one in self._throttling.values() if one.next_ask or one.busy]
        return min(filter(None, times), default=0), min(asking, default=0)

    # -- from start to stop -----------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Ask to stop; ask twice to stop at once. Any thread, any signal handler."""
        self.stopping += 1
        self.store.notify()

    def run(self, until_empty: bool = False) -> None:
        """Turn after turn, until asked to stop (or, with `until_empty`, until nothing is due and nothing executes)."""
        self._awaited = until_empty
        descriptors, is_store_there = Descriptors(), True
        try:
            is_store_there = self._turns(until_empty, descriptors)
        except Exception:
            if descriptors.intact:
                descriptors.close()
                raise
        if descriptors.intact:
            if is_store_there:
                self._leave()
            descriptors.close()
        else:  # what the store writes to may be another file by now: nothing is saved, and the lease runs out
            self.torn = True
            self._retire("a handler has closed file descriptors that are not its own")
            self.events.emit("engine stopping", self.now, jobs=len(self.in_flight), why=self.unfit)

    def _turns(self, until_empty: bool, descriptors: Descriptors) -> bool:
        """Until it is over; whether the store is there then."""
        down = 0
        announced = 0
        started = False
        stop_by: int | None = None
        """When a stop ends whatever else: jobs that cannot be saved by then are left to their lease."""
        away_since: int | None = None
        blocked_since: int | None = None
        while descriptors.intact:
            if self.stopping and stop_by is None:
                stop_by = self.steady() + (STORE_AWAY if self.drain is None else round(self.drain * 1e6))
            over = stop_by is not None and self.steady() >= stop_by
            if over and self.drain is not None:
                self.stopping = max(self.stopping, 2)
            try:
                if not started:
                    self.events.emit("engine started", self.store.now(), url=self.store.url)
                    started = True
                pause = self.turn()
                away_since = None
                if down:
                    self.events.emit("store back", self.store.now(), after=down)
                    down = 0
                if self.stopping > announced:
                    announced = self.stopping
                    why = self.unfit or "asked to"
                    self.events.emit("engine stopping", self.store.now(), jobs=len(self.in_flight), why=why)
                if (self.stopping or (until_empty and self.idle)) and not self.in_flight and not self._stopped:
                    break
                if len(self.in_flight) > len(self._blocked):
                    blocked_since = None
                elif blocked_since is None:
                    blocked_since = self.steady()
                if blocked_since is not None and (
                    self.stopping > 1 or (over and self.steady() - blocked_since >= STORE_AWAY)
                ):
                    self.stopping = 2
                    break  # nobody waits any longer for those who hold them up: the lease will run out
            except StoreUnavailable as error:
                down += 1
                pause = min(0.05 * 2**down, 2.0) * self._chance.uniform(0.5, 1.0)
                if down == 1:
                    self.events.emit("store down", self.now, error=str(error))
                if away_since is None:
                    away_since = self.steady()
                over = (
                    over and self.steady() - away_since >= STORE_AWAY
                )  # not at the first blip: handlers are waited for
                if self.stopping > 1 or (self.stopping and (over or not self.in_flight)):
                    self.stopping = max(self.stopping, 2 if self.in_flight else 1)
                    return False  # nobody waits: the lease will run out
            if pause > 0 and descriptors.intact and self.store.wait(pause):
                self.wake()
        return True

    def _leave(self) -> None:
        if self.stopping < 2 and not self.unfit:
            self.hands.wait_for_told(TIDYING / 1e6)
        try:
            self.store.renew_lease(self.engine_id, 0)
            self.events.emit("engine stopped", self.store.now())
        except StoreUnavailable:
            pass  # it runs out by itself
