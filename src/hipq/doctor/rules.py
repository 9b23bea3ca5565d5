"""What keeps jobs from starting by rule: pauses, failing throttlers, jobs heavier than their limit."""

from __future__ import annotations

from typing import Final

from hipq.doctor.finding import NOTE, WARNING, Finding, View
from hipq.doctor.words import several
from hipq.job.units import number
from hipq.limits.base import lane_text
from hipq.limits.rules import refusal
from hipq.stores.health.facts import COUNTED, Health, QueueHealth, Sample
from hipq.stores.values import Limits

CHECK: Final = "jobs"


def rules(health: Health, view: View) -> list[Finding]:
    found = []
    for queue in health.queues:
        if queue.limits:
            found += _pauses(queue, queue.limits, health.now, view)
            found += _throttler(queue, queue.limits)
            found += _heavy(queue, queue.limits, view)
    return found


def _pauses(queue: QueueHealth, limits: Limits, now: int, view: View) -> list[Finding]:
    due = [one for one in [*queue.ready, *queue.parked, *queue.scheduled] if one.row.scheduled_run_time <= now]
    pauses: list[tuple[str, list[str], list[Sample]]] = []
    if limits.rules.paused:
        pauses.append(("the queue", [], due))
    pauses += [
        (lane_text(lane), ["--lane", lane], [one for one in due if one.row.lane == lane])
        for lane in limits.rules.paused_lanes
    ]
    pauses += [
        (f"job type {kind}", ["--type", kind], [one for one in due if one.row.job_type == kind])
        for kind in limits.rules.paused_types
    ]
    found = []
    for what, words, held in pauses:
        jobs = min(sum(one.jobs for one in held), COUNTED)
        waits = f", and {several(jobs, 'due job')} {'waits' if jobs == 1 else 'wait'}" if jobs else ""
        advice = f"if that is no longer wanted: {view.command('queue resume', *words, queue=queue.name)}"
        facts = {"paused": what, "jobs": jobs}
        found.append(Finding(CHECK, WARNING if jobs else NOTE, f"{what} is paused{waits}", advice, queue.name, facts))
    return found


def _throttler(queue: QueueHealth, limits: Limits) -> list[Finding]:
    if not (limits.rules.throttled and limits.note):
        return []
    note = " ".join(limits.note.split())
    advice = "fix the throttler, or what it depends on; hipq asks it again by itself, and starts nothing until then"
    sentence = f"the throttler could not be asked: {note}"
    return [Finding(CHECK, WARNING, sentence, advice, queue.name, {"note": limits.note})]


def _heavy(queue: QueueHealth, limits: Limits, view: View) -> list[Finding]:
    """Jobs heavier than their limit: they were added when the limit was higher, or another program's code has a
    higher one."""
    found: dict[str, Sample] = {}
    for sample in [*queue.ready, *queue.parked]:
        if why := refusal(limits.rules, sample.row.lane, sample.row.throttle_factor):
            found.setdefault(why, sample)
    return [
        Finding(
            CHECK,
            WARNING,
            f"job {sample.row.id} ({sample.row.job_type}) does not fit the limits, so it runs alone: {why}",
            f"raise the limit: {view.command('queue limit', 'N', queue=queue.name)}; or cancel the job",
            queue.name,
            {
                "job": sample.row.id,
                "job_type": sample.row.job_type,
                "throttle_factor": number(sample.row.throttle_factor),
            },
        )
        for why, sample in found.items()
    ]
