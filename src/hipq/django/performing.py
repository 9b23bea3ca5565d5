"""What a worker does with a task: it is called as Django wants it, and signals say so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from django.db import close_old_connections, reset_queries

from hipq.django.results import ended, error_of, now, result_of
from hipq.django.tasks import TaskContext, TaskResultStatus, normalize_json, task_finished, task_started
from hipq.job import payload
from hipq.job.fault import Fault
from hipq.job.outcome import Failed, Ok, Retry, Wait
from hipq.job.retries import RetryHandler
from hipq.job.view import Job

AGAIN_AFTER: Final = 60.0
"""Seconds until a task runs again that raised `Retry()` without saying when, if nothing else is configured."""
_raised: ContextVar[BaseException | None] = ContextVar("hipq_raised", default=None)
"""What the handler has raised, for the retry handler that is asked about it next, in the same context."""


def perform(sender: type, result: Any, *, tell_errors: bool = True) -> Any:
    """Call the task of a result that is running; what it returned, in JSON. Listeners of the signals are told, and what
    they raise is not the task's fault. `tell_errors`: an error is the end, as far as is known here."""
    task_started.send_robust(sender=sender, task_result=result)
    context = [TaskContext(task_result=result)] if result.task.takes_context else []
    try:
        value = result.task.call(*context, *result.args, **result.kwargs)
        if isinstance(value, Failed):
            raise value
        if isinstance(value, (Ok, Retry, Wait)):
            return value  # what hipq's own handlers may say, a task may
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


class Performing:
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

    def judge(self, job: Job[Any], fault: Fault) -> Any:
        """The retry handler. A failure that nothing follows is the task's end."""
        verdict = self._verdict(job, fault)
        raised = _raised.get()
        _raised.set(None)  # it holds on to all that was in the task's frames
        if not isinstance(verdict, Retry):
            with fresh_connections():
                self._tell(job, fault, raised)
        return verdict

    def _verdict(self, job: Job[Any], fault: Fault) -> Any:
        if self._retry is not None:
            return self._retry(job, fault)
        return Retry(AGAIN_AFTER) if fault.kind == "retry" else None

    def _tell(self, job: Job[Any], fault: Fault, raised: BaseException | None) -> None:
        try:
            result = result_of(job, self._queue)
        except Exception:
            return  # its code has gone: there is no task to tell of, and the job says why
        if raised is None:
            failed(self._sender, result, fault)
            return
        trace = raised.__traceback__
        try:
            raise raised  # whoever logs the signal asks what is being handled
        except BaseException as error:
            error.__traceback__ = trace  # without us, who only repeat it
            failed(self._sender, result, fault)


@contextmanager
def fresh_connections() -> Iterator[None]:
    """What Django does around a request: connections that are broken or too old are closed, before and after."""
    reset_queries()
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()
