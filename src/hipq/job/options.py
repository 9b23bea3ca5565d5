"""The options of new jobs: what a job may set for itself, whatever its type says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypedDict

import msgspec

from hipq.errors import Invalid
from hipq.job import names
from hipq.job.meta import PLAIN, Meta
from hipq.job.outcome import UNSET
from hipq.job.retries import Strategy, stored
from hipq.job.spec import Spec
from hipq.job.when import later, moment, seconds
from hipq.job.windows import ALWAYS, Window, dump, opening


class TickOptions(TypedDict, total=False):
    """What a schedule may set for its jobs. None = what their type says; but `retry=None` = no retry."""

    priority: int | None
    """Of jobs that are due at the same time, a lower priority starts first."""
    throttle_factor: float | None
    """How many units of the queue's limits the job takes."""
    windows: Iterable[Window] | None
    """When the job may start: `[window("22:00", "05:00", tz="Europe/Rome")]`."""
    timeout: float | timedelta | None
    """How long an attempt may take, from its claim to its end, its wait for an answer included."""
    lane: str | None
    """The lane of the job, instead of the one that the queue's `lane_by` chooses."""
    retry: Strategy | str | None
    """What happens if this job fails: `backoff(...)`, `fixed(...)`, `schedule([...])`, the name of code that is
    registered (`Hipq.retry_strategy`), or None for no retry."""


class JobOptions(TickOptions, total=False):
    """What a new job may set for itself. None = what its type says; but `retry=None` = no retry."""

    at: datetime | None
    """The time before which the job does not start, with a time zone."""
    delay: float | timedelta | None
    """Seconds, or a timedelta, before which the job does not start."""


def given(retry: Strategy | str | None, **options: Any) -> JobOptions:
    """The options of new jobs that were given. One that was not is UNSET, since None is a choice of `retry`."""
    found: JobOptions = {name: value for name, value in options.items() if value is not None}  # type: ignore[assignment]
    if retry is not UNSET:
        found["retry"] = retry
    return found


class Checked(msgspec.Struct, frozen=True):
    """The options of new jobs as they are stored: those not given are taken from the job type."""

    priority: int
    throttle_factor: int
    timeout: float
    windows: str
    lane: str | None = None
    """None = the queue's `lane_by` chooses, if it has one."""
    at: int | None = None
    delay: float = 0.0
    meta: str = PLAIN

    def start(self, now: int) -> int:
        """When a job that is added now may start."""
        wanted = later(now, self.delay) if self.at is None else self.at
        return wanted if self.windows == ALWAYS else opening(self.windows, wanted)


_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "at": moment,
    "delay": partial(seconds, name="delay"),
    "lane": names.lane,
    "priority": names.priority,
    "throttle_factor": names.throttle_factor,
    "timeout": partial(seconds, name="timeout", least=0.001),
    "windows": dump,
}


def checked(spec: Spec, options: TickOptions, trace: str = "", *, keys: str = "key") -> Checked:
    """Check the options, once for all jobs that are added together. `trace`: the traceparent of the span around that.
    `keys`: the name of the parameter that gives the jobs their keys."""
    usual = Checked(spec.priority, spec.throttle_factor, spec.timeout, spec.windows)
    if not options and not trace:
        return usual
    if unknown := options.keys() - JobOptions.__annotations__.keys():
        known = ", ".join(sorted(JobOptions.__annotations__.keys() | {keys}))
        raise TypeError(f"enqueue has no option {', '.join(sorted(unknown))}; there are {known}")
    given = {name: check(options[name]) for name, check in _CHECKS.items() if options.get(name) is not None}  # type: ignore[literal-required]
    if "at" in given and "delay" in given:
        raise Invalid("give at or delay, not both")
    return msgspec.structs.replace(usual, meta=_meta(spec, options, trace), **given)


def _meta(spec: Spec, options: TickOptions, trace: str) -> str:
    # A program without the type's handler only adds its jobs: another one runs them, and has registered what they name.
    elsewhere = spec.fn is None and not spec.strategies
    return Meta(
        trace=trace, retry=stored(options["retry"], spec.strategies, elsewhere) if "retry" in options else None
    ).dump()
