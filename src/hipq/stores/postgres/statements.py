"""The SQL of the files, for each registered queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from hipq.errors import NotFound
from hipq.job.answer import KEPT
from hipq.job.model import COLUMNS
from hipq.stores import migrations
from hipq.stores.values import QueueTables

PACKAGE: Final = "hipq.stores.postgres"
_KEPT: Final = ", ".join(f"a.{column}" for column in KEPT)
_PAYLOAD: Final = "coalesce(nullif(job_data, ''), (SELECT data FROM hipq_payloads p WHERE p.id = l.id), '') AS job_data"
READ: Final = ", ".join(_PAYLOAD if name == "job_data" else name for name in COLUMNS)
"""The columns of a row, from a table called l: a large payload comes from its side table in the same statement."""


class Statements:
    """SQL by the name of its file. `look` reads the registry: another process may have registered a queue."""

    def __init__(self, look: Callable[[], Iterable[QueueTables]]) -> None:
        self._look = look
        self._queues: dict[int, QueueTables] = {}
        self._files = migrations.sql(PACKAGE)
        self._cache: dict[tuple[str, ...], bytes] = {}

    def learn(self, queues: Iterable[QueueTables]) -> None:
        self._queues.update((queue.number, queue) for queue in queues)

    def forget(self, queue: int) -> None:
        self._queues.pop(queue, None)

    def knows(self, queue: int) -> bool:
        if queue not in self._queues:
            self.learn(self._look())
        return queue in self._queues

    def table(self, queue: int) -> QueueTables:
        if not self.knows(queue):
            raise NotFound(f"no queue has the number {queue}")
        return self._queues[queue]

    def plain(self, name: str) -> bytes:
        """The SQL of a file that is about no queue."""
        return self._files[name].replace("{kept}", _KEPT).encode()

    def of(self, name: str, queue: int, **parts: str) -> bytes:
        """The SQL of a file for one queue; a part is text, or the name of a file."""
        table = self.table(queue)
        key = (name, str(queue), *parts.values())  # not its table: one that was dropped may have had the same
        if key not in self._cache:
            text = self._files[name]
            for part, value in parts.items():
                text = text.replace(f"{{{part}}}", self._files.get(value, value))
            text = text.replace("{columns}", READ).replace("{kept}", _KEPT)
            self._cache[key] = migrations.tables(text, table).encode()
        return self._cache[key]
