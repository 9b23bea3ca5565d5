"""The registered queues as far as a store knows them: their tables are the names that its SQL needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hipq.errors import NotFound
from hipq.stores import migrations
from hipq.stores.values import QueueTables


class SqlFiles:
    """SQL by the name of its file. `look` reads the registry: another process may have registered a queue."""

    def __init__(self, package: str, look: Callable[[], Iterable[QueueTables]]) -> None:
        self.files = migrations.sql(package)
        self._look = look
        self._queues: dict[int, QueueTables] = {}

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
