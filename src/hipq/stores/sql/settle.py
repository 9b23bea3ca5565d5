"""Saving what stopped, inside the turn's transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from hipq.job.model import Change, New
from hipq.stores.sql.dialect import Inserting
from hipq.stores.values import Stored


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
