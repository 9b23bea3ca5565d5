"""A connection such as another program has, to whatever database an app is on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from hipq.stores.mariadb.address import options_of
from tests.contract.test_mariadb import Connection


def connect(url: str) -> Any:
    """With `execute`, `commit`, `rollback` and `close`, as the drivers of all three have them, or nearly so."""
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"))
    return psycopg.connect(url) if url.startswith("postgres") else Connection(**options_of(url), ssl_disabled=True)


@contextmanager
def committed(url: str) -> Iterator[Any]:
    """What is done on it is committed at the end."""
    with closing(connect(url)) as conn:
        yield conn
        conn.commit()
