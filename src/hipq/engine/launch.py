"""Step 4, launch: run the code of a claimed job, in a worker thread, a task or a child process.

User code runs here and nowhere else: the handler and, when it fails, the retry handler with a copy of the job; the
answer handler and the cancel handler.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from hipq.errors import HipqError, Invalid
from hipq.executors.current import Inside
from hipq.executors.execution import Execution
from hipq.executors.telling import Telling, hear, told_by_signal
from hipq.job import states, transitions
from hipq.job.answer import Answer, Kept, fault_of
from hipq.job.codec import shown_type
from hipq.job.fault import Fault, FaultKind, clean, crash, cut_to
from hipq.job.meta import with_parent
from hipq.job.middleware import Step, call
from hipq.job.model import New, Row
from hipq.job.outcome import Failed, Progress, Retry
from hipq.job.progress import Reported
from hipq.job.retries import NotRegistered, RetryHandler
from hipq.job.run_result import (
    CancelHandled,
    Crashed,
    Decided,
    Edits,
    Errored,
    FailedRun,
    GivenBack,
    Progressed,
    Rerun,
    RunResult,
    Succeeded,
    Waits,
    again,
    answer_ending,
    ending_of,
)
from hipq.job.spec import Spec
from hipq.job.view import Job, edits_of
from hipq.job.when import later
from hipq.job.windows import ALWAYS, is_open

AGAIN_AFTER = 60.0
"""Seconds until a job runs again if it asked for that without saying when, and has no retry handler."""

Chain = Callable[[Any, Any, dict[str, Any]], New]
"""Makes a `New` of what `job.enqueue` is given."""


class _Request(msgspec.Struct, array_like=True, frozen=True):
    """A job as it is sent to a child process."""

    queue: str
    row: Row
    answer: Kept | None
    now: int
    under: str = ""
    """The traceparent of the span that the job runs under."""


_Reply = tuple[RunResult, list[New], Reported | None, list[tuple[int, str]]]
"""How a job ended in a child process: its result, the jobs it added, its progress, and the requests it sent."""


class Around(Protocol):
    """Makes the context manager around the code of a job. On exit the job has its result, or an exception is raised."""

    def __call__(self, execution: Execution, under: str | None = None) -> AbstractContextManager[None]:
        """`under`: in a child process, what `execution.traceparent()` said in the engine's."""


_NOTHING = nullcontext()


def bare(execution: Execution, under: str | None = None) -> AbstractContextManager[None]:  # noqa: ARG001
    """The default: no context manager."""
    return _NOTHING


