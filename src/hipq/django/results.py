"""Tasks as jobs: the data a job has of its task, and a job as a `TaskResult`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from hipq.django.tasks import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskError, TaskResult, TaskResultStatus, normalize_json
from hipq.errors import Invalid, shown
from hipq.job.event_names import JobEvent
from hipq.job.fault import Fault, FaultKind
from hipq.job.states import ERROR, FINAL, RUNNING, Code
from hipq.job.view import Job

MIDDLE: Final = 100
"""hipq's priority for Django's 0. Django's go from -100 to 100 with the highest first; in hipq the lowest goes
first."""
TRIED_ELSEWHERE: Final = "unknown"
"""The name in place of an unknown worker."""
_SOME_FAILURE: Final = "hipq.errors.JobFailed"
"""The exception's name where there was no exception: the job was cancelled, or its worker died too often."""


def data_of(task: Any, alias: str, args: Any, kwargs: Any) -> dict[str, Any]:
    """The data to store for a task. TypeError or ValueError if an argument is not JSON."""
    found = {"args": normalize_json(args), "kwargs": normalize_json(kwargs), "backend": alias}
    if task.run_after is not None:
        found["run_after"] = moment_of(task.run_after).isoformat()
    return found


def moment_of(run_after: datetime) -> datetime:
    """The time with its zone. With USE_TZ off Django's times are naive, in the zone of its settings."""
    if timezone.is_aware(run_after):
        return run_after
    aware: datetime = timezone.make_aware(run_after, timezone.get_default_timezone())
    return aware


def as_task(data: Any) -> dict[str, Any]:
    """The data of a task's job. Whoever adds one without Django, as a cron schedule does, may leave parts out."""
    given = {} if data is None else data
    if not isinstance(given, dict) or given.keys() - {"args", "kwargs", "backend", "run_after"}:
        raise Invalid(f'the data of a task are {{"args": [...], "kwargs": {{...}}}}, not {shown(data)}')
    return {"args": [], "kwargs": {}, "backend": DEFAULT_TASK_BACKEND_ALIAS, **given}


def is_task(data: Any) -> bool:
    """Whether these data are those of a task: in an application of yours there may be other jobs."""
    return isinstance(data, dict) and {"args", "kwargs", "backend"} <= data.keys()


def task_of(path: str, data: dict[str, Any], queue: str, priority: int) -> Any:
    """The task at an import path. ImportError if its code has gone; ValueError if something else is there now."""
    found = import_string(path)
    if not isinstance(found, Task):
        raise ValueError(f"{path} is not a task any more")
    after = data.get("run_after")
    return found.using(
        priority=priority,
        queue_name=queue,
        run_after=None if after is None else as_django(datetime.fromisoformat(after)),
        backend=data["backend"],
    )


def result_of(job: Job[Any], queue: str, task: Any = None) -> Any:
    history = job.history
    claims = [entry for entry in history if entry["event"] == JobEvent.CLAIMED]
    data = as_task(job.data)
    result = TaskResult(
        task=task or task_of(job.type, data, queue, MIDDLE - job.priority),
        id=str(job.id),
        status=_status(job),
        enqueued_at=as_django(job.create_time),
        started_at=as_django(claims[0]["at"]) if claims else None,
        finished_at=as_django(job.update_time) if job.state == FINAL else None,
        last_attempted_at=as_django(claims[-1]["at"]) if claims else None,
        args=data["args"],
        kwargs=data["kwargs"],
        backend=data["backend"],
        errors=_errors(job, history),
        worker_ids=_workers(job.attempt, [str(entry["by"]) for entry in claims]),
    )
    object.__setattr__(result, "_return_value", job.result)
    return result


def ended(result: Any, status: Any, at: datetime, value: Any = None) -> Any:
    """A result as its worker's signal shows it at the task's end."""
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", as_django(at))
    object.__setattr__(result, "_return_value", value)
    return result


def error_of(fault: Fault) -> Any:
    path = fault.type or _SOME_FAILURE
    return TaskError(
        exception_class_path=path if "." in path else f"builtins.{path}",
        traceback=fault.traceback or str(fault),
    )


def _status(job: Job[Any]) -> Any:
    if job.state == FINAL:
        return TaskResultStatus.SUCCESSFUL if job.code == Code.OK else TaskResultStatus.FAILED
    return TaskResultStatus.RUNNING if job.state in (RUNNING, ERROR) else TaskResultStatus.READY


def _errors(job: Job[Any], history: list[dict[str, Any]]) -> list[Any]:
    """One error for each failure. Of all but the last, the job's history has the first line only."""
    earlier = [entry["error"] for entry in history if entry["event"] == JobEvent.ERROR]
    last = job.fault if job.state in (ERROR, FINAL) and job.code != Code.OK else None
    if last is not None and earlier:
        earlier.pop()
    return [error_of(_read(text)) for text in earlier] + ([error_of(last)] if last is not None else [])


def _read(text: str) -> Fault:
    kind, colon, _ = text.partition(": ")
    named = bool(colon) and all(part.isidentifier() for part in kind.split("."))
    return Fault(FaultKind.ERROR, text, traceback=text, type=kind if named else "")


def _workers(attempt: int, claimed: list[str]) -> list[str]:
    """One worker for each attempt. Claims that were given back untried do not count, and a long history is
    truncated."""
    return [TRIED_ELSEWHERE] * (attempt - len(claimed)) + claimed[len(claimed) - min(attempt, len(claimed)) :]


def now() -> datetime:
    return datetime.now(UTC)


def as_django(at: datetime) -> datetime:
    """A time as Django's settings want it."""
    return at if settings.USE_TZ else timezone.make_naive(at, timezone.get_default_timezone())
