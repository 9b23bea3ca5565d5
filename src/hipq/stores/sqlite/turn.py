"""Settling what stopped and claiming what is next, inside the turn's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hipq.job.event_names import JobEvent
from hipq.job.model import Change, Row, queue_of
from hipq.job.states import FINAL
from hipq.stores import large
from hipq.stores.claims import Claim
from hipq.stores.rule_claims import Picked
from hipq.stores.sql.settle import Settling
from hipq.stores.sqlite.batch import NAMES, chunks, ids, in_json, keep, no_nul, read
from hipq.stores.sqlite.insert import Insert
from hipq.stores.sqlite.rule_claims import Rulebook, texts
from hipq.stores.sqlite.statements import Statements

_MANY: Final = 400
"""SQLite joins at most 500 SELECTs in one statement."""
_pairs = msgspec.json.Decoder(list[tuple[int, int]])


class Settle(Settling):
    def __init__(self, statements: Statements, insert: Insert) -> None:
        self._statements = statements
        self._insert = insert

    def _write(self, conn: sqlite3.Connection, changes: dict[int, Change]) -> set[int]:
        by_queue: dict[int, list[Change]] = {}
        for job_id, change in changes.items():
            by_queue.setdefault(queue_of(job_id), []).append(change)
        saved: set[int] = set()
        for queue, some in by_queue.items():
            tokens = self._tokens(conn, queue, [change.before.id for change in some])
            kept = [change for change in some if tokens.get(change.before.id) == change.before.token]
            self._finish(conn, queue, [change for change in kept if change.after.state == FINAL])
            self._update(conn, queue, [change for change in kept if change.after.state != FINAL])
            saved |= {change.before.id for change in kept}
        return saved

    def _tokens(self, conn: sqlite3.Connection, queue: int, ids: list[int]) -> dict[int, int]:
        """The tokens of live jobs as they are; nobody can change them before this transaction ends."""
        query = (
            f"SELECT json_group_array(json_array(id, token)) FROM {self._statements.table(queue)} "
            "WHERE id IN (SELECT value FROM json_each(?))"
        )
        return dict(_pairs.decode(conn.execute(query, (in_json(ids),)).fetchone()[0]))

    def _finish(self, conn: sqlite3.Connection, queue: int, changes: list[Change]) -> None:
        for chunk in chunks(changes):
            values: list[Any] = []
            for change in chunk:
                row = change.after
                values += (
                    row.id, change.before.token, large.rewritten(change), row.priority, row.scheduled_run_time,
                    row.attempt, row.failures, row.crashes, row.error, row.code, row.exitcode, row.result, row.history,
                    row.update_time,
                )  # fmt: skip
            no_nul(values)
            conn.execute(self._statements.of("finish", queue, len(chunk), 14), values)
        keep(conn, large.changed(changes))
        if changes:
            query = f"DELETE FROM {self._statements.table(queue)} WHERE id IN (SELECT value FROM json_each(?))"
            conn.execute(query, (in_json([change.before.id for change in changes]),))

    def _update(self, conn: sqlite3.Connection, queue: int, changes: list[Change]) -> None:
        for chunk in chunks(changes):
            values: list[Any] = []
            for change in chunk:
                row = change.after
                values += (
                    row.id, change.before.token, large.inline(row.job_data), row.state, row.phase, row.rank,
                    row.priority, row.held, row.scheduled_run_time, row.deadline, row.wait, row.wait_key, row.attempt,
                    row.failures, row.crashes, row.owner, row.error, row.code, row.exitcode, row.result, row.history,
                    row.update_time,
                )  # fmt: skip
            no_nul(values)
            conn.execute(self._statements.of("update", queue, len(chunk), 22), values)
        keep(conn, large.changed(changes))


class Take:
    """Claims jobs for an engine."""

    def __init__(self, statements: Statements, rulebook: Rulebook) -> None:
        self._statements = statements
        self._rulebook = rulebook

    def claim(self, conn: sqlite3.Connection, engine_id: int, claim: Claim, now: int) -> tuple[list[Row], Picked]:
        """The rows claimed, in order, and what the queue's rules had to say."""
        won: list[Row] = []
        entry = msgspec.json.encode({"at": now, "event": JobEvent.CLAIMED, "by": engine_id}).decode()
        deciding = [(job_type, strategy) for job_type in claim.types for strategy in ("", *claim.strategies)]
        todo = self._pick(conn, "pick_todo", claim.queue, deciding, (claim.limit,))
        ready = self._ready(conn, claim, claim.limit - len(todo), now)
        for verb, picked in (("take", todo), ("claim", ready.ids)):
            if picked:
                values = {"engine_id": engine_id, "now": now, "entry": entry, "ids": in_json(picked)}
                values["critical"] = texts(claim.critical)
                conn.execute(self._statements.of(verb, claim.queue), values)
                won += self.by_id(conn, claim.queue, picked)
        return won, ready

    def _ready(self, conn: sqlite3.Connection, claim: Claim, want: int, now: int) -> Picked:
        if want <= 0 or not claim.types:
            return Picked([])
        rules, memory = self._rulebook.read(conn, claim.queue)
        if claim.lane is None and self._rulebook.is_plain(conn, claim, rules):
            types = [(job_type,) for job_type in claim.types]
            return Picked(self._pick(conn, "pick_ready", claim.queue, types, (now, want)))
        return self._rulebook.pick(conn, claim, want, rules, memory, now)

    def _pick(
        self, conn: sqlite3.Connection, name: str, queue: int, of: Sequence[tuple[str, ...]], values: tuple[int, ...]
    ) -> list[int]:
        """Ids from one SELECT for each of these, merged: its parameters are those, then `values`, of which the last is
        the limit."""
        limit = values[-1]
        if limit <= 0 or not of:
            return []
        if len(of) > _MANY:
            return self._pick_in_parts(conn, name, queue, of, values)
        one = self._statements.of(name, queue)
        order = "rank, id" if name == "pick_ready" else "id"
        query = " UNION ALL ".join([f"SELECT * FROM ({one})"] * len(of))
        parameters = [value for each in of for value in (*each, *values)]
        return ids(conn, f"SELECT id FROM ({query}) ORDER BY {order} LIMIT ?", (*parameters, limit))

    def _pick_in_parts(
        self, conn: sqlite3.Connection, name: str, queue: int, of: Sequence[tuple[str, ...]], values: tuple[int, ...]
    ) -> list[int]:
        heads = []
        for start in range(0, len(of), _MANY):
            heads += self._pick(conn, name, queue, of[start : start + _MANY], values)
        table = self._statements.table(queue)
        order = "rank, id" if name == "pick_ready" else "id"
        query = f"SELECT id FROM {table} WHERE id IN (SELECT value FROM json_each(?)) ORDER BY {order} LIMIT ?"
        return ids(conn, query, (in_json(heads), values[-1]))

    def by_id(self, conn: sqlite3.Connection, queue: int, picked: list[int]) -> list[Row]:
        query = f"SELECT {NAMES} FROM {self._statements.table(queue)} WHERE id IN (SELECT value FROM json_each(?))"
        return read(conn, f"{query} ORDER BY rank, id", (in_json(picked),))
