"""The schema's version, its migrations, and the tables of each queue. Whoever changes them holds the write lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from hipq.errors import NameClash
from hipq.stores import migrations
from hipq.stores.sqlite.place import place
from hipq.stores.values import EngineSeen, QueueTables

PACKAGE: Final = "hipq.stores.sqlite"


def version(conn: sqlite3.Connection) -> tuple[int, int]:
    """The schema's number and the oldest program it accepts, kept together in the file's header."""
    found = int(conn.execute("PRAGMA user_version").fetchone()[0])
    return found >> 8, found & 0xFF


def _levels(conn: sqlite3.Connection) -> list[tuple[QueueTables, int]]:
    """The queues, each with the number of the last migration its tables have had."""
    query = 'SELECT number, app, name, "table", schema FROM hipq_queues ORDER BY number'
    return [(QueueTables(*row[:4]), row[4]) for row in conn.execute(query).fetchall()]


def registered(conn: sqlite3.Connection) -> list[QueueTables]:
    return [queue for queue, _ in _levels(conn)]


def migrated(conn: sqlite3.Connection, known: list[migrations.Migration]) -> bool:
    """Whether neither the database nor a queue lacks anything this program knows of."""
    mine = known[-1].number
    return version(conn)[0] >= mine and all(level >= mine for _, level in _levels(conn))


def migrate(conn: sqlite3.Connection, known: list[migrations.Migration]) -> list[str]:
    """Apply what the database or a queue has not had, in the open transaction; the names of what was applied."""
    found, _ = version(conn)
    applied = []
    for migration in known:
        if is_new := migration.number > found:
            _script(conn, migration.database)
            conn.execute(f"PRAGMA user_version = {migration.number << 8 | migration.accepts}")
        behind = [queue for queue, level in _levels(conn) if level < migration.number]
        for queue in behind:
            _extend(conn, [migration], queue)
        if is_new or behind:
            applied.append(migration.name)
    return applied


def note_place(conn: sqlite3.Connection, path: str) -> None:
    """In the open transaction: whatever this file is a copy of, the database lives here from now on."""
    conn.execute("UPDATE hipq_place SET place = ?", (msgspec.json.encode(place(path)).decode(),))


def complete(
    conn: sqlite3.Connection, known: list[migrations.Migration], app: str, name: str, table: str
) -> QueueTables | None:
    """This queue, if it is registered and its tables lack nothing this program knows of."""
    query = 'SELECT number, app, name, "table", schema FROM hipq_queues WHERE app = ? AND name = ?'
    levels = {QueueTables(*row[:4]): row[4] for row in conn.execute(query, (app, name)).fetchall()}
    found = migrations.owner(list(levels), app, name, table)
    return found if found and not migrations.lacking(known, levels[found]) else None


def complete_now(
    conn: sqlite3.Connection, known: list[migrations.Migration], app: str, name: str, table: str
) -> QueueTables:
    """Register a queue, unless somebody was first, and give its tables what they lack, in the open transaction."""
    levels = dict(_levels(conn))
    queue = migrations.owner(list(levels), app, name, table)
    if not queue:
        query = "SELECT name FROM sqlite_master WHERE name IN (?, ?)"
        if conn.execute(query, (table, f"{table}_final")).fetchall():
            raise NameClash(f"queue {app}.{name} wants the table {table}, and {table} or {table}_final exists already")
        ((dropped,),) = conn.execute("SELECT highest FROM hipq_dropped").fetchall()
        queue = QueueTables(migrations.next_number(levels, dropped), app, name, table)
        conn.execute('INSERT INTO hipq_queues (number, app, name, "table", schema) VALUES (?, ?, ?, ?, 0)', queue)
    try:
        _extend(conn, migrations.lacking(known, levels.get(queue, 0)), queue)
    except sqlite3.OperationalError as error:
        if "already" not in str(error):
            raise
        raise NameClash(f"queue {app}.{name} wants the table {table}: {error}") from None
    return queue


def drop(conn: sqlite3.Connection, number: int, engines: Sequence[EngineSeen]) -> None:
    """Remove a queue and all that is filed under its number, in the open transaction."""
    queue = migrations.numbered(registered(conn), number)
    owners = conn.execute(f"SELECT DISTINCT owner FROM {queue.table} WHERE owner <> 0").fetchall()
    migrations.check_left(queue, engines, {owner for (owner,) in owners})
    for table in (queue.table, f"{queue.table}_final"):
        for beside in ("hipq_payloads", "hipq_progress"):
            conn.execute(f"DELETE FROM {beside} WHERE id IN (SELECT id FROM {table})")
        conn.execute(f"DROP TABLE {table}")
    for table in ("hipq_answers", "hipq_tickets", "hipq_crons", "hipq_activity"):
        conn.execute(f"DELETE FROM {table} WHERE queue = ?", (queue.number,))
    conn.execute("DELETE FROM hipq_queues WHERE number = ?", (queue.number,))
    conn.execute("UPDATE hipq_dropped SET highest = max(highest, ?)", (queue.number,))


def move_on(conn: sqlite3.Connection, margin: int) -> None:
    """Move whatever counts on by so many, in the open transaction of a database that has no engines."""
    conn.execute("DELETE FROM hipq_engines")
    conn.execute("UPDATE hipq_queues SET last_id = last_id + ?", (margin,))
    for table in ("hipq_engines", "hipq_answers"):
        query = "UPDATE sqlite_sequence SET seq = seq + ? WHERE name = ?"
        if conn.execute(query, (margin, table)).rowcount == 0:
            conn.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, margin))
    for queue in registered(conn):
        conn.execute(f"UPDATE {queue.table} SET token = token + ?", (margin,))
    used = "max(highest, coalesce((SELECT max(number) FROM hipq_queues), 0))"
    conn.execute(f"UPDATE hipq_dropped SET highest = ? + {used}", (migrations.QUEUES_LOST,))


def number_above(conn: sqlite3.Connection, queue: int, answer: int) -> None:
    """Move the counters of queues and answers on, as far as they are not there yet, in the open transaction."""
    conn.execute("UPDATE hipq_dropped SET highest = max(highest, ?)", (queue,))
    query = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'hipq_answers'"
    if conn.execute(query, (answer,)).rowcount == 0:
        conn.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('hipq_answers', ?)", (answer,))


def _extend(conn: sqlite3.Connection, some: list[migrations.Migration], queue: QueueTables) -> None:
    for migration in some:
        _script(conn, migrations.tables(migration.queue, queue))
        conn.execute("UPDATE hipq_queues SET schema = ? WHERE number = ?", (migration.number, queue.number))


def _script(conn: sqlite3.Connection, text: str) -> None:
    """Several statements in the open transaction (executescript would commit it)."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            conn.execute(statement)
            statement = ""


def known() -> list[migrations.Migration]:
    return migrations.migrations(PACKAGE)
