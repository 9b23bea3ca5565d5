"""Why a job does not run now, or what it is doing. A look at a job, not a step of its life.

Everything that can hold a job up is checked in turn; the first thing that does is the reason. Pure: the app reads the
row, the limits and the engines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hipq.engine.why.started import LEFT, final, left, owned, waits
from hipq.engine.why.starting import barred, due, is_next, later, limited, passed, throttled
from hipq.job import states
from hipq.job.model import Row
from hipq.job.why import Why
from hipq.stores.values import EngineSeen, Limits

__all__ = ["passed", "why"]


def why(
    row: Row, limits: Limits, engines: Sequence[EngineSeen], now: int, critical: bool = False, heavy: Iterable[Row] = ()
) -> Why:
    """`critical`: limits and throttlers do not hold this job. `heavy`: the jobs that `passed` names."""
    if row.phase == states.DONE:
        return final(row)
    if row.owner:
        return owned(row, engines)
    if row.phase == states.WAITING:
        return waits(row, engines, now)
    if row.phase in LEFT:
        return left(row, engines)
    if row.scheduled_run_time > now:  # a ready one too: if the clock was set back, claims leave it alone until then
        return later(row, now)
    return (
        barred(row, limits.rules, engines, now)
        or due(row)
        or (None if critical else limited(row, limits, engines, now, heavy))
        or (None if critical and row.phase != states.PARKED else throttled(row, limits))
        or is_next(limits.rules.throttled and not critical)
    )
