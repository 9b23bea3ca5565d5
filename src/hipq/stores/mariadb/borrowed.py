"""A user's own connection, of PyMySQL or of mysqlclient, as the store uses one of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from hipq.errors import Invalid, StoreBusy, WrongConnection
from hipq.stores.lent import driver_connection
from hipq.stores.mariadb.connection import PROCESS, Transactions, is_deadlock, number_of, translated
from hipq.stores.mariadb.flavour import MODES, flavour_of


class Borrowed(Transactions):
    """Each transaction on it is a savepoint of theirs, if they have a transaction or their connection begins one by
    itself; else it is one of ours."""

    open = True

    def __init__(self, conn: Any) -> None:
        self.conn = conn
        ((version, self.process, self.mode),) = self.run(f"SELECT VERSION(), {PROCESS}, @@sql_mode").fetchall()
        self.flavour = flavour_of(version)
        self.begins = bool(conn.get_autocommit()) and not self.in_transaction

    @property
    def in_transaction(self) -> bool:
        """PyMySQL knows; mysqlclient does not say, so the server is asked."""
        if hasattr(self.conn, "server_status"):
            return bool(self.conn.server_status & 1)
        ((found,),) = self.run("SELECT @@in_transaction").fetchall()
        return bool(found)

    def run(self, query: str, values: Mapping[str, Any] | None = None) -> Any:
        """By a plain cursor, whatever rows its owner likes."""
        if type(self.conn).__module__.startswith("MySQLdb"):
            from MySQLdb.cursors import Cursor
        else:
            from pymysql.cursors import Cursor
        cursor = self.conn.cursor(Cursor)
        cursor.execute(query, values)
        return cursor


@contextmanager
def borrowed(conn: Any) -> Iterator[Borrowed]:
    """While we use it our statements mean what they mean on a connection of ours, and errors are hipq's own."""
    conn = _usable(conn)
    try:
        used = Borrowed(conn)
        used.run("SET SESSION sql_mode = %(mode)s", {"mode": MODES})
        try:
            yield used
        finally:
            with suppress(Exception):
                used.run("SET SESSION sql_mode = %(mode)s", {"mode": used.mode})
    except Exception as error:
        if is_deadlock(error):
            raise StoreBusy(f"{translated(error)}; your transaction was undone, so begin it again") from error
        if isinstance(error, (UnicodeError, OverflowError)) or number_of(error):
            raise translated(error) from error
        raise


def _usable(conn: Any) -> Any:
    conn = driver_connection(conn)
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(conn).__mro__}
    if kinds & {"pymysql.Connection", "MySQLdb.Connection"}:
        return conn
    kind = f"{type(conn).__module__}.{type(conn).__name__}"
    if kind == "sqlite3.Connection" or kind.startswith(("psycopg", "asyncpg")):
        raise WrongConnection(f"conn is open on another kind of database ({kind}), and this app is on MariaDB")
    raise Invalid(
        f"conn must be a connection of PyMySQL or mysqlclient, or one of SQLAlchemy or Django over it, not {kind}"
    )
