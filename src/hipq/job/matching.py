"""What becomes of an answer, and of a job that begins to wait for one or fails before that: pure rules.

Matched on tenant, queue, job type and key, always all four. Whoever calls these has held the key's lock since before it
looked, and writes what they say before the lock is gone (`hipq.stores.inbox_transaction`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hipq.job import wait_transitions, waiting
from hipq.job.answer import (
    APPLIED,
    BUFFERED,
    CONFLICT,
    DUPLICATE,
    LATE,
    MATCHED,
    PROGRESS,
    SETTLED,
    UNREADABLE,
    Answered,
    NewAnswer,
)
from hipq.job.model import Change, Row
from hipq.job.states import ANSWERED, CANCELLING, ERROR, FINAL, RETRY, WAITING


class Placed(NamedTuple):
    """Where an answer of the inbox goes: its state, its job (0 = as it is), why."""

    id: int
    state: str
    job: int = 0
    note: str = ""


class Pending(NamedTuple):
    """What the rules must know of an answer in the inbox."""

    id: int
    job: int
    attempt: int
    copy: bool = False
    """Another copy of the one after which its job is to be tried again."""


class Ended(NamedTuple):
    """The last job of a key, if it ended a short while ago."""

    job: int
    same: int
    """The same answer, which it has had; 0 = it has not;"""
    settled: bool
    """it ended with an answer."""


class Found(NamedTuple):
    """What there is for an answer that comes: the same one, known by its id; the live job; the one that ended."""

    twin: Pending | None = None
    row: Row | None = None
    pending: Sequence[Pending] = ()
    """Earlier answers that the live job has not been given;"""
    used: int = 0
    """and one with the same body, after which it was to be tried again."""
    ended: Ended | None = None


class Verdict(NamedTuple):
    outcome: Answered
    state: str
    job: int = 0
    note: str = ""
    change: Change | None = None
    """What the job does about it."""
    placed: Sequence[Placed] = ()
    """Earlier answers, one of which the job is given first."""
    same: int = 0
    """The one of which this is another copy."""


def verdict(new: NewAnswer, found: Found, now: int) -> Verdict:
    if found.twin:
        return Verdict(Answered.DUPLICATE, DUPLICATE, found.twin.job, same=found.twin.id)
    if new.unreadable:
        return Verdict(Answered.UNREADABLE, UNREADABLE, note=new.unreadable)
    row = found.row
    if row is None:
        return _without_job(found.ended)
    if is_fenced(row, new.attempt, bool(new.fence)):
        return Verdict(Answered.LATE, LATE, row.id, _fence_note(row, new.attempt))
    attempts = [one.attempt for one in found.pending] + [new.attempt]
    if not takes(row) or any(_undecided(row, attempt, new.fence) for attempt in attempts):
        if row.phase == CANCELLING:
            return Verdict(Answered.LATE, LATE, row.id, "its job is being cancelled")
        return Verdict(Answered.BUFFERED, BUFFERED, row.id)
    if found.used and not new.answer_id and row.state in (ERROR, RETRY):
        return Verdict(Answered.DUPLICATE, DUPLICATE, row.id, same=found.used)
    earlier = meeting(row, found.pending, new.fence)
    if any(one.state == MATCHED for one in earlier):  # they are looked at in the order they came
        change = Change(row, wait_transitions.answered(row, now), (), MATCHED)
        return Verdict(Answered.BUFFERED, BUFFERED, row.id, change=change, placed=earlier)
    if waiting.load(row.wait).direct and not new.error:
        change = Change(row, wait_transitions.ended_by(row, new.data, now), (), "ok")
        return Verdict(Answered.MATCHED, SETTLED, row.id, change=change, placed=earlier)
    change = Change(row, wait_transitions.answered(row, now), (), MATCHED)
    return Verdict(Answered.MATCHED, MATCHED, row.id, change=change, placed=earlier)


def _without_job(ended: Ended | None) -> Verdict:
    if ended is None:
        return Verdict(Answered.BUFFERED, BUFFERED)
    if ended.same:
        return Verdict(Answered.DUPLICATE, DUPLICATE, ended.job, same=ended.same)
    if ended.settled:
        return Verdict(Answered.CONFLICT, CONFLICT, ended.job)
    return Verdict(Answered.LATE, LATE, ended.job)


def takes(row: Row) -> bool:
    """Whether the job takes an answer now. One that has been tried may have sent its request, so also while it waits to
    be tried again: the answer makes that unnecessary."""
    if row.phase == WAITING:
        return not waiting.load(row.wait).tries
    if row.phase == CANCELLING:
        cause = waiting.load(row.wait).cause
        return cause is None or cause.kind != "cancelled"
    return row.state in (ERROR, RETRY) and row.attempt > 0


def _undecided(row: Row, attempt: int, fence: bool | None) -> bool:
    """Whether it names another attempt, and nobody knows if the job has a fence: its row says so when it has waited."""
    return bool(attempt) and attempt != row.attempt and not row.wait and fence is None


def is_useless(row: Row, one: Pending, fence: bool | None) -> bool:
    """Whether it will never be given to the job: a copy, or to another attempt."""
    return one.copy or is_fenced(row, one.attempt, bool(fence))


def is_fenced(row: Row, attempt: int, fence: bool) -> bool:
    """Whether an answer is to another attempt, and so not for this job. `fence`: its type is known to have one."""
    return bool(attempt) and attempt != row.attempt and (fence or waiting.load(row.wait).fence)


def _fence_note(row: Row, attempt: int) -> str:
    return f"it is an answer to attempt {attempt}, and its job is at attempt {row.attempt}"


def meeting(row: Row, pending: Sequence[Pending], fence: bool | None = None) -> list[Placed]:
    """A job that takes answers now, and what is kept for it, in the order it came: it is given the first that is not to
    another attempt, and the others are its own from now on. `fence`: whether its type has one, if that is known."""
    found: list[Placed] = []
    state = MATCHED
    for one in pending:
        if one.copy:
            found.append(Placed(one.id, DUPLICATE, row.id))
        elif is_fenced(row, one.attempt, bool(fence)):
            found.append(Placed(one.id, LATE, row.id, _fence_note(row, one.attempt)))
        else:
            if _undecided(row, one.attempt, fence):
                state = BUFFERED  # nor is it given one that came later
            if state == MATCHED or not one.job:
                found.append(Placed(one.id, state, row.id))
            state = BUFFERED
    return found


def use_of(row: Row) -> str:
    """What an answer was to its job, which is like this since."""
    if row.state == FINAL:
        return SETTLED
    return PROGRESS if row.phase in (WAITING, ANSWERED) else APPLIED


def seeks(change: Change) -> Row | None:
    """The job as it looks into the inbox, or None. It looks when this change lets it take answers and it took none
    before: it begins to wait, or it has failed. Also if that failure of its handler is to be its end."""
    row = change.seeking or change.after
    if row.state == FINAL:
        return None
    return row if takes(row) and not takes(change.before) else None
