"""The verbs about notes, which programs leave for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hipq.stores.sql.dialect import Dialect
from hipq.stores.values import LAST, NEXT


class NoteVerbs(Dialect):
    def notes(self, kind: str, start: str = "", *, exact: bool = False) -> dict[str, str]:
        return dict(self._found("notes", kind=kind, start=start, end=start + (NEXT if exact else LAST)))

    def change_note(self, kind: str, name: str, change: Callable[[str], str]) -> str:
        def work(conn: Any) -> str:
            before = self._lock_note(conn, kind, name)
            after = change(before)
            if after != before:
                self._write_note(conn, kind, name, after)
            return after

        return self._transaction(work)

    def _write_note(self, conn: Any, kind: str, name: str, value: str) -> None:
        """In a transaction that has locked the note."""
        conn.execute(self._statements.plain("write_note"), {"kind": kind, "name": name, "value": value})
