"""Where a backend's jobs are: in one of Django's databases, at a URL, or where your application has them."""

from __future__ import annotations

from typing import Any, Final

from django.db import connections

from hipq.errors import Invalid
from hipq.stores.open import url_of

KINDS: Final = ("sqlite", "postgresql", "mysql")
_OF_MYSQL: Final = ("host", "port", "user", "password", "database", "unix_socket", "connect_timeout")
_NOT_FOR_URLS: Final = frozenset({"client_encoding", "context", "cursor_factory", "prepare_threshold"})
"""Django's arguments to psycopg that libpq does not know."""


class Location:
    """One of Django's databases. Programs that add jobs use Django's connection to it; a worker has its own."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    @property
    def kind(self) -> str:
        return str(connections[self.alias].vendor)

    @property
    def shown(self) -> str:
        """The database's name in messages: no user, no password."""
        return f"Django's database {self.alias!r}"

    @property
    def identity(self) -> str:
        """A text that differs from the one of another database with the same alias, as in tests."""
        settings = connections[self.alias].settings_dict
        return "|".join(str(settings[name]) for name in ("ENGINE", "HOST", "PORT", "NAME"))

    @property
    def in_memory(self) -> bool:
        return self.kind == "sqlite" and bool(connections[self.alias].is_in_memory_db())

    @property
    def in_transaction(self) -> bool:
        return bool(connections[self.alias].in_atomic_block)

    def lend(self) -> Any:
        """Django's connection of this thread, as its driver made it."""
        connection = connections[self.alias]
        connection.ensure_connection()
        connection.validate_no_broken_transaction()
        return connection.connection

    def url(self) -> str:
        """The URL for a worker's own connections, and for `hipq` on the command line."""
        if self.in_memory:
            raise Invalid(f"{self.shown} is in memory, where no other process finds it: give it a file")
        params = connections[self.alias].get_connection_params()
        if self.kind == "sqlite":
            return f"sqlite:///{params['database']}"
        if self.kind == "mysql":  # also MariaDB's name there
            return url_of({"driver": "mariadb", **{name: params[name] for name in _OF_MYSQL if name in params}})
        role = connections[self.alias].settings_dict["OPTIONS"].get("assume_role")
        return _postgres_url(params, role)


def _postgres_url(params: dict[str, Any], role: str | None) -> str:
    given = {name: value for name, value in params.items() if name not in _NOT_FOR_URLS}
    if role:
        given["options"] = f"{given.get('options', '')} -c role={role}".strip()
    return url_of({"driver": "postgresql", **given})


def close_connections() -> None:
    """Close Django's connections and pools before a fork: none of them may be in two processes."""
    for connection in connections.all(initialized_only=True):
        connection.close()
        if hasattr(connection, "close_pool"):
            connection.close_pool()
