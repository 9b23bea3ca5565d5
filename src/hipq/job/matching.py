"""The rules by which answers and jobs find each other: pure functions.

An answer is matched on tenant, queue, job type and key, always all four. `verdict` decides about an answer that
arrives; `wait_verdict` decides about a job that begins to wait or fails, for its answer may have arrived before. Both
hand a job the first answer that is not for another attempt (`_hand_over`). The caller
(`hipq.stores.inbox_transaction`) has locked the keys before it reads what these functions are given, and writes what
they return before it unlocks them. Case numbers in comments are those of tests/answers/test_cases.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from hipq.job import wait_transitions, waiting
from hipq.job.answer import APPLIED, BUFFERED, DUPLICATE, LATE, MATCHED, PROGRESS, SETTLED, Answered, NewAnswer
from hipq.job.event_names import JobEvent
from hipq.job.fault import FaultKind
from hipq.job.model import Change, Row
from hipq.job.states import ANSWERED, CANCELLING, ERROR, FINAL, RETRY, WAITING


class Placed(msgspec.Struct, frozen=True):
    """A new state for an answer that is already in the inbox."""

    id: int
    state: str
    job: int = 0
    """The job that the answer belongs to from now on; 0 = the same as before."""
    note: str = ""


class Pending(NamedTuple):
    """An answer in the inbox, as far as the rules need it."""

    id: int
    job: int
    attempt: int
    copy: bool = False
    """Whether it has the body of the answer after which its job is to be tried again."""


class Ended(NamedTuple):
    """The last job that had a key, if it ended within the early window."""

    job: int
    same: int
    """The number of the answer with the same body that the job has had; 0 = none."""
    settled: bool
    """Whether the job ended with an answer."""


class Candidate(NamedTuple):
    """All that the verdict about one answer depends on."""

    twin: Pending | None = None
    """The same answer, by its id, if it has arrived before."""
    row: Row | None = None
    """The live job that has the answer's key."""
    pending: Sequence[Pending] = ()
    """Earlier answers that the live job has not been given."""
    applied: int = 0
    """The number of an answer with the same body, after which the live job is to be tried again; 0 = none."""
    ended: Ended | None = None
    """The last job that had the key, if no job is live and the answer has no twin."""


class Verdict(NamedTuple):
    """What becomes of an answer that arrives."""

    outcome: Answered
    job: int = 0
    """The job that the answer belongs to; 0 = none yet."""
    note: str = ""
    change: Change | None = None
    """The transition of that job, if the answer causes one."""
    placed: Sequence[Placed] = ()
    """Earlier answers to that job, filed anew."""
    same: int = 0
    """The answer of which this one is another copy, so that it is counted there and not kept; 0 = none."""

    @property
    def state(self) -> str:
        """The state in which the inbox keeps the answer."""
        return SETTLED if self.change and self.change.after.state == FINAL else str(self.outcome)


class WaitVerdict(NamedTuple):
    """What becomes of a job that begins to wait, fails or has looked at an answer, and of its answers."""

    change: Change
    """The change to save: as it was, or with the job in phase answered."""
    is_answered: bool
    """Whether the job found its answer in the inbox."""
    placed: Sequence[Placed]
    """The answers that the inbox kept for the job, filed anew."""
    used: str
    """The state of the answer that the job has looked at; "" if it has looked at none."""


# -- an answer arrives -----------------------------------------------------------------------------------------------
def verdict(answer: NewAnswer, candidate: Candidate, now: int) -> Verdict:
    if candidate.twin:  # case 3
        return Verdict(Answered.DUPLICATE, candidate.twin.job, same=candidate.twin.id)
    if answer.unreadable:
        return Verdict(Answered.UNREADABLE, note=answer.unreadable)
    if candidate.row is None:
        return _without_live_job(answer, candidate.ended)
    return _with_live_job(answer, candidate, candidate.row, now)


def _without_live_job(answer: NewAnswer, ended: Ended | None) -> Verdict:
    if answer.job and (ended is None or ended.job != answer.job):
        return Verdict(Answered.LATE, answer.job)  # case 6: the named job ended long ago, or others had its key since
    if ended is None:  # cases 2 and 10: before its job is added, or for none
        return Verdict(Answered.BUFFERED)
    if ended.same:  # case 3, by the body
        return Verdict(Answered.DUPLICATE, ended.job, same=ended.same)
    if ended.settled:  # case 4
        return Verdict(Answered.CONFLICT, ended.job)
    return Verdict(Answered.LATE, ended.job)  # cases 6 and 8


