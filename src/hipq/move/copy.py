"""What is copied from one store to another: tables that both have, by the same columns, and checksums to compare
them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from hipq.job.activity import COUNTERS
from hipq.job.answer import KEPT
from hipq.job.model import COLUMNS
from hipq.stores.audit import RECORDED
from hipq.stores.values import QueueTables

AT_ONCE: Final = 1_000
CRONS: Final = ("queue", "name", "job_type", "definition", "since", "last", "next", "version")
PERIOD: Final = ("queue", "grain", "starts", "job_type")
Rows = Sequence[tuple[Any, ...]]


class TableCopy(NamedTuple):
    """A table, with the columns that are copied and those that its rows are sorted by."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ("id",)

    @property
    def select(self) -> str:
        return f"SELECT {', '.join(self.columns)} FROM {self.table} ORDER BY {', '.join(self.key)}"


class QueueCopy(NamedTuple):
    """A queue as its registry has it."""

    queue: QueueTables
    last_id: int
    """The last value of the queue's id sequence."""
    rules: str
    admission: str
    crons: int
    """How often its cron schedules were changed."""


class Snapshot(NamedTuple):
    """Everything beside the rows of the tables: queues, and the highest numbers in use."""

    queues: tuple[QueueCopy, ...]
    dropped: int
    """The highest number of a dropped queue."""
    engine_id: int
    """The highest engine id: no engine at the new database may get it again."""
    answer: int
    """The highest number of an answer."""

    @property
    def tables(self) -> list[TableCopy]:
        """All tables to copy, live jobs last."""
        tables = [copied.queue.table for copied in self.queues]
        return [
            TableCopy("hipq_crons", CRONS, ("queue", "name")),
            TableCopy("hipq_notes", ("kind", "name", "value"), ("kind", "name")),
            TableCopy("hipq_audit", RECORDED),  # each under a new number, which nothing else names
            TableCopy("hipq_payloads", ("id", "data")),
            TableCopy("hipq_progress", ("id", "attempt", "fraction", "message", "at")),
            TableCopy("hipq_activity", (*PERIOD, *COUNTERS), PERIOD),
            TableCopy("hipq_answers", KEPT),
            *(TableCopy(f"{table}_final", COLUMNS) for table in tables),
            *(TableCopy(table, COLUMNS) for table in tables),
        ]


class MovedTable(NamedTuple):
    """The number of a table's rows, and a checksum over all of them in order."""

    name: str
    rows: int
    checksum: str


class Summing:
    """Sums up the rows of a table that pass through."""

    def __init__(self, table: TableCopy) -> None:
        self._name, self._rows, self._hash = table.table, 0, blake2b(digest_size=16)

    def through(self, pages: Iterable[Rows]) -> Iterator[Rows]:
        for page in pages:
            self._rows += len(page)
            self._hash.update(msgspec.msgpack.encode(page))
            yield page

    @property
    def sum(self) -> MovedTable:
        return MovedTable(self._name, self._rows, self._hash.hexdigest())
