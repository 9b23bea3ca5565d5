"""Throttlers: code of the user that sees which jobs are due and which run, and decides on each due job.

    def by_server(due, running, now):
        busy = Counter(job.data["server"] for job in running)
        for job in due:
            if job.data["server"] in DECOMMISSIONED:
                yield reject(job, "its server is gone")
            elif busy[job.data["server"]] < 3:
                busy[job.data["server"]] += 1
                yield admit(job)

A throttler is shown up to 500 due jobs at a time, in the queue's order, and all running jobs. Jobs it does not mention
are parked: the next call is about the jobs behind them, and after the last job it begins again with the first. So a
throttler sees every due job, page by page. Critical jobs start without its leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from hipq.errors import Invalid, shown
from hipq.job import names
from hipq.job.model import Row
from hipq.job.spec import Spec
from hipq.job.view import Job
from hipq.job.when import later, moment, seconds, to_datetime


class Admit(NamedTuple):
    """Let the job start now."""

    job: Job[Any]


class Defer(NamedTuple):
    """Schedule the job for another time: a moment, or a number of seconds from now."""

    job: Job[Any]
    until: datetime | float | timedelta


class Reject(NamedTuple):
    """Never run the job: it ends as failed, with this reason."""

    job: Job[Any]
    reason: str


admit, defer, reject = Admit, Defer, Reject
Decision = Admit | Defer | Reject
Throttler = Callable[[list[Job[Any]], list[Job[Any]], datetime], Iterable[Decision] | None]


class Verdict(msgspec.Struct):
    """The decisions of a throttler, by rows."""

    admitted: list[Row] = []
    deferred: list[tuple[Row, int]] = []
    rejected: list[tuple[Row, str]] = []
    parked: list[Row] = []

    def add(self, row: Row, decision: Decision, now: int) -> None:
        match decision:
            case Admit():
                self.admitted.append(row)
            case Defer(_, until):
                at = moment(until, "until") if isinstance(until, datetime) else later(now, seconds(until, "until"))
                self.deferred.append((row, at))
            case Reject(_, reason):
                self.rejected.append((row, names.reason(reason)))


def verdict(
    throttler: Throttler, due: Sequence[Row], running: Sequence[Row], specs: Mapping[str, Spec], now: int
) -> Verdict:
    """Ask the throttler. Raises what the throttler raises, and Invalid for a decision that cannot be read. A critical
    job is admitted without asking: it was parked before its type became critical."""
    passing = {name for name, spec in specs.items() if spec.critical}
    found = Verdict(admitted=[row for row in due if row.job_type in passing])
    rows = {row.id: row for row in due if row.job_type not in passing}
    if found.admitted and not rows:
        return found
    answer = throttler(
        [Job(row, specs.get(row.job_type)) for row in rows.values()],
        [Job(row, specs.get(row.job_type)) for row in running],
        to_datetime(now),
    )
    for decision in () if answer is None else answer:
        if not isinstance(decision, Decision) or not isinstance(decision.job, Job):
            raise Invalid(f"a throttler answers with admit(job), defer(job, until) or reject(job, reason), not "
                          f"{shown(decision)}")  # fmt: skip
        row = rows.pop(decision.job.id, None)
        if row is None:
            raise Invalid(f"job {decision.job.id} is not due, or was decided on twice")
        found.add(row, decision, now)
    found.parked = list(rows.values())
    return found


class DryRun(NamedTuple):
    """The decisions that a throttler would make."""

    admitted: list[Job[Any]]
    deferred: list[tuple[Job[Any], datetime]]
    rejected: list[tuple[Job[Any], str]]
    parked: list[Job[Any]]
    """Jobs that the throttler did not mention: they stay where they are until it is asked again."""
    running: int
    """How many running jobs the throttler was shown."""

    @classmethod
    def of(cls, found: Verdict, running: int) -> DryRun:
        return cls(
            [Job(row) for row in found.admitted],
            [(Job(row), to_datetime(until)) for row, until in found.deferred],
            [(Job(row), reason) for row, reason in found.rejected],
            [Job(row) for row in found.parked],
            running,
        )
