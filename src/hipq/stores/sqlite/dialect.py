"""How SQLite runs what all SQL stores share."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import msgspec

from hipq.job.model import New
from hipq.stores.refusals import Given, refusals
from hipq.stores.sql.crons import CronVerbs
from hipq.stores.sql.tenants import TenantVerbs
from hipq.stores.sqlite.connection import Connection, translated
from hipq.stores.sqlite.insert import Insert, savepoint
from hipq.stores.sqlite.statements import Statements
from hipq.stores.values import Stored

T = TypeVar("T")
GATHERED = "gathered"
"""The column of a statement that gives all its rows as one JSON array, in one step: see batch.py."""


class SqliteDialect(TenantVerbs, CronVerbs):
    _db: Connection
    _statements: Statements
    _insert: Insert

    @abstractmethod
    def notify(self, *, done: bool = False) -> None: ...

    def _found(self, name: str, queue: int = 0, *, long: bool = False, **values: Any) -> list[Any]:  # noqa: ARG002
        query = self._statements.of(name, queue) if queue else self._statements.plain(name)
        given = {key: msgspec.json.encode(v).decode() if isinstance(v, list) else v for key, v in values.items()}
        with self._db.reading() as conn:
            cursor = conn.execute(query, given)
            found = cursor.fetchall()
        return msgspec.json.decode(found[0][0], type=list) if cursor.description[0][0] == GATHERED else found

    def _writing(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._db.writing()

    def _transaction(self, work: Callable[[Any], T]) -> T:
        with self._db.writing() as conn:
            return work(conn)

    def _adding(
        self,
        work: Callable[[Any], list[Stored] | None],
        jobs: Sequence[New],  # noqa: ARG002 - engines look at the file by themselves
        *,
        patient: bool = False,  # noqa: ARG002 - there is one lock, and everybody waits for it as long
    ) -> list[Stored] | None:
        with self._db.writing() as conn:
            stored = work(conn)
        if stored is not None:
            self.notify()
        return stored

    def _lock_note(self, conn: sqlite3.Connection, kind: str, name: str) -> str:
        found = conn.execute("SELECT value FROM hipq_notes WHERE kind = ? AND name = ?", (kind, name)).fetchone()
        return str(found[0]) if found else ""

    def refusals(self, jobs: Sequence[tuple[int, New]]) -> dict[int, str]:
        with self._db.writing() as conn:

            def put(some: Given) -> None:
                with savepoint(conn):
                    self._insert.given(conn, some)

            conn.execute("SAVEPOINT hipq_tried")
            found = refusals(jobs, put, translated)
            conn.execute("ROLLBACK TO hipq_tried")
        return found
