"""The schema's version, its migrations, and the tables of each queue.

What makes or drops a table is committed at once, by itself. So each step here can be taken again: a table or a column
that is there already was made by somebody who was cut off, and the registry says last what is done. One session at a
time changes the schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec
import pymysql

from hipq.errors import NameClash, StoreBusy
from hipq.stores import migrations
from hipq.stores.mariadb.connection import CALLER_SECONDS, Session, number_of, waiting
from hipq.stores.mariadb.dialect import spelled
from hipq.stores.values import EngineSeen, QueueTables

_THERE: Final = (1050, 1060, 1061, 1826, 3822)
"""A table, a column, an index or a check is there already; and what says that there is"""
_NONE: Final = 1146
"""no such table."""
DROPPED: Final = -1
"""In the place of a queue's level: it is being dropped."""
_LEVELS: Final = 'SELECT number, app, name, "table", "schema" FROM hipq_queues'
_PLACE: Final = {
    "server": "SELECT CAST(@@server_id AS CHAR)",
    "host": "SELECT @@hostname",
    "folder": "SELECT @@datadir",
    "database": "SELECT DATABASE()",
    "table": "SELECT CAST(create_time AS CHAR) FROM information_schema.tables "
    "WHERE table_schema = DATABASE() AND table_name = 'hipq_meta'",
}
"""What differs in a copy."""


def version(conn: Session) -> tuple[int, int, str]:
    """The schema's number, the oldest program it accepts, and what tells this database from all others."""
    try:
        found = conn.run("SELECT version, accepts, identity FROM hipq_meta").fetchall()
    except pymysql.ProgrammingError as error:
        if number_of(error) != _NONE:
            raise
        found = ()
    return found[0] if found else (0, 0, "")


def _levels(conn: Session) -> list[tuple[QueueTables, int]]:
    """The queues, each with the number of the last migration its tables have had."""
    return [(QueueTables(*row[:4]), row[4]) for row in conn.run(f"{_LEVELS} ORDER BY number").fetchall()]


def registered(conn: Session) -> list[QueueTables]:
    return [queue for queue, level in _levels(conn) if level > 0]


@contextmanager
def alone(conn: Session, seconds: int) -> Iterator[None]:
    """Nobody else changes the schema meanwhile: it waits for somebody else's change. The lock lasts until it is given
    back or the session ends, whatever is committed."""
    name = "CONCAT('hipq:', LEFT(SHA2(DATABASE(), 256), 40))"
    ((locked,),) = conn.run(f"SELECT GET_LOCK({name}, {seconds})").fetchall()
    if not locked:
        raise StoreBusy("MariaDB: somebody else is changing the tables of hipq")
    try:
        yield
    finally:
        with suppress(pymysql.Error, OSError):
            conn.run(f"SELECT RELEASE_LOCK({name})")


def migrate(conn: Session, known: list[migrations.Migration]) -> list[str]:
    """Apply what the database or a queue has not had; the names of what was applied."""
    found, _, _ = version(conn)
    applied = []
    for migration in known:
        if is_new := migration.number > found:
            _script(conn, migration.database)
            values = {"version": migration.number, "accepts": migration.accepts}
            if conn.run("UPDATE hipq_meta SET version = %(version)s, accepts = %(accepts)s", values).rowcount == 0:
                conn.run("INSERT INTO hipq_meta (version, accepts) VALUES (%(version)s, %(accepts)s)", values)
        behind = [queue for queue, level in _levels(conn) if 0 < level < migration.number]
        for queue in behind:
            extend(conn, [migration], queue)
        if is_new or behind:
            applied.append(migration.name)
    if not found:
        note_place(conn)
    return applied


def rename(conn: Session, name: str, instead_of: str) -> None:
    """What tells the database from all others."""
    values = {"name": name, "before": instead_of}
    conn.run("UPDATE hipq_meta SET identity = %(name)s WHERE identity = %(before)s", values)


def place(conn: Session) -> dict[str, str]:
    """Where the database is; without what the server does not tell this user."""
    found = {}
    for name, query in _PLACE.items():
        with suppress(pymysql.Error, ValueError):
            ((found[name],),) = conn.run(query).fetchall()
    return {name: str(value) for name, value in found.items()}


def note_place(conn: Session) -> None:
    """Whatever this database is a copy of, it lives here from now on."""
    conn.run("UPDATE hipq_meta SET place = %(place)s", {"place": msgspec.json.encode(place(conn)).decode()})


def complete(conn: Session, known: list[migrations.Migration], app: str, name: str, table: str) -> QueueTables | None:
    """This queue, if it is registered and its tables lack nothing this program knows of."""
    query = f"{_LEVELS} WHERE app = %(app)s AND name = %(name)s"
    levels = {QueueTables(*row[:4]): row[4] for row in conn.run(query, {"app": app, "name": name}).fetchall()}
    found = migrations.owner(list(levels), app, name, table)
    return found if found and not migrations.lacking(known, levels[found]) else None


def complete_now(conn: Session, known: list[migrations.Migration], app: str, name: str, table: str) -> QueueTables:
    """Register a queue, unless it is there, and give its tables what they lack. Nobody else does so meanwhile."""
    for queue, level in _levels(conn):
        if level == DROPPED:
            _dropped(conn, queue)  # whoever began it was cut off
    levels = dict(_levels(conn))
    found = migrations.owner(list(levels), app, name, table)
    if not found:
        check_free(conn, app, name, table)
        ((highest,),) = conn.run("SELECT highest FROM hipq_dropped").fetchall()
        found = QueueTables(migrations.next_number(levels, highest), app, name, table)
        conn.run(
            'INSERT INTO hipq_queues (number, app, name, "table", "schema") '
            "VALUES (%(number)s, %(app)s, %(name)s, %(table)s, 0)",
            found._asdict(),
        )
    if not levels.get(found):
        with suppress_there():
            conn.run(conn.flavour.make_ids.format(live=table))
    extend(conn, migrations.lacking(known, levels.get(found, 0)), found)
    return found


