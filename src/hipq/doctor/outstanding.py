"""Answers that are overdue, and the listeners that should bring them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from hipq.answers.reports import STALE, Stream
from hipq.doctor.finding import Finding, View, lasting, ok, several, warning
from hipq.job import waiting
from hipq.job.when import SECOND
from hipq.stores.health.facts import Health, QueueHealth

UNUSUAL: Final = 3
"""A wait is unusual if it lasts so many times as long as 95 % of the answers to its job type took."""
LAST_PART: Final = 0.1
"""Of the time a job may wait. Where nobody knows what is usual, jobs in it are told of."""
BEHIND: Final = 1000
"""Messages by which a listener may be behind."""


class Wait(NamedTuple):
    id: int
    seconds: float
    """For which the job has waited;"""
    left: float
    """until it gives up;"""
    usual: float | None
    """and in which 95 % of the answers came; None = too few have come to know."""

    @property
    def is_unusual(self) -> bool:
        if self.usual is not None:
            return self.seconds > UNUSUAL * self.usual
        return self.left < LAST_PART * (self.seconds + self.left)


def outstanding(health: Health, view: View) -> Iterator[Finding]:
    """Jobs that wait for their answer for longer than usual, by type."""
    for queue in health.queues:
        by_type = defaultdict(list)
        for job_type, wait in _waits(queue, health.now):
            if wait.is_unusual and wait.seconds >= view.patience:
                by_type[job_type].append(wait)
        for job_type, waits in by_type.items():
            yield _overdue(queue, job_type, waits, health, view)


def _waits(queue: QueueHealth, now: int) -> Iterator[tuple[str, Wait]]:
    for one in queue.outstanding:
        found = waiting.load(one.wait)
        if found.since and not found.tries:  # else it has its answer, and its handler is to look at that once more
            seconds, left = (now - found.since) / SECOND, (found.until - now) / SECOND
            yield one.job_type, Wait(one.id, seconds, left, queue.usual.get(one.job_type))


def _overdue(queue: QueueHealth, job_type: str, waits: list[Wait], health: Health, view: View) -> Finding:
    first = max(waits, key=lambda wait: wait.seconds)
    count, job = len(waits), f"job {first.id}"
    waits_for = "waits for its answer" if count == 1 else "wait for their answers"
    known = f": 95 % of them come within {lasting(first.usual)}" if first.usual is not None else ""
    sentence = (
        f"{several(count, 'job')} of type {job_type} {waits_for} for longer than usual{known}; the first is {job}, "
        f"for {lasting(first.seconds)}, with {lasting(first.left)} left"
    )
    if first.usual is None:
        sentence = (
            f"{several(count, 'job')} of type {job_type} {waits_for} and will soon give up; the first is {job}, after "
            f"{lasting(first.seconds)}, with {lasting(first.left)} left"
        )
    stream = next((one.url for name, one in _streams(health) if name == f"{queue.name}.{job_type}"), "")
    advice = f"see whether requests arrive there and answers come back{stream and f' on {stream}'}"
    facts = {"jobs": count, "first": first.id, "job_type": job_type, "seconds": first.seconds, "left": first.left,
             "usual": first.usual}  # fmt: skip
    return warning(sentence, f"{advice}; {view.command('job show', str(first.id))}", queue.name, facts)


def listeners(health: Health, _view: View) -> Iterator[Finding]:
    """Streams that nobody listens to although jobs wait for what comes there; listeners that lag, or cannot read."""
    awaited = {f"{queue.name}.{one.job_type}" for queue in health.queues for one in queue.outstanding}
    queues = {queue.name for queue in health.queues}
    for name, stream in _streams(health):
        queue = name.rpartition(".")[0]
        if queue not in queues:
            continue  # another instance's
        members = [one for one in stream.members.values() if one.seen > health.now - STALE]
        facts = {"stream": stream.url, "listening": len(members)}
        if not members and name in awaited:
            sentence = f"nobody listens to {stream.url}, where answers to {name} come, and jobs wait for them"
            advice = "start a worker of the program that listens, or `hipq listen MODULE:APP`"
            yield warning(sentence, advice, queue, facts)
        for error in sorted({one.error for one in members if one.error}):
            advice = "see whether that server can be reached from where the listener runs"
            said = f"the listener of {stream.url}, for {name}, is in trouble: {' '.join(error.split())}"
            yield warning(said, advice, queue, facts | {"error": error})
        lag = max((one.lag for one in members if one.lag is not None), default=0)
        if lag > BEHIND:
            sentence = f"the listener of {stream.url}, for {name}, is {lag:,} messages behind"
            advice = "start more listeners of its group, or look what slows this one down: its log, the database"
            yield warning(sentence, advice, queue, facts | {"lag": lag})
    if health.listeners:
        yield ok("listeners keep up")


def _streams(health: Health) -> Iterator[tuple[str, Stream]]:
    """Each stream by its listener's name: INSTANCE.QUEUE.TYPE."""
    for key, text in health.listeners.items():
        app, _, listener = key.partition(" ")
        yield f"{app}.{listener.partition(' ')[0]}", msgspec.json.decode(text, type=Stream)
