"""How answers and jobs meet: the same for every store, which only reads and writes for it.

In one transaction, under the locks of the keys. They are taken in a statement of their own before anything is read:
else an answer and a job that come at the same moment may both look before either has written, and never meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from hipq.errors import Conflict, KeyTaken, NotFound
from hipq.job import wait_transitions
from hipq.job.answer import APPLIED, BUFFERED, MATCHED, REPLAYABLE, STATES, Kept, NewAnswer, kept, number_of
from hipq.job.matching import Ended, Found, Pending, Placed, is_useless, meeting, seeks, takes, use_of, verdict
from hipq.job.model import Change, Row, queue_of
from hipq.job.states import ERROR, FINAL, RETRY, WAITING
from hipq.stores.values import Delivered

KEYS_AT_ONCE: Final = 1000
"""Keys a transaction locks: with twenty times as many PostgreSQL runs out of room for locks."""
LOOKED_AT: Final = 100
"""Answers to one job that are looked at together when it begins to wait, or fails."""

Key = tuple[int, str, str, str]
"""Queue, tenant, job type and a key of a job: its own, or that of its wait."""


Numbered = Sequence[tuple[int, NewAnswer]]
"""Answers, each with a number that tells it from the others."""
Applied = Mapping[int, int]
"""Jobs, each with an answer it has had."""
NONE_APPLIED: Final[Applied] = MappingProxyType({})


class InboxTransaction(Protocol):
    """What is read and written, in one transaction; the keys are locked."""

    def live(self, answers: Numbered) -> dict[int, Row]:
        """The live jobs that have their keys, locked: as their own or, where no job has that, for their waits."""

    def holders(self, rows: Sequence[Row]) -> dict[int, int]:
        """By the id of each job that wants to wait under a key which another live job has, the id of that one."""

    def withdraw(self, answer_id: int, states: Sequence[str]) -> str:
        """Take an answer out of the inbox, if it is in one of these states; else its state, or "none"."""

    def twins(self, answers: Numbered, now: int) -> dict[int, Pending]:
        """The same answers, by their ids, as far as they are remembered."""

    def applied(self, answers: Numbered, rows: dict[int, Row]) -> dict[int, int]:
        """Answers with the same keys and bodies, after which these jobs were to be tried again."""

    def ended(self, answers: Numbered, now: int) -> dict[int, Ended]:
        """The last jobs that had their keys, if they have just ended."""

    def pending(
        self, rows: Sequence[Row], now: int, after: int, applied: Applied = NONE_APPLIED
    ) -> dict[int, list[Pending]]:
        """What is kept for jobs that take answers, by their ids: some for each, in the order it came, behind an answer.
        That is what came under their keys and, under whatever key they had then, what belongs to them already.
        `applied`: some have just looked at one, and are to be tried again because of it."""

    def insert(self, answers: Sequence[Kept]) -> list[int]:
        """Put them into the inbox; their ids."""

    def copied(self, ids: Sequence[int]) -> None:
        """They came once more."""

    def place(self, some: Sequence[Placed]) -> None: ...

    def used(self, some: Sequence[Placed], now: int) -> None:
        """Jobs have looked at these: from now on only their ids need be known."""

    def left(self, jobs: Sequence[tuple[int, int]]) -> list[Placed]:
        """These jobs ended, each with that answer (0 = without one): what else was kept for them is too late. Those."""

    def save(self, changes: Sequence[Change]) -> None:
        """Changes of jobs that are locked."""


def lock_number(key: Key) -> int:
    return number_of(*map(str, key))


def by_queue(answers: Numbered) -> list[tuple[int, Numbered]]:
    """The answers to each queue's jobs, in an order all share, since rows are locked."""
    found: dict[int, list[tuple[int, NewAnswer]]] = {}
    for one in answers:
        found.setdefault(one[1].queue, []).append(one)
    return sorted(found.items())


