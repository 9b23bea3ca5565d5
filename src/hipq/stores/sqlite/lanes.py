"""The verbs of engines that go round lanes by a plan of their own, and of the journal in front of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from hipq.job.model import New
from hipq.stores.refusals import Given, refusals
from hipq.stores.sqlite.connection import Connection, translated
from hipq.stores.sqlite.insert import Insert, savepoint
from hipq.stores.sqlite.notes import read_note, write_note
from hipq.stores.sqlite.statements import Statements
from hipq.stores.values import JOURNALS, Counted, Usage, WaitingLane, counted

_lanes = msgspec.json.Decoder(list[WaitingLane])
_names = msgspec.json.Decoder(list[str])


class LaneVerbs:
    _db: Connection
    _statements: Statements
    _insert: Insert

    @abstractmethod
    def notify(self) -> None: ...

    def tenants(self, queue: int, before: str, most: int) -> list[str]:
        return self._names("tenants", queue, before=before, most=most)

    def lanes(self, queue: int, before: Mapping[str, str], each: int, count: int) -> list[WaitingLane]:
        places = msgspec.json.encode(list(before.items())).decode()
        with self._db.reading() as conn:
            values = {"places": places, "each": each, "count": count}
            found = conn.execute(self._statements.of("lanes", queue), values).fetchone()[0]
        return _lanes.decode(found)

    def todo_types(self, queue: int, most: int) -> list[str]:
        return self._names("todo_types", queue, most=most)

    def _names(self, statement: str, queue: int, **values: str | int) -> list[str]:
        with self._db.reading() as conn:
            return _names.decode(conn.execute(self._statements.of(statement, queue), values).fetchone()[0])

    def usage(
        self, queue: int, tenants: Sequence[str] | None = None, *, of: Literal["jobs", "answers"] = "jobs"
    ) -> dict[str, Usage]:
        name = "usage_answers" if of == "answers" else "usage" if tenants is None else "usage_of"
        with self._db.reading() as conn:
            values = {"tenants": msgspec.json.encode(tenants).decode(), "queue": queue}
            found = conn.execute(self._statements.of(name, queue), values).fetchall()
        return {tenant: Usage(count, size) for tenant, count, size in found}

    def usage_ended(self, queue: int, tenant: str, after: int, rows: int) -> tuple[Usage, int]:
        with self._db.reading() as conn:
            values = {"tenant": tenant, "after": after, "rows": rows}
            jobs, size, last = conn.execute(self._statements.of("usage_ended", queue), values).fetchone()
        return Usage(jobs, size), last if jobs == rows else 0

    def census(self, queue: int, tenant: str, table: str, after: int, rows: int) -> tuple[list[Counted], int]:
        with self._db.reading() as conn:
            values = {"tenant": tenant, "after": after, "rows": rows}
            found = conn.execute(self._statements.of(f"census_{table}", queue), values).fetchall()
        return counted(found, rows)

    def ingest(self, jobs: Sequence[tuple[int, New]], journal: str, before: str, after: str) -> bool:
        with self._db.writing() as conn:
            if read_note(conn, JOURNALS, journal) != before:
                return False
            self._insert.given(conn, jobs)
            write_note(conn, JOURNALS, journal, after)
        self.notify()
        return True

    def refusals(self, jobs: Sequence[tuple[int, New]]) -> dict[int, str]:
        with self._db.writing() as conn:

            def put(some: Given) -> None:
                with savepoint(conn):
                    self._insert.given(conn, some)

            conn.execute("SAVEPOINT hipq_tried")
            found = refusals(jobs, put, translated)
            conn.execute("ROLLBACK TO hipq_tried")
        return found
