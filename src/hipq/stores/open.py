"""From a URL, or a mapping of connection details, to a store. Only the chosen store is imported."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from hipq.errors import Invalid, Moved, StoreUnavailable, shown
from hipq.stores.base import Store
from hipq.stores.clock import Clock
from hipq.stores.password import without_password

__all__ = ["open_guest", "open_store", "url_of", "without_password"]

_FORMS = "use sqlite:///file.db, sqlite:// (in memory) or postgresql://user@host/database"


def url_of(db: str | Mapping[str, Any]) -> str:
    """The URL of a database. A mapping has `url`; or `driver` with `file` or host, port, user, password, database."""
    if isinstance(db, str):
        return db
    if not isinstance(db, Mapping):
        raise Invalid(f"db must be a URL or a mapping, not {type(db).__name__}; {_FORMS}")
    known = {"url", "driver", "file", "host", "port", "user", "password", "database"}
    if unknown := set(db) - known:
        raise Invalid(
            f"db has {', '.join(sorted(map(str, unknown)))}, which means nothing; known: {', '.join(sorted(known))}"
        )
    if "url" in db:
        return str(db["url"])
    driver = db.get("driver")
    if driver == "sqlite":
        return f"sqlite:///{db['file']}" if db.get("file") else "sqlite://"
    if driver in ("postgresql", "postgres"):
        from urllib.parse import quote

        user = quote(str(db.get("user", "")), safe="")
        password = f":{quote(str(db['password']), safe='')}" if db.get("password") else ""
        at = "@" if user or password else ""
        port = f":{db['port']}" if db.get("port") else ""
        return (
            f"postgresql://{user}{password}{at}{db.get('host', '')}{port}/{quote(str(db.get('database', '')), safe='')}"
        )
    raise Invalid(f"db's driver must be sqlite or postgresql, not {shown(driver)}")


def open_store(url: str, clock: Clock | None = None) -> Store:
    if "\x00" in url or not url.isprintable():
        raise Invalid("a database URL must not contain control characters or broken Unicode")
    if url in ("sqlite://", "sqlite:///:memory:"):
        from hipq.stores.sqlite.store import SqliteStore

        return SqliteStore("", clock)
    if match := re.fullmatch(r"sqlite:///(.+)", url, re.DOTALL):
        return _file(match[1], clock)
    if re.match(r"postgres(ql)?://", url):
        try:
            from hipq.stores.postgres.store import PostgresStore
        except ModuleNotFoundError as error:
            if error.name and error.name.startswith("psycopg"):
                raise Invalid("PostgreSQL needs psycopg: pip install 'hipq[postgres]'") from None
            raise
        return PostgresStore(url, clock)
    raise Invalid(f"not a database URL: {re.sub(r'://.*', '://…', url):.60}; {_FORMS}")


def open_guest(kind: str, lend: Callable[[], Any], url: str) -> Store:
    """A database seen through somebody else's connection: `lend` gives the one to use at this moment, in this thread,
    and what is done is part of its transaction. It can add jobs and look at them. `url` is what messages call it."""
    if kind == "sqlite":
        from hipq.stores.sqlite.lent import GuestStore as SqliteGuest

        return SqliteGuest(lend, url)
    if kind == "postgresql":
        from hipq.stores.postgres.lent import GuestStore as PostgresGuest

        return PostgresGuest(lend, url)
    raise Invalid(f"hipq has no tables in {kind} databases: use SQLite or PostgreSQL")


def _file(path: str, clock: Clock | None) -> Store:
    """A SQLite file; or where its jobs have moved to, now or later."""
    from hipq.stores.following import PATIENCE, PAUSE, Following, followed
    from hipq.stores.sqlite.moving import is_moving
    from hipq.stores.sqlite.store import SqliteStore

    def there(url: str) -> Store:
        return open_store(url, clock)

    until = 0.0
    while True:
        try:
            found: Any = Following(SqliteStore(path, clock), there, lambda: is_moving(path))
            store: Store = found
            return store
        except Moved as moved:
            return followed(f"sqlite:///{path}", moved, there)
        except StoreUnavailable:  # an old SQLite's lock file is held
            until = until or time.monotonic() + PATIENCE
            if not is_moving(path) or time.monotonic() >= until:
                raise
            time.sleep(PAUSE)
