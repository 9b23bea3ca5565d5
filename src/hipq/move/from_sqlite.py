"""The SQLite side of a move: everything happens under the write lock, and a signpost is left behind.

While the lock is held nobody can change anything here, and all can still read. If this process dies, the kernel frees
the lock and nothing has happened. Once the signpost is committed, hipq's tables have other names: every program that
opens the file finds the signpost instead.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from hipq.move.copy import AT_ONCE, QueueCopy, Rows, Snapshot, TableCopy
from hipq.stores.sqlite.dialect import SqliteSql
from hipq.stores.sqlite.store import MOVING, SqliteStore
from hipq.stores.values import QueueTables

LEASE: Final = 10.0
"""Seconds after which engines claim again if the moving process has died."""
_TABLES: Final = (
    "hipq_queues", "hipq_engines", "hipq_tickets", "hipq_crons", "hipq_payloads", "hipq_progress", "hipq_answers",
    "hipq_activity", "hipq_audit", "hipq_dropped", "hipq_notes", "hipq_place",
)  # fmt: skip


class SqliteSource:
    """The database that is left, from the first look until the signpost."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._engine_id = 0
        self._locked: sqlite3.Connection | None = None

    def name(self) -> str:
        """A name for moves of this file, the same each time."""
        with self._store._db.writing() as conn:
            conn.execute("CREATE TABLE IF NOT EXISTS hipq_moving (move TEXT NOT NULL)")
            if found := conn.execute("SELECT move FROM hipq_moving").fetchone():
                return str(found[0])
            name = uuid4().hex
            conn.execute("INSERT INTO hipq_moving VALUES (?)", (name,))
        return name

    def drain(self) -> list[int]:
        """Keep engines from claiming, and return the jobs that living engines still have. It must be called again
        regularly."""
        if not self._engine_id or not self._store.renew_lease(self._engine_id, LEASE):
            self._engine_id = self._store.take_lease(LEASE, f"hipq move:{os.getpid()}", MOVING)
        with self._store._db.reading() as conn:
            return self._held(conn)

    def stay(self) -> None:
        """Cancel the move: engines may claim again."""
        if self._engine_id:
            self._store.renew_lease(self._engine_id, 0)

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the write lock; yields whether no engine has a job. Commits at the end of the block, and nothing if
        it raises."""
        with self._store._db.writing() as conn:
            self._locked = conn
            try:
                yield not self._held(conn)
            finally:
                self._locked = None

    def _held(self, conn: sqlite3.Connection) -> list[int]:
        """The jobs of living engines: those of dead ones are rescued wherever they are."""
        alive = {engine.engine_id for engine in self._store.engines()}
        queries = [f"SELECT owner, id FROM {queue.table} WHERE owner <> 0" for queue in self._queues(conn)]
        return sorted(job_id for query in queries for owner, job_id in conn.execute(query) if owner in alive)

    # -- under the lock ----------------------------------------------------------------------------------------------
    def snapshot(self) -> Snapshot:
        conn = self._conn
        rows = conn.execute("SELECT number, last_id, rules, admission, crons FROM hipq_queues").fetchall()
        more = {number: rest for number, *rest in rows}
        queues = tuple(QueueCopy(queue, *more[queue.number]) for queue in self._queues(conn))
        ((dropped,),) = conn.execute("SELECT highest FROM hipq_dropped").fetchall()
        used = dict(conn.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        return Snapshot(queues, dropped, used.get("hipq_engines", 0), used.get("hipq_answers", 0))

    def count(self, table: TableCopy) -> int:
        return int(self._conn.execute(f"SELECT count(*) FROM {table.table}").fetchone()[0])

    def rows(self, table: TableCopy) -> Iterator[Rows]:
        cursor = self._conn.execute(table.select)
        while page := cursor.fetchmany(AT_ONCE):
            yield page

    def leave(self, url: str, move: str) -> None:
        """Put up the signpost. The old tables stay, under other names, until somebody deletes the file."""
        conn = self._conn
        conn.execute("PRAGMA legacy_alter_table = ON")  # otherwise views of other programs are checked and changed
        for table in self._tables():
            conn.execute(f"ALTER TABLE {table} RENAME TO moved_{table}")
        conn.execute("CREATE TABLE hipq_moved (url TEXT NOT NULL, move TEXT NOT NULL)")
        conn.execute("INSERT INTO hipq_moved VALUES (?, ?)", (url, move))

    def others(self) -> list[str]:
        """Tables that are not hipq's: the file may be an application's own."""
        ours = {*self._tables(), "hipq_moving"}
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
        return [name for (name,) in self._conn.execute(query).fetchall() if name not in ours]

    def _tables(self) -> list[str]:
        queues = self._queues(self._conn)
        return [*_TABLES, *(name for queue in queues for name in (queue.table, f"{queue.table}_final"))]

    def _queues(self, conn: sqlite3.Connection) -> list[QueueTables]:
        return self._store.schema(SqliteSql(conn, self._store._statements)).registered()  # type: ignore[no-any-return]

    @property
    def _conn(self) -> sqlite3.Connection:
        assert self._locked is not None
        return self._locked
