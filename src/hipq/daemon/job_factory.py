"""What is posted becomes a job: its lane, its time, what it is chained to."""

from __future__ import annotations

from typing import Final

import msgspec

from hipq.daemon import payloads
from hipq.job.meta import PLAIN as NO_META
from hipq.job.meta import Meta, load
from hipq.job.model import New, Row
from hipq.job.order import ByTime
from hipq.job.states import READY, SCHEDULED
from hipq.job.when import later
from hipq.job.windows import ALWAYS, opening
from hipq.limits.tenants import BETWEEN

ORDER: Final = ByTime()
TIMEOUT: Final = 86_400.0


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """What may be said of jobs when they are added."""

    key: str = ""
    at: int = 0
    """Microseconds since 1970 before which it does not start; 0 = now."""
    delay: float = 0.0
    priority: int = 100
    timeout: float = 0.0
    """Seconds one attempt may take, its wait for an answer included; 0 = a day."""
    windows: str = ALWAYS
    """As a row keeps them: see `hipq.job.windows`."""
    then: str = ""
    """The jobtype of the job that is added with its result, once it is ok."""


PLAIN: Final = Options()
_decoder = msgspec.json.Decoder(Options)


def loaded(text: str) -> Options:
    return PLAIN if text == "{}" else _decoder.decode(text)


def lane(tenant: str, jobtype: str) -> str:
    return f"{tenant}{BETWEEN}{jobtype}"


def job(queue: int, tenant: str, jobtype: str, payload: bytes, options: Options, now: int, job_id: int = 0) -> New:
    start = options.at or (later(now, options.delay) if options.delay else now)
    start = opening(options.windows, start)
    return New(
        queue=queue,
        job_type=jobtype,
        job_key=options.key,
        job_data=payloads.stored(payload),
        phase=READY if start <= now else SCHEDULED,
        rank=ORDER.rank(start, options.priority),
        scheduled_run_time=start,
        create_time=now,
        priority=options.priority,
        timeout=options.timeout or TIMEOUT,
        lane=lane(tenant, jobtype),
        tenant=tenant,
        meta=Meta(then=options.then).dump() if options.then else NO_META,
        time_windows=options.windows,
        id=job_id,
    )


def chained_to(row: Row) -> str:
    """The jobtype it is to be followed by, if it is ok; "" = none."""
    return load(row.meta).then