def _with_live_job(answer: NewAnswer, candidate: Candidate, row: Row, now: int) -> Verdict:
    if is_fenced(row, answer.attempt, answer.fence):  # case 7
        return Verdict(Answered.LATE, row.id, _fence_note(row, answer.attempt))
    attempts = (*(one.attempt for one in candidate.pending), answer.attempt)
    if not takes(row) or any(_is_undecided(row, attempt, answer.fence) for attempt in attempts):
        if row.phase == CANCELLING:  # case 17
            return Verdict(Answered.LATE, row.id, "its job is being cancelled")
        return Verdict(Answered.BUFFERED, row.id)  # cases 2 and 12: the job sends its request, or looks at an answer
    if candidate.applied:  # case 3, by the body
        return Verdict(Answered.DUPLICATE, row.id, same=candidate.applied)
    earlier = _hand_over(row, candidate.pending, answer.fence)
    if _is_matched(earlier):  # case 12: a job looks at its answers in the order in which they arrived
        change = Change(row, wait_transitions.answered(row, now), (), MATCHED)
        return Verdict(Answered.BUFFERED, row.id, change=change, placed=earlier)
    if waiting.load(row.wait).direct and not answer.error:
        change = Change(row, wait_transitions.ended_by(row, answer.data, now), (), JobEvent.OK)
    else:
        change = Change(row, wait_transitions.answered(row, now), (), MATCHED)
    return Verdict(Answered.MATCHED, row.id, change=change, placed=earlier)  # cases 1, 5, 7, 11 and 12


# -- a job begins to wait, or fails ----------------------------------------------------------------------------------
def looking(change: Change) -> Row | None:
    """The row with which a job looks into the inbox; None if it does not look.

    A job looks when the change lets it take answers and it took none before: it begins to wait, or it has failed. It
    also looks before a failure ends it.
    """
    row = change.seeking or change.after
    if row.state == FINAL:
        return None
    return row if takes(row) and not takes(change.before) else None


def wait_verdict(change: Change, pending: Sequence[Pending], now: int) -> WaitVerdict:
    """The verdict about a job for which the inbox keeps these answers, in the order in which they arrived: cases 2, 5,
    7 and 12, seen from the job."""
    used = use_of(change.after) if change.answer and not change.unused else ""
    row = looking(change)
    placed = _hand_over(row, pending, None) if row else []
    if change.unused:  # case 14
        placed.append(Placed(change.answer, LATE, change.before.id, change.unused))
    if row is None or not _is_matched(placed):
        return WaitVerdict(change, False, placed, used)
    after = wait_transitions.answered(row, now)  # saved in one write, by which the job gives up none of what it holds
    after = replace(after, token=change.after.token, held=change.before.held)
    return WaitVerdict(replace(change, after=after), True, placed, used)


def use_of(row: Row) -> str:
    """The new state of an answer that a job has looked at, by what has become of the job."""
    if row.state == FINAL:
        return SETTLED
    return PROGRESS if row.phase in (WAITING, ANSWERED) else APPLIED


# -- what both sides ask ---------------------------------------------------------------------------------------------
def takes(row: Row) -> bool:
    """Whether the job takes an answer now. A job that waits to be tried again does, for its request may have been sent:
    the answer makes the retry unnecessary (case 5)."""
    if row.phase == WAITING:
        return not waiting.load(row.wait).tries  # case 14: else it has an answer, at which its handler failed
    if row.phase == CANCELLING:
        cause = waiting.load(row.wait).cause
        return cause is None or cause.kind != FaultKind.CANCELLED
    return row.state in (ERROR, RETRY) and row.attempt > 0


def is_fenced(row: Row, attempt: int, fence: bool | None) -> bool:
    """Whether an answer is for another attempt, and the job refuses such answers (case 7). `fence`: what is known of
    its job type. Once the job has waited, its row says so too."""
    return bool(attempt) and attempt != row.attempt and (bool(fence) or waiting.load(row.wait).fence)


def is_useless(row: Row, one: Pending, fence: bool | None) -> bool:
    """Whether an answer will never be given to the job, because it is a repeat, or for another attempt."""
    return one.copy or is_fenced(row, one.attempt, fence)


def _is_undecided(row: Row, attempt: int, fence: bool | None) -> bool:
    """Whether an answer is for another attempt, and this program does not know whether the job refuses such answers."""
    return bool(attempt) and attempt != row.attempt and not row.wait and fence is None


def _hand_over(row: Row, pending: Sequence[Pending], fence: bool | None) -> list[Placed]:
    """The answers that were kept for a job which takes answers now: the first that it does not refuse is given to it,
    and the others stay in the inbox as its own."""
    placed: list[Placed] = []
    state = MATCHED
    for one in pending:
        if one.copy:  # case 3
            placed.append(Placed(one.id, DUPLICATE, row.id))
        elif is_fenced(row, one.attempt, fence):  # case 7
            placed.append(Placed(one.id, LATE, row.id, _fence_note(row, one.attempt)))
        else:
            if _is_undecided(row, one.attempt, fence):
                state = BUFFERED  # nor is the job given an answer that arrived later
            if state == MATCHED or not one.job:
                placed.append(Placed(one.id, state, row.id))
            state = BUFFERED
    return placed


def _is_matched(placed: Sequence[Placed]) -> bool:
    return any(one.state == MATCHED for one in placed)


def _fence_note(row: Row, attempt: int) -> str:
    return f"it is an answer to attempt {attempt}, and its job is at attempt {row.attempt}"
