"""Jobs that should have gone on by now, and what is in their way.

`hipq.engine.why` says what is in a job's way, as it does for `hipq job why`; this module says how bad that is, and what
to do. Jobs of one queue that wait for the same thing are one finding. And answers that no job took.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from hipq.doctor.finding import NOTE, PROBLEM, WARNING, Finding, View, at, lasting, note, ok, several, warning
from hipq.engine.why import why
from hipq.job.answer import BUFFERED
from hipq.job.fault import Fault
from hipq.job.states import PARKED, READY, SCHEDULED, WAITING
from hipq.job.units import number
from hipq.job.when import SECOND
from hipq.job.why import Reason, Why
from hipq.limits.base import lane_text
from hipq.limits.rules import NO_RULES, refusal
from hipq.stores.health.facts import COUNTED, Health, QueueHealth, Sample
from hipq.stores.values import Limits

_NO_LIMITS: Final = Limits(NO_RULES, "{}", {}, [], "")
_TO_START: Final = (READY, PARKED, SCHEDULED)
MANY_ANSWERS: Final = 100
_ELSEWHERE: Final = frozenset({
    Reason.PAUSED, Reason.THROTTLER_FAILED, Reason.WINDOW_CLOSED, Reason.SCHEDULED, Reason.RETRY_PENDING,
})  # fmt: skip
"""Reasons that `rules` and `clock` report, or that are as they should be."""
_AT_ONCE: Final = frozenset({Reason.NO_ENGINE, Reason.NO_CODE})
"""Reasons that do not pass by waiting."""


class Stuck(NamedTuple):
    sample: Sample
    why: Why
    waited: float


def jobs(health: Health, view: View) -> Iterator[Finding]:
    for queue in health.queues:
        yield from _of_queue(queue, health, view)
    if health.queues:
        yield ok("no job is stuck")


def answers(health: Health, view: View) -> Iterator[Finding]:
    """Answers that belong to no job, and are too old for a job that is added from now on; and those that answer
    handlers cannot read."""
    for queue in health.queues:
        yield from _unread(queue, health, view)
    names = {queue.tables.number: queue.name for queue in health.queues}
    for one in health.answers:
        if one.queue not in names:
            continue  # another instance's queue
        name, age = names[one.queue], (health.now - one.oldest) / SECOND
        came = f"{several(one.answers, 'answer')} came for jobs that are not there, the oldest {lasting(age)} ago"
        look = view.command("answers list", "--state", BUFFERED, "-q", name.partition(".")[2])
        advice = f"see whether their keys are those of jobs: {look}; then rekey or drop them"
        level, facts = warning if one.answers >= MANY_ANSWERS else note, {"answers": one.answers, "oldest_seconds": age}
        yield level(f"{came}; the first is deleted at {at(one.first_forgotten)}", advice, name, facts)
    if health.queues:
        yield ok("no answer is left without a job")


def _unread(queue: QueueHealth, health: Health, view: View) -> Iterator[Finding]:
    for row, _, jobs in queue.unread:
        said = why(row, _NO_LIMITS, health.alive, health.now, False, []).sentence
        which = f"the answer handler of {row.job_type} fails with the answers of {several(jobs, 'job')}"
        sentence = f"{which}; the first is job {row.id}: {said}"
        advice = (
            "mend the handler, or let it return Failed for what it cannot read; until then these jobs hold units "
            f"of the limits; {view.command('job show', str(row.id))}"
        )
        yield warning(sentence, advice, queue.name, {"jobs": jobs, "first": row.id, "job_type": row.job_type})


def _of_queue(queue: QueueHealth, health: Health, view: View) -> Iterator[Finding]:
    groups: dict[tuple[str, ...], list[Stuck]] = {}
    served = _is_served(queue, health)
    for stuck in _stuck(queue, health):
        is_late = stuck.waited >= view.patience or stuck.why.reason in _AT_ONCE
        if stuck.why.reason in _ELSEWHERE or not is_late:
            continue
        groups.setdefault(_group(stuck, _is_unserved(stuck, served)), []).append(stuck)
    for some in groups.values():
        yield _finding(queue, some, health, view)
    for row, since, count in queue.not_runnable:
        age = lasting((health.now - since) / SECOND)
        sentence = (
            f"{several(count, 'job')} of type {row.job_type} of tenant {row.tenant} cannot run, the first, {row.id}, "
            f"since {age}: {Fault.load(row.error).message}"
        )
        advice = "put what is missing (`hipq handler put`, `hipq secret set`): they are tried again; or cancel them"
        facts = {"tenant": row.tenant, "job_type": row.job_type, "jobs": count, "first": row.id}
        yield warning(sentence, advice, queue.name, facts)


def _stuck(queue: QueueHealth, health: Health) -> Iterator[Stuck]:
    engines, limits = health.alive, queue.limits or _NO_LIMITS
    critical = {name for engine in engines for name in engine.critical.get(str(queue.tables.number), ())}
    for sample in [*queue.ready, *queue.parked, *queue.scheduled, *queue.waiting, *queue.left]:
        row = sample.row
        heavy = [one for one in queue.heavy if one.id != row.id]
        reason = why(row, limits, engines, health.now, row.job_type in critical, heavy)
        yield Stuck(sample, reason, (health.now - sample.since) / SECOND)


def _is_served(queue: QueueHealth, health: Health) -> bool:
    return any(str(queue.tables.number) in engine.serves for engine in health.alive)


def _is_unserved(stuck: Stuck, served: bool) -> bool:
    """Whether no engine is there, or only engines of other queues."""
    return stuck.why.reason == Reason.NO_ENGINE or (stuck.why.reason == Reason.NO_CODE and not served)


def _group(stuck: Stuck, unserved: bool) -> tuple[str, ...]:
    row = stuck.sample.row
    kind = "start" if row.phase in _TO_START else row.phase
    return (stuck.why.reason, kind) if unserved else (stuck.why.reason, kind, row.job_type)


def _finding(queue: QueueHealth, some: list[Stuck], health: Health, view: View) -> Finding:
    first = max(some, key=lambda stuck: stuck.waited)
    row, reason = first.sample.row, first.why.reason
    level, advice = _decided(first, queue, _is_served(queue, health), view)
    count = min(sum(stuck.sample.jobs for stuck in some), COUNTED)
    of_type = f" of type {row.job_type}" if len({stuck.sample.row.job_type for stuck in some}) == 1 else ""
    sentence = (
        f"{several(count, 'job')}{of_type} {_since(first, count)}; the first is job {row.id}: {first.why.sentence}"
    )
    facts = {"reason": reason, "jobs": count, "first": row.id, "job_type": row.job_type, "phase": row.phase,
             "seconds": first.waited}  # fmt: skip
    return Finding(level, sentence, advice, queue.name, facts)


def _since(stuck: Stuck, count: int) -> str:
    has, age = "has" if count == 1 else "have", lasting(stuck.waited)
    phase = stuck.sample.row.phase
    if phase == WAITING:
        return f"{has} been past {'its' if count == 1 else 'their'} deadline for {age}"
    return f"{has} been {'due' if phase in _TO_START else phase} for {age}"


def _decided(stuck: Stuck, queue: QueueHealth, served: bool, view: View) -> tuple[str, str]:
    """The finding for these jobs: how bad it is, and what to do."""
    row = stuck.sample.row
    look = view.command("job why", str(row.id))
    if _is_unserved(stuck, served):
        knows = view.program and stuck.why.reason == Reason.NO_CODE
        advice = _lacking(row.job_type, queue, view) if knows else f"start a worker: {view.worker(queue.name)}"
        return PROBLEM if stuck.waited >= view.patience else WARNING, advice
    match stuck.why.reason:
        case Reason.NO_CODE:
            return PROBLEM, _lacking(row.job_type, queue, view)
        case Reason.DECIDING if strategy := stuck.why.details.get("strategy"):
            named = f"@app.retry_strategy({strategy!r})"
            return PROBLEM, f"start a worker of a program that has {named}, or cancel such jobs"
        case Reason.DECIDING | Reason.ANSWERED | Reason.CANCELLING:
            if not stuck.why.details.get("engines"):
                return PROBLEM, _lacking(row.job_type, queue, view)
            return WARNING, f"the engines that have its code do not come to it: look into their logs; {look}"
        case Reason.WAITING | Reason.ANSWER_FAILED:
            if not served:
                return PROBLEM, f"start a worker: {view.worker(queue.name)}"
            return WARNING, "the engines of this queue do not notice: look into their logs, and at the clock"
        case Reason.WINDOW_UNKNOWN:
            return WARNING, "install the time zones on this machine and where workers run: pip install tzdata"
        case Reason.LIMIT_FULL | Reason.LANE_FULL | Reason.RATE | Reason.BEHIND:
            return NOTE, f"raise the limit, if that is too long: {view.command('queue limit', queue=queue.name)}"
        case Reason.PARKED:
            return NOTE, "nothing, if the throttler means it"
        case _:
            more = "more workers, or more hands (-c)"
            return WARNING, f"{more}, if they are busy; else look into the workers' logs, and at {look}"


def _lacking(job_type: str, queue: QueueHealth, view: View) -> str:
    if job_type in view.code.get(queue.name, ()):
        return f"{view.program} has that code: {view.worker(queue.name)}"
    whose = f"{view.program} has no code for it" if view.program else "which program has its code is not known here"
    return f"start a worker that has code for {job_type} ({whose}), or cancel such jobs"


# -- rules -----------------------------------------------------------------------------------------------------------
def rules(health: Health, view: View) -> Iterator[Finding]:
    """What keeps jobs from starting by rule: pauses, failing throttlers, jobs heavier than their limit."""
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
