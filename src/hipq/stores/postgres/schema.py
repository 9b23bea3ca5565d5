"""The schema's version, its migrations, and the tables of each queue. Whoever changes them holds one advisory lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec
import psycopg

from hipq.errors import NameClash, SchemaError
from hipq.stores import migrations
from hipq.stores.postgres.connection import CALLER_SECONDS, Connection
from hipq.stores.values import EngineSeen, QueueTables

OLDEST_SERVER: Final = 13
_LOCK: Final = 0x68697071  # "hipq"
_PLACE: Final = {
    "system": b"SELECT system_identifier::text FROM pg_control_system()",
    "timeline": b"SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)",
    "database": b"SELECT oid::text FROM pg_database WHERE datname = current_database()",
    "table": b"SELECT 'hipq_meta'::regclass::oid::text",
}
"""What differs in a copy: after initdb, after a restore to a point in time, in another database, after pg_restore."""


def version(conn: Connection) -> tuple[int, int, str]:
    """The schema's number, the oldest program it accepts, and what tells this database from all others."""
    if conn.info.server_version < OLDEST_SERVER * 10_000:
        raise SchemaError(f"hipq needs PostgreSQL {OLDEST_SERVER} or later")
    found = conn.execute("SELECT to_regclass('hipq_meta') IS NOT NULL").fetchone()
    if found == (True,):
        row = conn.execute("SELECT version, accepts, identity FROM hipq_meta").fetchone()
        if row:
            return row[0], row[1], row[2]
    return 0, 0, ""


def _levels(conn: Connection) -> list[tuple[QueueTables, int]]:
    """The queues, each with the number of the last migration its tables have had."""
    query = 'SELECT number, app, name, "table", schema FROM hipq_queues ORDER BY number'
    return [(QueueTables(*row[:4]), row[4]) for row in conn.execute(query).fetchall()]


def registered(conn: Connection) -> list[QueueTables]:
    return [queue for queue, _ in _levels(conn)]


def lock(conn: Connection, seconds: float = 0) -> None:
    """Alone until the transaction ends. It waits for somebody else's migration: so long, or, with 0, however long."""
    conn.execute(f"SET LOCAL lock_timeout = '{seconds}s'".encode())
    conn.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))


def migrate(conn: Connection, known: list[migrations.Migration]) -> list[str]:
    """Apply what the database or a queue has not had, in the open transaction; the names of what was applied."""
    lock(conn)
    found, _, _ = version(conn)
    applied = []
    for migration in known:
        if is_new := migration.number > found:
            _script(conn, migration.database)
            values = (migration.number, migration.accepts)
            if conn.execute("UPDATE hipq_meta SET version = %s, accepts = %s", values).rowcount == 0:
                conn.execute("INSERT INTO hipq_meta (version, accepts) VALUES (%s, %s)", values)
        behind = [queue for queue, level in _levels(conn) if level < migration.number]
        for queue in behind:
            extend(conn, [migration], queue)
        if is_new or behind:
            applied.append(migration.name)
    if not found:
        note_place(conn)
    return applied


def rename(conn: Connection, name: str, instead_of: str) -> None:
    """What tells the database from all others."""
    conn.execute("UPDATE hipq_meta SET identity = %s WHERE identity = %s", (name, instead_of))


def place(conn: Connection) -> dict[str, str]:
    """Where the database is; without what the server does not tell this user, or does not know."""
    found = {}
    for name, query in _PLACE.items():
        with suppress(psycopg.Error), conn.transaction():
            ((found[name],),) = conn.execute(query).fetchall()
    return found


def note_place(conn: Connection) -> None:
    """In the open transaction: whatever this database is a copy of, it lives here from now on."""
    conn.execute("UPDATE hipq_meta SET place = %s", (msgspec.json.encode(place(conn)).decode(),))


def complete(
    conn: Connection, known: list[migrations.Migration], app: str, name: str, table: str
) -> QueueTables | None:
    """This queue, if it is registered and its tables lack nothing this program knows of."""
    query = 'SELECT number, app, name, "table", schema FROM hipq_queues WHERE app = %s AND name = %s'
    levels = {QueueTables(*row[:4]): row[4] for row in conn.execute(query, (app, name)).fetchall()}
    found = migrations.owner(list(levels), app, name, table)
    return found if found and not migrations.lacking(known, levels[found]) else None


