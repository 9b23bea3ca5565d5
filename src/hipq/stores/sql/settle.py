"""Saving what stopped, inside the turn's transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from hipq.job.event_names import JobEvent
from hipq.job.model import Change, New, queue_of
from hipq.job.states import FINAL
from hipq.job.tally import CountedTypes
from hipq.stores import large
from hipq.stores.sql.dialect import Inserting, Sql
from hipq.stores.sql.statements import Statements
from hipq.stores.values import Stored

FINISHED: Final = (
    "id", "token", "job_data", "priority", "scheduled_run_time", "attempt", "failures", "crashes", "error", "code",
    "exitcode", "result", "history", "update_time",
)  # fmt: skip
"""What finish.sql gets of a job that ended."""
MOVED: Final = (
    "id", "token", "job_data", "state", "phase", "rank", "priority", "held", "scheduled_run_time", "deadline", "wait",
    "wait_key", "attempt", "failures", "crashes", "owner", "error", "code", "exitcode", "result", "history",
    "update_time",
)  # fmt: skip
"""What update.sql gets of a job that stays live."""


def claimed_entry(engine_id: int, now: int) -> str:
    """What a job's history says of its claim."""
    return msgspec.json.encode({"at": now, "event": JobEvent.CLAIMED, "by": engine_id}).decode()


def finished(change: Change) -> tuple[Any, ...]:
    row = change.after
    return (
        row.id, change.before.token, large.rewritten(change), row.priority, row.scheduled_run_time, row.attempt,
        row.failures, row.crashes, row.error, row.code, row.exitcode, row.result, row.history, row.update_time,
    )  # fmt: skip


def moved(change: Change) -> tuple[Any, ...]:
    row = change.after
    return (
        row.id, change.before.token, large.inline(row.job_data), row.state, row.phase, row.rank, row.priority, row.held,
        row.scheduled_run_time, row.deadline, row.wait, row.wait_key, row.attempt, row.failures, row.crashes, row.owner,
        row.error, row.code, row.exitcode, row.result, row.history, row.update_time,
    )  # fmt: skip


class Saved(NamedTuple):
    lost: frozenset[int]
    """The ids of jobs whose token no longer matched."""
    children: list[tuple[New, Stored]]
    """What became of the jobs that were chained to the changes that were saved."""
    changes: list[Change]
    """The changes that were saved."""


class Settling(ABC):
    """Saves changes: each happens only if its row still has the token it names."""

    _insert: Inserting

    def save(self, conn: Any, changes: Sequence[Change]) -> Saved:
        first: dict[int, Change] = {}
        for change in changes:
            first.setdefault(change.before.id, change)  # one write a row and turn
        written = self._write(conn, first)
        saved = [change for job_id, change in first.items() if job_id in written]
        children = [child for change in saved for child in change.children]
        # Children come last: a key that was freed above is free to them.
        stored = self._insert.many(conn, children, all_or_nothing=False) if children else []
        lost = first.keys() - written
        if len(first) < len(changes):
            lost |= {change.before.id for change in changes if change is not first[change.before.id]}
        return Saved(frozenset(lost), list(zip(children, stored, strict=True)), saved)

    def lock(self, sql: Sql, ids: Iterable[int]) -> None:
        """Lock live jobs in an order that all share."""
        for queue, some in groupby(sorted(ids, key=lambda job_id: (queue_of(job_id), job_id)), queue_of):
            sql.found("lock", queue, ids=list(some))

    @abstractmethod
    def _write(self, conn: Any, changes: dict[int, Change]) -> set[int]:
        """Write one change per job. Returns the ids of the jobs whose token matched."""


class TokenSettling(Settling):
    """For databases whose writes return no rows: tokens are compared first, and nobody can change them before the
    transaction ends."""

    def __init__(self, statements: Statements[Any], insert: Inserting) -> None:
        self._statements = statements
        self._insert = insert
        self._types = CountedTypes()

    def _write(self, conn: Any, changes: dict[int, Change]) -> set[int]:
        by_queue: dict[int, list[Change]] = {}
        for job_id, change in changes.items():
            by_queue.setdefault(queue_of(job_id), []).append(change)
        saved: list[Change] = []
        for queue, some in sorted(by_queue.items()):
            tokens = self._tokens(conn, queue, [change.before.id for change in some])
            kept = [change for change in some if tokens.get(change.before.id) == change.before.token]
            if done := [change for change in kept if change.after.state == FINAL]:
                self._put(conn, "finish", queue, done, finished)
                self._delete(conn, queue, [change.before.id for change in done])
            if going_on := [change for change in kept if change.after.state != FINAL]:
                self._put(conn, "update", queue, going_on, moved)
            saved += kept
        if saved:
            self._count(conn, saved)
        return {change.before.id for change in saved}

    @abstractmethod
    def _tokens(self, conn: Any, queue: int, ids: list[int]) -> dict[int, int]:
        """The tokens of live jobs, which stay as they are until the transaction ends."""

    @abstractmethod
    def _put(
        self, conn: Any, name: str, queue: int, changes: list[Change], row: Callable[[Change], tuple[Any, ...]]
    ) -> None:
        """Write a row for each change by the statement of a file, and large payloads to their side table."""

    @abstractmethod
    def _delete(self, conn: Any, queue: int, ids: list[int]) -> None:
        """Delete live rows that were copied to the final table."""

    @abstractmethod
    def _count(self, conn: Any, saved: list[Change]) -> None:
        """Add what was saved to the counters, in the same transaction: so they are exact whatever happens."""
