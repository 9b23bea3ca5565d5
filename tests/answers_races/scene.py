"""What the races are made of: jobs brought to where a race begins, answers, and what becomes of both in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hipq.answers.arrive import arrive
from hipq.job import transitions, wait_transitions
from hipq.job.answer import DEFAULT_KEEPING, Kept, NewAnswer
from hipq.job.model import Change, New, Row
from hipq.job.order import ByTime
from hipq.job.run_result import Chosen
from hipq.job.states import ANSWERED, EXECUTING, FINAL, READY
from hipq.job.waiting import Waiting
from hipq.job.when import SECOND
from hipq.stores.claims import Claim
from hipq.stores.filters import AnswerFilter, Filter
from hipq.stores.protocols import Store

ORDER: Final = ByTime()
TYPE: Final = "charge"
LEASE: Final = 600.0


def new(queue: int, key: str, now: int, job_type: str = TYPE) -> New:
    return New(queue, job_type, key, "null", READY, ORDER.rank(now, 100), now, now)


def answer(queue: int, key: str, data: object, now: int, *, answer_id: str = "", job_type: str = TYPE) -> NewAnswer:
    return arrive(queue, job_type, key, data, now, keeping=DEFAULT_KEEPING, answer_id=answer_id or None)


def executing(store: Store, engine_id: int, queue: int, keys: Sequence[str], types: Sequence[str] = ()) -> list[Row]:
    """Jobs with these keys that an engine has claimed, in their order."""
    now = store.now()
    every = types or [TYPE] * len(keys)
    store.enqueue([new(queue, key, now, job_type) for key, job_type in zip(keys, every, strict=True)])
    won = store.turn(engine_id, [], [Claim(queue, tuple(dict.fromkeys(every)), len(keys))], now).won
    by_key = {row.job_key: row for row in won}
    return [by_key[key] for key in keys]


def begins_to_wait(row: Row, now: int, key: str = "", on_timeout: Chosen | None = None, direct: bool = False) -> Change:
    """`direct`: it has no answer handler, so the answering transaction ends it."""
    wait = Waiting(until=now + 3600 * SECOND, on_timeout=on_timeout, direct=direct)
    return Change(row, wait_transitions.waits(row, wait, now, key), (), "waits")


def waiting(
    store: Store, engine_id: int, rows: Sequence[Row], on_timeout: Chosen | None = None, direct: bool = False
) -> list[Row]:
    now = store.now()
    changes = [begins_to_wait(row, now, on_timeout=on_timeout, direct=direct) for row in rows]
    turned = store.turn(engine_id, changes, [], now)
    assert not turned.lost
    assert not turned.answered
    return [change.after for change in changes]


def ends_by(row: Row, given: Kept, now: int) -> Change:
    return Change(row, transitions.succeeded(row, given.data, 200, now), (), "ok", given.id)


def drain(store: Store, engine_id: int, queue: int, types: Sequence[str] = (TYPE,)) -> None:
    """What engines would do until nothing is left to do: what executes waits, what has its answer ends by it."""
    changes: list[Change] = []
    while True:
        now = store.now()
        turned = store.turn(engine_id, changes, [Claim(queue, tuple(types), 500)], now)
        assert not turned.lost
        if not turned.won and not turned.answered:
            return
        changes = []
        for row in turned.won:
            if row.phase == EXECUTING:
                changes.append(begins_to_wait(row, now))
            elif row.phase == ANSWERED:
                changes.append(ends_by(row, turned.answers[row.id], now))
            else:
                raise AssertionError(f"{row.job_key} is {row.phase}: its answer is lost")


def jobs(store: Store, queue: int) -> dict[str, Row]:
    """All jobs by their keys."""
    found: list[Row] = []
    while page := store.find(Filter(queue, after=found[-1].id if found else 0, limit=1000)):
        found += page
    assert len({row.job_key for row in found}) == len(found)
    return {row.job_key: row for row in found}


def inbox(store: Store, queue: int) -> dict[str, list[Kept]]:
    """All answers by their keys."""
    every: list[Kept] = []
    while page := store.answers(AnswerFilter(queue=queue, after=every[-1].id if every else 0, limit=1000)):
        every += page
    found: dict[str, list[Kept]] = {}
    for one in every:
        found.setdefault(one.job_key, []).append(one)
    return found


def answers_of(store: Store, queue: int, row: Row) -> list[Kept]:
    """Those that belong to a job, under whichever of its keys they came."""
    return [one for some in inbox(store, queue).values() for one in some if one.job == row.id]


def wrong(row: Row, answers: Sequence[Kept]) -> str:
    """What is wrong with a job that should have ended by one of these; '' = nothing."""
    if row.state != FINAL:
        return f"{row.job_key}: the answer is lost, its job is {row.phase}: {[one.state for one in answers]}"
    settled = [one for one in answers if one.state == "settled"]
    if row.code != "ok" or len(settled) != 1:
        return f"{row.job_key}: ended {row.code} by {len(settled)} answers: {row.history}"
    if (settled[0].job, settled[0].data) != (row.id, row.result):
        return f"{row.job_key}: ended with {row.result} and not by its answer {settled[0]}"
    if row.history.count('"event":"answered"') != 1:
        return f"{row.job_key}: answers were applied twice: {row.history}"
    if any(one.state in ("buffered", "matched") for one in answers):
        return f"{row.job_key}: it is final and answers are still open: {answers}"
    return ""
