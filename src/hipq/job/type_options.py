"""The options of a job type: they apply to all of its jobs, and to the code that works on them."""

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
    """What a job type may set. See `Spec` for the defaults."""

    timeout: float | timedelta
    """How long an attempt may take, from its claim to its end, including its wait for an answer. Default: 24 hours."""
    run_timeout: float | timedelta | None
    """How long the handler's own code may run. Default: as long as `timeout`."""
    lifetime: float | timedelta | None
    """How long all attempts may take together, from when the job is added: an error after that is final. Default: no
    bound."""
    priority: int
    """Of jobs that are due at the same time, a lower priority starts first. Default: 100."""
    throttle_factor: float
    """How many units of the queue's limits each job takes. Default: 1."""
    windows: Iterable[Window]
    """When jobs may start: `[window("22:00", "05:00", tz="Europe/Rome")]`. Default: at any time."""
    retry: RetryHandler | None
    """What happens to a failed job: `backoff(...)`, `fixed(...)`, `schedule([...])` or a function. Default: an error is
    final."""
    critical: bool
    """Whether limits and throttlers neither count these jobs nor hold them up."""
    process: bool
    """Whether the handler runs in a process of its own, which can be killed when its time is over."""
    fence: str | None
    """"attempt": an answer that names another attempt than the present one is too late."""
    on_late: AnswerHandler | None
    """A function that is shown answers which came too late. `@charge.on_late` sets it, too."""


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
    """Set the function that works on the type's jobs, and its settings."""
    if spec.fn is not None:
        raise Invalid(f"queue {spec.queue} has a handler for {spec.name} already")
    data = data_of(ends(fn, "a handler", "job"), Job)
    for name, value in given.items():
        setattr(spec, name, value)
    spec.data, spec.result = data, result_of(fn)
    spec.is_async = inspect.iscoroutinefunction(fn)
    spec.fn = fn
