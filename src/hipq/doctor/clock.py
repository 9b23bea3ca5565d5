"""Whether the clocks agree, and whether a clock was set back: rows written before that lie in the future now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hipq.doctor.finding import Finding, View, at, lasting, note, ok, problem, warning
from hipq.job.when import SECOND
from hipq.stores.health.facts import SQLITE, Health, QueueHealth

APART: Final = 5.0
"""Seconds by which two clocks may differ."""
_SEE: Final = "see that the clock is right now (NTP)"


def clock(health: Health, view: View) -> Iterator[Finding]:
    if not health.now:
        return
    yield from _apart(health)
    for queue in health.queues:
        yield from _future(queue, health.now, view)
    agreed = f"this machine and the database are less than {APART:g} s apart, and "
    yield ok(f"{agreed if health.kind != SQLITE else ''}no row is from the future")


def _apart(health: Health) -> Iterator[Finding]:
    """Compare the clocks. Jobs start by the database's clock: this machine's clock only misleads people and logs."""
    ahead = (health.here - health.now) / SECOND
    if abs(ahead) > APART + health.uncertain:
        apart = f"{lasting(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} the database's ({at(health.now)})"
        advice = "let both machines follow the same time server (NTP)"
        yield warning(f"this machine's clock is {apart}, by which jobs start", advice, facts={"ahead_seconds": ahead})


def _future(queue: QueueHealth, now: int, view: View) -> Iterator[Finding]:
    """What was written before the clock was set back. Claims leave jobs made ready then alone until their time comes
    again."""

    def ahead(moment: int) -> float:
        return (moment - now) / SECOND

    if (by := ahead(queue.latest)) > APART:
        sentence = f"a row was written at {at(queue.latest)}, which is {lasting(by)} from now"
        advice = f"{_SEE}; jobs that were added before start when it has caught up"
        yield warning(
            f"{sentence}: the calendar was set back since",
            advice,
            queue.name,
            {"latest": queue.latest, "ahead_seconds": by},
        )
    for name, last in queue.crons.items():
        if (by := ahead(last)) > APART:
            tick = f"the schedule {name} had its last tick, or began, at {at(last)}, which is {lasting(by)} from now"
            facts = {"schedule": name, "last": last, "ahead_seconds": by}
            advice = f"{_SEE}; what is missing meanwhile, add by hand"
            yield problem(f"{tick}: it adds nothing until then", advice, queue.name, facts)
    first = max(queue.ready, key=lambda sample: sample.since, default=None)
    if first and (by := ahead(first.since)) > APART:
        sentence = f"job {first.row.id} is ready and due only in {lasting(by)}: the calendar was set back since"
        level, facts = warning if by > view.patience else note, {"job": first.row.id, "ahead_seconds": by}
        yield level(sentence, f"{_SEE}; the job starts when its time comes", queue.name, facts)
