"""From a URL to the facts about its database. Only the store in question is loaded."""

from __future__ import annotations

from hipq.errors import Invalid
from hipq.stores.health.facts import Health
from hipq.stores.open import open_store


def look(url: str, deep: bool) -> Health:
    """The facts about a database. Invalid if the URL is no database whose facts can be read."""
    if url == "sqlite://":
        raise Invalid("a database in memory is its program's own: there is nothing to look at from here")
    if url.startswith("sqlite:///"):
        from hipq.stores.sqlite.health import health as of_sqlite

        return of_sqlite(url.removeprefix("sqlite:///"), deep)
    open_store(url).close()  # raises if psycopg is missing; it does not connect
    from hipq.stores.postgres.health import health as of_postgres

    return of_postgres(url)
