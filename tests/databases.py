"""An empty database on each of the stores, by name; and a way in behind a store's back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pymysql

from hipq.stores.mariadb.address import options_of
from hipq.stores.migrations import migrations
from tests.mariadb_server import clean_maria, fresh_maria
from tests.servers import clean_database, fresh_database

STORES: Final = ("sqlite", "postgres", "mariadb")


@contextmanager
def fresh(store: str, file: Path) -> Iterator[str]:
    """Its URL. `file`: where it is, if it is a file."""
    if store == "sqlite":
        yield f"sqlite:///{file}"
    else:
        with fresh_database() if store == "postgres" else fresh_maria() as url:
            yield url


@contextmanager
def clean(store: str, file: Path) -> Iterator[str]:
    """The same, but that a server's is one for all tests of a process."""
    if store == "sqlite":
        yield f"sqlite:///{file}"
    else:
        with clean_database() if store == "postgres" else clean_maria() as url:
            yield url


def sql(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run each by itself; the rows of the last."""
    found: list[tuple[Any, ...]] = []
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10, isolation_level=None)) as conn:
            for statement in statements:
                found = conn.execute(statement).fetchall()
    elif url.startswith("mariadb"):
        with closing(pymysql.connect(**options_of(url), autocommit=True, ssl_disabled=True)) as maria:
            for statement in statements:
                cursor = maria.cursor()
                cursor.execute(statement)
                found = list(cursor.fetchall())
    else:
        with psycopg.connect(url, autocommit=True) as other:
            for statement in statements:
                rows = other.execute(statement.encode())
                found = rows.fetchall() if rows.description else []
    return found


def schema_of(url: str) -> int:
    """The number of the last migration of its store."""
    return migrations("hipq.stores.mariadb" if url.startswith("mariadb") else "hipq.stores.sqlite")[-1].number
