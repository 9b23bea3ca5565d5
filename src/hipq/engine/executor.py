"""Where an engine executes jobs: which kind of executor each job goes to, and collecting the results."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from hipq.engine.launch import Launcher
from hipq.executors.execution import Execution
from hipq.executors.processes import ForkServer, ForkServerGone
from hipq.executors.threads import Threads
from hipq.job.fault import Fault
from hipq.job.run_result import Errored, GivenBack

if TYPE_CHECKING:
    from hipq.executors.tasks import Tasks


class Executor(Protocol):
    """What an engine needs of an executor. The simulation has its own."""

    def launch(self, batch: Sequence[Execution]) -> None: ...
    def stopped(self, most: int) -> list[Execution]:
        """The executions that have ended since the last call, up to `most`."""

    def unstarted(self) -> list[Execution]:
        """Take back the executions that have not started yet."""

    def abandon(self, execution: Execution) -> None:
        """Nobody wants this execution any more: stop its code where that is possible."""

    def wait_for_told(self, seconds: float) -> None:
        """Wait for handlers that were told to stop gently, at most this many seconds."""

    def stuck(self, steady: int) -> int:
        """How many abandoned handlers still run after the time they had to stop."""

    broken: bool
    """Whether some jobs can no longer be executed in this process."""

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
        hands: AbstractContextManager[Any] | None = None,
    ) -> None:
        """`hands`: entered around each handler that is no coroutine, if several executors have the same hands."""
        self._hands = hands or nullcontext()
        self._fork_server = fork_server
        self._launcher = launcher
        self._concurrency = concurrency
        self._notify_done = notify_done
        self._clear = clear
        self._ended: deque[Execution] = deque()
        self._is_told = False
        """Whether the engine has been told that executions ended and has not collected them yet: it need not be told of
        each."""
        self._told: list[Execution] = []
        """The executions that were told to stop and may still be tidying up."""
        self._end_child: dict[Execution, Callable[[bool], None]] = {}
        """How to end the child process in which an execution runs."""
        self.broken = False
        self._threads = Threads(self._run, concurrency)
        self._children = Threads(self._run_in_child, concurrency, "hipq-child")
        self._tasks: Tasks | None = None
        self._runners: list[Threads[Execution] | Tasks] = [self._threads, self._children]

    def launch(self, batch: Sequence[Execution]) -> None:
        by_runner: dict[Threads[Execution] | Tasks, list[Execution]] = {}
        for execution in batch:
            by_runner.setdefault(self._runner(execution), []).append(execution)
        for runner, some in by_runner.items():
            runner.launch(some)

    def _runner(self, execution: Execution) -> Threads[Execution] | Tasks:
        if execution.row.suspect or (execution.spec.process and not execution.only_decides):
            return self._children
        if execution.is_async and not execution.only_decides:
            if self._tasks is None:
                from hipq.executors.tasks import Tasks  # asyncio costs an import most programs can do without

                self._tasks = Tasks(self._run_async, self._concurrency)
                self._runners.append(self._tasks)
            return self._tasks
        return self._threads

    def _run(self, execution: Execution) -> None:
        try:
            with self._hands:  # variables that a handler sets are not for the next one
                copy_context().run(self._launcher.run, execution)
        except BaseException as error:  # a bug of ours: it must cost neither the hand nor the job
            execution.run.result = Errored(Fault.of(error))
        self._end(execution)

    async def _run_async(self, execution: Execution) -> None:
        await self._launcher.run_async(execution)
        self._end(execution)

    def _run_in_child(self, execution: Execution) -> None:
        own = False
        try:
            with self._fork_server.child(reuse=not execution.row.alone) as child:
                own = child.turn == 0  # else a job before it may have left something behind that kills the process
                self._end_child[execution] = partial(child.end, child.turn)
                if execution.abandoned:
                    return
                with self._hands:
                    self._launcher.run_in_child(execution, child.exchange)
        except ChildProcessError as error:
            self._launcher.child_died(execution, error, own)
        except ForkServerGone as error:
            self.broken = True
            execution.run.result = GivenBack(str(error), started=False)
        except BaseException as error:
            execution.run.result = Errored(Fault.of(error))
        finally:
            self._end_child.pop(execution, None)
        self._end(execution)

    def _end(self, execution: Execution) -> None:
        self._ended.append(execution)
        if not self._is_told:  # checked after the append: whoever was told before collects after it, too
            self._is_told = True
            self._notify_done()

    def stopped(self, most: int) -> list[Execution]:
        self._clear()  # before collecting: executions that end from here on count the next time
        self._is_told = False
        found: list[Execution] = []
        while self._ended and len(found) < most:
            execution = self._ended.popleft()
            if not execution.abandoned:
                found.append(execution)
        return found

    def unstarted(self) -> list[Execution]:
        return [execution for runner in self._runners for execution in runner.unstarted()]

    def abandon(self, execution: Execution) -> None:
        runner, gently = self._runner(execution), execution.abandonment is not None and execution.abandonment.gently
        if gently:
            self._told = [one for one in self._told if not one.run.stopped] + [execution]
        if runner is not self._children:
            runner.abandon(execution)
        elif end_child := self._end_child.get(execution):
            end_child(gently)  # then its hand is free

    def stuck(self, steady: int) -> int:
        return sum(runner.stuck(steady) for runner in self._runners)

    def wait_for_told(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while any(one.run.is_under_way for one in self._told) and time.monotonic() < until:
            time.sleep(0.01)

    def close(self) -> None:
        for runner in self._runners:
            runner.close()
        self._fork_server.close()
