"""Matching answers with jobs inside one transaction: read the candidates, ask the pure rules, write their verdicts.

`deliver` is for answers that arrive, `match_waiting` and `close_out` are for jobs that begin to wait, fail or end. The
keys are locked in a statement of its own before anything is read. Otherwise an answer and its job, at the same moment,
might both look before either has written, and never find each other. The rules are in `hipq.job.matching`; what a store
reads and writes for them is an `InboxTransaction`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from hipq.errors import Conflict, KeyTaken, NotFound
from hipq.job.answer import APPLIED, BUFFERED, REPLAYABLE, STATES, Answered, Kept, NewAnswer, kept, number_of
from hipq.job.matching import (
    Candidate,
    Ended,
    Pending,
    Placed,
    Verdict,
    WaitVerdict,
    is_useless,
    looking,
    takes,
    use_of,
    verdict,
    wait_verdict,
)
from hipq.job.model import Change, Row, queue_of
from hipq.job.states import ERROR, FINAL, RETRY, WAITING
from hipq.stores.values import Delivered

KEYS_AT_ONCE: Final = 1000
"""The most keys that one transaction locks: with twenty times as many PostgreSQL's lock table is full."""
LOOKED_AT: Final = 100
"""The most answers to one job that are read together."""

Key = tuple[int, str, str, str]
"""Queue, tenant, job type, and a key of a job: its own, or the one under which it waits."""
Numbered = Mapping[int, NewAnswer]
"""Answers, by their positions in the batch."""
Applied = Mapping[int, int]
"""By the id of a job that is to be tried again, the answer after which it is to be."""
NONE_APPLIED: Final[Applied] = MappingProxyType({})


class InboxTransaction(Protocol):
    """The inbox in one transaction that has locked the keys. Empty arguments cost no statement."""

    def live(self, answers: Numbered) -> dict[int, Row]:
        """The live jobs that have the answers' keys as their own or, where no job has, for their waits: locked."""

    def holders(self, rows: Sequence[Row]) -> dict[int, int]:
        """By the id of each job whose wait key another live job has, the id of that other job."""

    def withdraw(self, answer_id: int, states: Sequence[str]) -> str:
        """Delete an answer if it is in one of these states. Returns "", or else its state, or "none"."""

    def twins(self, answers: Numbered, now: int) -> dict[int, Pending]:
        """The answers with the same ids that are still remembered."""

    def applied(self, answers: Numbered, rows: Mapping[int, Row]) -> dict[int, int]:
        """Answers with the same keys and bodies, after which these jobs are to be tried again."""

    def ended(self, answers: Numbered, now: int) -> dict[int, Ended]:
        """The last jobs that had the answers' keys, if they ended within the early window."""

    def pending(
        self, rows: Sequence[Row], now: int, after: int, applied: Applied = NONE_APPLIED
    ) -> dict[int, list[Pending]]:
        """By the id of each job, up to `LOOKED_AT` answers that are kept for it, after an answer's number: those under
        its keys, and those that belong to it already, in the order in which they arrived."""

    def insert(self, answers: Sequence[Kept]) -> list[int]:
        """Put answers into the inbox, and return their numbers."""

    def count_copies(self, ids: Sequence[int]) -> None:
        """Count one more arrival of each of these answers."""

    def place(self, placed: Sequence[Placed]) -> None:
        """Give answers their new states, jobs and notes."""

    def mark_used(self, placed: Sequence[Placed], now: int) -> None:
        """Mark answers that jobs have looked at: from now on only their ids need be remembered."""

    def place_leftovers(self, jobs: Sequence[tuple[int, int]]) -> list[Placed]:
        """Close out jobs that have ended, each with an answer (0 = without one). Whatever else was kept for them
        becomes late, duplicate or conflict, and is returned."""

    def save(self, changes: Sequence[Change]) -> None:
        """Save the changes of jobs that are locked."""

    def final_jobs(self, ids: Sequence[int]) -> dict[int, Row]:
        """Which of the jobs with these ids have ended. One statement reads all of them."""


def lock_number(key: Key) -> int:
    return number_of(*map(str, key))


