"""The hands of an engine: which runner a job goes to, and what comes back from them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from hipq.engine.launch import Execution, Launcher
from hipq.executors.base import Runner
from hipq.executors.processes import ForkServer, ForkServerGone
from hipq.executors.threads import Threads
from hipq.job.fault import Fault
from hipq.job.run_result import Errored, GivenBack


class Executor(Protocol):
    """Where jobs are executed. The simulation has hands of its own."""

    def launch(self, batch: Iterable[Execution]) -> None: ...
    def stopped(self, most: int) -> list[Execution]:
        """What has ended and was not told yet; no more than so many."""

    def unstarted(self) -> list[Execution]:
        """Take back what has not been started."""

    def abandon(self, running: Execution, gently: bool = False) -> None:
        """Its result is not wanted any more: stop it if possible. Gently: with time to tidy up."""

    def wait_for_told(self, seconds: float) -> None:
        """Let those finish that were told to stop gently, for so long at most."""

    def stuck(self, steady: int) -> int:
        """What runs on although nobody waits for it, and has had its time."""

    broken: bool
    """Some jobs cannot be run here any more."""

    def close(self) -> None: ...


class LocalExecutor:
    """Threads for plain handlers, an event loop for async ones, processes for those that ask and for suspects."""

    def __init__(
        self,
        fork_server: ForkServer,
        launcher: Launcher,
        concurrency: int,
        notify_done: Callable[[], None],
        clear: Callable[[], None],
    ) -> None:
        self._fork_server = fork_server
        self._launcher = launcher
        self._concurrency = concurrency
        self._notify_done = notify_done
        self._clear = clear
        self._ended: deque[Execution] = deque()
        self._told: list[Execution] = []
        """What was told to stop, and may be tidying up."""
        self.broken = False
        self._threads = Threads(self._run, concurrency)
        self._children = Threads(self._run_in_child, concurrency, "hipq-child")
        self._tasks: Runner | None = None

    def launch(self, batch: Iterable[Execution]) -> None:
        by_runner: dict[Runner, list[Execution]] = {}
        for running in batch:
            by_runner.setdefault(self._runner(running), []).append(running)
        for runner, some in by_runner.items():
            runner.launch(some)

    def _runner(self, running: Execution) -> Runner:
        if running.row.suspect or (running.spec.process and not running.only_decides):
            return self._children
        if running.is_async and not running.only_decides:
            if self._tasks is None:
                from hipq.executors.tasks import Tasks  # asyncio costs an import most programs can do without

                self._tasks = Tasks(self._run_async, self._concurrency)
            return self._tasks
        return self._threads

    def _run(self, running: Execution) -> None:
        try:
            self._launcher.run(running)
        except BaseException as error:  # a bug of ours: it must cost neither the hand nor the job
            running.ending = Errored(Fault.of(error))
        self._end(running)

    async def _run_async(self, running: Execution) -> None:
        await self._launcher.run_async(running)
        self._end(running)

    def _run_in_child(self, running: Execution) -> None:
        own = False
        try:
            with self._fork_server.child(reuse=not running.row.suspect) as child:
                own = child.turn == 0  # else a job before it may have left something behind that kills the process
                running.handle = partial(child.end, child.turn)
                if running.abandoned:
                    return
                self._launcher.run_in_child(running, child.exchange)
        except ChildProcessError as error:
            self._launcher.child_died(running, error, own)
        except ForkServerGone as error:
            self.broken = True
            running.ending = GivenBack(str(error), started=False)
        except BaseException as error:
            running.ending = Errored(Fault.of(error))
        self._end(running)

    def _end(self, running: Execution) -> None:
        self._ended.append(running)
        self._notify_done()

    def stopped(self, most: int) -> list[Execution]:
        self._clear()  # before looking: who ends from here on is heard the next time
        found: list[Execution] = []
        while self._ended and len(found) < most:
            running = self._ended.popleft()
            if not running.abandoned:
                found.append(running)
        return found

    def _runners(self) -> list[Runner]:
        return [runner for runner in (self._threads, self._children, self._tasks) if runner is not None]

    def unstarted(self) -> list[Execution]:
        return [running for runner in self._runners() for running in runner.unstarted()]

    def abandon(self, running: Execution, gently: bool = False) -> None:
        runner = self._runner(running)
        if gently:
            self._told = [one for one in self._told if not one.stopped] + [running]
        if runner is self._children:
            running.abandoned = True  # its hand is free as soon as its child is dead
            if running.handle is not None:
                running.handle(gently)
        else:
            if gently and running.started:
                running.bears_until = running.started + running.limit
            runner.abandon(running)

    def stuck(self, steady: int) -> int:
        return sum(runner.stuck(steady) for runner in self._runners())

    def wait_for_told(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while any(one.started and not one.stopped for one in self._told) and time.monotonic() < until:
            time.sleep(0.01)

    def close(self) -> None:
        for runner in self._runners():
            runner.close()
        self._fork_server.close()
