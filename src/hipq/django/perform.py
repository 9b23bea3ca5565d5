"""Running a task in a worker: it is called as Django wants it, and signals are sent."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from hipq.django.results import ended, error_of, now, result_of
from hipq.django.tasks import TaskContext, TaskResultStatus, normalize_json, task_finished, task_started
from hipq.job import payload
from hipq.job.fault import Fault, FaultKind
from hipq.job.outcome import Failed, Ok, Retry, Wait
from hipq.job.retries import RetryHandler
from hipq.job.view import Job
from hipq.middleware import fresh_connections

AGAIN_AFTER: Final = 60.0
"""Seconds until a task that raised `Retry()` without a time runs again, if nothing else is configured."""
_raised: ContextVar[BaseException | None] = ContextVar("hipq_raised", default=None)
"""The exception that the handler raised, for the retry handler, which is asked next in the same context."""


def perform(sender: type, result: Any, *, tell_errors: bool = True) -> Any:
    """Call the task of a running result, and return its value as JSON. Errors in receivers of the signals are not
    the task's. `tell_errors`: an error is the task's end, as far as is known here."""
    task_started.send_robust(sender=sender, task_result=result)
    context = [TaskContext(task_result=result)] if result.task.takes_context else []
    try:
        value = result.task.call(*context, *result.args, **result.kwargs)
        if isinstance(value, Failed):
            raise value
        if isinstance(value, (Ok, Retry, Wait)):
            return value  # a task may return the outcomes that hipq's own handlers return
        value = normalize_json(value)
        payload.encode(value, "what the task returned")  # before anybody is told that it succeeded
    except BaseException as error:
        if isinstance(error, Failed) or (tell_errors and not isinstance(error, Retry)):
            failed(sender, result, Fault.of(error))
        raise
    task_finished.send_robust(sender=sender, task_result=ended(result, TaskResultStatus.SUCCESSFUL, now(), value))
    return Ok(value)


def failed(sender: type, result: Any, fault: Fault) -> None:
    if not result.errors:
        result.errors.append(error_of(fault))
    task_finished.send_robust(sender=sender, task_result=ended(result, TaskResultStatus.FAILED, now()))


class TaskHandler:
    """The handler of all tasks of a queue of hipq, and its retry handler, which knows when a failure is the last."""

    def __init__(self, sender: type, queue: str, retry: RetryHandler | None) -> None:
        self._sender = sender
        self._queue = queue
        self._retry = retry

    def perform(self, job: Job[Any]) -> Any:
        _raised.set(None)
        with fresh_connections():
            try:
                return perform(self._sender, result_of(job, self._queue), tell_errors=False)
            except (Failed, Retry):
                raise
            except BaseException as error:
                _raised.set(error)
                raise

    def retry_handler(self, job: Job[Any], fault: Fault) -> Any:
        """The retry handler. A failure without another try is the task's end."""
        verdict = self._verdict(job, fault)
        raised = _raised.get()
        _raised.set(None)  # it keeps all objects of the task's frames alive
        if not isinstance(verdict, Retry):
            with fresh_connections():
                self._tell(job, fault, raised)
        return verdict

    def _verdict(self, job: Job[Any], fault: Fault) -> Any:
        if self._retry is not None:
            return self._retry(job, fault)
        return Retry(AGAIN_AFTER) if fault.kind == FaultKind.RETRY else None

    def _tell(self, job: Job[Any], fault: Fault, raised: BaseException | None) -> None:
        try:
            result = result_of(job, self._queue)
        except Exception:
            return  # the task's code has gone: there is no task to send a signal for, and the job says why
        if raised is None:
            failed(self._sender, result, fault)
            return
        trace = raised.__traceback__
        try:
            raise raised  # receivers that log the signal ask which exception is being handled
        except BaseException as error:
            error.__traceback__ = trace  # without this frame, which only repeats it
            failed(self._sender, result, fault)
