"""What an engine knows about its queues between turns: one `QueueWatch` a queue.

Nothing in here matters after a crash: an engine that knows nothing peeks, and knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from hipq.engine.lanes import Round
from hipq.engine.queues import EngineQueue
from hipq.engine.setup import Setup
from hipq.engine.throttle import Throttling
from hipq.executors.execution import Execution
from hipq.job import transitions
from hipq.job.event_names import EngineEvent, JobEvent
from hipq.job.model import Change, Row, queue_of
from hipq.job.states import ANSWERED, CANCELLING, DECIDING, DONE, READY, SCHEDULED, WAITING
from hipq.job.windows import is_open
from hipq.stores.claims import Claim, Peek, Turned
from hipq.stores.protocols import Store

LOOK: Final = 500_000
"""Microseconds between two looks whether a queue is still locked."""
LONGEST: Final = 16_000_000
QUIET: Final = 60_000_000
"""Microseconds without a lock after which the next lock is not one of a series."""


class QueueWatch:
    def __init__(self, queue: EngineQueue, setup: Setup) -> None:
        self.queue = queue
        self.next_start = 0
        """When the first scheduled job is due; 0 = none is known."""
        self.next_deadline = 0
        """When the first waiting job times out; 0 = none is known."""
        self.retry_at: int | None = None
        """When to claim again, if rules kept jobs from starting at the last claim: 0 = when something changes; None =
        they did not."""
        self.closed: frozenset[str] = frozenset()
        """The windows of ready jobs that were found closed."""
        self.closed_types: set[str] = set()
        """The job types of the claims that found those windows closed."""
        self.throttling: Throttling | None = None
        if queue.throttler:
            self.throttling = Throttling(setup.store, queue, setup.events, setup.run_spawned)
        self._has_code = self.may_have_work = bool(queue.types)
        """Whether there may be something to claim. After a claim that returned fewer jobs than it asked for: no, until
        something changes."""
        self.skips_spare = False
        """Whether nothing is to start on spare slots until something changes."""
        self.round: Round | None = None
        """The queue's lanes, where lanes are claimed one by one."""
        if queue.scheduler is not None:
            self.round = Round(setup.store, queue.number, queue.scheduler)
            self.round.stale()

    @property
    def has_nothing(self) -> bool:
        """Whether nothing is known that could be claimed, and no rule keeps anything from starting."""
        return not self.may_have_work and self.retry_at is None

    # -- something may have changed ---------------------------------------------------------------------------------
    def claim_again(self) -> None:
        self._has_code = self._has_code or bool(self.queue.types)  # a type may be registered later
        self.may_have_work = self._has_code
        self.skips_spare = False
        if self.round is not None:
            self.round.stale()

    def work_available(self) -> None:
        """Claim again, and ask the throttler again."""
        self.claim_again()
        if self.throttling:
            self.throttling.work_available()

    def notice(self, lanes: Iterable[tuple[str, str]]) -> None:
        """Jobs of these types and lanes were added. May be called from any thread."""
        if self.round is not None:
            for job_type, lane in lanes:
                self.round.notice(job_type, lane)
            self.skips_spare = False

    def made_room(self) -> None:
        """A job no longer counts against limits: where rules kept others from starting, they may start now."""
        if self.retry_at is not None:
            self.retry_at = None
            self.claim_again()
        if self.throttling:
            self.throttling.work_available(ended=True)

    def expect(self, row: Row) -> None:
        """A job was saved for which there is more to do: now, or at a known moment."""
        if row.phase in (READY, DECIDING, ANSWERED, CANCELLING):
            self.work_available()
        elif row.phase == SCHEDULED:
            self.next_start = min(self.next_start or row.scheduled_run_time, row.scheduled_run_time)
        elif row.phase == WAITING:
            self.next_deadline = min(self.next_deadline or row.deadline, row.deadline)

    def peeked(self, peek: Peek) -> None:
        if peek.ready:
            self.claim_again()
        self.next_start, self.next_deadline = peek.next_start, peek.next_deadline

    def claimed(self, claim: Claim, got: int, of_lane: int, turned: Turned) -> None:
        """What became of a claim: `got` jobs of this queue, `of_lane` of the lane that was claimed."""
        number = self.queue.number
        if claim.lane is not None:
            assert self.round is not None
            self.round.claimed(claim, of_lane, number in turned.refused)
            self.may_have_work = self.may_have_work and bool(self.round)
        elif got < claim.limit:
            self.may_have_work = False
        if claim.admitted and self.throttling:
            self.throttling.claimed(got)
        self.retry_at = turned.refused.get(number)
        if number in turned.closed:
            self.closed = turned.closed[number]
            self.closed_types.update(claim.types)  # an engine that serves all types learns here which there are

    # -- what to do next --------------------------------------------------------------------------------------------
    def moments(self, has_room: bool) -> Iterator[int]:
        """The moments at which something is due in this queue; 0 = none."""
        yield self.next_start
        yield self.next_deadline
        if has_room:
            yield self.retry_at or 0

    def reschedule(self, store: Store, step: int, now: int) -> list[Change]:
        """Schedule jobs that did not start before their window closed for its next opening, up to `step` of them."""
        types, windows = tuple(self.closed_types), tuple(self.closed)
        rows = store.due(self.queue.number, READY, now, step, types, windows)
        shut = [row for row in rows if not is_open(row.time_windows, now)]
        if len(shut) < step:
            self.closed, self.closed_types = frozenset(), set()
        order = self.queue.order
        return [Change(row, transitions.to_next_window(row, order, now), (), JobEvent.WINDOW_CLOSED) for row in shut]