def check_free(conn: Session, app: str, name: str, table: str) -> None:
    """Raise if somebody has tables by the names of this queue's."""
    query = (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN %(tables)s"
    )
    if conn.run(query, {"tables": [table, f"{table}_final", f"{table}_ids"]}).fetchall():
        raise NameClash(f"queue {app}.{name} wants the table {table}, and {table} or {table}_final exists already")


def drop(conn: Session, number: int, engines: Callable[[], Iterable[EngineSeen]]) -> None:
    """Remove a queue and all that is filed under its number."""
    queue = migrations.numbered(registered(conn), number)
    with conn.transaction():
        # Its row is locked: nobody claims meanwhile, and later nobody knows the queue.
        conn.run("SELECT number FROM hipq_queues WHERE number = %(number)s FOR UPDATE", {"number": number})
        owners = conn.run(f"SELECT DISTINCT owner FROM {queue.table} WHERE owner <> 0").fetchall()
        migrations.check_left(queue, engines(), {owner for (owner,) in owners})
        conn.run(
            'UPDATE hipq_queues SET "schema" = %(dropped)s WHERE number = %(number)s',
            {"number": number, "dropped": DROPPED},
        )
    _dropped(conn, queue)


def _dropped(conn: Session, queue: QueueTables) -> None:
    """Its tables are locked before anything is deleted: who is adding a job ends first, or fails."""
    live, final = queue.table, f"{queue.table}_final"
    there = (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN %(tables)s"
    )
    tables = [name for (name,) in conn.run(there, {"tables": [live, final]}).fetchall()]
    with waiting(conn, CALLER_SECONDS):
        conn.run("LOCK TABLES " + ", ".join(f"{name} WRITE" for name in (*tables, "hipq_payloads", "hipq_progress")))
        try:
            for table in tables:
                for beside in ("hipq_payloads", "hipq_progress"):
                    conn.run(f"DELETE FROM {beside} WHERE id IN (SELECT id FROM {table})")
            for table in tables:
                conn.run(f"DROP TABLE {table}")
        finally:
            conn.run("UNLOCK TABLES")
    conn.run(conn.flavour.drop_ids.format(live=live))
    with conn.transaction():
        for table in ("hipq_answers", "hipq_tickets", "hipq_crons", "hipq_activity"):
            conn.run(f"DELETE FROM {table} WHERE queue = %(number)s", {"number": queue.number})
        conn.run("DELETE FROM hipq_queues WHERE number = %(number)s", {"number": queue.number})
        conn.run("UPDATE hipq_dropped SET highest = greatest(highest, %(number)s)", {"number": queue.number})


def extend(conn: Session, some: list[migrations.Migration], queue: QueueTables) -> None:
    for migration in some:
        _script(conn, migrations.tables(migration.queue, queue))
        conn.run(
            'UPDATE hipq_queues SET "schema" = %(level)s WHERE number = %(number)s',
            {"level": migration.number, "number": queue.number},
        )


@contextmanager
def suppress_there() -> Iterator[None]:
    try:
        yield
    except pymysql.Error as error:
        if number_of(error) not in _THERE:
            raise


def _script(conn: Session, text: str) -> None:
    text = re.sub(r"--.*", "", text)
    for statement in text.split(";\n"):
        if statement.strip():
            with suppress_there():
                conn.run(spelled(statement, conn.flavour.collation, "")[0], {})


def known() -> list[migrations.Migration]:
    return migrations.migrations("hipq.stores.mariadb")


def restored(conn: Session, margin: int, engines: Callable[[], Iterable[EngineSeen]]) -> None:
    """Move on whatever counts."""
    note_place(conn)
    if not margin:
        return
    migrations.check_stopped(engines())
    conn.run("DELETE FROM hipq_engines")
    queues = registered(conn)
    for table in ("hipq_engines", "hipq_answers"):
        conn.run(f"ALTER TABLE {table} AUTO_INCREMENT = {_following(conn, table) + margin}")
    for queue in queues:
        _move_ids(conn, queue.table, margin)
        conn.run(f"UPDATE {queue.table} SET token = token + %(margin)s", {"margin": margin})
    highest = max((queue.number for queue in queues), default=0)
    conn.run(
        "UPDATE hipq_dropped SET highest = greatest(highest, %(highest)s) + %(lost)s",
        {"highest": highest, "lost": migrations.QUEUES_LOST},
    )


def number_above(conn: Session, queue: int, answer: int) -> None:
    """Move the counters of queues and answers on, as far as they are not there yet."""
    conn.run("UPDATE hipq_dropped SET highest = greatest(highest, %(queue)s)", {"queue": queue})
    conn.run(f"ALTER TABLE hipq_answers AUTO_INCREMENT = {max(_following(conn, 'hipq_answers'), answer + 1)}")


def _following(conn: Session, table: str) -> int:
    """The number that the next row of a table gets."""
    query = (
        "SELECT auto_increment FROM information_schema.tables "
        "WHERE table_schema = DATABASE() AND table_name = %(table)s"
    )
    ((following,),) = conn.run(query, {"table": table}).fetchall()
    return int(following or 1)


def _move_ids(conn: Session, live: str, margin: int) -> None:
    ((last,),) = conn.run(conn.flavour.last_id.format(live=live)).fetchall()
    conn.run(conn.flavour.move_ids.format(live=live, to=(last or 0) + margin))
