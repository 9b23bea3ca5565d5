"""Adding jobs: ids from the queue's sequence, rows in as few statements as there can be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

import msgspec
import psycopg
from psycopg.rows import tuple_row

from hipq.job.model import New
from hipq.stores import large
from hipq.stores.postgres.bridged import Bridged
from hipq.stores.postgres.connection import Connection
from hipq.stores.postgres.dialect import PostgresSql
from hipq.stores.postgres.session import Session
from hipq.stores.postgres.shortcut import Shortcut
from hipq.stores.sql.insert import TRIES, SqlInsert, duplicate, in_json, inserted, restless
from hipq.stores.sql.statements import Statements
from hipq.stores.values import Stored

COPY_FROM: Final = 200
"""From this many rows on COPY is worth its savepoint: a quarter faster than JSON at 200, twice as fast at 5,000."""
CHUNK: Final = 1000
"""Rows in one statement: with the largest payloads that is some megabytes."""
_COLUMNS: Final = {
    "id": "int8", "tenant": "text", "lane": "text", "job_type": "text", "job_key": "text", "job_data": "text",
    "phase": "text", "rank": "text", "priority": "int8", "throttle_factor": "int8", "time_windows": "text",
    "timeout": "float8", "scheduled_run_time": "int8", "create_time": "int8", "update_time": "int8",
    "meta": "text",
}  # fmt: skip
_Added = msgspec.defstruct("_Added", list(_COLUMNS))

AnyConnection = psycopg.Connection[Any]


def cursor(conn: AnyConnection) -> psycopg.Cursor[tuple[Any, ...]]:
    """A cursor that returns tuples, also on a user's connection that returns dictionaries."""
    if isinstance(conn, Bridged):
        return cast("psycopg.Cursor[tuple[Any, ...]]", conn)
    return conn.cursor() if isinstance(conn, Session) else psycopg.Cursor(conn, row_factory=tuple_row)


def keep(conn: AnyConnection, payloads: Iterable[tuple[int, str]]) -> None:
    """Write large payloads to the side table, in the transaction that stores their rows."""
    if some := large.oversized(payloads):
        query = (
            b"INSERT INTO hipq_payloads (id, data) VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET data = excluded.data"
        )
        cursor(conn).executemany(query, some)


class Insert(SqlInsert):
    def __init__(self, statements: Statements[bytes]) -> None:
        super().__init__(statements)
        self._shortcuts: dict[bytes, Shortcut] = {}

    def _sql(self, conn: AnyConnection) -> PostgresSql:
        return PostgresSql(cast("Connection", cursor(conn)), self._statements)

    def one(self, conn: AnyConnection, job: New, all_or_nothing: bool, notify: bool) -> Stored:
        """Add a job with a small payload in one round trip, with a notice or without."""
        query = self._statements.of("insert_one", job.queue)
        if (insert := self._shortcuts.get(query)) is None:
            insert = self._shortcuts[query] = Shortcut(query, _COLUMNS | {"notify": "bool"})
        values = msgspec.structs.asdict(job) | {"notify": notify}
        for _ in range(TRIES):
            if added := insert.number(conn, values):
                return Stored(added)
            if holders := self._holders(conn, [(0, job)] if job.job_key else []):
                return duplicate(job, holders[0], all_or_nothing)
            values["id"] = 0
        raise restless([job])

    def _put(self, conn: AnyConnection, queue: int, jobs: Sequence[tuple[int, New]], may_copy: bool) -> set[int]:
        """Insert rows. Returns the ids of those that were added."""
        rows = [inserted(job_id, job) for job_id, job in jobs]
        ids = [job_id for job_id, _ in jobs]
        if not may_copy or len(rows) < COPY_FROM or not self._copy(conn, queue, rows):
            ids = self._insert_free(conn, queue, rows)
        added = set(ids)
        keep(conn, ((job_id, job.job_data) for job_id, job in jobs if job_id in added))
        return added

    def _copy(self, conn: AnyConnection, queue: int, rows: list[tuple[Any, ...]]) -> bool:
        """Add all of these or, if a key is taken, none: then False."""
        into = f"{self._statements.table(queue)} ({', '.join(_COLUMNS)})"
        try:
            with conn.transaction(), cursor(conn).copy(f"COPY {into} FROM STDIN (FORMAT BINARY)".encode()) as copy:
                copy.set_types(list(_COLUMNS.values()))
                for row in rows:
                    copy.write_row(row)
        except psycopg.errors.UniqueViolation:
            return False
        return True

    def _insert_free(self, conn: AnyConnection, queue: int, rows: list[tuple[Any, ...]]) -> list[int]:
        """Add those whose key is free. Returns their ids."""
        query = self._statements.of("insert", queue)
        added: list[int] = []
        for start in range(0, len(rows), CHUNK):
            values = {"rows": in_json([_Added(*row) for row in rows[start : start + CHUNK]])}
            added += [job_id for (job_id,) in cursor(conn).execute(query, values, binary=True).fetchall()]
        return added

    def _fresh(self, conn: AnyConnection, queue: int, count: int) -> list[int]:
        query = f"SELECT nextval('{self._statements.table(queue)}_ids') FROM generate_series(1, %s)"
        found = cursor(conn).execute(query.encode(), (count,), binary=True)
        return [sequence for (sequence,) in found.fetchall()]
