"""The side that jobs move to: a server's database, whose tables may not be used until the file has its signpost.
Otherwise the jobs would be in use in two places."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from hipq.errors import Conflict
from hipq.move.copy import Rows, Snapshot, TableCopy
from hipq.stores.sql.schema import ServerSchema
from hipq.stores.sql.setup import INCOMING

_EMPTY: Final = (
    "hipq_queues", "hipq_answers", "hipq_payloads", "hipq_progress", "hipq_activity", "hipq_crons", "hipq_notes",
    "hipq_audit",
)  # fmt: skip


class Target(ABC):
    def __init__(self, schema: ServerSchema, url: str, move: str) -> None:
        """`url`: as people are told it. `move`: the name of this move."""
        self._schema = schema
        self._url = url
        self._move = move

    def clear(self) -> None:
        """Create the tables that every database of hipq has. An unfinished copy of this very move is removed;
        anything else stays, and then the database cannot be moved to. From now on it is none that anybody may use."""
        self._schema.migrate()
        self._remove()
        self.check()
        self._run("UPDATE hipq_meta SET identity = %s", (INCOMING + self._move,))

    def _remove(self) -> bool:
        """Remove a copy of this very move; whether there was one."""
        if self._schema.version().identity != INCOMING + self._move:
            return False
        for (live,) in self._run('SELECT "table" FROM hipq_queues'):
            self._schema.drop_tables(live)
        for table in _EMPTY:
            self._run(f"DELETE FROM {table}")
        return True

    def check(self) -> None:
        """Raise if this database cannot be moved to."""
        identity = self._schema.version().identity
        if not identity or identity == INCOMING + self._move:
            return
        if identity.startswith(INCOMING):
            raise Conflict(f"jobs of another file are on their way to {self._url}: run that move to its end")
        if there := self._run("SELECT app, name FROM hipq_queues ORDER BY number LIMIT 5"):
            names = ", ".join(f"{app}.{name}" for app, name in there)
            raise Conflict(
                f"{self._url} has queues of its own ({names}): move into a database that hipq does not "
                "use yet, so before `hipq migrate`, or manage.py migrate, makes its tables there"
            )
        for table in _EMPTY[1:]:
            if self._run(f"SELECT 1 FROM {table} LIMIT 1"):
                raise Conflict(f"{self._url} has rows in {table}: move into a database that hipq does not use yet")

    def build(self, snapshot: Snapshot) -> None:
        """Create the queues and their tables, with the same numbers, because ids contain those."""
        query = 'INSERT INTO hipq_queues (number, app, name, "table", "schema", rules, admission, crons) '
        for copied in snapshot.queues:
            values = (*copied.queue, copied.rules, copied.admission, copied.crons)
            self._run(query + "VALUES (%s, %s, %s, %s, 0, %s, %s, %s)", values)
            self._schema.extend(self._schema.known, copied.queue)
            if copied.last_id:
                self._schema.ids_from(copied.queue.table, copied.last_id)
        self._schema.number_above(snapshot.dropped, snapshot.answer)
        self._schema.count_from("hipq_engines", "engine_id", snapshot.engine_id)

    def settle(self, snapshot: Snapshot) -> None:
        """Update the planner's statistics after the copy."""
        for table in snapshot.tables:
            self._analyze(table.table)

    @abstractmethod
    def _run(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """What a statement finds."""

    @abstractmethod
    def _analyze(self, table: str) -> None: ...

    @abstractmethod
    def fill(self, table: TableCopy, pages: Iterable[Rows], progress: Callable[[int], None]) -> None: ...

    @abstractmethod
    def rows(self, table: TableCopy) -> Iterator[Rows]:
        """What is there now, in pages."""
