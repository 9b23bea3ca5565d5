"""From a URL to the facts about its database. Only the store that is asked for is loaded."""

from __future__ import annotations

import re

from hipq.errors import Invalid
from hipq.stores.health import Health
from hipq.stores.open import open_store


def look(url: str, deep: bool) -> Health:
    """Invalid, if that is no database whose facts can be read."""
    if url in ("sqlite://", "sqlite:///:memory:"):
        raise Invalid("a database in memory is its program's own: there is nothing to look at from here")
    if "\x00" not in url and url.isprintable():
        if match := re.fullmatch(r"sqlite:///(.+)", url, re.DOTALL):
            from hipq.stores.sqlite.health import health as of_sqlite

            return of_sqlite(match[1], deep)
        if re.match(r"postgres(ql)?://", url):
            open_store(url).close()  # which says what is missing, if psycopg is; it does not connect
            from hipq.stores.postgres.health import health as of_postgres

            return of_postgres(url)
    open_store(url).close()  # which says what is wrong with it
    raise AssertionError("no store, and no complaint")