# -- answers arrive --------------------------------------------------------------------------------------------------
def deliver(inbox: InboxTransaction, answers: Sequence[NewAnswer], now: int, instead_of: int = 0) -> list[Delivered]:
    """Keep answers and match them with their jobs. Several answers to one key, or to one job, are taken one after
    another."""
    delivered: dict[int, Delivered] = {}
    left = dict(enumerate(answers))
    while left:
        candidates = read_candidates(inbox, _one_of_each_key(left), now, instead_of)
        verdicts = {number: verdict(left[number], one, now) for number, one in candidates.items()}
        delivered |= _write(inbox, left, verdicts, candidates)
        left, instead_of = {number: one for number, one in left.items() if number not in delivered}, 0
    return [delivered[number] for number in range(len(answers))]


def _one_of_each_key(answers: Numbered) -> Numbered:
    first: dict[Key, int] = {}
    for number, one in answers.items():
        first.setdefault(one.whole_key, number)
    return {number: answers[number] for number in first.values()}


def read_candidates(inbox: InboxTransaction, answers: Numbered, now: int, instead_of: int = 0) -> dict[int, Candidate]:
    """The candidates on which the verdicts depend, for one answer to each job. An answer under the other key of a job
    that already has one in this round is left for the next round."""
    live = _live(inbox, answers)  # first: all their rows are locked before anything is written
    first = {live[number].id: number for number in sorted(live, reverse=True)}
    rows = {number: live[number] for number in first.values()}
    answers = {number: one for number, one in answers.items() if number not in live or number in rows}
    if instead_of:
        _withdraw(inbox, instead_of)
    twins = _twins(inbox, answers, now)
    jobless = {n: one for n, one in answers.items() if n not in rows and n not in twins and not one.unreadable}
    ended = inbox.ended(jobless, now)
    applied = _applied(inbox, answers, rows)
    pending = _pending(
        inbox,
        [row for row in rows.values() if row.phase != WAITING and takes(row)],  # when it began to wait, it looked
        {row.id: answers[number].fence for number, row in rows.items()},
        now,
    )
    of_job = {number: pending.get(row.id, ()) for number, row in rows.items()}
    return {
        n: Candidate(twins.get(n), rows.get(n), of_job.get(n, ()), applied.get(n, 0), ended.get(n)) for n in answers
    }


def _live(inbox: InboxTransaction, answers: Numbered) -> dict[int, Row]:
    """The live jobs that have the answers' keys. An answer that is for one particular job finds no other."""
    live = inbox.live({number: one for number, one in answers.items() if not one.unreadable})
    return {number: row for number, row in live.items() if answers[number].job in (0, row.id)}


def _twins(inbox: InboxTransaction, answers: Numbered, now: int) -> dict[int, Pending]:
    """Earlier copies of these answers, found by their ids. Jobs that had the same key may have had answers with the
    same id."""
    twins = inbox.twins({number: one for number, one in answers.items() if one.answer_id}, now)
    return {n: twin for n, twin in twins.items() if not answers[n].job or twin.job in (0, answers[n].job)}


def _applied(inbox: InboxTransaction, answers: Numbered, rows: Mapping[int, Row]) -> dict[int, int]:
    """Earlier copies of answers without an id, to failed jobs: those after which the job is to be tried again."""
    failed = {n: row for n, row in rows.items() if row.state in (ERROR, RETRY) and takes(row)}
    return inbox.applied({n: answers[n] for n in failed if not answers[n].answer_id}, failed)


def _withdraw(inbox: InboxTransaction, answer_id: int) -> None:
    state = inbox.withdraw(answer_id, REPLAYABLE)
    if state == "none":
        raise NotFound(f"there is no answer {answer_id}")
    if state:
        raise Conflict(f"answer {answer_id} is {state}: {STATES[state]}")


def _pending(
    inbox: InboxTransaction,
    rows: Sequence[Row],
    fences: Mapping[int, bool | None],
    now: int,
    applied: Applied = NONE_APPLIED,
) -> dict[int, list[Pending]]:
    """The answers kept for these jobs: a page for each job, and more pages until one has an answer that the job can
    use."""
    found = inbox.pending(rows, now, 0, applied)
    for row in rows:
        pages = page = found.get(row.id, [])
        while len(page) == LOOKED_AT and all(is_useless(row, one, fences.get(row.id)) for one in page):
            page = inbox.pending([row], now, pages[-1].id, applied).get(row.id, [])
            pages += page
    return found


