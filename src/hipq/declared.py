"""The queues of an instance: those that its code declares, and those that only its database knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from hipq.errors import Invalid, shown
from hipq.job import names
from hipq.job.model import queue_of

if TYPE_CHECKING:
    from hipq.queue import Queue


class DeclaredQueues:
    """Each queue by its name, and by the ids of its jobs."""

    def __init__(self, table: Callable[[str], str]) -> None:
        """`table` names the tables of a queue."""
        self._naming = table
        self._queues: dict[str, Queue] = {}
        self._tables: dict[str, str] = {}
        """The tables of the queues that were declared."""

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues.values())

    def table(self, name: str) -> str:
        return names.table(self._naming(name))

    def declare(self, queue: Queue) -> Queue:
        """A queue of the code. Invalid if another one has its name; NameClash if another one has its tables."""
        from hipq.stores.migrations import check_apart  # with a second queue, and then the store needs it, too

        if queue.name in self._queues:
            raise Invalid(f"queue {queue.name} is declared already")
        table = self.table(queue.name)
        for other, their_table in self._tables.items():
            check_apart(queue.name, table, other, their_table)
        self._tables[queue.name] = table
        return self.add(queue)

    def add(self, queue: Queue) -> Queue:
        self._queues[queue.name] = queue
        return queue

    def find(self, name: str) -> Queue:
        if not isinstance(name, str) or name not in self._queues:
            raise _none_such(shown(name), self._queues)
        return self._queues[name]

    def chosen(self, wanted: Sequence[str] | None) -> list[Queue]:
        """Those of these names, or all: what an engine works on."""
        if unknown := set(wanted or ()) - self._queues.keys():
            raise _none_such(", ".join(sorted(unknown)), self._queues)
        found = [queue for queue in self if wanted is None or queue.name in wanted]
        if not found:
            raise Invalid("there is no queue to work on: declare one with app.queue(...)")
        return found

    def of_job(self, job_id: int) -> Queue:
        return next(queue for queue in self if queue_of(job_id) in queue.numbers)

    def numbered(self, number: int) -> Queue:
        return next(queue for queue in self if number in queue.numbers)


def _none_such(wanted: str, there: Iterable[str]) -> Invalid:
    return Invalid(f"no such queue: {wanted}; there are {', '.join(there) or 'none'}")
