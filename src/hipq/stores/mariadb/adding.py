"""The verbs that add jobs, and what tells engines of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pymysql
from msgspec.structs import asdict

from hipq.job.model import New
from hipq.stores import large
from hipq.stores.claim_groups import RankPosition
from hipq.stores.mariadb.borrowed import borrowed
from hipq.stores.mariadb.connection import (
    BUSY,
    Connections,
    Session,
    in_transaction,
    number_of,
    patiently,
)
from hipq.stores.mariadb.dialect import MariaSql, check
from hipq.stores.mariadb.insert import Insert
from hipq.stores.mariadb.schema import MariaSchema
from hipq.stores.mariadb.wake import KEPT, PRUNED, Teller
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.server import LATEST_ID, ServerStore
from hipq.stores.values import Stored
from hipq.stores.waker import is_soon, lowest, soon

T = TypeVar("T")


class AddingVerbs(ServerStore):
    _schema = MariaSchema
    _db: Connections
    _insert: Insert
    _teller: Teller

    def _sql(self, conn: Any) -> MariaSql:
        return MariaSql(conn, self._statements)

    # -- adding jobs ------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[New], *, all_or_nothing: bool = False, conn: Any = None) -> list[Stored]:
        for queue in {job.queue for job in jobs}:
            self._statements.table(queue)  # before a lock is held: it may have to read the registry
        if conn is not None:
            return self._insert_in(conn, jobs, all_or_nothing)
        if not jobs:
            return []

        def ready(stored: list[Stored]) -> Mapping[int, RankPosition]:
            return lowest(soon(jobs, stored))

        job_id = self._added_one(jobs[0]) if len(jobs) == 1 else 0
        if job_id:
            stored = [Stored(job_id)]
        else:
            stored = self._transaction(lambda sql: self._insert.many(sql.conn, jobs, all_or_nothing), ready=ready)
        self.waker.notify()
        return stored

    def _added_one(self, job: New) -> int:
        """The id of a job that went in, with what is told of it, in one round trip. 0 = it takes more than that: its
        key is taken, its payload is large, or somebody's lock is in the way."""
        if not self._db.flavour.has_returning or large.oversized([(0, job.job_data)]):
            return 0
        values = asdict(job)
        check(values.values())
        places = self._teller.wanted({job.queue: (job.rank, LATEST_ID)} if is_soon(job) else {})
        job_id = taken = 0
        with self._using() as conn:
            try:
                queries = [*self._statements.of("insert_one", job.queue), *self._news(places, self._teller.writer)]
                # The last row: a node of Galera that has begun a statement again sends what it found both times.
                found = conn.run_committed(queries, values)[-1:]
                job_id, taken = next(((got, own) for got, own, at in found if at == job.create_time), (0, 0))
            except pymysql.Error as error:
                if number_of(error) not in BUSY:
                    raise
                conn.run("ROLLBACK")
            finally:
                if job_id != taken or not job_id:
                    self._teller.unsent(places)
            self._teller.told += len(places)
            self._prune_news(self._sql(conn))
        return job_id if job_id == taken else 0

    def _insert_in(self, conn: Any, jobs: Sequence[New], all_or_nothing: bool) -> list[Stored]:
        """Insert inside a user's transaction; an error undoes our part of it and no more."""
        with borrowed(conn) as theirs:
            sql = self._sql(theirs)
            self._check_same(self.schema(sql).version().identity, sql.rows_of("SELECT DATABASE()"))
            with theirs.transaction():
                stored = self._insert.many(theirs, jobs, all_or_nothing)
                self._tell(sql, lowest(soon(jobs, stored)))
        return stored

    # -- transactions, and what engines elsewhere are told ------------------------------------------------------------
    def _transaction(
        self,
        work: Callable[[Sql], T],
        *,
        patient: bool = True,
        ready: Callable[[T], Mapping[int, RankPosition]] = lambda _: {},
    ) -> T:
        """What is told is committed with what it tells of."""
        told: dict[int, RankPosition] = {}

        with self._using() as conn:
            sql = self._sql(conn)

            def whole() -> T:
                result = work(sql)
                found = ready(result)
                told.update(self._teller.wanted({queue: place for queue, place in found.items() if queue not in told}))
                self._write_news(sql, {queue: found[queue] for queue in told if queue in found})
                return result

            try:
                result = (self._patiently if patient else in_transaction)(conn, whole)
            except BaseException:
                self._teller.unsent(told)
                raise
            self._prune_news(sql)
        return result

    def _patiently(self, conn: Session, work: Callable[[], T]) -> T:
        return patiently(conn, work)

    def _tell(self, sql: Sql, places: Mapping[int, RankPosition]) -> None:
        """In a transaction."""
        self._write_news(sql, self._teller.wanted(places))

    def _write_news(self, sql: Sql, places: Mapping[int, RankPosition]) -> None:
        writer = self._teller.writer if isinstance(sql.conn, Session) else 0  # who commits it, if not we
        for query in self._news(places, writer):
            sql.run((query,), {})
        self._teller.told += len(places)

    def _news(self, places: Mapping[int, RankPosition], writer: int) -> list[str]:
        """The statement that tells of these places, or none. A rank is hexadecimal digits, or `~`."""
        told = ", ".join(
            f"({writer}, {queue}, X'{rank.encode().hex()}', {job})" for queue, (rank, job) in places.items()
        )
        return [one.replace("{told}", told) for one in self._statements.of("news_tell")] if told else []

    def _prune_news(self, sql: MariaSql) -> None:
        """What was told long ago goes, now and then. A failure here is none of the caller's."""
        if self._teller.told < PRUNED:
            return
        self._teller.told = 0
        with suppress(pymysql.Error):
            ((newest,),) = sql.execute("SELECT coalesce(max(id), 0) FROM hipq_news", {}).fetchall()
            sql.changed("news_prune", before=newest - KEPT)
