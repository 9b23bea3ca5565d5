"""Settling what stopped and claiming what is next, inside the turn's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from hipq.job.activity import COUNTERS
from hipq.job.model import Change, Row, queue_of
from hipq.job.states import FINAL
from hipq.job.tally import CountedTypes, tally
from hipq.stores import large
from hipq.stores.claims import Claim
from hipq.stores.rule_claims import Picked
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.rule_claims import narrowed
from hipq.stores.sql.settle import FINISHED, MOVED, Settling, claimed_entry, finished, moved
from hipq.stores.sql.statements import Statements
from hipq.stores.sqlite.batch import chunks, ids, in_json, keep, no_nul, values_of
from hipq.stores.sqlite.insert import Insert
from hipq.stores.sqlite.rule_claims import SqliteRulebook

_MANY: Final = 400
"""SQLite joins at most 500 SELECTs in one statement."""
_pairs = msgspec.json.Decoder(list[tuple[int, int]])


class Settle(Settling):
    def __init__(self, statements: Statements[str], insert: Insert) -> None:
        self._statements = statements
        self._insert = insert
        self._types = CountedTypes()

    def _write(self, conn: sqlite3.Connection, changes: dict[int, Change]) -> set[int]:
        by_queue: dict[int, list[Change]] = {}
        for job_id, change in changes.items():
            by_queue.setdefault(queue_of(job_id), []).append(change)
        saved: list[Change] = []
        for queue, some in by_queue.items():
            tokens = self._tokens(conn, queue, [change.before.id for change in some])
            kept = [change for change in some if tokens.get(change.before.id) == change.before.token]
            done = [change for change in kept if change.after.state == FINAL]
            self._put(conn, "finish", queue, done, finished, len(FINISHED))
            if done:
                query = f"DELETE FROM {self._statements.table(queue)} WHERE id IN (SELECT value FROM json_each(?))"
                conn.execute(query, (in_json([change.before.id for change in done]),))
            going_on = [change for change in kept if change.after.state != FINAL]
            self._put(conn, "update", queue, going_on, moved, len(MOVED))
            saved += kept
        self._count(conn, saved)
        return {change.before.id for change in saved}

    def _count(self, conn: sqlite3.Connection, saved: list[Change]) -> None:
        """What was saved, in its transaction: so the counters are right whatever happens."""
        for chunk in chunks(list(tally(saved, self._types).items())):
            values = [value for minute, counters in chunk for value in (*minute, *counters)]
            query = self._statements.of("activity_add", rows=values_of(len(chunk), 3 + len(COUNTERS)))
            conn.execute(query, values)

    def _tokens(self, conn: sqlite3.Connection, queue: int, ids: list[int]) -> dict[int, int]:
        """The tokens of live jobs as they are; nobody can change them before this transaction ends."""
        query = (
            f"SELECT json_group_array(json_array(id, token)) FROM {self._statements.table(queue)} "
            "WHERE id IN (SELECT value FROM json_each(?))"
        )
        return dict(_pairs.decode(conn.execute(query, (in_json(ids),)).fetchone()[0]))

    def _put(
        self,
        conn: sqlite3.Connection,
        name: str,
        queue: int,
        changes: list[Change],
        row: Callable[[Change], tuple[Any, ...]],
        width: int,
    ) -> None:
        for chunk in chunks(changes):
            values = [value for change in chunk for value in row(change)]
            no_nul(values)
            conn.execute(self._statements.of(name, queue, rows=values_of(len(chunk), width)), values)
        keep(conn, large.changed(changes))


class Take:
    """Claims jobs for an engine."""

    def __init__(self, statements: Statements[str], rulebook: SqliteRulebook) -> None:
        self._statements = statements
        self._rulebook = rulebook

    def claim(self, sql: Sql, engine_id: int, claim: Claim, now: int) -> tuple[list[Row], Picked]:
        """The rows claimed, in order, and what the queue's rules had to say."""
        claim = claim._replace(types=narrowed(sql, claim.queue, claim.types))
        won: list[Row] = []
        entry = claimed_entry(engine_id, now)
        deciding = [(job_type, strategy) for job_type in claim.types for strategy in ("", *claim.strategies)]
        todo = self._pick(sql.conn, "pick_todo", claim.queue, deciding, (claim.limit,))
        ready = self._ready(sql, claim, claim.limit - len(todo), now)
        for verb, picked in (("take", todo), ("claim", ready.ids)):
            if picked:
                critical = list(claim.critical)
                sql.changed(verb, claim.queue, engine_id=engine_id, now=now, entry=entry, ids=picked, critical=critical)
                won += sql.rows("these", claim.queue, ids=picked)
        return won, ready

    def _ready(self, sql: Sql, claim: Claim, want: int, now: int) -> Picked:
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
        """Ids from one SELECT for each of these, merged: its parameters are those, then `values`, of which the last is
        the limit."""
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
