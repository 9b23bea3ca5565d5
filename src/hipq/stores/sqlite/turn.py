"""Saving what stopped and claiming what is next, inside the turn's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from hipq.job.activity import COUNTERS
from hipq.job.model import Change
from hipq.job.tally import tally
from hipq.stores import large
from hipq.stores.claims import Claim
from hipq.stores.rule_claims import Picked
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.settle import TokenSettling
from hipq.stores.sql.statements import Statements
from hipq.stores.sql.take import Take
from hipq.stores.sqlite.batch import chunks, ids, in_json, keep, no_nul, values_of
from hipq.stores.sqlite.rule_claims import SqliteRulebook

_MANY: Final = 400
"""SQLite joins at most 500 SELECTs in one statement."""
_FEW: Final = 20
"""Up to this many job types, it is cheaper to look for jobs of each than to ask first which types have any."""
_ALL: Final = 1 << 62
_pairs = msgspec.json.Decoder(list[tuple[int, int]])


class Settle(TokenSettling):
    def _count(self, conn: sqlite3.Connection, saved: list[Change]) -> None:
        for chunk in chunks(list(tally(saved, self._types).items())):
            values = [value for minute, counters in chunk for value in (*minute, *counters)]
            query = self._statements.of("activity_add", rows=values_of(len(chunk), 3 + len(COUNTERS)))
            conn.execute(query, values)

    def _tokens(self, conn: sqlite3.Connection, queue: int, ids: list[int]) -> dict[int, int]:
        query = (
            f"SELECT json_group_array(json_array(id, token)) FROM {self._statements.table(queue)} "
            "WHERE id IN (SELECT value FROM json_each(?))"
        )
        return dict(_pairs.decode(conn.execute(query, (in_json(ids),)).fetchone()[0]))

    def _delete(self, conn: sqlite3.Connection, queue: int, ids: list[int]) -> None:
        query = f"DELETE FROM {self._statements.table(queue)} WHERE id IN (SELECT value FROM json_each(?))"
        conn.execute(query, (in_json(ids),))

    def _put(
        self, conn: sqlite3.Connection, name: str, queue: int, changes: list[Change],
        row: Callable[[Change], tuple[Any, ...]],
    ) -> None:  # fmt: skip
        for chunk in chunks(changes):
            rows = [row(change) for change in chunk]
            values = [value for one in rows for value in one]
            no_nul(values)
            conn.execute(self._statements.of(name, queue, rows=values_of(len(rows), len(rows[0]))), values)
        keep(conn, large.changed(changes))


class SqliteTake(Take):
    def __init__(self, statements: Statements[str], rulebook: SqliteRulebook) -> None:
        self._statements = statements
        self._rulebook = rulebook

    def _todo(self, sql: Sql, claim: Claim) -> list[int]:
        deciding = [
            (job_type, strategy) for job_type in _todo_types(sql, claim) for strategy in ("", *claim.strategies)
        ]
        return self._pick(sql.conn, "pick_todo", claim.queue, deciding, (claim.limit,))

    def _ready(self, sql: Sql, claim: Claim, want: int, engine_id: int, now: int) -> Picked:  # noqa: ARG002
        if want <= 0 or not claim.types:
            return Picked([])
        found = self._rulebook.read(sql, claim.queue)
        if claim.lane is None and self._rulebook.is_plain(sql, claim, found.rules):
            types = [(job_type,) for job_type in claim.types]
            return Picked(self._pick(sql.conn, "pick_ready", claim.queue, types, (now, want)))
        return self._rulebook.pick(sql, claim, want, found, now)

    def _pick(
        self, conn: sqlite3.Connection, name: str, queue: int, of: Sequence[tuple[str, ...]], values: tuple[int, ...]
    ) -> list[int]:
        """Ids from one SELECT for each of these, merged. The parameters of each are its own and then `values`, the last
        of which is the limit."""
        limit = values[-1]
        if limit <= 0 or not of:
            return []
        order = "rank, id" if name == "pick_ready" else "id"
        if len(of) > _MANY:
            heads = [
                head
                for start in range(0, len(of), _MANY)
                for head in self._pick(conn, name, queue, of[start : start + _MANY], values)
            ]
            query = f"SELECT id FROM {self._statements.table(queue)} WHERE id IN (SELECT value FROM json_each(?))"
            return ids(conn, f"{query} ORDER BY {order} LIMIT ?", (in_json(heads), limit))
        query = " UNION ALL ".join([f"SELECT * FROM ({self._statements.of(name, queue)})"] * len(of))
        parameters = [value for each in of for value in (*each, *values)]
        return ids(conn, f"SELECT id FROM ({query}) ORDER BY {order} LIMIT ?", (*parameters, limit))


def _todo_types(sql: Sql, claim: Claim) -> Sequence[str]:
    """The types to look at for jobs that wait for user code other than their handler. Of many types those that have
    such jobs, which mostly are none."""
    if len(claim.types) <= _FEW:
        return claim.types
    found = {name for (name,) in sql.found("todo_types", claim.queue, most=_ALL)}
    return [job_type for job_type in claim.types if job_type in found]
