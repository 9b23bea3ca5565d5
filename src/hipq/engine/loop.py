"""The engine: it takes turn after turn from start to stop, and sleeps in between until something wakes it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hipq.engine import timetable
from hipq.engine.batch import Batch
from hipq.engine.lease import Lease
from hipq.engine.queue_watch import QueueWatch, QueueWatches
from hipq.engine.setup import Setup
from hipq.engine.standby import Standby
from hipq.engine.stop import Stop
from hipq.engine.timetable import LINGER, Timetable
from hipq.engine.turn import Turn
from hipq.errors import StoreUnavailable
from hipq.events import Events
from hipq.executors.execution import Execution
from hipq.job.event_names import EngineEvent
from hipq.stores.claim_groups import TOP, RankPosition
from hipq.stores.waker import ELSEWHERE, HERE, NOTIFIED, News

STORE_AWAY: Final = 30_000_000
"""Microseconds that a stop waits for a store that is away, unless `drain` says otherwise."""
FEW_QUEUES: Final = 8
"""Up to this many queues are claimed from at once when something wakes the engine; more are peeked at first."""


class Engine:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.executor = setup.executor
        self.stop_requests = Stop()
        self.timetable = Timetable(setup)
        self.watches = QueueWatches(setup)
        if len(self.watches) > FEW_QUEUES:
            for watch in self.watches.values():
                watch.may_have_work = False  # the first peek says where there is something to claim
        self.batch = Batch(setup, self.watches, self.timetable, self.stop_requests)
        self.standby = Standby()
        self.lease = Lease(setup, self.watches, self.batch, self.timetable, self.standby)
        self._turn = Turn(setup, self.stop_requests, self.timetable, self.watches, self.batch, self.lease, self.standby)
        self.torn = False
        """Whether a handler has closed file descriptors of this process. Then nothing that has one may be used or
        closed."""

    @property
    def in_flight(self) -> Mapping[int, Execution]:
        """The jobs that this engine has claimed and not saved, by their ids."""
        return self.batch.in_flight

    @property
    def events(self) -> Events:
        return self.setup.events

    @property
    def engine_id(self) -> int:
        return self.lease.engine_id

    @property
    def stopping(self) -> int:
        return self.stop_requests.asked

    @property
    def unfit(self) -> str:
        return self.stop_requests.unfit

    @property
    def idle(self) -> bool:
        return self._turn.peeks.idle

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in memory that would have to be saved."""
        return not self.batch.in_flight and not self.batch.stopped

    def turn(self) -> float:
        """Take one turn. Returns the seconds to sleep after it, unless something wakes the engine."""
        return self._turn.take()

    def ahead(self) -> tuple[int, int]:
        """See `Turn.ahead`."""
        return self._turn.ahead()

    # -- waking -----------------------------------------------------------------------------------------------------
    def notice(self, queue: int, lanes: Iterable[tuple[str, str]]) -> None:
        """Jobs of these types and lanes were added in this process. May be called from any thread; the caller wakes the
        store."""
        self.watches[queue].notice(lanes)

    def wake(self, news: News = NOTIFIED) -> bool:
        """Something may have changed: look for it, unless that is for other engines. Returns whether to take a turn."""
        needed = [self._heard(queue, place) for queue, place in news.items()]
        return any(needed)

    def _heard(self, queue: int, place: RankPosition) -> bool:
        if queue == HERE:
            return self._look(list(self.watches.values()))
        watches = list(self.watches.values()) if queue == ELSEWHERE else self.watches.some([queue])
        if not watches:
            return False
        if place == TOP:
            return self._look(watches)
        if not self.batch.has_room:
            for watch in watches:
                watch.claim_again()  # as soon as a hand is free
            return self._cancelled_perhaps(queue)
        later = self.standby.turn(place[1])
        if later is None:
            return self._cancelled_perhaps(queue)
        if later == 0:
            return self._look(watches)
        self.timetable.peek_soon(self.setup.steady() + later)
        return True

    def _look(self, watches: Sequence[QueueWatch]) -> bool:
        """Claim from a few queues at once, and peek a little later; or peek at many queues. Returns whether to take a
        turn."""
        if len(watches) > FEW_QUEUES:
            self.timetable.peek_by(0)
            return True
        self.standby.late = False
        self.timetable.peek_soon(self.setup.steady() + LINGER)
        for watch in watches:
            watch.claim_again()
            if watch.throttling:
                watch.throttling.wake()
                self.timetable.peek_by(0)  # which sees if there is more to ask
        return True

    def _cancelled_perhaps(self, queue: int) -> bool:
        """News that names no queue may mean that jobs were cancelled: look soon, to tell their handlers. Returns
        whether to take a turn."""
        if queue != ELSEWHERE or not self.in_flight:
            return False
        self.timetable.peek_soon(self.setup.steady() + LINGER)
        return True

    # -- from start to stop -----------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Ask the engine to stop; ask twice to stop at once. May be called from any thread and any signal handler."""
        self.stop_requests.asked += 1
        self.setup.store.waker.notify()

    def run(self, until_empty: bool = False) -> None:
        """Turn after turn, until asked to stop (or, with `until_empty`, until nothing is due and nothing executes)."""
        self.timetable.awaited |= until_empty
        descriptors, is_store_there = Descriptors(), True
        try:
            is_store_there = _Run(self, until_empty, descriptors).turns()
        except Exception:
            if descriptors.intact:
                descriptors.close()
                raise
        if descriptors.intact:
            if is_store_there:
                self.leave()
            descriptors.close()
        else:  # what the store writes to may be another file by now: nothing is saved, and the lease runs out
            self.torn = True
            self.stop_requests.retire("a handler has closed file descriptors that are not its own")
            jobs = len(self.in_flight)
            self.setup.events.emit(EngineEvent.STOPPING, self.timetable.now, jobs=jobs, why=self.unfit)

    def close(self) -> None:
        """End what executes its jobs, after its run."""
        if not self.torn:
            self.executor.close()

    def leave(self) -> None:
        if self.stopping < 2 and not self.unfit:
            self.setup.executor.wait_for_told(timetable.TIDYING / 1e6)
        try:
            self.setup.store.renew_lease(self.engine_id, 0)
            self.setup.events.emit(EngineEvent.STOPPED, self.setup.store.now())
        except StoreUnavailable:
            pass  # it runs out by itself


