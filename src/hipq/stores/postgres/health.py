"""The facts about a PostgreSQL database, read in one transaction that cannot write."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any, Final

import psycopg

from hipq.stores.health.facts import POSTGRESQL, Health
from hipq.stores.health.words import Words
from hipq.stores.postgres.connection import Connection, Connections, translated
from hipq.stores.postgres.dialect import PostgresSql, statements
from hipq.stores.postgres.health_server import PostgresServer
from hipq.stores.postgres.schema import OLDEST_SERVER, PostgresSchema

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
            if found.version[0] >= OLDEST_SERVER:
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
        _Reading(PostgresSchema(PostgresSql(conn, statements(list))), found).all()


class _Reading(PostgresServer):
    words = _WORDS

    def apart(self) -> AbstractContextManager[Any]:
        return self.conn.transaction()  # type: ignore[no-any-return]