class Launcher:
    """Runs the code of one job and judges its errors. `now` and `steady` are the engine's clocks; `chain` adds jobs for
    a handler of the queue it is given; `around` is entered before any code of a job runs."""

    def __init__(
        self,
        now: Callable[[], int],
        steady: Callable[[], int],
        chain: Callable[[str], Chain],
        around: Around = bare,
    ) -> None:
        self._now = now
        self._steady = steady
        self._chain = chain
        self._around = around

    def run(self, execution: Execution, in_child: bool = False) -> None:
        """Run a plain handler in this thread. Never raises. A child process takes the time from its parent."""
        with self._around(execution), Inside(execution):
            execution.run.started = self._steady()
            if execution.only_decides:
                self._end(execution, self._decided(execution, _stored_error(execution.row)))
                return
            if not in_child and self._shut(execution):
                return
            here = os.getpid()
            try:
                value = self._called(execution)
            except BaseException as error:  # SystemExit too: a handler may not end the worker
                cut_to(execution.code, error)
                value = execution.run.raised = error
            _end_forked(here, value)
            self.finish(execution, _result(execution, value))

    async def run_async(self, execution: Execution, in_child: bool = False) -> None:
        """Run an `async def` handler on the event loop. Its retry handler is plain code and runs in a thread. Raises
        only if the execution was abandoned, although a handler may raise a CancelledError of its own."""
        from hipq.in_thread import in_thread  # asyncio costs an import most programs can do without

        with self._around(execution), Inside(execution):
            execution.run.started = self._steady()
            if not in_child and self._shut(execution):
                return
            here = os.getpid()
            try:
                value = await self._called(execution)
            except BaseException as error:
                _end_forked(here, error)
                if execution.abandoned:
                    execution.run.stopped = self._steady()
                    raise
                cut_to(execution.code, error)
                value = execution.run.raised = error
            _end_forked(here, value)
            result = _result(execution, value)
            if isinstance(result, Errored):
                result = await in_thread(partial(self._decided, execution, result))
            self._end(execution, result)

    def run_in_child(self, execution: Execution, exchange: Callable[[bytes, Callable[[bytes], None]], bytes]) -> None:
        """Run a handler in another process. `exchange` sends the job there, returns how it ended, and passes on what it
        reports meanwhile."""
        with self._around(execution):
            execution.run.started = self._steady()
            if not execution.only_decides and self._shut(execution):
                return
            now = execution.row.update_time + self._steady() - execution.launched  # its claim, and what has passed
            request = _Request(execution.spec.queue, execution.row, execution.answer, now, execution.traceparent())
            reply = exchange(msgspec.json.encode(request), lambda told: hear(told, execution.run))
            run = execution.run
            result, run.children, run.reported, run.sent = msgspec.json.decode(reply, type=_Reply)
            self._end(execution, result)

    def finish(self, execution: Execution, result: RunResult) -> None:
        """Hand on the result of a job's code. An error goes to the retry handler first."""
        if isinstance(result, Errored) and not execution.abandoned:
            result = self._decided(execution, result)
        self._end(execution, result)

    def child_died(self, execution: Execution, error: ChildProcessError, own: bool = True) -> None:
        """The process that ran the job died. `own`: no other job ran in it before, so this job killed it. The retry
        handler is asked later, in another process: that handler may be what killed this one."""
        self._end(execution, Crashed(crash(str(error)), own=own))

    def serve(
        self,
        request: bytes,
        is_told: Callable[[], bool],
        send: Callable[[bytes], None],
        spec_of: Callable[[str, str], Spec],
    ) -> bytes:
        """The other end of `run_in_child`, inside the child: run the code and report how it ended. The retry handler
        runs here too, since it may be what kills the process. The parent sends the time: a child would have to connect
        to the database to ask for it, at the cost of the job's own time."""
        sent = msgspec.json.decode(request, type=_Request)
        began = self._steady()
        around = partial(self._around, under=sent.under)
        here = Launcher(lambda: sent.now + self._steady() - began, self._steady, self._chain, around)
        execution = Execution(sent.row, spec_of(sent.queue, sent.row.job_type), 0, sent.answer)
        telling = Telling(execution.run, send)
        with told_by_signal(execution, is_told):
            if is_told():  # the signal came before there was a handler for it
                execution.abandon()
            elif execution.is_async and not execution.only_decides:
                import asyncio

                asyncio.run(here.run_async(execution, in_child=True))
            else:
                copy_context().run(here.run, execution, in_child=True)
        telling.end()
        run = execution.run
        if execution.abandoned:
            run.result = GivenBack("it was told to stop", started=True)
        return msgspec.json.encode((run.result, run.children, run.reported, run.sent))

    def _shut(self, execution: Execution) -> bool:
        """End a job whose window closed while it waited for a free hand; whether it was. (A job that looks at its
        answer goes on.)"""
        if execution.row.time_windows == ALWAYS or execution.row.phase != states.EXECUTING:
            return False
        try:
            if is_open(execution.row.time_windows, self._now()):
                return False
        except HipqError:  # the database is away: it was open when the job was claimed
            return False
        self._end(execution, GivenBack("its window closed before it could start", started=False))
        return True

    def _called(self, execution: Execution) -> Any:
        """What the code for the job's phase returns; if there is no such code, the phase's default result."""
        code, answer, middlewares = execution.code, execution.answer, execution.spec.middlewares
        if execution.row.phase != states.ANSWERED:
            return _inside(middlewares.run, execution, code, self._job(execution)) if code else None
        if answer is None:
            return Progress()  # it is not in the inbox any more: the job waits for another
        if answer.error:
            return Errored(fault_of(answer))
        if code is None:
            return Succeeded(answer.data)
        return _inside(middlewares.answer, execution, code, self._job(execution), _answer(execution, answer))

    def _job(self, execution: Execution) -> Job[Any]:
        execution.run.clock = self._steady
        job: Job[Any] = Job(execution.row, execution.spec, partial(self._add, execution), execution)
        _ = job.data  # read now: a handler is not called with data that does not fit its type
        return job

    def _add(self, execution: Execution, job_type: Any, data: Any, options: dict[str, Any]) -> None:
        new = self._chain(execution.spec.queue)(job_type, data, options)
        execution.run.children.append(replace(new, meta=with_parent(new.meta, execution.row.id)))

    def _end(self, execution: Execution, result: RunResult) -> None:
        if execution.run.children and not isinstance(
            result,
            (Succeeded, FailedRun, Waits, Progressed, Rerun),
        ):
            execution.run.children = []  # it failed: what it wanted to add goes with it
        execution.run.stopped = self._steady()
        execution.run.result = result

    def _decided(self, execution: Execution, result: Errored) -> RunResult:
        """Ask the retry handler about an error, with a copy of the job as it would be stored. If the handler is
        registered in another program, the error is stored and the job is left to that program."""
        row, spec, now = execution.row, execution.spec, self._now()
        fault = result.fault
        copy = row if execution.only_decides else transitions.errored(row, fault, result.exitcode, now)
        if spec.lifetime and now >= later(row.create_time, spec.lifetime):
            return Decided(fault, result.exitcode)
        job: Job[Any] = Job(copy, spec, is_draft=True)
        here = os.getpid()
        try:
            retry = self._retry_of(execution)
            if retry is None:
                pause = AGAIN_AFTER if result.exitcode < 200 else _crash_pause(copy, fault)
                return Decided(fault, result.exitcode, Rerun(fault, delay=pause) if pause else None)
            around = spec.middlewares.retry
            verdict = call(around, False, retry, job, fault, ends=False) if around else retry(job, fault)
            _end_forked(here, verdict)
            return _judgement(verdict, result, edits_of(job), spec)
        except NotRegistered as name:
            unknown = f"the retry strategy {name} is not registered here"
            return GivenBack(unknown, started=False) if execution.only_decides else result
        except BaseException as error:
            _end_forked(here, error)
            raised = Fault.of(error)
            message = f"its retry handler raised {raised} when asked about: {fault}"
            return Decided(Fault(FaultKind.ERROR, clean(message), raised.type, raised.kinds, raised.traceback), 500)

    def _retry_of(self, execution: Execution) -> RetryHandler | None:
        return execution.spec.retry_of(execution.row)


