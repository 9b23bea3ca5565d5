"""What changes of jobs add to the counters of `activity`. Pure: the counters are written together with the changes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from hipq.job import waiting
from hipq.job.activity import ANSWER, BOUNDS, COUNTERS, ENDS, HOUR, MINUTE, OTHER, RETRIED, RUN, STARTED
from hipq.job.event_names import JobEvent
from hipq.job.model import Change, Row, queue_of
from hipq.job.states import ANSWERED, CANCELLING, EXECUTING, FINAL, RETRY, WAITING, Code
from hipq.job.when import SECOND

TYPES: Final = 100
"""The most job types of a queue that a process counts apart in an hour. A daemon's queue may have many thousands, and
each would be a row a minute."""
_MINUTE: Final = MINUTE * SECOND

Counts = dict[tuple[int, int, str], list[int]]
"""Counters, in the order of `COUNTERS`, by queue, the beginning of the minute, and job type."""


class CountedTypes:
    """Which job types a process counts apart: the first of each queue and hour."""

    def __init__(self, most: int = TYPES) -> None:
        self._most = most
        self._found: dict[int, tuple[int, set[str]]] = {}

    def name(self, queue: int, moment: int, job_type: str) -> str:
        """The job type under which a job of this type is counted."""
        hour, known = self._found.get(queue, (-1, set[str]()))
        if hour < moment // (HOUR * SECOND):
            hour, known = self._found[queue] = moment // (HOUR * SECOND), set()
        if len(known) < self._most:
            known.add(job_type)
        return job_type if job_type in known else OTHER


class _Tally:
    def __init__(self, types: CountedTypes) -> None:
        self._types = types
        self._found: Counts = {}
        self.counts: Counts = {}

    def of(self, queue: int, minute: int, job_type: str) -> list[int]:
        key = queue, minute, job_type
        found = self._found.get(key)
        if found is None:
            counted = queue, minute, self._types.name(queue, minute, job_type)
            found = self._found[key] = self.counts.setdefault(counted, [0] * len(COUNTERS))
        return found


def tally(changes: Iterable[Change], types: CountedTypes) -> Counts:
    """What these changes add to the counters, once they are saved. A run counts in the minute in which it started,
    everything else in the minute of its change."""
    found = _Tally(types)
    last: Row | None = None
    now, queue, counters, started = 0, 0, list[int](), list[int]()
    for change in changes:
        before, after = change.before, change.after
        if last is None or after.update_time != now or queue_of(before.id) != queue or _differs(before, last):
            last, now, queue = before, after.update_time, queue_of(before.id)
            began = waiting.since(before) if before.phase == EXECUTING else now
            counters = found.of(queue, now - now % _MINUTE, before.job_type)
            started = found.of(queue, began - began % _MINUTE, before.job_type)
        _add(change, counters, started)
    return {key: counters for key, counters in found.counts.items() if any(counters)}


def _add(change: Change, counters: list[int], started: list[int]) -> None:
    before, after = change.before, change.after
    is_attempt = after.attempt == before.attempt  # the attempt was not taken back
    if before.phase == EXECUTING != after.phase and is_attempt:
        started[STARTED] += 1
        if change.ran:
            counters[RUN + bisect_right(BOUNDS, change.ran.seconds)] += 1
    if after.state == FINAL:
        counters[ENDS.get(after.code, ENDS[Code.ERROR])] += 1  # the database refuses an unknown code
    elif after.state == RETRY != before.state and is_attempt:
        counters[RETRIED] += 1
    if (after.phase == ANSWERED or before.phase != EXECUTING) and (claimed := _answered_since(change)):
        counters[ANSWER + bisect_right(BOUNDS, (after.update_time - claimed) / SECOND)] += 1


def _differs(job: Row, last: Row) -> bool:
    """Whether a job belongs to other counters than the one before. Jobs that were claimed together mostly have one
    type: then each of them costs a few comparisons."""
    return (
        job.deadline != last.deadline
        or job.job_type != last.job_type
        or job.phase != last.phase
        or job.timeout != last.timeout
    )


def _answered_since(change: Change) -> int:
    """When the job was claimed to send its request, if this change gives it an answer; 0 = it does not."""
    before, after = change.before, change.after
    if after.phase == ANSWERED:
        if before.phase == WAITING and waiting.load(before.wait).tries:
            return 0  # it looks once more at the answer that it has
        if before.phase == ANSWERED and not change.answer:
            return 0  # nobody has looked at it
        return waiting.since(before)
    is_result = after.state == FINAL and change.event == JobEvent.OK  # the answer of a job without an answer handler
    return waiting.since(before) if is_result and before.phase not in (EXECUTING, ANSWERED, CANCELLING) else 0
