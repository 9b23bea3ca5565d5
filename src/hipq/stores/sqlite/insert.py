"""Adding jobs, in a transaction of ours or inside a user's own."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from hipq.errors import Invalid, WrongConnection
from hipq.job.model import New, numbered
from hipq.stores import large
from hipq.stores.lent import driver_connection
from hipq.stores.sql.insert import SqlInsert, inserted
from hipq.stores.sqlite.batch import chunks, ids, keep, no_nul, values_of
from hipq.stores.sqlite.connection import translated
from hipq.stores.sqlite.dialect import SqliteSql
from hipq.stores.values import Stored

_ONE: Final = values_of(1, 16)


class Insert(SqlInsert):
    def _sql(self, conn: sqlite3.Connection) -> SqliteSql:
        return SqliteSql(conn, self._statements)

    def inside(self, conn: sqlite3.Connection, jobs: Sequence[New], all_or_nothing: bool) -> list[Stored]:
        """Insert inside a user's transaction; a duplicate undoes our part of it and no more."""
        with inside(conn):
            return self.many(conn, jobs, all_or_nothing)

    def many(self, conn: Any, jobs: Sequence[New], all_or_nothing: bool, may_copy: bool = True) -> list[Stored]:
        if len(jobs) == 1:
            job_id, is_added = self._one(conn, jobs[0])
            if is_added:
                return [Stored(job_id)]
        return super().many(conn, jobs, all_or_nothing, may_copy)

    def _one(self, conn: sqlite3.Connection, job: New) -> tuple[int, bool]:
        """The id for a job, and whether the job was added. It was not if it is less simple than most: its payload is
        large, or its key is taken."""
        if len(job.job_data) > large.PAYLOAD_LIMIT:
            return job.id, False
        query = self._statements.of("insert", job.queue, rows=_ONE)
        job_id = job.id or numbered(self._last_id(conn, job.queue, 1), job.queue)
        values = inserted(job_id, job)
        no_nul(values)
        return job_id, bool(conn.execute(query, values).rowcount)

    def _fresh(self, conn: sqlite3.Connection, queue: int, count: int) -> list[int]:
        self._statements.table(queue)  # an unknown one has no ids to take
        last = self._last_id(conn, queue, count)
        return list(range(last - count + 1, last + 1))

    def _last_id(self, conn: sqlite3.Connection, queue: int, count: int) -> int:
        """Take this many ids. Returns the sequence number of the last."""
        query = "UPDATE hipq_queues SET last_id = last_id + ? WHERE number = ? RETURNING last_id"
        ((last,),) = conn.execute(query, (count, queue)).fetchall()
        return int(last)

    def _put(
        self,
        conn: sqlite3.Connection,
        queue: int,
        jobs: Sequence[tuple[int, New]],
        may_copy: bool,  # noqa: ARG002
    ) -> set[int]:
        added = 0
        if not jobs:
            return set()
        for chunk in chunks(jobs):
            values: list[Any] = []
            for job_id, job in chunk:
                values += inserted(job_id, job)
            no_nul(values)
            added += conn.execute(self._statements.of("insert", queue, rows=values_of(len(chunk), 16)), values).rowcount
        wanted = {job_id for job_id, _ in jobs}
        if added < len(jobs):
            query = f"SELECT id FROM {self._statements.table(queue)} WHERE id BETWEEN ? AND ?"
            wanted &= set(ids(conn, query, (min(wanted), max(wanted))))
        keep(conn, ((job_id, job.job_data) for job_id, job in jobs if job_id in wanted))
        return wanted


def standard(conn: Any) -> sqlite3.Connection:
    """A user's connection, if it comes from the library that hipq uses."""
    conn = driver_connection(conn)
    if type(conn).__module__.startswith(("psycopg", "hipq.stores.postgres")):  # the second: an async one, bridged
        raise WrongConnection(
            'conn is open on PostgreSQL, and this app is on SQLite; a test: hipq_harness(app, db="postgresql://...")'
        )
    if not isinstance(conn, sqlite3.Connection):
        raise Invalid(
            f"conn must be a connection of Python's own sqlite3 module, not {type(conn).__module__}."
            f"{type(conn).__name__}: two SQLite libraries on one file corrupt it"
        )
    return conn


def checked(conn: Any, file: str) -> sqlite3.Connection:
    """A user's connection, if it writes to this very file."""
    theirs = standard(conn)
    cursor = theirs.cursor()
    cursor.row_factory = None  # whatever rows its owner likes, we read tuples
    path = next((row[2] for row in cursor.execute("PRAGMA database_list").fetchall() if row[1] == "main"), "")
    if not file or not path or not os.path.samefile(path, file):
        raise WrongConnection(f"conn is open on {path or 'an in-memory database'}, not on {file or 'a file'}")
    return theirs


def begins_by_itself(conn: sqlite3.Connection) -> bool:
    """Whether Python's module begins a transaction before an INSERT. From Python 3.12 on `autocommit` may turn that
    off."""
    return conn.isolation_level is not None and getattr(conn, "autocommit", None) is not True


@contextmanager
def tuples(conn: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A user's connection while hipq uses it: it returns tuples, whatever rows its owner likes."""
    factory, conn.row_factory = conn.row_factory, None
    try:
        yield conn
    finally:
        conn.row_factory = factory


@contextmanager
def savepoint(conn: sqlite3.Connection) -> Iterator[None]:
    """A savepoint: an error undoes what was done in it, and no more."""
    conn.execute("SAVEPOINT hipq")
    try:
        yield
    except BaseException:
        if conn.in_transaction:  # a full disk, say, ends all of it: what is told must be that, not a missing savepoint
            conn.execute("ROLLBACK TO hipq")
            conn.execute("RELEASE hipq")
        raise
    conn.execute("RELEASE hipq")


@contextmanager
def inside(conn: sqlite3.Connection) -> Iterator[None]:
    """Inside a user's transaction; an error undoes our part of it and no more."""
    with tuples(conn):
        try:
            if begins_by_itself(conn) and not conn.in_transaction:
                conn.execute("BEGIN")  # as the module does before an INSERT: it is theirs to commit
            with savepoint(conn):
                yield
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise translated(error) from error
