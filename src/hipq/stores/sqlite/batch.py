"""Whole batches in one step: rows go in as VALUES and come out as one JSON array.

A statement that steps through rows gives up Python's interpreter lock at each of them, and beside a busy handler each
of those costs milliseconds: a turn of 500 jobs took 8 s that way, and takes 0.2 s this way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from hipq.errors import StoreRefused
from hipq.job.answer import Kept
from hipq.job.model import COLUMNS, Brief, Row
from hipq.stores import large

T = TypeVar("T")
NAMES: Final = ", ".join(COLUMNS)
_TIMEOUT: Final = "json(printf('%!.17g', timeout))"
"""SQLite writes 15 digits of a number as JSON; a float has up to 17."""
_CHUNKS: Final = (256, 64, 16, 4, 1)
"""Rows per statement: few different sizes, so that prepared statements are used again."""
_KINDS: Final = {
    kind: (
        ", ".join(_TIMEOUT if name == "timeout" else name for name in kind.__struct_fields__),
        msgspec.json.Decoder(list[kind]),  # type: ignore[valid-type]
    )
    for kind in (Row, Brief, Kept)
}
"""For each kind of row, its columns as exact JSON, and the decoder."""
_ids = msgspec.json.Decoder(list[int])


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    start = 0
    for size in _CHUNKS:
        while len(items) - start >= size:
            yield items[start : start + size]
            start += size


@cache
def values_of(rows: int, columns: int) -> str:
    """This many VALUES of this many columns, as the part `rows` of a statement."""
    return f"VALUES {', '.join(['(' + ', '.join('?' * columns) + ')'] * rows)}"


def in_json(values: Sequence[Any]) -> str:
    return msgspec.json.encode(values).decode()


def ids(conn: sqlite3.Connection, query: str, values: Any) -> list[int]:
    """The ids that a query finds."""
    return _ids.decode(conn.execute(f"SELECT json_group_array(id) FROM ({query})", values).fetchone()[0])


def no_nul(values: Sequence[Any]) -> None:
    """Refuse a NUL: SQLite would keep it, PostgreSQL cannot, and what one store refuses, all refuse."""
    if "\x00" in "".join([value for value in values if type(value) is str]):
        raise StoreRefused("a text contains a NUL character, which PostgreSQL cannot store")


def keep(conn: sqlite3.Connection, payloads: Any) -> None:
    """Write large payloads to the side table, in the transaction that stores their rows."""
    for job_id, data in large.oversized(payloads):
        no_nul([data])
        conn.execute("INSERT OR REPLACE INTO hipq_payloads (id, data) VALUES (?, ?)", (job_id, data))


def read(conn: sqlite3.Connection, query: str, values: Any, kind: type[Any] = Row) -> list[Any]:
    """The rows that a query finds: jobs with their payloads, jobs as lists have them, or answers."""
    columns, decoder = _KINDS[kind]
    (text,) = conn.execute(f"SELECT json_group_array(json_array({columns})) FROM ({query})", values).fetchone()
    found = decoder.decode(text)
    if kind is Row and (missing := large.absent(found)):
        query = "SELECT id, data FROM hipq_payloads WHERE id IN (SELECT value FROM json_each(?))"
        found = large.filled(found, dict(conn.execute(query, (in_json(missing),)).fetchall()))
    return found
