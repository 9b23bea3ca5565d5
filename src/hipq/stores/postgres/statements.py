"""The SQL of the files, for each registered queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from hipq.job.answer import KEPT
from hipq.job.model import COLUMNS
from hipq.stores import migrations
from hipq.stores.sql.statements import SqlFiles
from hipq.stores.values import QueueTables

PACKAGE: Final = "hipq.stores.postgres"
_KEPT: Final = ", ".join(f"a.{column}" for column in KEPT)
_PAYLOAD: Final = "coalesce(nullif(job_data, ''), (SELECT data FROM hipq_payloads p WHERE p.id = l.id), '') AS job_data"
READ: Final = ", ".join(_PAYLOAD if name == "job_data" else name for name in COLUMNS)
"""The columns of a row, from a table called l: a large payload comes from its side table in the same statement."""


class Statements(SqlFiles):
    def __init__(self, look: Callable[[], Iterable[QueueTables]]) -> None:
        super().__init__(PACKAGE, look)
        self._cache: dict[tuple[str, ...], bytes] = {}

    def plain(self, name: str) -> bytes:
        """The SQL of a file that is about no queue."""
        return self.files[name].replace("{kept}", _KEPT).encode()

    def of(self, name: str, queue: int, **parts: str) -> bytes:
        """The SQL of a file for one queue; a part is text, or the name of a file."""
        tables = self.tables(queue)
        key = (name, str(queue), *parts.values())  # not its table: one that was dropped may have had the same
        if key not in self._cache:
            text = self.files[name]
            for part, value in parts.items():
                text = text.replace(f"{{{part}}}", self.files.get(value, value))
            text = text.replace("{columns}", READ).replace("{kept}", _KEPT)
            self._cache[key] = migrations.tables(text, tables).encode()
        return self._cache[key]
