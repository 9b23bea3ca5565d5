"""Adding jobs, in a transaction of ours or inside a user's own."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from typing import Any

from hipq.errors import DuplicateKey, Invalid
from hipq.job.model import New, numbered
from hipq.stores import large
from hipq.stores.base import Stored
from hipq.stores.sqlite.batch import chunks, ids, keep, no_nul
from hipq.stores.sqlite.connection import translated
from hipq.stores.sqlite.statements import Statements


class Insert:
    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def inside(self, conn: sqlite3.Connection, jobs: Sequence[New], all_or_nothing: bool) -> list[Stored]:
        """Insert inside a user's transaction; a duplicate undoes our part of it and no more."""
        factory, conn.row_factory = conn.row_factory, None  # we read tuples
        try:
            if _begins_by_itself(conn) and not conn.in_transaction:
                conn.execute("BEGIN")  # as the module does before an INSERT: it is theirs to commit
            conn.execute("SAVEPOINT hipq")
            try:
                stored = self.jobs(conn, jobs, all_or_nothing)
            except BaseException:
                conn.execute("ROLLBACK TO hipq")
                raise
            finally:
                conn.execute("RELEASE hipq")
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise translated(error) from error
        finally:
            conn.row_factory = factory
        return stored

    def jobs(self, conn: sqlite3.Connection, jobs: Sequence[New], all_or_nothing: bool) -> list[Stored]:
        stored: dict[int, Stored] = {}
        todo: dict[int, list[int]] = {}
        for index, job in enumerate(jobs):
            todo.setdefault(job.queue, []).append(index)
        while todo:
            queue, indexes = todo.popitem()
            self._statements.table(queue)  # else an unknown one has no ids to take
            fresh = self._take_ids(conn, queue, len(indexes))
            added = self._insert_rows(
                conn, queue, [(id, jobs[index]) for id, index in zip(fresh, indexes, strict=True)]
            )
            for id, index in zip(fresh, indexes, strict=True):
                job = jobs[index]
                if id in added:
                    stored[index] = Stored(id)
                elif not job.job_key:  # somebody chose this number as a key: take another
                    todo.setdefault(queue, []).append(index)
                else:
                    holder = self._holder(conn, job)
                    if all_or_nothing:
                        raise DuplicateKey(job.job_type, job.job_key, holder)
                    stored[index] = Stored(holder, duplicate=True)
        return [stored[index] for index in range(len(jobs))]

    def _take_ids(self, conn: sqlite3.Connection, queue: int, count: int) -> list[int]:
        query = "UPDATE hipq_queues SET last_id = last_id + ? WHERE number = ? RETURNING last_id"
        ((last,),) = conn.execute(query, (count, queue)).fetchall()
        return [numbered(sequence, queue) for sequence in range(last - count + 1, last + 1)]

    def _insert_rows(self, conn: sqlite3.Connection, queue: int, jobs: list[tuple[int, New]]) -> set[int]:
        """Insert; the ids of those that went in."""
        added = 0
        for chunk in chunks(jobs):
            values: list[Any] = []
            for id, job in chunk:
                values += (
                    id, job.tenant, job.lane, job.job_type, job.job_key or str(id), large.inline(job.job_data),
                    job.phase, job.rank, job.priority, job.throttle_factor, job.time_windows, job.timeout,
                    job.scheduled_run_time, job.create_time, job.create_time,
                )  # fmt: skip
            no_nul(values)
            added += conn.execute(self._statements.of("insert", queue, len(chunk), 15), values).rowcount
        wanted = {id for id, _ in jobs}
        if added < len(jobs):
            query = f"SELECT id FROM {self._statements.table(queue)} WHERE id BETWEEN ? AND ?"
            wanted &= set(ids(conn, query, (min(wanted), max(wanted))))
        keep(conn, ((id, job.job_data) for id, job in jobs if id in wanted))
        return wanted

    def _holder(self, conn: sqlite3.Connection, job: New) -> int:
        query = f"SELECT id FROM {self._statements.table(job.queue)} WHERE tenant = ? AND job_type = ? AND job_key = ?"
        ((id,),) = conn.execute(query, (job.tenant, job.job_type, job.job_key)).fetchall()
        return int(id)


def checked(conn: Any, file: str) -> sqlite3.Connection:
    """A user's connection, if writing through it reaches this very file."""
    if not isinstance(conn, sqlite3.Connection):
        raise Invalid(
            f"conn must be a connection of Python's own sqlite3 module, not {type(conn).__module__}."
            f"{type(conn).__name__}: two SQLite libraries on one file corrupt it"
        )
    cursor = conn.cursor()
    cursor.row_factory = None  # whatever rows its owner likes, we read tuples
    path = next((row[2] for row in cursor.execute("PRAGMA database_list").fetchall() if row[1] == "main"), "")
    if not file or not path or not os.path.samefile(path, file):
        raise Invalid(f"conn is open on {path or 'an in-memory database'}, not on {file or 'a file'}")
    return conn


def _begins_by_itself(conn: sqlite3.Connection) -> bool:
    """Whether the module would begin a transaction before an INSERT. From Python 3.12 on `autocommit` may say no."""
    return conn.isolation_level is not None and getattr(conn, "autocommit", None) is not True
