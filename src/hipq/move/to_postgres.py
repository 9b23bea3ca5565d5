"""The PostgreSQL side of a move: everything is copied in one transaction. After its commit the tables may not be
used until the old database has its signpost: otherwise the jobs would be in use in two places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from psycopg import Rollback, sql

from hipq.errors import Conflict
from hipq.move.copy import AT_ONCE, Rows, Snapshot, TableCopy
from hipq.stores import migrations
from hipq.stores.postgres import schema
from hipq.stores.postgres.connection import Connection
from hipq.stores.postgres.session import MIGRATION_SECONDS
from hipq.stores.postgres.store import PostgresStore

_EMPTY: Final = (
    "hipq_queues", "hipq_answers", "hipq_payloads", "hipq_progress", "hipq_activity", "hipq_crons", "hipq_notes",
    "hipq_audit",
)  # fmt: skip


class PostgresTarget:
    """The database that is moved to, in an open transaction."""

    def __init__(self, conn: Connection, known: list[migrations.Migration]) -> None:
        self._conn = conn
        self._known = known

    def clear(self, url: str, move: str) -> None:
        """Create the tables that every database of hipq has. An unfinished copy of this very move is removed;
        anything else stays, and then the database cannot be moved to."""
        conn = self._conn
        schema.migrate(conn, self._known)
        _, _, identity = schema.version(conn)
        if identity == schema.INCOMING + move:
            for queue in schema.registered(conn):
                conn.execute(f"DROP TABLE {queue.table}, {queue.table}_final".encode())
                conn.execute(f"DROP SEQUENCE {queue.table}_ids".encode())
            for table in _EMPTY:
                conn.execute(f"DELETE FROM {table}".encode())
        elif identity.startswith(schema.INCOMING):
            raise Conflict(f"jobs of another file are on their way to {url}: run that move to its end")
        there = schema.registered(conn)
        if there:
            names = ", ".join(f"{queue.app}.{queue.name}" for queue in there[:5])
            raise Conflict(
                f"{url} has queues of its own ({names}): move into a database that hipq does not "
                "use yet, so before `hipq migrate`, or manage.py migrate, makes its tables there"
            )
        for table in _EMPTY[1:]:
            if conn.execute(f"SELECT 1 FROM {table} LIMIT 1".encode()).fetchone():
                raise Conflict(f"{url} has rows in {table}: move into a database that hipq does not use yet")

    def build(self, snapshot: Snapshot, move: str) -> None:
        """Create the queues and their tables, with the same numbers, because ids contain those."""
        conn = self._conn
        for copied in snapshot.queues:
            queue = copied.queue
            values = (*queue, copied.rules, copied.admission, copied.crons)
            query = 'INSERT INTO hipq_queues (number, app, name, "table", schema, rules, admission, crons) '
            conn.execute((query + "VALUES (%s, %s, %s, %s, 0, %s, %s, %s)").encode(), values)
            schema.extend(conn, self._known, queue)
            if copied.last_id:
                conn.execute("SELECT setval(%s, %s)", (f"{queue.table}_ids", copied.last_id))
        conn.execute("UPDATE hipq_dropped SET highest = greatest(highest, %s)", (snapshot.dropped,))
        for table, column, last in (
            ("hipq_engines", "engine_id", snapshot.engine_id),
            ("hipq_answers", "id", snapshot.answer),
        ):
            sequence = "(SELECT pg_get_serial_sequence(%s, %s)::regclass AS own) AS sequence"
            query = f"SELECT setval(own, greatest(nextval(own), %s)) FROM {sequence}"
            conn.execute(query.encode(), (last, table, column))
        conn.execute("UPDATE hipq_meta SET identity = %s", (schema.INCOMING + move,))

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

    def settle(self, snapshot: Snapshot) -> None:
        """Update the planner's statistics after the copy."""
        for table in snapshot.tables:
            self._conn.execute(f"ANALYZE {table.table}".encode())


@contextmanager
def open_target(store: PostgresStore) -> Iterator[PostgresTarget]:
    """A transaction that commits at the end of the block, and not if the block raises."""
    with store._db.using(MIGRATION_SECONDS) as conn, conn.transaction():
        conn.execute("SET LOCAL idle_in_transaction_session_timeout = 0")  # it waits for the other side now and then
        # the signpost is synced to disk, and so must be what it points to
        conn.execute("SET LOCAL synchronous_commit = on")
        conn.execute("SET LOCAL enable_seqscan = on")
        yield PostgresTarget(conn, store._known)


def check(store: PostgresStore, url: str, move: str) -> None:
    """Raise if this database cannot be moved to; nothing is changed."""
    with open_target(store) as destination:
        destination.clear(url, move)
        raise Rollback
