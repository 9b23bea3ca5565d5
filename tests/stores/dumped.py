"""All that a database has, as a dump of it would show it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.databases import sql

_TABLES = {
    "postgres": "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'public'",
    "mariadb": "SELECT concat('`', table_name, '`') FROM information_schema.tables WHERE table_schema = database()",
}


def dumped(url: str) -> bytes:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as conn:
            return "\n".join(conn.iterdump()).encode()
    kind = "mariadb" if url.startswith("mariadb") else "postgres"
    rows = [row for (table,) in sql(url, _TABLES[kind]) for row in sql(url, f"SELECT * FROM {table}")]
    assert rows
    return "\n".join(str(value) for row in rows for value in row).encode()
