"""What a store's own test module hands to the suite: a database to open, and a way in behind the store's back."""

from __future__ import annotations

from typing import Any, Protocol

from hipq.stores.clock import Clock
from hipq.stores.protocols import Store


class UserConnection(Protocol):
    """What sqlite3 and psycopg connections have in common."""

    def execute(self, query: str, /) -> Any: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


class Database(Protocol):
    """One database for a test. Others may use it too: a test looks only at its own queue."""

    url: str
    """Where another process finds it."""
    package: str
    """Where the store keeps its migrations."""
    catalogue: str
    """A query for the names of all there is in it."""
    refusal: type[Exception]
    """What the driver raises when a constraint says no."""

    def open(self, clock: Clock | None = None) -> Store:
        """A store object of its own on this database."""

    def connect(self, *, autocommit: bool = False, dict_rows: bool = False) -> Any:
        """A connection such as a user has: `UserConnection`, and what its driver adds."""

    def set_schema(self, number: int, accepts: int) -> None:
        """Pretend that another release has migrated it."""

    def intact(self) -> bool:
        """The database's own opinion of its files."""


def raw(database: Database, query: str) -> list[tuple[Any, ...]]:
    """One statement behind the store's back, committed."""
    conn = database.connect()
    try:
        cursor = conn.execute(query)
        rows = cursor.fetchall() if cursor.description else []
        conn.commit()
    finally:
        conn.close()
    return [tuple(row) for row in rows]
