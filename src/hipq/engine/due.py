"""Step 1 of a turn: what happens because time has passed. Scheduled jobs start, waiting jobs time out, cron schedules
tick, windows close. Answers that other programs wrote in plain SQL are matched here, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hipq.engine import prune, rescue
from hipq.engine.batch import Batch
from hipq.engine.lease import Lease
from hipq.engine.queue_watch import QueueWatch, QueueWatches
from hipq.engine.setup import Setup
from hipq.engine.stage import STEP, rank, stage
from hipq.engine.standby import Standby
from hipq.engine.timetable import Timetable
from hipq.errors import Conflict, NotFound, StoreBusy, StoreRefused
from hipq.job.answer import NEW
from hipq.job.event_names import JobEvent
from hipq.job.model import Change
from hipq.job.states import PARKED
from hipq.stores.claims import Peek
from hipq.stores.filters import AnswerFilter

if TYPE_CHECKING:
    from hipq.engine.tick import Ticks

PRUNE_EVERY: Final = 60_000_000
"""Microseconds between two steps of maintenance: late and old answers, progress of ended jobs, old counters."""
ANSWERS_AT_ONCE: Final = 50
"""Answers in plain SQL that a turn matches, each in a transaction of its own: no lease may end meanwhile."""
FEW_BUSY: Final = 2
"""How many of these answers may meet a locked row before the turn leaves the others for later. Each may wait a second
or two."""


@dataclass(eq=False)
class Due:
    _setup: Setup
    _watches: QueueWatches
    _batch: Batch
    _timetable: Timetable
    _ticks: Ticks | None = None
    new_answers: bool = False
    """Whether the last peek found answers in plain SQL."""

    def changes(self, now: int, steady: int) -> list[Change]:
        self._tick(now)
        changes = self._reschedule(now, steady)
        for watch in self._watches.served():
            if watch.retry_at and watch.retry_at <= now:
                watch.work_available()
            if 0 < watch.next_start <= now:
                changes += self._stage(watch, now)
            if 0 < watch.next_deadline <= now:
                changes += rescue.overdue(self._setup.store, watch.queue.number, watch.queue.order, now)
                watch.next_deadline = 0
                self._timetable.peek_soon(0)
        return changes

    def peeked(self, found: Sequence[Peek], now: int) -> None:
        """Read the changed schedules again, if a peek has found some."""
        if self._ticks or any(peek.crons for peek in found):
            self._schedules.peeked(found, now)

    def ticks(self, now: int) -> bool:
        """Whether a schedule is due."""
        return self._ticks is not None and 0 < self._ticks.next(self._watches.locked) <= now

    def next(self, has_room: bool) -> int:
        """The next moment at which something is due by the calendar; 0 = none is known."""
        times = [moment for watch in self._watches.served() for moment in watch.moments(has_room)]
        if self._ticks:
            times.append(self._ticks.next(self._watches.locked))
        return min(filter(None, times), default=0)

    def _stage(self, watch: QueueWatch, now: int) -> list[Change]:
        queue = watch.queue
        count, more = stage(self._setup.store, queue.number, now)
        watch.next_start = now if more else 0
        if count:
            watch.work_available()
            self._setup.events.emit(JobEvent.STAGED, now, queue.name, count=count)
            self._timetable.peek_soon(0)
        if more:
            return []
        # jobs that are still due were added in plain SQL, or are locked by somebody: until the next poll
        return rank(self._setup.store, queue.number, queue.order, now)

    def _tick(self, now: int) -> None:
        if self._ticks is None and not any(queue.crons for queue in self._setup.queues):
            return
        if self._schedules.turn(now, self._watches.locked):
            self._watches.claim_everywhere()
            self._timetable.peek_by(0)

    @property
    def _schedules(self) -> Ticks:
        if self._ticks is None:
            from hipq.engine.tick import Ticks  # what reads cron expressions costs an import most can do without

            self._ticks = Ticks(self._setup)
        return self._ticks

    def _reschedule(self, now: int, steady: int) -> list[Change]:
        """Schedule jobs that did not start before their window closed for its next opening. Claims pass them over
        meanwhile, so there is no hurry: only a few at a time while there is other work."""
        closed = [watch for watch in self._watches.values() if watch.closed]
        if not closed or steady < self._timetable.reschedule:
            return []
        step = max((STEP // 10 if self._batch.in_flight else STEP) // len(closed), 1)
        free = [watch for watch in closed if watch.queue.number not in self._watches.locked]
        changes = [change for watch in free for change in watch.reschedule(self._setup.store, step, now)]
        self._timetable.reschedule = self._timetable.after_poll(steady) if self._batch.in_flight else 0
        return changes

    # -- answers ----------------------------------------------------------------------------------------------------
    def answers(self, now: int, steady: int) -> None:
        """Do a step of maintenance, and match answers that came in plain SQL, each when its time has come."""
        if steady >= self._timetable.prune:
            served = [watch.queue.number for watch in self._watches.served()]
            more = prune.maintain(self._setup.store, served, self._setup.events, now)
            self._timetable.prune = steady + (0 if more else PRUNE_EVERY)
        if self.delivers(steady):
            self._deliver_answers(now, steady)

    def delivers(self, steady: int) -> bool:
        """Whether to match answers in plain SQL now. Answers that could not be matched are tried again once per
        poll."""
        return self.new_answers and steady >= self._timetable.deliver

    def _deliver_answers(self, now: int, steady: int) -> None:
        """Match answers that other programs wrote in plain SQL (docs/tables.md)."""
        assert self._setup.deliver
        self.new_answers = False
        self._timetable.deliver = self._timetable.after_poll(steady)
        served = tuple(watch.queue.number for watch in self._watches.served())
        found = (
            self._setup.store.answers(AnswerFilter(state=NEW, queues=served, limit=ANSWERS_AT_ONCE)) if served else []
        )
        busy = 0
        for one in found:
            try:
                self._setup.deliver(one)
                self._watches[one.queue].work_available()
            except (NotFound, Conflict, StoreRefused):
                pass  # another engine was faster; or nobody can store it: it is left where it is
            except StoreBusy:
                if self._watches.leave_out_locked(now):
                    raise
                busy += 1
            if busy == FEW_BUSY:
                break  # each has waited for a row: the others come at the next poll, with the lease renewed
        if len(found) == ANSWERS_AT_ONCE and busy < FEW_BUSY:
            self.new_answers, self._timetable.deliver = True, steady


@dataclass(eq=False)
class Peeks:
    """Peeks at the store for work that is due now or next: after something happened, and once per poll as a safety
    net."""

    _setup: Setup
    _watches: QueueWatches
    _batch: Batch
    _lease: Lease
    _due: Due
    _timetable: Timetable
    _standby: Standby
    idle: bool = False
    """Whether nothing was due and nothing executed at the last peek."""

    def look(self, now: int) -> None:
        began = self._setup.steady()
        wanted = [(watch.queue.number, watch.queue.types) for watch in self._watches.served()]
        found = self._setup.store.peek(wanted, self._watches.strategies)
        self._lease.drop_cancelled(now, began)
        self._timetable.peeks.looked(began, self._setup.steady())
        self._standby.looked(any(peek.ready and self._watches[peek.queue].has_nothing for peek in found))
        for peek in found:
            self._watches[peek.queue].peeked(peek)
        self._due.peeked(found, now)
        self._lease.seen_owned = bool(self._watches.locked) or any(peek.owned for peek in found)
        self._due.new_answers = bool(self._setup.deliver) and any(peek.answers for peek in found)
        self.idle = not (self._work(found, now) or self._batch.in_flight or self._due.delivers(began))
        alone = self._lease.seen_owned or not self._setup.store.waker.hears_queues
        self._timetable.peeked(began, 1.0 if alone else self._standby.share)

    def _work(self, found: Sequence[Peek], now: int) -> bool:
        """Whether there is work for this engine or another that does not have to wait for its time."""
        reminded = [self._remind(peek) for peek in found if peek.parked or peek.ready]
        return (
            self._lease.seen_owned
            or any(reminded)
            or self._due.ticks(now)
            or any(0 < moment <= now for peek in found for moment in (peek.next_start, peek.next_deadline))
            or any(peek.ready and self._watches[peek.queue].retry_at != 0 for peek in found)
            or any(watch.closed or (watch.throttling and watch.throttling.busy) for watch in self._watches.values())
        )

    def _remind(self, peek: Peek) -> bool:
        """Jobs wait for a throttler: remind it. Where no throttler is left, make parked jobs ready instead. Whether
        some became ready."""
        watch = self._watches[peek.queue]
        if watch.throttling:
            watch.throttling.remind(peek.ready, round(self._setup.poll * 1e6))
            return False
        if not peek.parked or self._setup.store.rules(peek.queue).throttled:
            return False
        watch.claim_again()
        return self._setup.store.stage(peek.queue, PARKED, 0, STEP) > 0
