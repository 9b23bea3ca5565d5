"""The database of one test: it outlives the application's own `close()`, or is a schema that nobody else has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote
from uuid import uuid4

from hipq.database import Database
from hipq.errors import Invalid, StoreUnavailable


class OfTest(Database):
    """An app's database during a test. The test ends it: the app's own `close()`, as at the end of a web server's
    lifespan, leaves it, since jobs in memory would be gone."""

    def close(self) -> None: ...

    def end(self) -> None:
        super().close()


@contextmanager
def own_schema(url: str) -> Iterator[str]:
    """The URL of the same database, with a search path on which there is only a schema that is new, and gone
    afterwards."""
    if not url.startswith("postgres"):
        raise Invalid("fresh=True is for PostgreSQL: a database in memory is always new, and a file in tmp_path is")
    import psycopg  # most tests are in memory

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
