"""The PostgreSQL side of a move: everything is copied in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg import Rollback, sql

from hipq.move.copy import AT_ONCE, Rows, TableCopy
from hipq.move.target import Target
from hipq.stores.postgres.connection import Connection
from hipq.stores.postgres.schema import PostgresSchema
from hipq.stores.postgres.store import PostgresStore
from hipq.stores.sql.pool import MIGRATION_SECONDS


class PostgresTarget(Target):
    """The database that is moved to, in an open transaction."""

    def __init__(self, schema: PostgresSchema, url: str, move: str) -> None:
        super().__init__(schema, url, move)
        self._conn: Connection = schema.sql.conn

    def _run(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        cursor = self._conn.execute(query.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def _analyze(self, table: str) -> None:
        self._run(f"ANALYZE {table}")

    def fill(self, table: TableCopy, pages: Iterable[Rows], progress: Callable[[int], None]) -> None:
        columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
        query = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.table), columns)
        with self._conn.cursor() as cursor, cursor.copy(query) as copy:
            for page in pages:
                for row in page:
                    copy.write_row(row)
                progress(len(page))

    def rows(self, table: TableCopy) -> Iterator[Rows]:
        with self._conn.cursor(name="hipq_move") as cursor:
            cursor.execute(table.select.encode())
            while page := cursor.fetchmany(AT_ONCE):
                yield page


@contextmanager
def opened(store: PostgresStore, url: str, move: str) -> Iterator[PostgresTarget]:
    """A transaction that commits at the end of the block, and not if the block raises."""
    with store._db.using(MIGRATION_SECONDS) as conn, conn.transaction():
        conn.execute("SET LOCAL idle_in_transaction_session_timeout = 0")  # it waits for the other side now and then
        # the signpost is synced to disk, and so must be what it points to
        conn.execute("SET LOCAL synchronous_commit = on")
        conn.execute("SET LOCAL enable_seqscan = on")
        schema = store.schema(store._sql(conn))
        schema.lock(0)
        yield PostgresTarget(schema, url, move)


def check(store: PostgresStore, url: str, move: str) -> None:
    """Raise if this database cannot be moved to; nothing is changed."""
    with opened(store, url, move) as target:
        target.clear()
        raise Rollback