def _answer(execution: Execution, kept: Kept) -> Answer[Any]:
    answer: Answer[Any] = Answer(kept, execution.spec.answer)
    try:
        _ = answer.data  # read now: an answer handler is not called with data that does not fit its type
    except msgspec.ValidationError as error:
        kind = shown_type(execution.spec.answer.type)
        raise Invalid(f"the answer does not fit {kind}: {error}") from None
    return answer


def _inside(steps: tuple[Step, ...], execution: Execution, code: Callable[..., Any], *given: Any) -> Any:
    """What the code for the job's phase returns, run inside the middlewares that apply to it."""
    return call(steps, execution.is_async, code, *given) if steps else code(*given)


def _end_forked(here: int, value: object) -> None:
    """End a process that a job's code has forked and that ran to the end of that code: the job, the engine's threads
    and its database connections belong to the process that it was forked from."""
    if os.getpid() == here:
        return
    if isinstance(value, BaseException) and not isinstance(value, SystemExit):
        import traceback

        traceback.print_exception(value)
    os._exit(1 if isinstance(value, BaseException) else 0)


def _result(execution: Execution, value: Any) -> RunResult:
    """The result for what the code returned or raised."""
    if isinstance(value, Errored | Succeeded):
        return value
    if execution.row.phase == states.CANCELLING:
        return CancelHandled(Fault.of(value) if isinstance(value, BaseException) else None)
    make = answer_ending if execution.row.phase == states.ANSWERED else ending_of
    return make(value, execution.spec)


def _stored_error(row: Row) -> Errored:
    return Errored(Fault.load(row.error), row.exitcode)


def _crash_pause(row: Row, fault: Fault) -> float:
    """Seconds until a job without a retry handler runs again after a crash; 0 = it does not."""
    if fault.kind != FaultKind.CRASH or row.crashes_counted >= transitions.CRASHES_ALLOWED:
        return 0.0
    return transitions.CRASH_PAUSES[max(row.crashes_counted - 1, 0)]


def _judgement(verdict: Any, result: Errored, edits: Edits | None, spec: Spec) -> Decided:
    """The result for what a retry handler returned. A time or data in its `Retry(...)` override its changes to the
    copy."""
    match verdict:
        case Retry():
            chosen = again(verdict, spec)
            if edits and edits.at is not None and verdict.delay is None and verdict.at is None:
                chosen = replace(chosen, at=edits.at)
            if not chosen.at and chosen.delay < result.rest:
                chosen = replace(chosen, delay=result.rest)
            return Decided(result.fault, result.exitcode, chosen, edits)
        case None | False:
            return Decided(result.fault, result.exitcode, edits=edits)
        case Failed():
            return Decided(Fault(FaultKind.FAILED, clean(str(verdict.reason))), result.exitcode, edits=edits)
        case _:
            raise TypeError(f"a retry handler returns Retry(...), Failed(...) or None, not {type(verdict).__name__}")
