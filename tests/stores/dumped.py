"""All that a database has, as a dump of it would show it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg


def dumped(url: str) -> bytes:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as conn:
            return "\n".join(conn.iterdump()).encode()
    with psycopg.connect(url, autocommit=True) as pg:
        tables = pg.execute(
            "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables "
            "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        found = [pg.execute(f"SELECT t::text FROM {name} t".encode()).fetchall() for (name,) in tables]
        return "\n".join(text for rows in found for (text,) in rows).encode()
