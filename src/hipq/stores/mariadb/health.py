"""The facts about a MariaDB database, read in one transaction that cannot write."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import pymysql

from hipq.errors import SchemaError
from hipq.stores.asking import ticket_note
from hipq.stores.health.facts import EngineHealth, Health, Level
from hipq.stores.health.reading import Reading, noted
from hipq.stores.health.words import Words
from hipq.stores.mariadb import schema
from hipq.stores.mariadb.connection import Connections, Session, translated
from hipq.stores.mariadb.dialect import spelled
from hipq.stores.mariadb.flavour import MARIADB, number_of
from hipq.stores.mariadb.health_server import denied, holdbacks, parts, server, tables
from hipq.stores.mariadb.store import NOW
from hipq.stores.sql.server_setup import INCOMING
from hipq.stores.values import EngineSeen

_WINDOWS: Final = "IF(char_length(:windows) > 64, sha2(:windows, 256), :windows)"
_WORDS: Final = Words(
    "todo",
    table="{table} FORCE INDEX ({index})",
    indexes={"stage": "due", "wait": "due"},
    # Written out: of a comparison of rows the server makes no range of an index.
    later=(
        "(lane > :lane OR lane = :lane AND (windowed > {it} OR windowed = {it} AND "
        "(throttle_factor > :factor OR throttle_factor = :factor AND rank > :rank)))"
    ).replace("{it}", _WINDOWS),
    windows="windowed",
    these_windows=_WINDOWS,
    parked="parked IS NOT NULL ORDER BY parked",
    run_time="due",
    deadline="due",
    left="todo IS NOT NULL",
    is_left_by_type=False,
    held="(owner > 0 AND held <> 0 OR owner = 0 AND held > 0)",
    buffered="open_key IS NOT NULL",
)


def health(url: str) -> Health:
    """What can be read of the database at this URL."""
    found = Health(MARIADB.name)
    try:
        conn = Connections(url, on_fork=lambda: None).connect()
        try:
            found.kind, found.version = conn.flavour.name, number_of(conn.get_server_info())
            _read(conn, found)
        finally:
            conn._force_close()
    except SchemaError as error:  # too old a server
        found.error = str(error)
    except (pymysql.Error, OSError, UnicodeError) as error:
        found.error = str(translated(error))
    return found


def _read(conn: Session, found: Health) -> None:
    before = time.monotonic()
    ((found.now,),) = conn.run(NOW).fetchall()
    found.here, found.uncertain = time.time_ns() // 1000, time.monotonic() - before
    conn.run(conn.flavour.limited)
    conn.run("SET SESSION time_zone = 'SYSTEM'")  # in which the server says when transactions began
    _Look(conn, found).all()


class _Look:
    def __init__(self, conn: Session, found: Health) -> None:
        self._conn = conn
        self._found = found
        self._reading = Reading(found, self._ask, pymysql.Error, _WORDS)

    def _ask(self, query: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return list(self._conn.run(spelled(query, self._conn.flavour.collation, "")[0], values).fetchall())

    def all(self) -> None:
        conn, found, known, part = self._conn, self._found, schema.known(), self._reading.part
        found.server = part("database", lambda: server(conn), None)
        if found.server and found.server.sees_all:
            found.holdbacks = part("storage", lambda: holdbacks(conn), [])
        number, accepts, identity = schema.version(conn)
        found.incoming = identity.startswith(INCOMING)
        found.level = Level(number, accepts, known[-1].number)
        if not number:
            return
        if found.server:  # before the transaction, which refuses even to explain a write
            found.server = found.server._replace(denied=part("database", lambda: denied(conn), ()))
        conn.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.run("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        found.engines = part("engines", self._engines, [])
        found.noted_place = part("database", lambda: noted(self._ask("SELECT place FROM hipq_meta", {})), {})
        found.place = schema.place(conn)
        self._reading.queues(known, self._note)
        found.found = part("indexes", lambda: parts(conn, found.expected), [])
        names = [one.name for one in found.expected if one.kind == "table"]
        found.tables = part("storage", lambda: tables(conn, names), [])

    def _engines(self) -> list[EngineHealth]:
        """Leases against the time that was asked for before: by a later clock, one renewed since would look expired."""
        query = "SELECT engine_id, label, serves, lease_until - :now FROM hipq_engines ORDER BY engine_id"
        return [
            EngineHealth(EngineSeen.of(engine_id, label, serves), left > 0, left / 1e6)
            for engine_id, label, serves, left in self._ask(query, {"now": self._found.now})
        ]

    def _note(self, queue: int) -> str:
        query = "SELECT note, engine_id, engine_id <> 0 AND until <= :now FROM hipq_tickets WHERE queue = :queue"
        return ticket_note(self._ask(query, {"queue": queue, "now": self._found.now}))