class LockedQueues(dict[int, int]):
    """Queues whose tables somebody has locked, by an ALTER TABLE perhaps. They are left out of turns until they are
    free. The values are the moments, on the steady clock, of the next look whether the lock is gone.

    A statement that meets such a lock waits for it, and so does all that is done in the same statement or transaction.
    So after the first such wait the queue is left out, and the store is asked now and then whether the lock is gone,
    which waits for nothing. A queue that is locked again and again is left out for longer each time, since each time
    costs a wait.
    """

    def __init__(self, store: Store, queues: Iterable[int]) -> None:
        super().__init__()
        self._store = store
        self._queues = list(queues)
        self._rests: dict[int, tuple[int, int]] = {}
        """By queue, for how long it was left out at least, the last time, and when that ended."""

    def found(self, steady: int) -> list[int]:
        """Something stood in the way of a statement. Returns the locked queues that were not known to be locked."""
        new = sorted(self._store.locked([queue for queue in self._queues if queue not in self]))
        for queue in new:
            rest, over = self._rests.get(queue, (0, 0))
            rest = min(2 * rest, LONGEST) if rest and steady - over < QUIET else LOOK
            self._rests[queue] = rest, steady
            self[queue] = steady + rest
        return new

    def freed(self, steady: Callable[[], int]) -> list[int]:
        """The queues whose locks are gone. They are left out until `take_back`."""
        due = [queue for queue, at in self.items() if steady() >= at]
        if not due:
            return []
        still = self._store.locked(due)
        self.update(dict.fromkeys(due, steady() + LOOK))
        return [queue for queue in due if queue not in still]

    def take_back(self, queue: int, steady: int) -> None:
        del self[queue]
        self._rests[queue] = self._rests[queue][0], steady


class QueueWatches(dict[int, QueueWatch]):
    """The watches of all queues, by their numbers, and which queues are left out because somebody has locked their
    tables."""

    def __init__(self, setup: Setup) -> None:
        super().__init__((queue.number, QueueWatch(queue, setup)) for queue in setup.queues)
        self._setup = setup
        self.locked = LockedQueues(setup.store, self)

    def of(self, row: Row) -> QueueWatch:
        return self[queue_of(row.id)]

    def name(self, row: Row) -> str:
        return self.of(row).queue.name

    def some(self, queues: Iterable[int]) -> list[QueueWatch]:
        """The watches of these queues, as far as the engine serves them."""
        return [self[queue] for queue in queues if queue in self]

    def served(self) -> list[QueueWatch]:
        """The watches of all queues that are not locked."""
        if not self.locked:
            return list(self.values())
        return [watch for number, watch in self.items() if number not in self.locked]

    @property
    def strategies(self) -> tuple[str, ...]:
        """The retry strategies that are registered here."""
        return tuple(sorted({name for watch in self.values() for name in watch.queue.strategies}))

    def claim_everywhere(self) -> None:
        for watch in self.values():
            watch.claim_again()

    def next_ask(self) -> int:
        """When to ask a throttler next, on the steady clock; 0 = when something happens."""
        asking = [watch.throttling.next_ask for watch in self.served() if watch.throttling]
        return min(filter(None, asking), default=0)

    def saved(self, changes: Sequence[Change], turned: Turned) -> None:
        """Changes were saved: note what their jobs need next, and for which queues they made room."""
        freed: set[int] = set()
        for change in changes:
            after = turned.answered.get(change.before.id, change.after)
            if after.phase != DONE:
                self.of(after).expect(after)
            if after.held < change.before.held:
                freed.add(queue_of(after.id))
        for queue in freed:
            self[queue].made_room()

    # -- queues that somebody has locked ----------------------------------------------------------------------------
    def leave_out_locked(self, now: int) -> bool:
        """Something stood in the way of a statement: leave out the queues that are locked. Returns whether there are
        any."""
        found = self.locked.found(self._setup.steady())
        for queue in found:
            self._setup.events.emit(EngineEvent.QUEUE_LOCKED, now, self[queue].queue.name)
        return bool(found)

    def is_locked(self, execution: Execution) -> bool:
        return queue_of(execution.row.id) in self.locked

    def cannot_save(self, execution: Execution) -> bool:
        """Whether the execution's own queue, or that of a job that it added, is locked."""
        queues: Iterable[int] = (queue_of(execution.row.id), *(new.queue for new in execution.run.children))
        return any(queue in self.locked for queue in queues)
