"""What moves house from one store to another: tables that both have, by the same columns, and sums to compare them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from hipq.job.answer import KEPT
from hipq.job.model import COLUMNS
from hipq.stores.values import QueueTables

AT_ONCE: Final = 1_000
Rows = Sequence[tuple[Any, ...]]


class TableCopy(NamedTuple):
    """A table, with the columns that are moved and those that its rows are sorted by."""

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
    """The sequence of its ids."""
    rules: str
    admission: str


class Snapshot(NamedTuple):
    """What is not in a trunk."""

    queues: tuple[QueueCopy, ...]
    dropped: int
    """The highest number a dropped queue had."""
    engine_id: int
    """The highest an engine had: no engine of the new house may take it for its own."""
    answer: int
    """The highest number of an answer."""

    @property
    def tables(self) -> list[TableCopy]:
        """Everything, live jobs last."""
        tables = [copied.queue.table for copied in self.queues]
        return [
            TableCopy("hipq_crons", ("queue", "name", "last"), ("queue", "name")),
            TableCopy("hipq_notes", ("kind", "name", "value"), ("kind", "name")),
            TableCopy("hipq_payloads", ("id", "data")),
            TableCopy("hipq_answers", KEPT),
            *(TableCopy(f"{table}_final", COLUMNS) for table in tables),
            *(TableCopy(table, COLUMNS) for table in tables),
        ]


class Sum(NamedTuple):
    """How many rows a table has, and a checksum over all of them in order."""

    rows: int
    checksum: str


class Summing:
    def __init__(self) -> None:
        self._rows = 0
        self._hash = blake2b(digest_size=16)

    def through(self, pages: Iterable[Rows]) -> Iterator[Rows]:
        """Hand pages on, and add them up."""
        for page in pages:
            self._rows += len(page)
            self._hash.update(msgspec.msgpack.encode(page))
            yield page

    @property
    def sum(self) -> Sum:
        return Sum(self._rows, self._hash.hexdigest())


def summed(pages: Iterable[Rows]) -> Sum:
    summing = Summing()
    for _ in summing.through(pages):
        pass
    return summing.sum
