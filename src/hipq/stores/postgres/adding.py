"""The verbs that add jobs, and what tells engines of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus

from hipq.errors import Invalid, WrongConnection
from hipq.job.model import New
from hipq.stores import large
from hipq.stores.claim_groups import RankPosition
from hipq.stores.lent import driver_connection
from hipq.stores.postgres.bridged import Bridged
from hipq.stores.postgres.connection import Connection, Connections, translated
from hipq.stores.postgres.dialect import PostgresSql
from hipq.stores.postgres.insert import Insert, cursor
from hipq.stores.postgres.scan_floor import ScanFloor
from hipq.stores.postgres.schema import PostgresSchema
from hipq.stores.postgres.wake import notify
from hipq.stores.sql.notices import Notices
from hipq.stores.sql.server import LATEST_ID, ServerStore
from hipq.stores.values import Stored
from hipq.stores.waker import is_soon, lowest, soon


class AddingVerbs(ServerStore):
    _schema = PostgresSchema
    _db: Connections
    _insert: Insert
    _floors: ScanFloor
    _notices: Notices
    _trusted: WeakSet[psycopg.Connection[Any]]
    """Connections of users that are open on this database."""

    def _sql(self, conn: Connection) -> PostgresSql:
        return PostgresSql(conn, self._statements)

    def enqueue(self, jobs: Sequence[New], *, all_or_nothing: bool = False, conn: Any = None) -> list[Stored]:
        if conn is not None:
            return self._insert_in(conn, jobs, all_or_nothing)
        if not jobs:
            return []
        with self._using() as own:
            stored = self._added(own, jobs, all_or_nothing)
        self.waker.notify()
        return stored

    def _added(self, conn: Connection, jobs: Sequence[New], all_or_nothing: bool) -> list[Stored]:
        if len(jobs) == 1 and not large.oversized([(0, jobs[0].job_data)]):
            try:
                return [self._added_one(conn, jobs[0], all_or_nothing)]
            except (psycopg.errors.LockNotAvailable, psycopg.errors.ProgramLimitExceeded):
                pass  # somebody's lock, or no room for notices: it can be stored all the same
        stored = self._patiently(conn, lambda: self._insert.many(conn, jobs, all_or_nothing))
        self._announce(conn, lowest(soon(jobs, stored)))
        return stored

    def _added_one(self, conn: Connection, job: New, all_or_nothing: bool) -> Stored:
        """The notice is in the statement that stores the job: a notice is a commit, and a second one would cost as much
        as the first."""
        notify = is_soon(job) and self._notices.wanted(job.queue, (job.rank, LATEST_ID))
        told = False
        try:
            stored = self._insert.one(conn, job, all_or_nothing, notify)
            told = not stored.duplicate
        finally:
            if notify and not told:
                self._notices.unsent(job.queue)
        if not stored.duplicate:
            self._floors.lower(job.queue, (job.rank, stored.id))
        return stored

    def _insert_in(self, conn: Any, jobs: Sequence[New], all_or_nothing: bool) -> list[Stored]:
        """Insert inside a user's transaction. An error undoes only what hipq did in it."""
        conn = usable(conn)
        try:
            if not conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE:
                cursor(conn).execute("SELECT")  # begins their transaction, which is theirs to commit
            with conn.transaction():  # a savepoint, unless they are in autocommit mode and in no transaction
                if conn not in self._trusted:
                    self._check_same(_identity(conn), cursor(conn).execute("SELECT current_database()").fetchall())
                    self._trusted.add(conn)  # a Bridged is asked again with each call
                stored = self._insert.many(conn, jobs, all_or_nothing, may_copy=False) if jobs else []
                for queue, place in lowest(soon(jobs, stored)).items():
                    notify(conn, queue, place)
        except (psycopg.Error, UnicodeError, OverflowError) as error:
            raise translated(error) from error
        return stored

    def _announce(self, conn: Connection, ready: Mapping[int, RankPosition]) -> None:
        """Tell this process's claims and other processes' engines what was committed and is due."""
        for queue, place in ready.items():
            self._floors.lower(queue, place)
            if self._notices.wanted(queue, place):
                try:
                    notify(conn, queue, place)
                except psycopg.Error:
                    pass  # the jobs are stored: that must not look like a failure, and engines look by themselves


def _identity(conn: Connection) -> str:
    """What tells the database of a user's connection from all others."""
    there = cursor(conn).execute("SELECT to_regclass('hipq_meta') IS NOT NULL").fetchone() == (True,)
    found = cursor(conn).execute("SELECT identity FROM hipq_meta").fetchone() if there else None
    return found[0] if found else ""


def usable(conn: Any) -> Connection:
    """A user's connection, if jobs can be added through it."""
    conn = driver_connection(conn)
    if not isinstance(conn, psycopg.Connection | Bridged):
        kind = f"{type(conn).__module__}.{type(conn).__name__}"
        if kind == "sqlite3.Connection":
            raise WrongConnection("conn is open on SQLite, and this app is on PostgreSQL")
        raise Invalid(
            f"conn must be a connection of psycopg 3 or of asyncpg, or one of SQLAlchemy or Django over it, not {kind}"
        )
    if conn.info.transaction_status == TransactionStatus.INERROR:
        raise Invalid("conn is in a transaction that has failed; roll it back first")
    return conn  # type: ignore[return-value]  # a Bridged has the part of it that is used
