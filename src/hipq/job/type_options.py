"""The options of a job type: what holds for all of its jobs, and for the code that works on them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypedDict

from hipq.errors import Invalid, shown
from hipq.job import names
from hipq.job.retries import RetryHandler
from hipq.job.spec import AnswerHandler, Handler, Spec, data_of, ends, plain, result_of, retry_handler
from hipq.job.view import Job
from hipq.job.when import seconds
from hipq.job.windows import Window, dump


class TypeOptions(TypedDict, total=False):
    """What a job type may have of its own; see `Spec` for what it has otherwise."""

    timeout: float | timedelta
    run_timeout: float | timedelta | None
    lifetime: float | timedelta | None
    priority: int
    throttle_factor: float
    windows: Iterable[Window]
    retry: RetryHandler | None
    critical: bool
    process: bool
    fence: str | None
    """"attempt": an answer that names another attempt than the job is at is too late."""
    on_late: AnswerHandler | None


def _fence(value: str) -> bool:
    if value != "attempt":
        raise Invalid(f'fence must be "attempt" or None, not {shown(value)}')
    return True


_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "timeout": partial(seconds, name="timeout", least=0.001),
    "run_timeout": partial(seconds, name="run_timeout", least=0.001),
    "lifetime": partial(seconds, name="lifetime", least=0.001),
    "priority": names.priority,
    "throttle_factor": names.throttle_factor,
    "windows": dump,
    "retry": retry_handler,
    "critical": bool,
    "process": bool,
    "fence": _fence,
    "on_late": plain,
}
_MAY_BE_NONE: Final = {"run_timeout", "lifetime", "retry", "fence", "on_late"}


def settings(options: TypeOptions) -> dict[str, Any]:
    """What these options say of a `Spec`, checked."""
    if unknown := options.keys() - _CHECKS.keys():
        raise TypeError(f"job has no option {', '.join(sorted(unknown))}; there are name, {', '.join(_CHECKS)}")
    return {
        name: _CHECKS[name](value) for name, value in options.items() if value is not None or name not in _MAY_BE_NONE
    }


def set_handler(spec: Spec, fn: Handler, given: Mapping[str, Any]) -> None:
    """The type's jobs are worked on by this function, by these settings."""
    if spec.fn is not None:
        raise Invalid(f"queue {spec.queue} has a handler for {spec.name} already")
    data = data_of(ends(fn, "a handler", "job"), Job)
    for name, value in given.items():
        setattr(spec, name, value)
    spec.data, spec.result = data, result_of(fn)
    spec.is_async = inspect.iscoroutinefunction(fn)
    spec.fn = fn
