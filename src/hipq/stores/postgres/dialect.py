"""How PostgreSQL runs what all SQL stores share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from hipq.job.model import New
from hipq.stores.claim_groups import RankPosition
from hipq.stores.postgres.connection import Connection, in_transaction, patiently, translated
from hipq.stores.postgres.insert import Insert
from hipq.stores.postgres.session import LONG_SECONDS
from hipq.stores.postgres.statements import Statements
from hipq.stores.postgres.wake import lowest, soon
from hipq.stores.refusals import Given, refusals
from hipq.stores.sql.crons import CronVerbs
from hipq.stores.sql.tenants import TenantVerbs
from hipq.stores.values import Stored

T = TypeVar("T")


class PostgresDialect(TenantVerbs, CronVerbs):
    _statements: Statements
    _insert: Insert

    @abstractmethod
    def _using(self, answer_seconds: float = 0) -> AbstractContextManager[Connection]: ...
    @abstractmethod
    def _announce(self, conn: Connection, ready: Mapping[int, RankPosition]) -> None: ...
    @abstractmethod
    def notify(self, *, done: bool = False) -> None: ...

    def _found(self, name: str, queue: int = 0, *, long: bool = False, **values: Any) -> list[Any]:
        query = self._statements.of(name, queue) if queue else self._statements.plain(name)
        with self._using(LONG_SECONDS if long else 0) as conn:
            return conn.execute(query, values).fetchall()

    def _writing(self) -> AbstractContextManager[Connection]:
        return self._using()

    def _transaction(self, work: Callable[[Any], T]) -> T:
        with self._using() as conn:
            return patiently(conn, lambda: work(conn))

    def _adding(
        self, work: Callable[[Any], list[Stored] | None], jobs: Sequence[New], *, patient: bool = False
    ) -> list[Stored] | None:
        with self._using() as conn:
            stored = (patiently if patient else in_transaction)(conn, lambda: work(conn))
            if stored is None:
                return None
            self._announce(conn, lowest(soon(jobs, stored)))
        self.notify()
        return stored

    def _lock_note(self, conn: Connection, kind: str, name: str) -> str:
        """There is always a row to lock, and it is never deleted: else two who find none would both write one."""
        values = {"kind": kind, "name": name}
        conn.execute(b"INSERT INTO hipq_notes VALUES (%(kind)s, %(name)s, '') ON CONFLICT DO NOTHING", values)
        query = b"SELECT value FROM hipq_notes WHERE kind = %(kind)s AND name = %(name)s FOR UPDATE"
        ((value,),) = conn.execute(query, values).fetchall()
        return str(value)

    def refusals(self, jobs: Sequence[tuple[int, New]]) -> dict[int, str]:
        with self._using() as conn:

            def put(some: Given) -> None:
                with conn.transaction():
                    self._insert.given(conn, some)

            def work() -> dict[int, str]:
                with conn.transaction(force_rollback=True):
                    return refusals(jobs, put, translated)

            return patiently(conn, work)