# -- the answer comes ------------------------------------------------------------------------------------------------
def deliver(inbox: InboxTransaction, answers: Sequence[NewAnswer], now: int, instead_of: int = 0) -> list[Delivered]:
    """What becomes of answers that come; several to one key, or to one job, are taken one after the other."""
    delivered: dict[int, Delivered] = {}
    todo = list(enumerate(answers))
    while todo:
        first: dict[Key, tuple[int, NewAnswer]] = {}
        for one in todo:
            first.setdefault(one[1].whole_key, one)
        delivered |= _deliver(inbox, list(first.values()), now, instead_of)
        todo, instead_of = [one for one in todo if one[0] not in delivered], 0
    return [delivered[number] for number in range(len(answers))]


def _deliver(inbox: InboxTransaction, answers: Numbered, now: int, instead_of: int) -> dict[int, Delivered]:
    """Of each key one, and of each job: what comes under the other key of a job is left for the next round."""
    found = _found(inbox, answers, now, instead_of)
    answers = [one for one in answers if one[0] in found]
    verdicts = {number: verdict(new, found[number], now) for number, new in answers}
    fresh = [(number, new) for number, new in answers if not verdicts[number].same]
    rows = [kept(new, verdicts[n].state, verdicts[n].job, verdicts[n].note) for n, new in fresh]
    ids = dict(zip((number for number, _ in fresh), inbox.insert(rows), strict=True))
    inbox.copied([one.same for one in verdicts.values() if one.same])
    inbox.place([one for found in verdicts.values() for one in found.placed])
    inbox.save([one.change for one in verdicts.values() if one.change])
    return {
        number: Delivered(one.outcome, ids.get(number, one.same), one.job, one.change, one.placed)
        for number, one in verdicts.items()
    }


def _found(inbox: InboxTransaction, answers: Numbered, now: int, instead_of: int) -> dict[int, Found]:
    keyed = [one for one in answers if not one[1].unreadable]
    live = inbox.live(keyed)  # first, and of all of them: their rows are locked before anything is written
    for number, new in keyed:
        if new.job and number in live and live[number].id != new.job:
            del live[number]  # another job has its key now
    first: dict[int, int] = {}
    for number in sorted(live):
        first.setdefault(live[number].id, number)
    answers = [one for one in answers if one[0] not in live or first[live[one[0]].id] == one[0]]
    keyed = [one for one in answers if not one[1].unreadable]
    live = {number: live[number] for number in first.values()}
    if instead_of:
        _withdraw(inbox, instead_of)
    named = [(number, new) for number, new in answers if new.answer_id]
    twins = inbox.twins(named, now) if named else {}
    for number, new in named:
        if new.job and number in twins and twins[number].job not in (0, new.job):
            del twins[number]  # it has the same name, and is to another job that had its key
    without = [(number, new) for number, new in keyed if number not in live and number not in twins]
    ended = inbox.ended(without, now) if without else {}
    for number, new in without:
        if new.job and (number not in ended or ended[number].job != new.job):
            ended[number] = Ended(new.job, 0, settled=False)  # another has ended since; or it is longer ago
    failed = {number: row for number, row in live.items() if takes(row) and row.state in (ERROR, RETRY)}
    unnamed = [(number, new) for number, new in answers if number in failed and not new.answer_id]
    applied = inbox.applied(unnamed, failed) if unnamed else {}
    fences = {row.id: new.fence for number, new in answers if (row := live.get(number))}
    pending = _pending(inbox, [row for row in live.values() if takes(row) and row.phase != WAITING], fences, now)
    return {
        number: Found(twins.get(number), row, pending.get(row.id, ()), applied.get(number, 0), None)
        if (row := live.get(number))
        else Found(twins.get(number), ended=ended.get(number))
        for number, _ in answers
    }


def _withdraw(inbox: InboxTransaction, answer_id: int) -> None:
    state = inbox.withdraw(answer_id, REPLAYABLE)
    if state == "none":
        raise NotFound(f"there is no answer {answer_id}")
    if state:
        raise Conflict(f"answer {answer_id} is {state}: {STATES[state]}")


