"""What keeps jobs from starting by rule: pauses, failing throttlers, jobs heavier than their limit."""

from __future__ import annotations

from collections.abc import Iterator

from hipq.doctor.finding import Finding, View, note, several, warning
from hipq.job.units import number
from hipq.limits.base import lane_text
from hipq.limits.rules import refusal
from hipq.stores.health.facts import COUNTED, Health, QueueHealth, Sample
from hipq.stores.values import Limits


def rules(health: Health, view: View) -> Iterator[Finding]:
    for queue in health.queues:
        if queue.limits:
            yield from _pauses(queue, queue.limits, health.now, view)
            yield from _throttler(queue, queue.limits)
            yield from _heavy(queue, queue.limits, view)


def _pauses(queue: QueueHealth, limits: Limits, now: int, view: View) -> Iterator[Finding]:
    due = [one for one in [*queue.ready, *queue.parked, *queue.scheduled] if one.row.scheduled_run_time <= now]
    pauses: list[tuple[str, list[str], list[Sample]]] = [("the queue", [], due)] if limits.rules.paused else []
    pauses += [
        (lane_text(lane), ["--lane", lane], [one for one in due if one.row.lane == lane])
        for lane in limits.rules.paused_lanes
    ]
    pauses += [
        (f"job type {kind}", ["--type", kind], [one for one in due if one.row.job_type == kind])
        for kind in limits.rules.paused_types
    ]
    for what, words, held in pauses:
        jobs = min(sum(one.jobs for one in held), COUNTED)
        waits = f", and {several(jobs, 'due job')} {'waits' if jobs == 1 else 'wait'}" if jobs else ""
        advice = f"if that is no longer wanted: {view.command('queue resume', *words, queue=queue.name)}"
        facts = {"paused": what, "jobs": jobs}
        yield (warning if jobs else note)(f"{what} is paused{waits}", advice, queue.name, facts)


def _throttler(queue: QueueHealth, limits: Limits) -> Iterator[Finding]:
    if limits.rules.throttled and limits.note:
        sentence = f"the throttler could not be asked: {' '.join(limits.note.split())}"
        advice = "fix the throttler, or what it depends on; hipq asks it again by itself, and starts nothing until then"
        yield warning(sentence, advice, queue.name, {"note": limits.note})


def _heavy(queue: QueueHealth, limits: Limits, view: View) -> Iterator[Finding]:
    """Jobs heavier than their limit: they were added when the limit was higher, or another program's code has a
    higher one."""
    found: dict[str, Sample] = {}
    for sample in [*queue.ready, *queue.parked]:
        if why := refusal(limits.rules, sample.row.lane, sample.row.throttle_factor):
            found.setdefault(why, sample)
    for why, (row, _, _) in found.items():
        sentence = f"job {row.id} ({row.job_type}) does not fit the limits, so it runs alone: {why}"
        advice = f"raise the limit: {view.command('queue limit', 'N', queue=queue.name)}; or cancel the job"
        facts = {"job": row.id, "job_type": row.job_type, "throttle_factor": number(row.throttle_factor)}
        yield warning(sentence, advice, queue.name, facts)
