"""Saving what stopped, inside the turn's transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hipq.job.event_names import JobEvent
from hipq.job.model import Change, New
from hipq.stores import large
from hipq.stores.sql.dialect import Inserting
from hipq.stores.values import Stored

FINISHED: Final = (
    "id", "token", "job_data", "priority", "scheduled_run_time", "attempt", "failures", "crashes", "error", "code",
    "exitcode", "result", "history", "update_time",
)  # fmt: skip
"""What finish.sql is given of a job that ended."""
MOVED: Final = (
    "id", "token", "job_data", "state", "phase", "rank", "priority", "held", "scheduled_run_time", "deadline", "wait",
    "wait_key", "attempt", "failures", "crashes", "owner", "error", "code", "exitcode", "result", "history",
    "update_time",
)  # fmt: skip
"""What update.sql is given of a job that stays live."""


def claimed_entry(engine_id: int, now: int) -> str:
    """What the history of a job says of its claim."""
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
        lost = {change.before.id for change in changes if change is not first[change.before.id]}
        return Saved(frozenset(lost | (first.keys() - written)), list(zip(children, stored, strict=True)), saved)

    @abstractmethod
    def _write(self, conn: Any, changes: dict[int, Change]) -> set[int]:
        """Write one change for each job; the ids of those whose token matched."""
