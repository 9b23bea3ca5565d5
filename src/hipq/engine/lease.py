"""The engine's lease: taking and renewing it, and what to do when it was lost.

A lease says that this engine is alive. While it lasts, the engine's jobs are its own. Once it has run out, others may
take them, and the token of each row says whether somebody did.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from hipq.engine import rescue
from hipq.engine.batch import Batch
from hipq.engine.queue_watch import QueueWatches
from hipq.engine.setup import Setup
from hipq.engine.standby import Standby
from hipq.engine.timetable import LINGER, PollBudget, Timetable
from hipq.errors import StoreBusy
from hipq.executors.execution import Execution
from hipq.job import transitions
from hipq.job.event_names import EngineEvent, JobEvent
from hipq.job.model import Change, queue_of
from hipq.stores.values import CRONS, STRATEGIES
from hipq.version import __version__


@dataclass(eq=False)
class Lease:
    _setup: Setup
    _watches: QueueWatches
    _batch: Batch
    _timetable: Timetable
    _standby: Standby
    engine_id: int = 0
    seen_owned: bool = True
    """Whether some engine had a job at the last peek, or nobody has peeked yet."""
    _rescues: PollBudget = field(default_factory=PollBudget)

    # -- renewing and taking ------------------------------------------------------------------------------------------
    def sweep(self, now: int, steady: int) -> tuple[list[Change], bool]:
        """Renew the lease, and look for jobs that other engines, or this one, left behind. Returns the changes that
        give them back, and whether there may be more."""
        store = self._setup.store
        if self.engine_id and (crew := store.renew_lease(self.engine_id, self._setup.lease)):
            self._standby.renewed(crew)
        else:
            self._take(now)
        peeked_lately = steady <= max(self._timetable.peeks.ended + self._setup.lease / 3 * 1e6, self._timetable.peek)
        if (not (self.seen_owned or self._batch.in_flight) and peeked_lately) or steady < self._rescues.rested:
            return [], False
        began = self._setup.steady()
        served = {watch.queue.number: watch.queue for watch in self._watches.served()}
        orphans = rescue.orphans(store, served, now)
        in_flight = {execution.row.id: execution for execution in self._batch.reachable()}
        back, taken = rescue.forgotten(store, list(served), self.engine_id, in_flight, now)
        more = len(orphans) >= rescue.STEP
        if not more:
            self._rescues.looked(began, self._setup.steady())
        self._drop([one for one in taken if one.run.result is None], now)  # the others: when they are saved, by token
        return orphans + back, more

    def next_sweep(self, steady: int) -> int:
        """When to sweep next: a third of a lease later, with a random part so that engines spread out."""
        return steady + round(self._setup.lease / 3 * 1e6 * self._setup.chance.uniform(0.8, 1.0))

    def _take(self, now: int, left_behind: Sequence[Execution] = ()) -> None:
        """Take a lease: the first one, or a new one after the last ran out. In that case other engines may have taken
        jobs of ours. Their tokens say which: jobs that nobody took go on under the new lease, the others are dropped.

        `left_behind`: jobs that an earlier lease of ours still owns, because their queue was locked when that lease
        ended. They need a new lease even if ours is alive: under that one, rows whose adoption was not confirmed would
        look unstarted.
        """
        served = {str(watch.queue.number): watch.queue.published for watch in self._watches.values()}
        queues = [watch.queue for watch in self._watches.values()]
        crons = [f"{queue.number}/{name}" for queue in queues for name in queue.crons]
        more = {STRATEGIES: self._watches.strategies} | ({CRONS: crons} if crons else {})
        serves = msgspec.json.encode(served | more).decode()
        label = f"{socket.gethostname()}:{os.getpid()}"
        expired = self.engine_id
        engine_id = self._setup.store.take_lease(self._setup.lease, label, serves, __version__, now)
        held = [
            *self._batch.reachable(),
            *left_behind,
        ]  # also ended ones: else they look like a dead engine's
        lost = self._adopt(held, engine_id, now)
        self.engine_id = engine_id  # not before: rows whose adoption was not confirmed must not look unstarted to us
        if expired and not left_behind:
            self._setup.events.emit(EngineEvent.LEASE_LOST, now, engine_id=expired, jobs=len(held))
        self._drop(lost, now)

    def _adopt(self, held: Sequence[Execution], engine_id: int, now: int) -> list[Execution]:
        """Move jobs of an older lease of ours to the new one. Returns those that somebody else has taken."""
        changes = [Change(one.row, transitions.adopted(one.row, engine_id, now), (), JobEvent.CLAIMED) for one in held]
        gone = self._setup.store.turn(engine_id, changes, [], now).lost if changes else frozenset[int]()
        for execution, change in zip(held, changes, strict=True):
            if change.before.id not in gone:
                execution.row = change.after
        return [execution for execution in held if execution.row.id in gone]

    def take_back_freed(self, now: int) -> None:
        """Serve queues again that are no longer locked."""
        for queue in self._watches.locked.freed(self._setup.steady):
            ours = [one for one in self._batch.in_flight.values() if queue_of(one.row.id) == queue]
            try:
                if any(one.row.owner != self.engine_id for one in ours):  # their lease ended meanwhile
                    self._take(now, ours)
            except StoreBusy:
                continue  # locked once more
            self._watches.locked.take_back(queue, self._setup.steady())  # after: else a sweep might rescue our jobs
            self._setup.events.emit(EngineEvent.QUEUE_FREE, now, self._watches[queue].queue.name)
            self._timetable.blocked = 0
            self._watches[queue].work_available()
            self._timetable.peek_by(0)

    # -- jobs that are no longer ours ----------------------------------------------------------------------------------
    def drop_cancelled(self, now: int, steady: int) -> None:
        """Tell the handlers of jobs that were cancelled, or taken by another engine. Handlers that have only just begun
        wait for the next look: they may well end before it."""
        late = [one for one in self._batch.in_flight.values() if steady - one.launched >= LINGER]
        some = [one for one in late if one.run.result is None and not self._watches.is_locked(one)]
        if not some:
            return
        tokens = self._setup.store.tokens([one.row.id for one in some])
        gone = [one for one in some if one.run.result is None and tokens.get(one.row.id) != one.row.token]
        self._drop(gone, now, tokens)

    def _drop(self, gone: Sequence[Execution], now: int, tokens: Mapping[int, int] | None = None) -> None:
        """Drop jobs whose rows are no longer ours. A job that is not live was cancelled, or another engine has finished
        it: its handler is told, and may tidy up. A live job is another engine's by now. `tokens`: the tokens of the
        live jobs."""
        if tokens is None:
            tokens = self._setup.store.tokens([one.row.id for one in gone]) if gone else {}
        for execution in gone:
            is_cancelled = execution.run.result is None and execution.row.id not in tokens
            self._batch.drop(execution, now, JobEvent.TOLD_TO_STOP if is_cancelled else JobEvent.LOST)
