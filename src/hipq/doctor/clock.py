"""Whether the clocks agree, and whether a clock was set back: rows written before that lie in the future now."""

from __future__ import annotations

from typing import Final

from hipq.doctor.finding import NOTE, OK, PROBLEM, WARNING, Finding, View
from hipq.doctor.words import at, lasting
from hipq.job.when import SECOND
from hipq.stores.health.facts import POSTGRESQL, Health, QueueHealth

CHECK: Final = "clock"
APART: Final = 5.0
"""Seconds by which two clocks may differ."""


def clock(health: Health, view: View) -> list[Finding]:
    if not health.now:
        return []
    found = _apart(health)
    for queue in health.queues:
        found += _future_rows(queue, health.now)
        found += _future_ticks(queue, health.now)
        found += _future_ready(queue, health.now, view)
    return found or [Finding(CHECK, OK, _agreed(health))]


def _agreed(health: Health) -> str:
    if health.kind == POSTGRESQL:
        return f"this machine and the database are less than {APART:g} s apart, and no row is from the future"
    return "no row is from the future"


def _apart(health: Health) -> list[Finding]:
    """Compare the clocks. Jobs start by the database's clock: this machine's clock only misleads people and logs."""
    ahead = (health.here - health.now) / SECOND
    if abs(ahead) <= APART + health.uncertain:
        return []
    which = "ahead of" if ahead > 0 else "behind"
    sentence = (
        f"this machine's clock is {lasting(abs(ahead))} {which} the database's ({at(health.now)}), by which jobs start"
    )
    return [Finding(CHECK, WARNING, sentence, "let both machines follow the same time server (NTP)",
                    facts={"ahead_seconds": ahead})]  # fmt: skip


def _future_rows(queue: QueueHealth, now: int) -> list[Finding]:
    ahead = (queue.latest - now) / SECOND
    if ahead <= APART:
        return []
    sentence = (
        f"a row was written at {at(queue.latest)}, which is {lasting(ahead)} from now: the calendar was set back since"
    )
    advice = "see that the clock is right now (NTP); jobs that were added before start when it has caught up"
    return [Finding(CHECK, WARNING, sentence, advice, queue.name, {"latest": queue.latest, "ahead_seconds": ahead})]


def _future_ticks(queue: QueueHealth, now: int) -> list[Finding]:
    found = []
    for name, last in queue.crons.items():
        ahead = (last - now) / SECOND
        if ahead > APART:
            sentence = (
                f"the schedule {name} had its last tick at {at(last)}, which is {lasting(ahead)} from now: "
                "it adds nothing until then"
            )
            advice = "see that the clock is right now (NTP); what is missing meanwhile, add by hand"
            facts = {"schedule": name, "last": last, "ahead_seconds": ahead}
            found.append(Finding(CHECK, PROBLEM, sentence, advice, queue.name, facts))
    return found


def _future_ready(queue: QueueHealth, now: int, view: View) -> list[Finding]:
    """Jobs made ready before the clock was set back: claims leave them alone until their time comes again."""
    later = [sample for sample in queue.ready if sample.since - now > APART * SECOND]
    if not later:
        return []
    first = max(later, key=lambda sample: sample.since)
    ahead = (first.since - now) / SECOND
    sentence = f"job {first.row.id} is ready and due only in {lasting(ahead)}: the calendar was set back since"
    level = WARNING if ahead > view.patience else NOTE
    return [Finding(CHECK, level, sentence, "see that the clock is right now (NTP); the job starts when its time comes",
                    queue.name, {"job": first.row.id, "ahead_seconds": ahead})]  # fmt: skip
