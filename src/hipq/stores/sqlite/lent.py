"""A connection that is somebody else's: what hipq does is part of their transaction, and everything else stays as it
was.

It does not hold the lock file of `connection`, since its commit is theirs: let one process write that way where SQLite
is older than 3.51.3.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from hipq.errors import Invalid, SchemaError
from hipq.job.model import New
from hipq.stores.clock import Clock
from hipq.stores.sqlite.connection import Connection, translated
from hipq.stores.sqlite.dialect import SqliteSql
from hipq.stores.sqlite.insert import begins_by_itself, inside, standard, tuples
from hipq.stores.sqlite.store import SqliteStore
from hipq.stores.values import QueueTables, Stored

Lend = Callable[[], sqlite3.Connection]


class Lent(Connection):
    """Takes the place of hipq's own connection."""

    def __init__(self, lend: Lend) -> None:
        self.path = ""
        self._lend = lend

    @contextmanager
    def reading(self, patient: bool = True) -> Iterator[sqlite3.Connection]:  # noqa: ARG002 - nobody shares it
        with tuples(standard(self._lend())) as conn:
            try:
                yield conn
            except sqlite3.Error as error:
                raise translated(error) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """In their transaction, if they have one, else in one of hipq's."""
        conn = standard(self._lend())
        if conn.in_transaction or begins_by_itself(conn):
            with inside(conn):
                yield conn
            return
        with tuples(conn):
            try:
                conn.execute("BEGIN IMMEDIATE")
                yield conn
                conn.execute("COMMIT")
            except BaseException as error:
                if conn.in_transaction:
                    with suppress(sqlite3.Error):
                        conn.execute("ROLLBACK")
                if isinstance(error, (sqlite3.Error, OverflowError, UnicodeError)):
                    raise translated(error) from error
                raise

    def lends(self, conn: Any) -> bool:
        return standard(conn) is standard(self._lend())

    def close(self) -> None:
        """Does nothing: it is theirs to close."""


class GuestStore(SqliteStore):
    """The store of a program that adds jobs and looks at them through its own connection. No engine can work on it."""

    def __init__(self, lend: Lend, url: str, clock: Clock | None = None, for_a_test: bool = False) -> None:
        self._lent = Lent(lend)
        super().__init__("", clock, self._lent)
        self.url, self._for_a_test = url, for_a_test

    def enqueue(self, jobs: Sequence[New], *, all_or_nothing: bool = False, conn: Any = None) -> list[Stored]:
        if conn is not None and not self._lent.lends(conn):
            raise Invalid(f"conn is another connection than that of {self.url} in this thread")
        return super().enqueue(jobs, all_or_nothing=all_or_nothing)

    def migrate(self) -> list[str]:
        applied = super().migrate()
        with self._db.reading() as conn:
            if not conn.in_transaction:  # now, and for good: an engine that comes later may find the file too busy
                conn.execute("PRAGMA journal_mode = WAL").fetchone()
        return applied

    def queue(self, app: str, name: str, table: str) -> QueueTables:
        """Makes no tables in a transaction of theirs: it may be undone, and what was learned would be wrong."""
        with self._db.reading() as conn:
            schema = self.schema(SqliteSql(conn, self._statements))
            self._check(schema)
            may_make = self._for_a_test or not conn.in_transaction
            if not may_make and not schema.complete(app, name, table):
                raise SchemaError(f"{self.url} has no tables yet for the queue {app}.{name}")
        return super().queue(app, name, table)
