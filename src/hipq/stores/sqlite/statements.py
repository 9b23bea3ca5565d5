"""The SQL of the files, for each registered queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hipq.job.answer import KEPT
from hipq.stores import migrations
from hipq.stores.sql.statements import SqlFiles
from hipq.stores.sqlite import schema
from hipq.stores.sqlite.batch import NAMES
from hipq.stores.values import QueueTables


class Statements(SqlFiles):
    def __init__(self, look: Callable[[], Iterable[QueueTables]]) -> None:
        super().__init__(schema.PACKAGE, look)
        self._cache: dict[tuple[str, int, int], str] = {}

    def of(self, name: str, queue: int, rows: int = 0, columns: int = 0) -> str:
        """The SQL of a file for one queue, with `{rows}` as so many VALUES of so many columns."""
        key = (name, queue, rows)
        if key not in self._cache:
            self._cache[key] = migrations.tables(self.plain(name, rows, columns), self.tables(queue))
        return self._cache[key]

    def plain(self, name: str, rows: int = 0, columns: int = 0) -> str:
        """The same, of a file that is about no queue."""
        key = (name, 0, rows)
        if key not in self._cache:
            values = ", ".join(["(" + ", ".join("?" * columns) + ")"] * rows)
            text = self.files[name].replace("{rows}", f"VALUES {values}").replace("{columns}", NAMES)
            self._cache[key] = text.replace("{kept}", ", ".join(f"a.{column}" for column in KEPT))
        return self._cache[key]
