"""Retry strategies: what happens to a failed job. Each is a function of the job and its fault that returns
`Retry(...)`, or None to give up. Any code will do; these are the common ones.

They count `job.failures`, which neither a shutdown nor somebody else's crash raises. They are data, too, so that a job
can be stored with its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hipq.errors import Invalid, shown
from hipq.job import names
from hipq.job.fault import qualified
from hipq.job.names import whole
from hipq.job.outcome import Retry
from hipq.job.when import LONGEST, seconds

if TYPE_CHECKING:
    from hipq.job.fault import Fault
    from hipq.job.view import Job

RetryHandler = Callable[["Job[Any]", "Fault"], Any]
Classes = type[BaseException] | Sequence[type[BaseException]]


def _names(classes: Classes | None) -> tuple[str, ...]:
    if classes is None:
        return ()
    every = (classes,) if isinstance(classes, type) else classes
    if not isinstance(every, (tuple, list, set, frozenset)) or not all(isinstance(kind, type) for kind in every):
        raise Invalid(
            f"on and never take exceptions, like on=TimeoutError or on=(OSError, KeyError); not {shown(classes)}"
        )
    return tuple(qualified(kind) for kind in every)


class Strategy(msgspec.Struct, frozen=True, kw_only=True, tag_field="strategy"):
    """A ready-made retry handler: a name and its parameters, so that it can be stored with a job."""

    on: tuple[str, ...] = ()
    """The names of the exceptions after which the job is tried again; none = after all."""
    never: tuple[str, ...] = ()
    """The names of the exceptions after which the job is not tried again."""

    def __call__(self, job: Job[Any], fault: Fault) -> Retry | None:
        if (self.on and not fault.is_named(self.on)) or fault.is_named(self.never):
            return None
        pause = self.pause(job)
        return None if pause is None else Retry(pause)

    def pause(self, job: Job[Any]) -> float | None:
        """Seconds until it is tried again; None = it is not."""
        raise NotImplementedError


class Backoff(Strategy, frozen=True, kw_only=True, tag="backoff"):
    attempts: int = 5
    base: float = 1.0
    factor: float = 2.0
    cap: float = 3600.0
    jitter: float = 0.1

    def pause(self, job: Job[Any]) -> float | None:
        if job.failures >= self.attempts:
            return None
        try:
            pause = min(self.base * self.factor ** (job.failures - 1), self.cap)
        except OverflowError:
            pause = self.cap
        draw = zlib.crc32(b"%d/%d" % (job.id, job.failures)) / 2**32  # drawn from the job: pure, replays exactly
        return min(pause * (1 + self.jitter * draw), LONGEST)


class Fixed(Strategy, frozen=True, kw_only=True, tag="fixed"):
    delay: float
    attempts: int = 5

    def pause(self, job: Job[Any]) -> float | None:
        return self.delay if job.failures < self.attempts else None


class Schedule(Strategy, frozen=True, kw_only=True, tag="schedule"):
    delays: tuple[float, ...]

    def pause(self, job: Job[Any]) -> float | None:
        return self.delays[job.failures - 1] if job.failures <= len(self.delays) else None


class NoRetry(Strategy, frozen=True, kw_only=True, tag="none"):
    def pause(self, job: Job[Any]) -> float | None:  # noqa: ARG002
        return None


def backoff(
    attempts: int = 5,
    *,
    base: float | timedelta = 1.0,
    factor: float = 2.0,
    cap: float | timedelta = 3600.0,
    jitter: float = 0.1,
    on: Classes | None = None,
    never: Classes | None = None,
) -> Strategy:
    """Again after `base` seconds, then `base * factor`, `base * factor²` and so on, at most `cap`; each pause is up to
    `jitter` (a part of it) longer, by a draw that is the same for the same job.

    `attempts` counts every failure, the first included, and each `factor` is from 1 to 1000. `on` retries only these
    exceptions, `never` all but these.
    """
    whole(attempts, "attempts", 1, 1_000_000)
    first, most = seconds(base, "base"), seconds(cap, "cap")
    if not 1.0 <= factor <= 1000.0 or not 0.0 <= jitter <= 1.0:
        raise Invalid("backoff: factor must be 1 to 1000, jitter 0 to 1")
    return Backoff(
        attempts=attempts, base=first, factor=factor, cap=most, jitter=jitter, on=_names(on), never=_names(never)
    )


def fixed(
    delay: float | timedelta, attempts: int = 5, *, on: Classes | None = None, never: Classes | None = None
) -> Strategy:
    """Again after the same `delay` each time, until `attempts` failures. `on` retries only these exceptions, `never`
    all but these."""
    pause = seconds(delay, "delay")
    whole(attempts, "attempts", 1, 1_000_000)
    return Fixed(delay=pause, attempts=attempts, on=_names(on), never=_names(never))


def schedule(
    delays: Sequence[float | timedelta], *, on: Classes | None = None, never: Classes | None = None
) -> Strategy:
    """Again after each of the `delays`, one after the other; then give up. `on` retries only these exceptions, `never`
    all but these."""
    pauses = tuple(seconds(delay, "delay") for delay in delays)
    return Schedule(delays=pauses, on=_names(on), never=_names(never))


# -- a job's own ----------------------------------------------------------------------------------------------------
NO_RETRY: Final = NoRetry()
NONE: Final = "none"
"""How no retry at all is called, where a name is wanted."""
RESERVED: Final = (NONE, "backoff", "fixed", "schedule")
"""Names of ready-made strategies, under which no code can be registered."""
_READY_MADE: Any = Backoff | Fixed | Schedule | NoRetry


def stored(
    retry: Strategy | str | None, registered: Mapping[str, RetryHandler], may_be_elsewhere: bool
) -> dict[str, Any]:
    """A job's own strategy as its `meta` has it: a ready-made one with its parameters, or the name of registered code.
    `may_be_elsewhere`: the job may run in another program, which has registered code that this one has not."""
    if retry is None or retry == NONE:
        retry = NO_RETRY
    if isinstance(retry, Strategy):
        parameters: dict[str, Any] = msgspec.to_builtins(retry)
        return {name: value for name, value in parameters.items() if value or name not in ("on", "never")}
    if not isinstance(retry, str):
        what = (
            "register this function with @app.retry_strategy(name) and give its name"
            if callable(retry)
            else (f"not {shown(retry)}")
        )
        raise Invalid(f"a job's retry is backoff(...), fixed(...), schedule(...), a registered name, or None: {what}")
    if retry in RESERVED:
        raise Invalid(f"write retry={retry}(...), with its parameters: the name alone is that of registered code")
    if retry not in registered and not may_be_elsewhere:
        known = ", ".join(sorted(registered)) or "none"
        raise Invalid(
            f"no retry strategy is registered under the name {shown(retry)} (there are: {known}): "
            f"register it with @app.retry_strategy({retry!r:.60})"
        )
    return {"registered": names.strategy(retry)}


def in_words(own: Mapping[str, Any]) -> str:
    """A stored strategy for people: `patient`, `none`, `fixed(delay=60.0, attempts=3)`."""
    name = own.get("registered") or own.get("strategy")
    given = ", ".join(f"{name}={value}" for name, value in own.items() if name not in ("registered", "strategy"))
    return f"{name}({given})" if given else str(name)


class NotRegistered(LookupError):
    """The strategy of a job is code that only another program has registered."""


def handler(own: Mapping[str, Any], registered: Mapping[str, RetryHandler]) -> RetryHandler:
    """The retry handler that a job's own strategy stands for."""
    if "registered" not in own:
        found: Strategy = msgspec.convert(own, _READY_MADE)
        return found
    if own["registered"] not in registered:
        raise NotRegistered(own["registered"])
    return registered[own["registered"]]
