"""The verbs about notes, which programs leave for each other."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from hipq.stores.sqlite.connection import Connection
from hipq.stores.values import LAST, NEXT


class NoteVerbs:
    _db: Connection

    def notes(self, kind: str, start: str = "", *, exact: bool = False) -> dict[str, str]:
        where = "kind = ? AND name >= ? AND name < ? AND value <> ''"  # a range of the primary key
        with self._db.reading() as conn:
            query = f"SELECT name, value FROM hipq_notes WHERE {where} ORDER BY name"
            return dict(conn.execute(query, (kind, start, start + (NEXT if exact else LAST))).fetchall())

    def change_note(self, kind: str, name: str, change: Callable[[str], str]) -> str:
        with self._db.writing() as conn:
            before = read_note(conn, kind, name)
            after = change(before)
            if after != before:
                write_note(conn, kind, name, after)
        return after


def read_note(conn: sqlite3.Connection, kind: str, name: str) -> str:
    found = conn.execute("SELECT value FROM hipq_notes WHERE kind = ? AND name = ?", (kind, name)).fetchone()
    return str(found[0]) if found else ""


def write_note(conn: sqlite3.Connection, kind: str, name: str, value: str) -> None:
    conn.execute("INSERT OR REPLACE INTO hipq_notes VALUES (?, ?, ?)", (kind, name, value))