def _pending(
    inbox: InboxTransaction,
    rows: list[Row],
    fences: Mapping[int, bool | None],
    now: int,
    applied: Applied = NONE_APPLIED,
) -> dict[int, list[Pending]]:
    """What is kept for these jobs: of each a page, or as many as have nothing in them that it can be given."""
    found = inbox.pending(rows, now, 0, applied) if rows else {}
    for row in rows:
        some = more = found.get(row.id, [])
        fence = fences.get(row.id)
        while len(more) == LOOKED_AT and all(is_useless(row, one, fence) for one in more):
            more = inbox.pending([row], now, some[-1].id, applied).get(row.id, [])
            some += more
    return found


# -- the job begins to wait, has failed, or ends ---------------------------------------------------------------------
class Met(NamedTuple):
    """The changes to save, and what they do in the inbox: by the id of the job."""

    changes: Sequence[Change]
    used: dict[int, str]
    """What the answer it looked at was to a job."""
    placed: dict[int, list[Placed]]
    answered: dict[int, Row]
    """Jobs that found an answer there, as they are then."""

    def found(self, lost: frozenset[int]) -> dict[int, Row]:
        """Those whose change was not lost."""
        return {job_id: row for job_id, row in self.answered.items() if job_id not in lost}


def sought(changes: Sequence[Change]) -> list[Key]:
    """The keys to lock before these changes are saved: those of jobs that look into the inbox, also where a job gives
    up one for another."""
    return [
        (queue_of(row.id), row.tenant, row.job_type, key)
        for change in changes
        if (row := seeks(change))
        for key in {*change.before.answer_keys, *row.answer_keys}
    ]


def match_waiting(inbox: InboxTransaction, changes: Sequence[Change], now: int) -> Met:
    """A job that begins to wait looks into the inbox: its answer may have been faster. So does one that failed: it may
    have sent its request before that. KeyTaken, if one wants to wait under a key that another live job has."""
    if not any(change.answer or seeks(change) for change in changes):
        return Met(changes, {}, {}, {})
    first: dict[int, Change] = {}
    for change in changes:
        first.setdefault(change.before.id, change)  # no other is saved
    seeking = {job_id: row for job_id, change in first.items() if (row := seeks(change))}
    used = {job_id: use_of(change.after) for job_id, change in first.items() if change.answer}
    applied = {job_id: first[job_id].answer for job_id, use in used.items() if use == APPLIED}
    _check_wait_keys(inbox, first.values())
    pending = _pending(inbox, list(seeking.values()), {}, now, applied)
    placed: dict[int, list[Placed]] = {}
    answered: dict[int, Row] = {}
    for job, some in pending.items():
        placed[job] = meeting(seeking[job], some)
        if any(one.state == MATCHED for one in placed[job]):
            row = wait_transitions.answered(seeking[job], now)
            token, held = first[job].after.token, first[job].before.held  # one write, in which it gives up no place
            answered[job] = replace(row, token=token, held=held)
    instead = {id(first[job]): replace(first[job], after=row) for job, row in answered.items()}
    return Met([instead.get(id(change), change) for change in changes], used, placed, answered)


def _check_wait_keys(inbox: InboxTransaction, changes: Iterable[Change]) -> None:
    """An answer finds one job: so a key that another live job has, as its own or for its wait, is not free. (A job that
    is added later may have it as its own all the same, since adding one takes no lock: then answers find that one.)"""
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


def close_out(inbox: InboxTransaction, saved: Sequence[Change], met: Met, now: int) -> list[Placed]:
    """After these changes were saved: what they mean for the inbox. Answers that were given to their jobs, or are too
    late now."""
    placed = [one for change in saved for one in met.placed.get(change.before.id, ())] if met.placed else []
    used = [Placed(change.answer, met.used[change.before.id]) for change in saved if change.answer]
    left = [
        (change.before.id, change.answer) for change in saved if change.after.state == FINAL and change.before.wait
    ]  # of those that never waited, which are most, `Store.late_answers` takes care: a statement here costs every turn
    if used:
        inbox.used(used, now)
    if placed:
        inbox.place(placed)
    return [one for one in placed if one.state != BUFFERED] + (inbox.left(left) if left else [])
