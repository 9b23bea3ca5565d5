"""The facts about a PostgreSQL database, read in one transaction that cannot write."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, Final

import psycopg

from hipq.stores.asking import ticket_note
from hipq.stores.health.facts import POSTGRESQL, EngineHealth, Health, Level
from hipq.stores.health.reading import Reading, noted
from hipq.stores.health.words import Words
from hipq.stores.postgres import schema
from hipq.stores.postgres.connection import Connection, Connections, translated
from hipq.stores.postgres.health_server import holdbacks, parts, server, tables
from hipq.stores.sql.server_setup import INCOMING
from hipq.stores.values import EngineSeen

STATEMENT_SECONDS: Final = 5
"""How long one statement may take: what takes longer is reported as unread."""
_SETTINGS: Final = {
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "lock_timeout": "1s",
    "enable_seqscan": "off",  # every statement has its index, as those of the store
    "enable_bitmapscan": "off",
    "jit": "off",
}
_WORDS: Final = Words(
    "coalesce(CASE WHEN phase = 'deciding' THEN CAST(meta AS jsonb) #>> '{retry,registered}' END, '')"
)
"""The strategy is written as the index _todo has it."""
_CLOCK: Final = b"SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


def health(url: str) -> Health:
    """What can be read of the database at this URL. Invalid, if that is no URL."""
    found = Health(POSTGRESQL)
    connections = Connections(url, on_fork=lambda: None)
    try:
        with connections.connect() as conn:
            number = conn.info.server_version
            found.version = (number // 10_000, number % 10_000)
            if found.version[0] >= schema.OLDEST_SERVER:
                _read(conn, found)
    except psycopg.Error as error:
        found.error = str(translated(error))
    return found


def _read(conn: Connection, found: Health) -> None:
    before = time.monotonic()
    ((found.now,),) = conn.execute(_CLOCK).fetchall()
    found.here, found.uncertain = time.time_ns() // 1000, time.monotonic() - before
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    conn.read_only = True
    with psycopg.Connection.transaction(conn):  # not the session's own, which is for writing
        query = "SELECT " + ", ".join(["set_config(%s, %s, true)"] * len(_SETTINGS))
        conn.execute(query.encode(), [text for pair in _SETTINGS.items() for text in pair])
        _Look(conn, found).all()


class _Look:
    def __init__(self, conn: Connection, found: Health) -> None:
        self._conn = conn
        self._found = found
        self._reading = Reading(found, self._ask, psycopg.Error, _WORDS, apart=conn.transaction)

    def _ask(self, query: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self._conn.execute(re.sub(r":(\w+)", r"%(\1)s", query).encode(), values).fetchall()

    def all(self) -> None:
        conn, found, known, part = self._conn, self._found, schema.known(), self._reading.part
        found.server = part("database", lambda: server(conn), None)
        found.holdbacks = part("storage", lambda: holdbacks(conn), [])
        number, accepts, identity = schema.version(conn)
        found.incoming = identity.startswith(INCOMING)
        found.level = Level(number, accepts, known[-1].number)
        if not number:
            return
        found.engines = part("engines", self._engines, [])
        found.noted_place = part("database", lambda: noted(self._ask("SELECT place FROM hipq_meta", {})), {})
        found.place = schema.place(conn)
        self._reading.queues(known, self._note)
        found.found = part("indexes", lambda: parts(conn, found.expected), [])
        names = [one.name for one in found.expected if one.kind == "table"]
        found.tables = part("storage", lambda: tables(conn, names), [])

    def _engines(self) -> list[EngineHealth]:
        """Leases against the transaction's own time: by a later clock, one renewed since would look expired."""
        query = (
            "SELECT engine_id, label, serves, extract(epoch FROM lease_until - now()) "
            "FROM hipq_engines ORDER BY engine_id"
        )
        return [
            EngineHealth(EngineSeen.of(engine_id, label, serves), left > 0, float(left))
            for engine_id, label, serves, left in self._ask(query, {})
        ]

    def _note(self, queue: int) -> str:
        query = "SELECT note, engine_id, engine_id <> 0 AND until <= now() FROM hipq_tickets WHERE queue = :queue"
        return ticket_note(self._ask(query, {"queue": queue}))
