"""The SQL of the files, for each registered queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hipq.errors import NotFound
from hipq.job.answer import KEPT
from hipq.stores import migrations
from hipq.stores.sqlite import schema
from hipq.stores.sqlite.batch import NAMES
from hipq.stores.values import QueueTables


class Statements:
    """SQL by the name of its file. `look` reads the registry: another process may have registered a queue."""

    def __init__(self, look: Callable[[], Iterable[QueueTables]]) -> None:
        self._look = look
        self._queues: dict[int, QueueTables] = {}
        self.files = migrations.sql(schema.PACKAGE)
        self._cache: dict[tuple[str, int, int], str] = {}

    def learn(self, queues: Iterable[QueueTables]) -> None:
        self._queues.update((queue.number, queue) for queue in queues)

    def forget(self, queue: int) -> None:
        self._queues.pop(queue, None)

    def knows(self, queue: int) -> bool:
        if queue not in self._queues:
            self.learn(self._look())
        return queue in self._queues

    def tables(self, queue: int) -> QueueTables:
        if not self.knows(queue):
            raise NotFound(f"no queue has the number {queue}")
        return self._queues[queue]

    def table(self, queue: int) -> str:
        return self.tables(queue).table

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
