"""Counters of what has happened in queues, by minute, hour and day: runs that started, jobs that ended, how long it
took. Pure: no I/O, no clock.

A store counts what it saves, in the transaction that saves it, so the counters are exact whatever crashes.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import add
from typing import Final, NamedTuple

import msgspec

from hipq.job.states import Code
from hipq.job.when import SECOND

MINUTE: Final = 60
HOUR: Final = 3_600
DAY: Final = 86_400
"""Seconds of the periods for which counters are stored."""

BOUNDS: Final = (
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0,
    100_000.0,
)  # fmt: skip
"""Seconds between the buckets of a histogram. The first bucket is for values below the first bound, the last for values
from the last bound on."""
BUCKETS: Final = len(BOUNDS) + 1

ENDS: Final = {code: n for n, code in enumerate((Code.OK, Code.FAILED, Code.RETRY, Code.ERROR, Code.CANCELLED), 1)}
"""The counter of jobs that ended with each code."""
STARTED: Final = 0
RETRIED: Final = len(ENDS) + 1
RUN: Final = RETRIED + 1
ANSWER: Final = RUN + BUCKETS
COUNTERS: Final = (
    "started", *ENDS, "retried", *(f"run_{n}" for n in range(BUCKETS)), *(f"answer_{n}" for n in range(BUCKETS)),
)  # fmt: skip
"""The names of the counters of a queue, job type and minute, as columns have them."""
OTHER: Final = ""
"""The job type under which jobs are counted whose own is not counted apart."""


class Histogram(NamedTuple):
    buckets: tuple[int, ...]
    """A histogram: how many values are in each bucket; see `BOUNDS`."""

    @property
    def total(self) -> int:
        return sum(self.buckets)

    def percentile(self, share: float) -> float | None:
        """Seconds that this share of the values do not exceed: 0.5 for the median. The right bucket is known, so the
        value is off by a factor of about three at worst, and never beyond the last bound. None = there are no
        values."""
        rank, below = share * self.total, 0
        for bucket, here in enumerate(self.buckets):
            if here and below + here >= rank:
                return _between(bucket, (rank - below) / here)
            below += here
        return None


def _between(bucket: int, part: float) -> float:
    """A value inside a bucket, as if the bucket's values were spread evenly by their logarithm."""
    if bucket == 0:
        return BOUNDS[0] * part
    if bucket == len(BOUNDS):
        return BOUNDS[-1]
    low, high = BOUNDS[bucket - 1], BOUNDS[bucket]
    return float(low * (high / low) ** part)


class Activity(msgspec.Struct, frozen=True):
    """What has happened in a period: in one queue or in several, of one job type or of all."""

    starts: int
    """The beginning of the period."""
    queue: int = 0
    """0 = of all queues that were asked about."""
    job_type: str = OTHER
    """"" = of all job types, or of those that are not counted apart."""
    counts: tuple[int, ...] = (0,) * len(COUNTERS)
    """The counters, in the order of `COUNTERS`."""

    @property
    def started(self) -> int:
        """Runs that began in this period and have ended or wait by now: one for each attempt."""
        return self.counts[STARTED]

    def ended(self, code: str) -> int:
        """Jobs that became final with this code."""
        return self.counts[ENDS[code]]

    @property
    def finished(self) -> int:
        """Jobs that became final, whatever their code."""
        return sum(self.counts[ENDS[Code.OK] : RETRIED])

    @property
    def failed(self) -> int:
        """Jobs that became final without success, and that nobody has cancelled."""
        return self.finished - self.ended(Code.OK) - self.ended(Code.CANCELLED)

    @property
    def retried(self) -> int:
        """Attempts after which the job is to run again."""
        return self.counts[RETRIED]

    @property
    def run(self) -> Histogram:
        """How long handlers ran, in runs that ended in this period."""
        return Histogram(self.counts[RUN:ANSWER])

    @property
    def answer(self) -> Histogram:
        """How long after a job's claim an answer came for it, of answers that came to their jobs in this period."""
        return Histogram(self.counts[ANSWER:])

    def __add__(self, other: Activity) -> Activity:
        """The sum of this and another, with the period of this one."""
        return msgspec.structs.replace(self, counts=tuple(map(add, self.counts, other.counts)))


def total(rows: Iterable[Activity], starts: int = 0) -> Activity:
    """The sum of all of these."""
    return Activity(
        starts, counts=tuple(map(sum, zip((0,) * len(COUNTERS), *(row.counts for row in rows), strict=True)))
    )


def series(rows: Iterable[Activity], grain: int, since: int, until: int) -> list[Activity]:
    """One for each period of this many seconds, in order, including those in which nothing happened: for a chart. The
    first is the one that contains `since`."""
    found: dict[int, list[Activity]] = {}
    for row in rows:
        found.setdefault(beginning(row.starts, grain), []).append(row)
    return [total(found.get(at, ()), at) for at in range(beginning(since, grain), until, grain * SECOND)]


def beginning(moment: int, grain: int) -> int:
    """The beginning of the period, of this many seconds, that contains a moment."""
    return moment - moment % (grain * SECOND)
