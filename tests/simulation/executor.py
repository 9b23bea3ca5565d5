"""Handlers in simulated time: each takes as long as its seed says, and poison takes its engine along."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from hipq.engine.launch import Launcher
from hipq.executors.execution import Execution
from hipq.job.states import Code
from tests.simulation.audit import Broken
from tests.simulation.faults import Crash

if TYPE_CHECKING:
    from tests.simulation.life import Life
    from tests.simulation.world import World


MOST_CRASHES: Final = 50
"""Of one job, of all its code; far more than its failures allow."""


class SimulatedLauncher(Launcher):
    """A run is one call at its end; whether its window is open is asked at its beginning."""

    def begins(self, execution: Execution) -> bool:
        return execution.only_decides or not super()._shut(execution)

    def _shut(self, execution: Execution) -> bool:  # noqa: ARG002
        return False


class SimulatedExecutor:
    """`concurrency` hands; a job occupies one from its start until its end."""

    def __init__(self, world: World, launcher: SimulatedLauncher, concurrency: int, life: Life) -> None:
        self._world = world
        self._life = life
        self._launcher = launcher
        self._concurrency = concurrency
        self._waiting: list[Execution] = []
        self._busy: dict[int, tuple[int, Execution]] = {}
        self._ended: list[Execution] = []
        self.broken = False

    def launch(self, batch: Iterable[Execution]) -> None:
        self._put(batch)
        self.work()

    def work(self) -> None:
        """Let simulated time do its work: end what is over, start what has a hand."""
        steady = self._world.clock.steady()
        for until, execution in sorted(self._busy.values(), key=lambda item: (item[0], item[1].row.id)):
            if until <= steady:
                del self._busy[id(execution)]
                self._give(execution)
                self._finish(execution)
        while taken := self._take():
            if not taken.abandoned:
                self._start(taken, steady)
            if id(taken) not in self._busy:
                self._give(taken)

    def _put(self, batch: Iterable[Execution]) -> None:
        self._waiting += batch

    def _take(self) -> Execution | None:
        """The next one that may have a hand."""
        return self._waiting.pop(0) if self._waiting and len(self._busy) < self._concurrency else None

    def _give(self, execution: Execution) -> None:
        """A hand is free again."""

    def _start(self, execution: Execution, steady: int) -> None:
        execution.run.started = steady
        if not self._launcher.begins(execution):
            self._world.trace(None, f"the window of job {execution.row.id} closed before it began")
            self._ended.append(execution)
            return
        self._world.jobs.begins(execution)
        if self._world.jobs.is_poison(execution.row) and not execution.only_decides and not execution.row.suspect:
            self._world.trace(None, f"job {execution.row.id} kills its engine")
            raise Crash
        self._busy[id(execution)] = (steady + self._world.jobs.duration(execution.row), execution)

    def _finish(self, execution: Execution) -> None:
        if execution.abandoned:
            return
        if self._world.jobs.is_poison(execution.row) and not execution.only_decides:
            self._world.jobs.crashed[execution.row.id] += 1
            if self._world.jobs.crashed[execution.row.id] > MOST_CRASHES:
                raise Broken(f"I13: job {execution.row.id} crashes again and again")
            self._launcher.child_died(execution, ChildProcessError("simulated: killed by SIGSEGV"))
        else:
            started = execution.run.started
            self._world.jobs.now_running = execution
            self._launcher.run(execution)
            execution.run.started = started
        self._ended.append(execution)

    def next_end(self) -> int:
        """When the next handler ends; 0 = none is execution."""
        return 1 if self._ended else min((until for until, _ in self._busy.values()), default=0)

    def stopped(self, most: int) -> list[Execution]:
        self.work()
        ended, self._ended = self._ended[:most], self._ended[most:]
        return [execution for execution in ended if not execution.abandoned]

    def unstarted(self) -> list[Execution]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def abandon(self, execution: Execution) -> None:
        """Who was cancelled is told so, whoever notices that first."""
        assert execution.abandonment is not None
        over = self._world.clock.steady() >= execution.run.started + execution.limit
        if not execution.abandonment.gently and not over and execution.run.started and self._life.engine.stopping < 2:
            job = self._world.app.job(execution.row.id)
            if job.code == Code.CANCELLED:
                raise Broken(f"told: the handler of job {job.id} was not told that it is cancelled")
        if self._busy.pop(id(execution), None):
            self._give(execution)

    def wait_for_told(self, seconds: float) -> None:
        """Nothing is ever told here: a handler has ended when anybody looks."""

    def stuck(self, _steady: int) -> int:
        return 0

    def close(self) -> None:
        self._waiting.clear()
        self._busy.clear()
