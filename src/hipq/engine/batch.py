"""The current batch: the jobs that this engine has claimed and not saved yet. Only their rows remember them besides."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hipq.engine import timetable
from hipq.engine.lanes import NO_SPARE, Spare
from hipq.engine.prefetch import UNSTARTED_FOR, Prefetch
from hipq.engine.queue_watch import QueueWatches
from hipq.engine.settle import overran
from hipq.engine.setup import Setup
from hipq.engine.stop import Stop
from hipq.engine.timetable import Timetable
from hipq.executors.execution import Execution
from hipq.job.event_names import EngineEvent, JobEvent
from hipq.job.run_result import GivenBack, Progressed, RunResult, Waits
from hipq.stores.claims import Turned


class Batch:
    def __init__(self, setup: Setup, watches: QueueWatches, timetable: Timetable, stop: Stop) -> None:
        self._setup = setup
        self._watches = watches
        self._timetable = timetable
        self._stop = stop
        self.in_flight: dict[int, Execution] = {}
        """Every job of the batch, by its id."""
        self.stopped: list[Execution] = []
        """Jobs of the batch that ended and are to be saved."""
        self.blocked: list[Execution] = []
        """Jobs that ended and cannot be saved yet: somebody else's transaction is in the way."""
        self.prefetch = Prefetch(setup.concurrency)
        self._is_scheduled = any(queue.scheduler for queue in setup.queues)
        self._stuck = 0
        """At the last look, how many abandoned handlers were still running."""

    # -- how much there is room for ---------------------------------------------------------------------------------
    def free(self) -> int:
        """How many hands are free."""
        return self._setup.concurrency - self.taken - self._setup.taken_elsewhere()

    @property
    def taken(self) -> int:
        """How many hands the jobs of this batch hold. A job that only waits to be saved holds none; of those that
        cannot be saved for now, only `concurrency`, because memory has an end."""
        waiting = len(self.stopped) + min(len(self.blocked), self._setup.concurrency)
        return len(self.in_flight) - waiting

    def room(self) -> int:
        return self.prefetch.room(self.free())

    @property
    def has_room(self) -> bool:
        """Whether another job could be claimed, if only on a spare slot."""
        room = self.room()
        return room > 0 or self.spare(room).slots > 0

    def spare(self, room: int) -> Spare:
        """The spare slots, which are used only where there is no other room."""
        return NO_SPARE if room > 0 else self._setup.spare()._replace(each=self.prefetch.for_one())

    def reachable(self) -> list[Execution]:
        """The jobs of queues that are not locked."""
        return [execution for execution in self.in_flight.values() if not self._watches.is_locked(execution)]

    def is_executing(self, steady: int) -> bool:
        return bool(self.in_flight) or self._setup.executor.stuck(steady) > self._stuck

    # -- collect ----------------------------------------------------------------------------------------------------
    def collect(self, now: int, steady: int) -> None:
        """Move to `stopped` what ended, what overran its time, and what waited too long for a free hand."""
        executor = self._setup.executor
        ended = executor.stopped(max(self._setup.store.changes_at_once - len(self.stopped), 0))
        self.prefetch.measure([(one.kind, one.run.stopped - one.run.started) for one in ended if one.run.started])
        self.stopped += ended
        if executor.broken:
            self._stop.retire("no child process can be started any more")
        if steady >= self._timetable.overrun:
            self._timetable.overrun = steady + UNSTARTED_FOR // 4
            self._count_stuck(now, steady)  # of those abandoned at an earlier look: the others may yet end
            self._end_overrun(steady)
        if self._stop.asked:
            self._give_back_unstarted("the worker is stopping")
        if self._stop.asked > 1:
            for execution in [one for one in self.in_flight.values() if one.run.result is None]:
                execution.abandon()
                executor.abandon(execution)
                self._end(execution, GivenBack("the worker was stopped", execution.run.started > 0))
        if self._watches.locked:
            self.block(self._watches.cannot_save)
            self._timetable.blocked = self._timetable.blocked or steady + timetable.BLOCKED_FOR

    def _end_overrun(self, steady: int) -> None:
        for execution in list(self.in_flight.values()):
            run = execution.run
            if run.is_under_way:
                self.prefetch.outlasts(execution.kind, steady - run.started)
            if run.result is None and execution.overruns(steady):
                execution.abandon(until=self._setup.steady() + timetable.TIDYING)
                self._setup.executor.abandon(execution)
                self._end(execution, overran(execution))
        if any(not one.run.started and steady - one.launched > UNSTARTED_FOR for one in self.in_flight.values()):
            self._give_back_unstarted("no hand was free")
            self.prefetch.unknown()

    def _count_stuck(self, now: int, steady: int) -> None:
        """Count the handlers that could not be stopped and still run. Once they hold all hands, this process is
        useless."""
        stuck = self._setup.executor.stuck(steady)
        if stuck > self._stuck:
            self._setup.events.emit(EngineEvent.HANDLER_STUCK, now, stuck=stuck)
        if stuck >= self._setup.concurrency:
            self._stop.retire("every hand is held by a handler that outlived its time-out")
        self._stuck = stuck

    def _give_back_unstarted(self, reason: str) -> None:
        for execution in self._setup.executor.unstarted():
            if not execution.abandoned:  # an abandoned one is not ours to give
                self._end(execution, GivenBack(reason, False))

    def _end(self, execution: Execution, result: RunResult) -> None:
        ended = execution.ended(result)
        self.in_flight[execution.row.id] = ended
        self.stopped.append(ended)

    def block(self, cannot_save: Callable[[Execution], bool]) -> None:
        """Keep in memory the jobs that ended and cannot be saved now: the lease covers them like all others."""
        self.blocked += [execution for execution in self.stopped if cannot_save(execution)]
        self.stopped = [execution for execution in self.stopped if not cannot_save(execution)]

    def reporting(self, steady: int) -> list[Execution]:
        """The jobs whose handlers have reported progress that is not stored yet: running jobs now and then, and jobs
        that begin to wait at once, since they may wait for long."""
        found = [one for one in self.stopped if one.run.reported and isinstance(one.run.result, (Waits, Progressed))]
        if steady >= self._timetable.report and self.in_flight:
            self._timetable.report = steady + timetable.REPORT_EVERY
            found += [one for one in self.in_flight.values() if one.run.reported and one.run.result is None]
        return [one for one in found if one.run.reported != one.run.stored and not self._watches.is_locked(one)]

    # -- launch and forget ------------------------------------------------------------------------------------------
    def launch(self, turned: Turned, now: int) -> None:
        if not turned.won:
            return
        steady, events = self._setup.steady(), self._setup.events
        launched = []
        for row in turned.won:
            queue = self._watches.of(row).queue
            execution = Execution(row, queue.specs[row.job_type], steady, turned.answers.get(row.id))
            if row.id in self.in_flight:  # its answer came while another piece of its code ran here
                self.drop(self.in_flight[row.id], now)
            self.in_flight[row.id] = execution
            launched.append(execution)
            if queue.scheduler:
                queue.scheduler.jobs_started(row.lane, 1)
        shortest = min(execution.limit for execution in launched)
        self._timetable.overrun = min(self._timetable.overrun, steady + shortest)
        if events.wanted(JobEvent.CLAIMED):  # before a handler can do anything that is an event
            for row in turned.won:
                events.emit(JobEvent.CLAIMED, now, self._watches.name(row), row)
        self.prefetch.claimed(execution.kind for execution in launched)
        self._setup.executor.launch(launched)

    def forget_stopped(self) -> None:
        """What stopped was saved: from here on only the store knows these jobs."""
        self.forget(self.stopped)
        self.stopped = []

    def forget(self, saved: Iterable[Execution]) -> None:
        for execution in saved:
            if self.in_flight.get(execution.row.id) is execution:
                del self.in_flight[execution.row.id]
                if self._is_scheduled:
                    self._left(execution)

    def drop(self, execution: Execution, now: int, event: str = JobEvent.LOST) -> None:
        """The claim was lost: stop the execution, and keep nothing of what it returns or has returned."""
        run = execution.run
        if event == JobEvent.TOLD_TO_STOP:
            execution.abandon(gently=True, until=execution.until if run.started else 0)
        else:
            execution.abandon()
        if run.result is None:
            self._setup.executor.abandon(execution)
        self.stopped = [one for one in self.stopped if one is not execution]
        self.blocked = [one for one in self.blocked if one is not execution]
        if self.in_flight.pop(execution.row.id, None):
            self._left(execution)
        self._setup.events.emit(event, now, self._watches.name(execution.row), execution.row)

    def _left(self, execution: Execution) -> None:
        if scheduler := self._watches.of(execution.row).queue.scheduler:
            scheduler.jobs_stopped(execution.row.lane, 1)
