"""The verbs of engines that go round lanes by a plan of their own, and of the journal in front of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

from hipq.job.model import New
from hipq.stores.claim_groups import RankPosition
from hipq.stores.postgres.connection import Connection, patiently, translated
from hipq.stores.postgres.insert import Insert
from hipq.stores.postgres.notes import locked_note, write_note
from hipq.stores.postgres.session import LONG_SECONDS
from hipq.stores.postgres.statements import Statements
from hipq.stores.postgres.wake import lowest, soon
from hipq.stores.refusals import Given, refusals
from hipq.stores.values import JOURNALS, Counted, Stored, Usage, WaitingLane, counted


class LaneVerbs:
    _statements: Statements
    _insert: Insert

    @abstractmethod
    def _using(self, answer_seconds: float = 0) -> AbstractContextManager[Connection]: ...
    @abstractmethod
    def _announce(self, conn: Connection, ready: Mapping[int, RankPosition]) -> None: ...
    @abstractmethod
    def notify(self) -> None: ...

    def tenants(self, queue: int, before: str, most: int) -> list[str]:
        return [name for (name,) in self._found("tenants", queue, before=before, most=most)]

    def lanes(self, queue: int, before: Mapping[str, str], each: int, count: int) -> list[WaitingLane]:
        tenants, places = list(before), list(before.values())
        found = self._found("lanes", queue, tenants=tenants, places=places, each=each, count=count)
        return [WaitingLane(*row) for row in found]

    def todo_types(self, queue: int, most: int) -> list[str]:
        return [name for (name,) in self._found("todo_types", queue, most=most)]

    def _found(self, statement: str, queue: int, *, answer_seconds: float = 0, **values: Any) -> list[tuple[Any, ...]]:
        with self._using(answer_seconds) as conn:
            return conn.execute(self._statements.of(statement, queue), values).fetchall()

    def usage(
        self, queue: int, tenants: Sequence[str] | None = None, *, of: Literal["jobs", "answers"] = "jobs"
    ) -> dict[str, Usage]:
        name = "usage_answers" if of == "answers" else "usage" if tenants is None else "usage_of"
        values = {"tenants": tenants if tenants is None else list(tenants), "queue_number": queue}
        found = self._found(name, queue, answer_seconds=LONG_SECONDS, **values)
        return {tenant: Usage(count, size) for tenant, count, size in found}

    def usage_ended(self, queue: int, tenant: str, after: int, rows: int) -> tuple[Usage, int]:
        ((jobs, size, last),) = self._found(
            "usage_ended", queue, answer_seconds=LONG_SECONDS, tenant=tenant, after=after, rows=rows
        )
        return Usage(jobs, size), last if jobs == rows else 0

    def census(self, queue: int, tenant: str, table: str, after: int, rows: int) -> tuple[list[Counted], int]:
        return counted(list(self._found(f"census_{table}", queue, tenant=tenant, after=after, rows=rows)), rows)

    def ingest(self, jobs: Sequence[tuple[int, New]], journal: str, before: str, after: str) -> bool:
        with self._using() as conn:

            def work() -> bool:
                if locked_note(conn, JOURNALS, journal) != before:
                    return False
                self._insert.given(conn, jobs)
                write_note(conn, JOURNALS, journal, after)
                return True

            if not patiently(conn, work):
                return False
            self._announce(conn, lowest(soon([job for _, job in jobs], [Stored(job_id) for job_id, _ in jobs])))
        self.notify()
        return True

    def refusals(self, jobs: Sequence[tuple[int, New]]) -> dict[int, str]:
        with self._using() as conn:

            def put(some: Given) -> None:
                with conn.transaction():
                    self._insert.given(conn, some)

            def work() -> dict[int, str]:
                with conn.transaction(force_rollback=True):
                    return refusals(jobs, put, translated)

            return patiently(conn, work)