def _write(
    inbox: InboxTransaction, answers: Numbered, verdicts: Mapping[int, Verdict], candidates: Mapping[int, Candidate]
) -> dict[int, Delivered]:
    fresh = {number: one for number, one in verdicts.items() if not one.same}
    rows = {number: kept(answers[number], one.state, one.job, one.note) for number, one in fresh.items()}
    ids = dict(zip(fresh, inbox.insert(list(rows.values())), strict=True))
    shown = {n: one.job for n, one in fresh.items() if one.outcome == Answered.LATE and answers[n].shows_late}
    final = inbox.final_jobs([job for number, job in shown.items() if not candidates[number].row])
    late = {
        number: (row, replace(rows[number], id=ids[number]))
        for number, job in shown.items()
        if (row := candidates[number].row or final.get(job))
    }
    inbox.count_copies([one.same for one in verdicts.values() if one.same])
    inbox.place([placed for one in verdicts.values() for placed in one.placed])
    inbox.save([one.change for one in verdicts.values() if one.change])
    return {
        number: Delivered(one.outcome, ids.get(number, one.same), one.job, one.change, one.placed, late.get(number))
        for number, one in verdicts.items()
    }


# -- jobs begin to wait, fail or end ---------------------------------------------------------------------------------
class Matched(NamedTuple):
    """The changes to save, and the verdicts about those that concern the inbox, by the ids of their jobs."""

    changes: Sequence[Change]
    verdicts: Mapping[int, WaitVerdict]

    def answered(self, lost: frozenset[int]) -> dict[int, Row]:
        """The jobs that found an answer in the inbox and whose changes were saved."""
        return {job: one.change.after for job, one in self.verdicts.items() if one.is_answered and job not in lost}


def keys_to_lock(changes: Sequence[Change]) -> list[Key]:
    """The keys to lock before these changes are saved: those of jobs that look into the inbox, and any key that such a
    job gives up for another."""
    return [
        (queue_of(row.id), row.tenant, row.job_type, key)
        for change in changes
        if (row := looking(change))
        for key in {*change.before.answer_keys, *row.answer_keys}
    ]


def match_waiting(inbox: InboxTransaction, changes: Sequence[Change], now: int) -> Matched:
    """Let jobs that begin to wait look into the inbox, where their answers may be already, and jobs that failed, which
    may have sent their requests. KeyTaken if a job wants to wait under a key that another live job has."""
    first: dict[int, Change] = {}
    for change in changes:
        first.setdefault(change.before.id, change)  # no other change of the same job is saved
    looks = {job: row for job, change in first.items() if (row := looking(change))}
    used = {job: change for job, change in first.items() if change.answer}
    if not looks and not used:
        return Matched(changes, {})
    _check_wait_keys(inbox, first.values())
    applied = {job: change.answer for job, change in used.items() if use_of(change.after) == APPLIED}
    pending = _pending(inbox, list(looks.values()), {}, now, applied)
    verdicts = {job: wait_verdict(first[job], pending.get(job, ()), now) for job in looks | used}
    instead = {id(first[job]): one.change for job, one in verdicts.items()}
    return Matched([instead.get(id(change), change) for change in changes], verdicts)


def _check_wait_keys(inbox: InboxTransaction, changes: Iterable[Change]) -> None:
    """Refuse a wait key that another live job has, as its own or for its wait, since an answer finds one job (case 16).
    A job that is added later may have that key as its own, since adding takes no lock: answers find that job then."""
    wanted = [one.after for one in changes if one.after.wait_key not in ("", one.before.wait_key)]
    if not wanted:
        return
    taken = inbox.holders(wanted)
    first: dict[Key, int] = {}
    for row in wanted:
        holder = first.setdefault((queue_of(row.id), row.tenant, row.job_type, row.wait_key), row.id)
        if holder != row.id:
            taken.setdefault(row.id, holder)
    if taken:
        raise KeyTaken(taken)


def close_out(inbox: InboxTransaction, saved: Sequence[Change], matched: Matched, now: int) -> list[Placed]:
    """Write the consequences of saved changes for the inbox. Returns the answers that were given to their jobs, or that
    became useless when their jobs ended."""
    verdicts = [one for change in saved if (one := matched.verdicts.get(change.before.id))]
    placed = [placed for one in verdicts for placed in one.placed]
    if used := [Placed(one.change.answer, one.used) for one in verdicts if one.used]:
        inbox.mark_used(used, now)
    if placed:
        inbox.place(placed)
    # Jobs that never waited, which are most, are left to `Store.maintain`: a statement here costs every turn.
    ended = [(one.before.id, one.answer) for one in saved if one.after.state == FINAL and one.before.wait]
    left = inbox.place_leftovers(ended) if ended else []
    return [one for one in placed if one.state != BUFFERED] + left
