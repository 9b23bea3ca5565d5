"""The MariaDB side of a move. What makes a table is committed at once there, so from the first step on the database
has a name by which no program uses it, and what was committed before a move was cut off is thrown away by the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import pymysql
from pymysql.cursors import SSCursor

from hipq.move.copy import AT_ONCE, Rows, Snapshot, TableCopy
from hipq.move.target import Target
from hipq.stores.mariadb.connection import Session
from hipq.stores.mariadb.dialect import spelled
from hipq.stores.mariadb.schema import MariaSchema
from hipq.stores.mariadb.store import MariaStore
from hipq.stores.sql.pool import CALLER_SECONDS, MIGRATION_SECONDS

_BYTES: Final = 1 << 20
"""Of one statement, about."""


class MariaTarget(Target):
    """The database that is moved to. Each statement commits."""

    def __init__(self, schema: MariaSchema, url: str, move: str) -> None:
        super().__init__(schema, url, move)
        self._conn: Session = schema.sql.conn

    def _run(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        return list(self._conn.run(query, values or None).fetchall())

    def build(self, snapshot: Snapshot) -> None:
        """Tables of somebody else in the way are noticed before the registry says that they are ours."""
        for copied in snapshot.queues:
            self._schema.check_free(copied.queue.app, copied.queue.name, copied.queue.table)
        super().build(snapshot)

    def undo(self) -> None:
        """As it was before this move: empty, and for anybody to use."""
        if self._remove():
            self._run("UPDATE hipq_meta SET identity = UUID()")

    def _analyze(self, table: str) -> None:
        self._run(f"ANALYZE TABLE {table}")

    def settle(self, snapshot: Snapshot) -> None:
        """The signpost is synced to disk, and so must be what it points to: to make a table syncs all that is in the
        server's log, whatever the server does when transactions commit."""
        super().settle(snapshot)
        self._run("CREATE OR REPLACE TABLE hipq_arrived (one INT)")
        self._run("DROP TABLE hipq_arrived")

    def fill(self, table: TableCopy, pages: Iterable[Rows], progress: Callable[[int], None]) -> None:
        columns, marks = ", ".join(table.columns), ", ".join(["%s"] * len(table.columns))
        insert = self._spelled(f"INSERT INTO {table.table} ({columns}) VALUES ")
        some: list[str] = []
        size, conn = 0, self._conn
        for page in pages:
            for row in page:
                some.append(f"({marks})" % tuple(conn.escape(value, conn.encoders) for value in row))
                size += len(some[-1])
                if size > _BYTES:
                    self._run(insert + ", ".join(some))
                    some, size = [], 0
            progress(len(page))
        if some:
            self._run(insert + ", ".join(some))

    def rows(self, table: TableCopy) -> Iterator[Rows]:
        with SSCursor(self._conn) as cursor:
            cursor.execute(self._spelled(table.select))
            while page := cursor.fetchmany(AT_ONCE):
                yield page

    def _spelled(self, text: str) -> str:
        return spelled(text, self._conn.flavour.collation)[0]


@contextmanager
def opened(store: MariaStore, url: str, move: str) -> Iterator[MariaTarget]:
    """Nobody else makes tables meanwhile."""
    with store._db.using(MIGRATION_SECONDS) as conn, store.schema(store._sql(conn)).locked(CALLER_SECONDS):
        conn.run("SET SESSION wait_timeout = 86400")  # it waits for the other side now and then
        target = MariaTarget(store.schema(store._sql(conn)), url, move)
        try:
            yield target
        except Exception:
            with suppress(pymysql.Error, OSError):  # then the next move does so
                target.undo()
            raise
        finally:
            conn.run("SET SESSION wait_timeout = @@GLOBAL.wait_timeout")


def check(store: MariaStore, url: str, move: str) -> None:
    """Raise if this database cannot be moved to; nothing is changed."""
    with opened(store, url, move) as target:
        target.check()
