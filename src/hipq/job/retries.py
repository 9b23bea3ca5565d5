"""Retry policies: small pure functions of a job and its fault that say `Retry(...)`, or None to give up.

Any code will do; these are the common ones. They count `job.failures`, which being given back at a shutdown or
rescued from somebody else's crash does not raise.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hipq.errors import Invalid
from hipq.job.names import whole
from hipq.job.outcome import Retry
from hipq.job.when import LONGEST, seconds

if TYPE_CHECKING:
    from hipq.job.fault import Fault
    from hipq.job.view import Job

RetryHandler = Callable[["Job[Any]", "Fault"], Any]
Classes = type[BaseException] | Sequence[type[BaseException]]


def _tuple(classes: Classes | None) -> tuple[type[BaseException], ...]:
    if classes is None:
        return ()
    return (classes,) if isinstance(classes, type) else tuple(classes)


def _policy(delay: Callable[[Job[Any]], float | None], on: Classes | None, never: Classes | None) -> RetryHandler:
    wanted, unwanted = _tuple(on), _tuple(never)

    def policy(job: Job[Any], fault: Fault) -> Retry | None:
        if (wanted and not fault.is_a(*wanted)) or (unwanted and fault.is_a(*unwanted)):
            return None
        pause = delay(job)
        return None if pause is None else Retry(pause)

    return policy


def backoff(
    attempts: int = 5,
    *,
    base: float | timedelta = 1.0,
    factor: float = 2.0,
    cap: float | timedelta = 3600.0,
    jitter: float = 0.1,
    on: Classes | None = None,
    never: Classes | None = None,
) -> RetryHandler:
    """base, base * factor, base * factor² ... seconds, at most `cap`, each up to `jitter` longer by a fixed draw.

    `attempts` counts every failure, the first included. `on` retries only these exceptions, `never` all but these.
    """
    whole(attempts, "attempts", 1, 1_000_000)
    first, most = seconds(base, "base"), seconds(cap, "cap")
    if not 1.0 <= factor <= 1000.0 or not 0.0 <= jitter <= 1.0:
        raise Invalid("backoff: factor must be 1 to 1000, jitter 0 to 1")

    def delay(job: Job[Any]) -> float | None:
        if job.failures >= attempts:
            return None
        try:
            pause = min(first * factor ** (job.failures - 1), most)
        except OverflowError:
            pause = most
        draw = zlib.crc32(b"%d/%d" % (job.id, job.failures)) / 2**32  # drawn from the job: pure, replays exactly
        return min(pause * (1 + jitter * draw), LONGEST)

    return _policy(delay, on, never)


def fixed(
    delay: float | timedelta, attempts: int = 5, *, on: Classes | None = None, never: Classes | None = None
) -> RetryHandler:
    """The same pause each time."""
    pause = seconds(delay, "delay")
    whole(attempts, "attempts", 1, 1_000_000)
    return _policy(lambda job: pause if job.failures < attempts else None, on, never)


def schedule(
    delays: Sequence[float | timedelta], *, on: Classes | None = None, never: Classes | None = None
) -> RetryHandler:
    """These pauses, one after the other, then give up."""
    pauses = [seconds(delay, "delay") for delay in delays]
    return _policy(lambda job: pauses[job.failures - 1] if job.failures <= len(pauses) else None, on, never)