class Descriptors:
    """Notices that a handler has closed file descriptors which are not its own, as `os.closerange(3, 60)` does.

    It holds a descriptor that nobody else uses. Once that is closed, those of the database may be closed, too: their
    numbers go to the next files that are opened, and what is written to the database would go there.
    """

    def __init__(self) -> None:
        self._descriptor, other = os.pipe2(os.O_CLOEXEC)
        os.close(other)
        self._inode = os.fstat(self._descriptor).st_ino

    @property
    def intact(self) -> bool:
        try:
            return os.fstat(self._descriptor).st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        os.close(self._descriptor)


class _Run:
    """One run of an engine: what has to be remembered between turns about stopping, and about a store that is away."""

    def __init__(self, engine: Engine, until_empty: bool, descriptors: Descriptors) -> None:
        self._engine = engine
        self._setup = engine.setup
        self._stop = engine.stop_requests
        self._until_empty = until_empty
        self._descriptors = descriptors
        self._started = False
        self._announced = 0
        """How many requests to stop were announced."""
        self._failures = 0
        """Turns in a row that found the store away."""
        self._stop_by: int | None = None
        """When the stop ends, whatever is left. Jobs that cannot be saved by then are left to the lease."""
        self._away_since: int | None = None
        self._blocked_since: int | None = None

    def turns(self) -> bool:
        """Take turns until the run is over. Returns whether the store is there at the end."""
        while self._descriptors.intact:
            is_late = self._is_late()
            try:
                pause = self._turn()
                if self._is_over(is_late):
                    break
            except StoreUnavailable as error:
                pause = self._back_off(error)
                if self._is_hopeless(is_late):
                    return False  # nobody waits: the lease will run out
            self._sleep(pause)
        return True

    def _sleep(self, seconds: float) -> None:
        """Sleep for this long, unless something happens that concerns this engine."""
        until = self._setup.steady() + seconds * 1e6
        while (left := until - self._setup.steady()) > 0 and self._descriptors.intact:
            news = self._setup.store.waker.wait(left / 1e6)
            if not news or self._engine.wake(news):
                return

    def _is_late(self) -> bool:
        """Whether a stop has taken as long as it may."""
        if self._stop.asked and self._stop_by is None:
            drain = self._setup.drain
            self._stop_by = self._setup.steady() + (STORE_AWAY if drain is None else round(drain * 1e6))
        is_late = self._stop_by is not None and self._setup.steady() >= self._stop_by
        if is_late and self._setup.drain is not None:
            self._stop.at_once()
        return is_late

    def _turn(self) -> float:
        store, events = self._setup.store, self._setup.events
        if not self._started:
            queues = [queue.name for queue in self._setup.queues]
            types = [f"{queue.name}.{name}" for queue in self._setup.queues for name in queue.types]
            hands = self._setup.concurrency
            events.emit(EngineEvent.STARTED, store.now(), url=store.url, queues=queues, types=types, concurrency=hands)
            self._started = True
        pause = self._engine.turn()
        self._away_since = None
        if self._failures:
            events.emit(EngineEvent.STORE_BACK, store.now(), after=self._failures)
            self._failures = 0
        if self._stop.asked > self._announced:
            self._announced = self._stop.asked
            why = self._stop.unfit or "asked to"
            events.emit(EngineEvent.STOPPING, store.now(), jobs=len(self._engine.in_flight), why=why)
        return pause

    def _is_over(self, is_late: bool) -> bool:
        """Whether the run is over: all is done, or only jobs are left that somebody's lock keeps from being saved, and
        nobody waits for them any longer. Their lease will run out."""
        if (self._stop.asked or (self._until_empty and self._engine.idle)) and self._engine.is_empty:
            return True
        batch, steady = self._engine.batch, self._setup.steady()
        if len(batch.in_flight) > len(batch.blocked):
            self._blocked_since = None
            return False
        if self._blocked_since is None:
            self._blocked_since = steady
        if self._stop.asked > 1 or (is_late and steady - self._blocked_since >= STORE_AWAY):
            self._stop.at_once()
            return True
        return False

    def _back_off(self, error: StoreUnavailable) -> float:
        """Seconds until a store that is away is tried again."""
        self._failures += 1
        if self._failures == 1:
            self._setup.events.emit(EngineEvent.STORE_DOWN, self._engine.timetable.now, error=str(error))
        if self._away_since is None:
            self._away_since = self._setup.steady()
        longest = min(0.05 * 2.0**self._failures, 2.0)
        return longest * self._setup.chance.uniform(0.5, 1.0)

    def _is_hopeless(self, is_late: bool) -> bool:
        """Whether to give up: the engine is to stop, and the store has been away for too long. Not at the first
        failure, since handlers are waited for."""
        assert self._away_since is not None
        is_late = is_late and self._setup.steady() - self._away_since >= STORE_AWAY
        is_idle = not self._engine.in_flight
        if self._stop.asked > 1 or (self._stop.asked and (is_late or is_idle)):
            if not is_idle:
                self._stop.at_once()
            return True
        return False
