"""Handlers in simulated time: each takes as long as its seed says, and poison takes its engine along."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from hipq.engine.launch import Execution, Launcher
from hipq.job.transitions import CANCELLED
from tests.simulation.audit import Broken
from tests.simulation.faults import Crash

if TYPE_CHECKING:
    from tests.simulation.life import Life
    from tests.simulation.world import World


MOST_CRASHES: Final = 50
"""Of one job, of all its code; far more than its failures allow."""


class SimulatedLauncher(Launcher):
    """A run is one call at its end; whether its window is open is asked at its beginning."""

    def begins(self, running: Execution) -> bool:
        return running.only_decides or not super()._shut(running)

    def _shut(self, running: Execution) -> bool:  # noqa: ARG002
        return False


class SimulatedHands:
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
        self._waiting += batch
        self.work()

    def work(self) -> None:
        """Let simulated time do its work: end what is over, start what has a hand."""
        steady = self._world.clock.steady()
        for until, running in sorted(self._busy.values(), key=lambda item: (item[0], item[1].row.id)):
            if until <= steady:
                del self._busy[id(running)]
                self._finish(running)
        while self._waiting and len(self._busy) < self._concurrency:
            running = self._waiting.pop(0)
            if not running.abandoned:
                self._start(running, steady)

    def _start(self, running: Execution, steady: int) -> None:
        running.started = steady
        if not self._launcher.begins(running):
            self._world.trace(None, f"the window of job {running.row.id} closed before it began")
            self._ended.append(running)
            return
        self._world.jobs.begins(running)
        if self._world.jobs.is_poison(running.row) and not running.only_decides and not running.row.suspect:
            self._world.trace(None, f"job {running.row.id} kills its engine")
            raise Crash
        self._busy[id(running)] = (steady + self._world.jobs.duration(running.row), running)

    def _finish(self, running: Execution) -> None:
        if running.abandoned:
            return
        if self._world.jobs.is_poison(running.row) and not running.only_decides:
            self._world.jobs.crashed[running.row.id] += 1
            if self._world.jobs.crashed[running.row.id] > MOST_CRASHES:
                raise Broken(f"I13: job {running.row.id} crashes again and again")
            self._launcher.child_died(running, ChildProcessError("simulated: killed by SIGSEGV"))
        else:
            started = running.started
            self._world.jobs.now_running = running
            self._launcher.run(running)
            running.started = started
        self._ended.append(running)

    def next_end(self) -> int:
        """When the next handler ends; 0 = none is running."""
        return 1 if self._ended else min((until for until, _ in self._busy.values()), default=0)

    def stopped(self, most: int) -> list[Execution]:
        self.work()
        ended, self._ended = self._ended[:most], self._ended[most:]
        return [running for running in ended if not running.abandoned]

    def unstarted(self) -> list[Execution]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def abandon(self, running: Execution, gently: bool = False) -> None:
        """Who was cancelled is told so, whoever notices that first."""
        over = self._world.clock.steady() >= running.started + running.limit
        if not gently and not over and running.started and self._life.engine.stopping < 2:
            job = self._world.app.job(running.row.id)
            if job.exitcode == CANCELLED:
                raise Broken(f"told: the handler of job {job.id} was not told that it is cancelled")
        running.abandoned = True
        self._busy.pop(id(running), None)

    def wait_for_told(self, seconds: float) -> None:
        """Nothing is ever told here: a handler has ended when anybody looks."""

    def stuck(self, _steady: int) -> int:
        return 0

    def close(self) -> None:
        self._waiting.clear()
        self._busy.clear()
