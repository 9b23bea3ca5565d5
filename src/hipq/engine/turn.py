"""One turn of the engine: the batch algorithm.

1. Stage what is due. Time out what waited too long. Rescue what crashed engines left.
2. Collect the jobs that stopped, each settled through its retry handler's verdict, on a copy.
3. Save these and claim the next ones: one transaction.
4. Forget what was saved. Nothing ever runs again from memory: a job runs again only when it is claimed again.
5. Launch what was claimed. Handlers overlap with the next turn.

A crash between any two of these loses nothing: until step 3 commits the rows are as they were, owned by a lease that
runs out; after it they are saved, and what was claimed but never launched is rescued or given back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from hipq.engine.batch import Batch
from hipq.engine.claim import ClaimPlanner
from hipq.engine.due import Due, Peeks
from hipq.engine.lease import Lease
from hipq.engine.queue_watch import QueueWatches
from hipq.engine.settle import save_apart, settle
from hipq.engine.setup import Setup
from hipq.engine.standby import Standby
from hipq.engine.stop import Stop
from hipq.engine.timetable import BLOCKED_FOR, LINGER, Timetable
from hipq.errors import StoreBusy, StoreRefused
from hipq.job.answer import MATCHED, waited
from hipq.job.event_names import JobEvent
from hipq.job.model import Change, Row, queue_of
from hipq.job.progress import Report
from hipq.job.states import CANCELLING, ERROR, FINAL, Code
from hipq.stores.claims import Claim, Turned


class Saved(NamedTuple):
    """What one or more transactions have saved and claimed."""

    changes: list[Change]
    claims: list[Claim]
    turned: Turned


class Turn:
    def __init__(
        self,
        setup: Setup,
        stop: Stop,
        timetable: Timetable,
        watches: QueueWatches,
        batch: Batch,
        lease: Lease,
        standby: Standby,
    ) -> None:
        self._setup = setup
        self._stop = stop
        self._timetable = timetable
        self._watches = watches
        self._batch = batch
        self._lease = lease
        self._standby = standby
        self._planner = ClaimPlanner(watches)
        self._due = Due(setup, watches, batch, timetable)
        self.peeks = Peeks(setup, watches, batch, lease, self._due, timetable, standby)

    def take(self) -> float:
        """Take one turn. Returns the seconds to sleep after it, unless something wakes the engine."""
        before = set(self._watches.locked)
        try:
            return self._take()
        except StoreBusy:
            if not (set(self._watches.locked) - before or self._watches.leave_out_locked(self._timetable.now)):
                raise
            return 0.0  # and once more, without the queues that are locked

    def _take(self) -> float:
        now, steady = self._timetable.read_clocks()
        self._rescue(now, steady)
        self._due.answers(now, steady)
        self._save_blocked(now, steady)
        changes = self._due.changes(now, steady)
        self._batch.collect(now, steady)
        self._report(now, steady)
        changes += [settle(one, self._watches.of(one.row).queue.order, now) for one in self._batch.stopped]
        claims, decided = self._claims(changes, now, steady)
        changes += decided
        if changes or claims:
            is_full = len(self._batch.stopped) >= self._setup.store.changes_at_once
            saved = self._save(changes, claims, now)
            self._batch.forget_stopped()  # saved first: from here on only the store knows these jobs
            self._announce(saved, now)
            self._launch(saved, now)
            if is_full:
                self._setup.store.waker.notify()  # more have ended than one transaction saves: the next turn has them
            if saved.changes or saved.turned.won:  # peek at once, in case that was all
                self._timetable.peek_soon(steady + LINGER if self._batch.in_flight else 0)
        return self._until_next(now, steady)

    # -- step 1: leases, rescue -------------------------------------------------------------------------------------
    def _rescue(self, now: int, steady: int) -> None:
        if self._watches.locked:
            self._lease.take_back_freed(now)
        if steady >= self._timetable.sweep:
            changes, more = self._lease.sweep(now, steady)
            if changes:
                self._announce(self._save(changes, [], now), now)
            if not more:
                self._timetable.sweep = self._lease.next_sweep(steady)

    def _report(self, now: int, steady: int) -> None:
        """Store what handlers have reported of their progress. If somebody's lock is in the way, that can wait."""
        said = {one.row.id: (one, reported) for one in self._batch.reporting(steady) if (reported := one.run.reported)}
        if not said:
            return
        reports = [
            Report(one.row.id, one.row.token, one.row.attempt, reported.fraction, reported.message)
            for one, reported in said.values()
        ]
        try:
            stored = self._setup.store.report(reports, now)
        except StoreBusy:
            return
        for job_id, (one, reported) in said.items():
            one.run.stored = reported
            if job_id in stored:
                self._setup.events.emit(
                    JobEvent.REPORTED, now, self._watches.name(one.row), one.row,
                    fraction=reported.fraction, message=reported.message,
                )  # fmt: skip

    # -- step 3: save and claim -------------------------------------------------------------------------------------
    def _claims(self, changes: Sequence[Change], now: int, steady: int) -> tuple[list[Claim], list[Change]]:
        """What to claim: some jobs of each queue that may have work, and the jobs that code throttlers have admitted;
        and the changes that throttlers have decided on. Where rules kept jobs from starting, the changes may make room:
        claims see them, in the same transaction."""
        throttled = [watch.throttling for watch in self._watches.values() if watch.throttling]
        if self._stop.asked:
            for throttling in throttled:
                throttling.leave()
            return [], []
        for queue in {queue_of(change.before.id) for change in changes if change.after.held < change.before.held}:
            if self._watches[queue].retry_at is not None:
                self._watches[queue].claim_again()
        room = self._batch.room()
        admitted: list[Claim] = []
        decided: list[Change] = []
        for throttling in [watch.throttling for watch in self._watches.served() if watch.throttling]:
            if throttling.hung:
                self._stop.retire("a throttler has not answered, time and again")
            claims, changed = throttling.answered(room, now, steady)
            admitted += claims
            decided += changed
            room -= sum(len(claim.admitted) for claim in claims)
            if claims:
                self._timetable.peek_by(0)  # for jobs that were added while the throttler was asked
            else:
                throttling.ask(self._lease.engine_id, room, now, steady)
        return admitted + self._planner.claims(room, self._batch.free(), self._batch.spare(room)), decided

    def _save(self, changes: list[Change], claims: list[Claim], now: int) -> Saved:
        """Save and claim in one transaction. If a row is refused, or there are too many changes for one, save them in
        several transactions and claim nothing. What is blocked waits a while."""
        store, engine_id = self._setup.store, self._lease.engine_id
        try:
            if len(changes) <= store.changes_at_once:
                return Saved(changes, claims, store.turn(engine_id, changes, claims, now))
        except StoreBusy:
            if self._watches.leave_out_locked(now):
                raise
        except StoreRefused:
            pass
        saved, turned, blocked = save_apart(store, engine_id, changes, now)
        self._batch.block(lambda execution: execution.row.id in blocked)
        self._timetable.blocked = self._setup.steady() + BLOCKED_FOR
        return Saved(saved, [], turned)

    def _save_blocked(self, now: int, steady: int) -> None:
        """Try again to save what was blocked, apart from the turn: everything else goes on meanwhile."""
        batch = self._batch
        if not batch.blocked or steady < self._timetable.blocked:
            return
        self._timetable.blocked = steady + BLOCKED_FOR
        tried = [execution for execution in batch.blocked if not self._watches.cannot_save(execution)]
        changes = [settle(one, self._watches.of(one.row).queue.order, now) for one in tried]
        saved, turned, blocked = save_apart(self._setup.store, self._lease.engine_id, changes, now)
        done = {execution.row.id: execution for execution in tried if execution.row.id not in blocked}
        batch.forget(done.values())
        batch.blocked = [execution for execution in batch.blocked if execution.row.id not in done]
        self._announce(Saved(saved, [], turned), now)

    # -- steps 4 and 5: forget, launch ------------------------------------------------------------------------------
    def _announce(self, saved: Saved, now: int) -> None:
        """Announce what became of jobs and answers, once it is saved."""
        changes, turned, events = saved.changes, saved.turned, self._setup.events
        self._watches.saved(changes, turned)
        for change in changes:
            ran = change.ran
            row, names = _events(change, turned)
            for name in names:
                if events.wanted(name):
                    events.emit(name, now, self._watches.name(row), row, ran)
                ran = None  # the run is announced only once
        by_id = {change.before.id: change for change in changes} if turned.placed else {}
        for one in turned.placed:  # early answers that have found their jobs, and answers that jobs left behind
            if events.wanted(one.state):
                change = by_id[one.job]
                row = turned.answered.get(one.job, change.after)
                more: dict[str, Any] = {"waited": waited(change.before, now)} if one.state == MATCHED else {}
                events.emit(one.state, now, self._watches.name(row), row, answer=one.id, key=row.job_key, **more)
        if turned.children:
            self._setup.added([child for child, _ in turned.children], [stored for _, stored in turned.children])

    def _launch(self, saved: Saved, now: int) -> None:
        self._batch.launch(saved.turned, now)
        won = saved.turned.won
        of_queue = Counter(queue_of(row.id) for row in won)
        of_lane = Counter((queue_of(row.id), row.lane) for row in won) if any(one.lane for one in saved.claims) else {}
        for claim in saved.claims:
            total = of_queue[claim.queue]
            got = of_lane[claim.queue, claim.lane] if claim.lane else total
            self._watches[claim.queue].claimed(claim, total, got, saved.turned)
        if saved.claims and not won:
            self._standby.in_vain()

    # -- what is next -----------------------------------------------------------------------------------------------
    def _until_next(self, now: int, steady: int) -> float:
        if steady >= self._timetable.peek:
            self.peeks.look(now)
            if self._due.delivers(steady):
                return 0.0
        room = self._batch.room()
        if not self._stop.asked and self._planner.wants(room, self._batch.spare(room)):
            return 0.0
        has_room = not self._stop.asked and room > 0
        is_rolling = any(watch.closed for watch in self._watches.served())
        timer = self._timetable.next(
            blocked=bool(self._batch.blocked),
            rescheduling=is_rolling,
            executing=self._batch.is_executing(steady),
            delivering=self._due.new_answers,
        )
        times = [timer - steady]
        if moment := self._due.next(has_room):
            times.append(moment - now)
        if has_room and (ask := self._watches.next_ask()):
            times.append(ask - steady)
        if self._watches.locked:
            times.append(min(self._watches.locked.values()) - steady)
        return max(min(times) / 1e6, 0.0)

    def ahead(self) -> tuple[int, int]:
        """For whoever turns the clocks by hand: when something is due by the calendar, and when by the steady clock (a
        throttler is to be asked); 0 = never. Leases, polls and pruning can wait for the turn after that."""
        self.peeks.look(self._timetable.now)
        throttled = [watch.throttling for watch in self._watches.values() if watch.throttling]
        is_asking = any(throttling.busy and not throttling.next_ask for throttling in throttled)
        return self._due.next(has_room=True), 1 if is_asking else self._watches.next_ask()


def _events(change: Change, turned: Turned) -> tuple[Row, tuple[str, ...]]:
    """The events of one change, and the row as it was saved."""
    name, after = change.event, change.after
    if after.id in turned.lost:
        return after, (JobEvent.LOST,)
    if after.id in turned.answered:
        after = turned.answered[after.id]
        if change.seeking and change.seeking.state == ERROR:
            name = JobEvent.ERROR  # nothing follows from the error: the job's answer was there
    if name == JobEvent.TIMED_OUT and after.phase == CANCELLING:
        return after, (name, CANCELLING)
    has_cancelled = name in (JobEvent.CANCEL_HANDLER_ENDED, JobEvent.CANCEL_HANDLER_FAILED)
    if has_cancelled and after.state == FINAL and after.code == Code.CANCELLED:
        return after, (name, JobEvent.CANCELLED)
    return after, (name,)
