"""Handlers called one after the other, by whoever turns the engine: no thread, no process, no other order each time."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from hipq.engine.launch import Launcher
from hipq.executors.current import Inside
from hipq.executors.execution import Execution
from hipq.job import states
from hipq.job.outcome import Failed, Retry
from hipq.job.retries import NotRegistered, RetryHandler
from hipq.job.run_result import GivenBack
from hipq.job.when import SECOND

NEVER_FAST: Final = SECOND
"""Microseconds a handler seems to have taken: an engine that thinks them fast claims jobs before the last is saved."""


class Ran(NamedTuple):
    """One call of an application's code."""

    name: str
    """The job type; with `.answered`, `.cancelled` or `.retry` behind it, if that handler was called for itself."""
    key: str
    id: int
    at: datetime
    attempt: int
    error: BaseException | None = None
    """What it raised, other than Failed and Retry."""
    progress: float | None = None
    """How far it said last that the job had come."""


class InlineLauncher(Launcher):
    """Keeps what code raised, with its traceback, beside what the job's row says of it."""

    def __init__(self, now: Callable[[], int], steady: Callable[[], int], chain: Callable[[str], Any]) -> None:
        super().__init__(now, steady, chain)
        self.raised: BaseException | None = None
        """The first error of the last run."""
        self._awaited: tuple[Execution, Callable[[], Any]] | None = None

    def run(self, execution: Execution, in_child: bool = False) -> None:
        if self._awaited is None:
            self.raised = None
        super().run(execution, in_child)

    async def run_async(self, execution: Execution, in_child: bool = False) -> None:
        """Await the handler here; the rest, its retry handler too, is as with a plain one, in this thread."""
        self.raised = None
        if self._shut(execution):
            return
        try:
            with Inside(execution):
                value = await self._called(execution)
            outcome: Callable[[], Any] = lambda: value  # noqa: E731
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _cancelling():
                self._end(execution, GivenBack("the test did not wait for it", started=True))
                raise
            raised = error
            outcome = lambda: _raise(raised)  # noqa: E731
        self._awaited = (execution, outcome)
        try:
            self.run(execution, in_child)
        finally:
            self._awaited = None

    def _called(self, execution: Execution) -> Any:
        if self._awaited and self._awaited[0] is execution:
            return self._awaited[1]()
        try:
            value = super()._called(execution)
        except BaseException as error:
            self._note(error)
            raise
        return self._noting(value) if inspect.isawaitable(value) else value

    async def _noting(self, value: Awaitable[Any]) -> Any:
        try:
            return await value
        except BaseException as error:
            self._note(error)
            raise

    def _retry_of(self, execution: Execution) -> RetryHandler | None:
        handler = super()._retry_of(execution)

        def judge(job: Any, fault: Any) -> Any:
            assert handler
            try:
                return handler(job, fault)
            except BaseException as error:
                self.raised = error  # it says more than what it was asked about
                raise

        return judge if handler else None

    def _note(self, error: BaseException) -> None:
        if self.raised is None and not isinstance(error, (Failed, Retry)):
            self.raised = error


class InlineExecutor:
    """One hand. What the engine launches lies here until it is run; what has run, until the engine saves it."""

    def __init__(self, launcher: InlineLauncher) -> None:
        self.launcher = launcher
        self.pending: list[Execution] = []
        self.ended: list[Execution] = []
        self.broken = False

    def launch(self, batch: Iterable[Execution]) -> None:
        self.pending += batch

    def stopped(self, most: int) -> list[Execution]:
        found, self.ended = self.ended[:most], self.ended[most:]
        for execution in found:
            execution.run.stopped = execution.run.started + NEVER_FAST
        return [execution for execution in found if not execution.abandoned]

    def unstarted(self) -> list[Execution]:
        found, self.pending = self.pending, []
        return found

    def abandon(self, execution: Execution) -> None:
        self.pending = [one for one in self.pending if one is not execution]

    def wait_for_told(self, seconds: float) -> None:
        """Nothing is ever told here: a handler has ended when anybody looks."""

    def stuck(self, _steady: int) -> int:
        return 0

    def close(self) -> None:
        self.pending.clear()
        self.ended.clear()


def called(execution: Execution) -> str:
    """The name of the code that is called for it; "" if there is none."""
    name, spec = execution.row.job_type, execution.spec
    if execution.only_decides or (execution.answer and execution.answer.error):
        return f"{name}.retry" if _has_retry(execution) else ""
    if execution.row.phase == states.ANSWERED:
        return f"{name}.answered" if spec.answered and execution.answer else ""
    if execution.row.phase == states.CANCELLING:
        return f"{name}.cancelled" if spec.cancelled else ""
    return name


def _has_retry(execution: Execution) -> bool:
    try:
        return execution.spec.retry_of(execution.row) is not None
    except (NotRegistered, msgspec.DecodeError):
        return False


def is_for_the_test(error: BaseException | None) -> bool:
    """Whether it was raised to end the test and not the job: Ctrl-C, pytest.fail and pytest.skip, a debugger's quit."""
    debugger = sys.modules.get("bdb")
    if debugger and isinstance(error, debugger.BdbQuit):
        return True
    return error is not None and not isinstance(error, (Exception, SystemExit, GeneratorExit, asyncio.CancelledError))


def _cancelling() -> bool:
    """It is the test's own task that is cancelled, and not something the handler waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _raise(error: BaseException) -> Any:
    raise error
