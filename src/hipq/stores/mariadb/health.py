"""The facts about a MariaDB database, read in one transaction that cannot write."""

from __future__ import annotations

import time
from typing import Any, Final

import pymysql

from hipq.errors import SchemaError
from hipq.stores.health.facts import Health
from hipq.stores.health.words import Words
from hipq.stores.mariadb.connection import Connections, Session, translated
from hipq.stores.mariadb.dialect import MariaSql, spelled, statements
from hipq.stores.mariadb.flavour import MARIADB, number_of
from hipq.stores.mariadb.health_server import MariaServer
from hipq.stores.mariadb.schema import MariaSchema
from hipq.stores.mariadb.store import NOW

_WINDOWS: Final = "IF(char_length(:windows) > 64, sha2(:windows, 256), :windows)"
_WORDS: Final = Words(
    "todo",
    table="{table} FORCE INDEX ({index})",
    indexes={"stage": "due", "wait": "due"},
    # Written out: of a comparison of rows the server makes no range of an index.
    later=(
        "(lane > :lane OR lane = :lane AND (windowed > {it} OR windowed = {it} AND "
        "(throttle_factor > :factor OR throttle_factor = :factor AND rank > :rank)))"
    ).replace("{it}", _WINDOWS),
    windows="windowed",
    these_windows=_WINDOWS,
    parked="parked IS NOT NULL ORDER BY parked",
    run_time="due",
    deadline="due",
    left="todo IS NOT NULL",
    is_left_by_type=False,
    lease_left="(lease_until - :now) / 1e6",
    now=":now",
    held="(owner > 0 AND held <> 0 OR owner = 0 AND held > 0)",
    buffered="open_key IS NOT NULL",
)


def health(url: str) -> Health:
    """What can be read of the database at this URL."""
    found = Health(MARIADB.name)
    try:
        conn = Connections(url, on_fork=lambda: None).connect()
        try:
            found.kind, found.version = conn.flavour.name, number_of(conn.get_server_info())
            _read(conn, found)
        finally:
            conn._force_close()
    except SchemaError as error:  # too old a server
        found.error = str(error)
    except (pymysql.Error, OSError, UnicodeError) as error:
        found.error = str(translated(error))
    return found


def _read(conn: Session, found: Health) -> None:
    before = time.monotonic()
    ((found.now,),) = conn.run(NOW).fetchall()
    found.here, found.uncertain = time.time_ns() // 1000, time.monotonic() - before
    conn.run(conn.flavour.limited)
    conn.run("SET SESSION time_zone = 'SYSTEM'")  # in which the server says when transactions began
    flavour = conn.flavour
    look = statements(list, lambda text: spelled(text, flavour.collation))
    _Reading(MariaSchema(MariaSql(conn, look)), found).all()


class _Reading(MariaServer):
    words = _WORDS

    def times(self) -> dict[str, Any]:
        """What was asked for before: by a later clock, a lease that was renewed since would look expired."""
        return {"now": self.health.now}

    def begin(self) -> None:
        if self.health.server:  # before the transaction, which refuses even to explain a write
            nothing: tuple[str, ...] = ()
            no = self.part("database", self.denied, nothing)
            self.health.server = self.health.server._replace(denied=no)
        self.conn.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.conn.run("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
