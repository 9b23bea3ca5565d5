"""The verbs about notes, which programs leave for each other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager

from hipq.stores.postgres.connection import Connection, patiently
from hipq.stores.values import LAST, NEXT


class NoteVerbs:
    @abstractmethod
    def _using(self, answer_seconds: float = 0) -> AbstractContextManager[Connection]: ...

    def notes(self, kind: str, start: str = "", *, exact: bool = False) -> dict[str, str]:
        where = b"kind = %s AND name >= %s AND name < %s AND value <> ''"  # a range of the primary key
        with self._using() as conn:
            query = b"SELECT name, value FROM hipq_notes WHERE %s ORDER BY name" % where
            return dict(conn.execute(query, (kind, start, start + (NEXT if exact else LAST))).fetchall())

    def change_note(self, kind: str, name: str, change: Callable[[str], str]) -> str:
        with self._using() as conn:

            def work() -> str:
                before = locked_note(conn, kind, name)
                after = change(before)
                if after != before:
                    write_note(conn, kind, name, after)
                return after

            return patiently(conn, work)


def locked_note(conn: Connection, kind: str, name: str) -> str:
    """In a transaction: a note that nobody else changes before its end. There is always a row to lock, and it is never
    deleted: else two who find none would both write one."""
    values = {"kind": kind, "name": name}
    conn.execute(b"INSERT INTO hipq_notes VALUES (%(kind)s, %(name)s, '') ON CONFLICT DO NOTHING", values)
    query = b"SELECT value FROM hipq_notes WHERE kind = %(kind)s AND name = %(name)s FOR UPDATE"
    ((value,),) = conn.execute(query, values).fetchall()
    return str(value)


def write_note(conn: Connection, kind: str, name: str, value: str) -> None:
    conn.execute(b"UPDATE hipq_notes SET value = %s WHERE kind = %s AND name = %s", (value, kind, name))
