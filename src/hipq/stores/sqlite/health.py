"""The facts about a SQLite database, read through a connection that writes nothing.

Nothing is changed: no schema, no checkpoint, and no file is left that was not there. Where there is a log with
something in it the file is opened for reading only: the last to close a file writes its log back. Where there is none
it is not: SQLite makes a log to read by, and only who may write removes it again; left behind, it would belong to this
user, and be in the way of others.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from hipq.stores.clock import SystemClock, boot_id
from hipq.stores.health.facts import SQLITE, Health, PagesHealth, Part
from hipq.stores.health.reading import Reading
from hipq.stores.health.words import Words
from hipq.stores.sqlite.connection import BUSY_SECONDS, signpost
from hipq.stores.sqlite.dialect import SqliteSql, statements
from hipq.stores.sqlite.health_file import holding, look
from hipq.stores.sqlite.place import place
from hipq.stores.sqlite.schema import SqliteSchema

_WORDS: Final = Words(
    "coalesce(CASE WHEN phase = 'deciding' THEN json_extract(meta, '$.retry.registered') END, '')",
    table="{table} INDEXED BY {index}",
    lease_left="CASE WHEN boot = :boot THEN (lease_until - :steady) / 1e6 END",
    now=":steady",
)
"""The strategy is written as the index _todo has it."""
DAMAGE: Final = 20
"""Faults that a look at all pages reports, at most."""


def health(path: str, deep: bool = False) -> Health:
    """What can be read of the database at this path. `deep`: look at every page of it, too."""
    clock = SystemClock()
    found = Health(SQLITE, sqlite3.sqlite_version_info, here=clock.now(), now=clock.now())
    try:
        if not Path(path).is_file():
            what = "is no file" if Path(path).exists() else "is not there"
            found.error = f"{Path(path).absolute()} {what}"
            return found
        found.file, found.place = look(path), place(path)
        with holding(path) as held_by:
            found.file = found.file._replace(held_by=held_by)
            conn = _open(path, "ro" if found.file.log_size else "rw")
        try:
            _Reading(conn, found, clock, deep).all()
        finally:
            with holding(path):
                conn.close()
    except (sqlite3.Error, UnicodeError) as error:  # a damaged file may say anything
        found.error = f"SQLite: {error}"
    except OSError as error:  # a folder on the way to it that this user may not enter
        found.error = f"{Path(path).absolute()}: {error.strerror}"
    return found


def _open(path: str, mode: str) -> sqlite3.Connection:
    """A connection in a transaction: all that is read is of one moment."""
    address = f"file:{quote(str(Path(path).absolute()))}?mode={mode}"
    conn = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        conn.execute("PRAGMA query_only = ON")
        conn.execute("BEGIN")
        conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        conn.close()
        raise
    return conn


class _Reading(Reading):
    words = _WORDS

    def __init__(self, conn: sqlite3.Connection, found: Health, clock: SystemClock, deep: bool) -> None:
        super().__init__(SqliteSchema(SqliteSql(conn, statements(list))), found)
        self._conn = conn
        self._clock = clock
        self._boot = boot_id()
        self._deep = deep

    def times(self) -> dict[str, Any]:
        return {"steady": self._clock.steady(), "boot": self._boot}

    def all(self) -> None:
        self.health.pages = self.part("storage", self._pages, None)
        if moved := signpost(self._conn):
            self.health.moved = moved.url
        super().all()

    def _pages(self) -> PagesHealth:
        def pragma(name: str) -> Any:
            return self._conn.execute(f"PRAGMA {name}").fetchone()[0]

        damage = None
        if self._deep:
            rows = self._conn.execute(f"PRAGMA quick_check({DAMAGE})").fetchall()
            said = [" ".join(str(text).split()) for (text,) in rows]
            damage = () if said == ["ok"] else tuple(said)
        sizes = (pragma("page_size"), pragma("page_count"), pragma("freelist_count"))
        return PagesHealth(pragma("journal_mode"), *sizes, damage)

    def parts(self) -> list[Part]:
        wanted = {part.name: part for part in self.health.expected}
        checks = defaultdict(list)
        for part in self.health.expected:
            if part.kind == "check":
                checks[part.table].append(part)
        found = []
        query = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"
        for kind, name, table, sql in self.ask(query, {}):
            if kind == "table":
                found.append(Part("table", name, name))
                found += [check for check in checks[name] if f"CONSTRAINT {check.name} CHECK" in " ".join(sql.split())]
            elif kind == "index" and name in wanted:
                found.append(self._index(name, table))
        return found

    def _index(self, name: str, table: str) -> Part:
        columns = self.ask("SELECT name FROM pragma_index_info(:index) ORDER BY seqno", {"index": name})
        query = 'SELECT "unique", partial FROM pragma_index_list(:table) WHERE name = :index'
        ((unique, partial),) = self.ask(query, {"table": table, "index": name})
        return Part("index", name, table, tuple(column for (column,) in columns), bool(unique), bool(partial))
