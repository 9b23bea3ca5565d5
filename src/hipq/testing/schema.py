"""A schema of a PostgreSQL database for one test: empty when it begins, gone when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote
from uuid import uuid4

from hipq.errors import Invalid, StoreUnavailable


@contextmanager
def own_schema(url: str) -> Iterator[str]:
    """The URL of the same database, with a search path on which there is only that schema."""
    if not url.startswith("postgres"):
        raise Invalid("fresh=True is for PostgreSQL: a database in memory is always new, and a file in tmp_path is")
    import psycopg

    name = f"hipq_test_{uuid4().hex[:12]}"
    try:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(f"CREATE SCHEMA {name}")
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"PostgreSQL: {error}") from None
    try:
        yield f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={name}', safe='')}"
    finally:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(f"DROP SCHEMA {name} CASCADE")
