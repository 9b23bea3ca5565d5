"""The changes of a cron schedule: a definition that is new or different, a tick, a clock that was set back. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from hipq.job.cron import Cron, after, between, latest
from hipq.job.schedule import NOTHING, DeclaredSchedule, Definition, Schedule, ScheduleChange
from hipq.job.when import SECOND

SET_BACK: Final = 86_400 * SECOND
"""Microseconds. A schedule whose last tick is further ahead than this was moved by a wrong clock, and begins anew. If
it is less, the ticks between now and then were added already: by this clock before it was set back, or by a process
whose clock is ahead."""
LATE: Final = 60 * SECOND
"""Microseconds after which a tick that was not added counts as missed: no engine was there."""


def cron_of(definition: Definition) -> Cron:
    found = definition.in_force
    assert found.expression is not None
    return Cron(found.expression, found.tz or "UTC")


def begun(name: str, job_type: str, definition: Definition, now: int) -> Schedule:
    """A new schedule, which begins with its next tick."""
    following = 0 if definition.paused else after(cron_of(definition), now)
    return Schedule(name, job_type, definition, now, 0, following)


def redefined(schedule: Schedule, definition: Definition, now: int, job_type: str = "") -> Schedule:
    """A schedule with another definition. If its ticks change, or are no longer paused, they count from now, so that
    none of an earlier time is added late. Nor is one added twice where the clock was set back: ticks count from the
    last one that was looked at, if that is later."""
    made = schedule._replace(definition=definition, job_type=job_type or schedule.job_type)
    if (cron_of(definition), definition.paused) == (cron_of(schedule.definition), schedule.definition.paused):
        return made
    again = begun(schedule.name, made.job_type, definition, max(now, schedule.last))
    return made._replace(since=again.since, next=again.next)


def due(schedule: Schedule, now: int, most: int) -> list[int]:
    """The ticks to look at, of a schedule that is due: the latest or, where all are wanted, the first ones."""
    cron, before = cron_of(schedule.definition), schedule.next - 1
    if schedule.definition.in_force.missed == "all":
        found = between(cron, before, now, most)
    else:
        found = [latest(cron, before, now)]
    return [*filter(None, found)] or [schedule.next]  # if its zone's rules have changed, it may be gone


def wanted(schedule: Schedule, ticks: Sequence[int], now: int) -> list[int]:
    """Which of these ticks add a job."""
    skips = schedule.definition.in_force.missed == "skip"
    return [tick for tick in ticks if not skips or now - tick <= LATE]


def ticked(schedule: Schedule, tick: int) -> Schedule:
    return schedule._replace(last=tick, next=after(cron_of(schedule.definition), tick))


def is_ahead(schedule: Schedule, now: int) -> bool:
    """Whether a wrong clock has moved the schedule."""
    return schedule.next > 0 and max(schedule.since, schedule.last) > now + SET_BACK


def anew(schedule: Schedule, now: int) -> Schedule:
    return begun(schedule.name, schedule.job_type, schedule.definition, now)._replace(version=schedule.version)


def published(
    declared: Sequence[DeclaredSchedule], there: Mapping[str, Schedule], now: int
) -> Iterator[ScheduleChange]:
    """The writes after which the database has what this program's code says, beside what operators said. A schedule
    that an operator had added under a name that is now in code becomes that, changed by the operator, unless it was for
    another job type."""
    for name, job_type, settings in declared:
        found = there.get(name)
        if found is None:
            yield ScheduleChange(None, begun(name, job_type, Definition(settings), now))
        elif (found.definition.code, found.job_type) != (settings, job_type):
            kept = found.definition if found.job_type == job_type else replace(found.definition, changed=NOTHING)
            yield ScheduleChange(found, redefined(found, replace(kept, code=settings), now, job_type))