def complete_now(conn: Connection, known: list[migrations.Migration], app: str, name: str, table: str) -> QueueTables:
    """Register a queue, unless somebody was first, and give its tables what they lack: in the open transaction, which
    has the lock."""
    levels = dict(_levels(conn))
    queue = migrations.owner(list(levels), app, name, table)
    if not queue:
        query = "SELECT coalesce(to_regclass(%s), to_regclass(%s), to_regclass(%s)) IS NOT NULL"
        if conn.execute(query, (table, f"{table}_final", f"{table}_ids")).fetchone() == (True,):
            raise NameClash(f"queue {app}.{name} wants the table {table}, and {table} or {table}_final exists already")
        ((dropped,),) = conn.execute("SELECT highest FROM hipq_dropped").fetchall()
        queue = QueueTables(migrations.next_number(levels, dropped), app, name, table)
        conn.execute('INSERT INTO hipq_queues (number, app, name, "table", schema) VALUES (%s, %s, %s, %s, 0)', queue)
    try:
        extend(conn, migrations.lacking(known, levels.get(queue, 0)), queue)
    except psycopg.errors.DuplicateTable as error:  # an index of it
        raise NameClash(f"queue {app}.{name} wants the table {table}: {error.diag.message_primary}") from None
    return queue


def drop(conn: Connection, number: int, engines: Callable[[], Iterable[EngineSeen]]) -> None:
    """Remove a queue and all that is filed under its number, in the open transaction.

    Its tables are locked before anything is read: who is adding a job or bringing an answer ends first, or fails."""
    lock(conn)
    queue = migrations.numbered(registered(conn), number)
    migrations.check_left(queue, engines(), set())  # before an engine at work has to wait for us
    live, final = queue.table, f"{queue.table}_final"
    conn.execute(f"SET LOCAL lock_timeout = '{CALLER_SECONDS}s'".encode())  # everybody else waits behind us
    conn.execute(f"LOCK TABLE {live}, {final} IN ACCESS EXCLUSIVE MODE".encode())
    owners = conn.execute(f"SELECT DISTINCT owner FROM {live} WHERE owner <> 0".encode()).fetchall()
    migrations.check_left(queue, engines(), {owner for (owner,) in owners})
    for table in (live, final):
        for beside in ("hipq_payloads", "hipq_progress"):
            conn.execute(f"DELETE FROM {beside} WHERE id IN (SELECT id FROM {table})".encode())
        conn.execute(f"DROP TABLE {table}".encode())
    conn.execute(f"DROP SEQUENCE {live}_ids".encode())
    for table in ("hipq_answers", "hipq_tickets", "hipq_crons", "hipq_activity"):
        conn.execute(f"DELETE FROM {table} WHERE queue = %s".encode(), (number,))
    conn.execute("DELETE FROM hipq_queues WHERE number = %s", (number,))
    conn.execute("UPDATE hipq_dropped SET highest = greatest(highest, %s)", (number,))


def extend(conn: Connection, some: list[migrations.Migration], queue: QueueTables) -> None:
    for migration in some:
        _script(conn, migrations.tables(migration.queue, queue))
        conn.execute("UPDATE hipq_queues SET schema = %s WHERE number = %s", (migration.number, queue.number))


def _script(conn: Connection, text: str) -> None:
    conn.execute(text.encode(), prepare=False)


def known() -> list[migrations.Migration]:
    return migrations.migrations("hipq.stores.postgres")


def restored(conn: Connection, margin: int, engines: Callable[[], Iterable[EngineSeen]]) -> None:
    """Move on whatever counts, in the open transaction."""
    lock(conn)
    note_place(conn)
    if not margin:
        return
    migrations.check_stopped(engines())
    conn.execute("DELETE FROM hipq_engines")
    queues = registered(conn)
    own = "SELECT pg_get_serial_sequence(%s, %s)"
    sequences = [conn.execute(own, of).fetchone() for of in (("hipq_engines", "engine_id"), ("hipq_answers", "id"))]
    for (sequence,) in [*filter(None, sequences), *((f"{queue.table}_ids",) for queue in queues)]:
        conn.execute(
            "SELECT setval(%(of)s::regclass, nextval(%(of)s::regclass) + %(by)s)", {"of": sequence, "by": margin}
        )
    for queue in queues:
        conn.execute(f"UPDATE {queue.table} SET token = token + %s".encode(), (margin,))
    highest = max((queue.number for queue in queues), default=0)
    conn.execute("UPDATE hipq_dropped SET highest = greatest(highest, %s) + %s", (highest, migrations.QUEUES_LOST))


def number_above(conn: Connection, queue: int, answer: int) -> None:
    """Move the counters of queues and answers on, as far as they are not there yet, in the open transaction."""
    lock(conn)
    conn.execute("UPDATE hipq_dropped SET highest = greatest(highest, %s)", (queue,))
    ((sequence,),) = conn.execute("SELECT pg_get_serial_sequence('hipq_answers', 'id')").fetchall()
    conn.execute(
        "SELECT setval(%(of)s::regclass, greatest(nextval(%(of)s::regclass), %(above)s))",
        {"of": sequence, "above": max(answer, 1)},
    )
