"""The verbs of engines that go round lanes by a plan of their own, and of the journal in front of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from hipq.job.model import New
from hipq.stores.sql.notes import NoteVerbs
from hipq.stores.values import JOURNALS, Counted, Stored, Usage, WaitingLane, counted


class TenantVerbs(NoteVerbs):
    def tenants(self, queue: int, before: str, most: int) -> list[str]:
        return [name for (name,) in self._found("tenants", queue, before=before, most=most)]

    def lanes(self, queue: int, before: Mapping[str, str], each: int, count: int) -> list[WaitingLane]:
        places = msgspec.json.encode(before).decode()
        return [WaitingLane(*row) for row in self._found("lanes", queue, places=places, each=each, count=count)]

    def todo_types(self, queue: int, most: int) -> list[str]:
        return [name for (name,) in self._found("todo_types", queue, most=most)]

    def usage(
        self, queue: int, tenants: Sequence[str] | None = None, *, of: Literal["jobs", "answers"] = "jobs"
    ) -> dict[str, Usage]:
        name = "usage_answers" if of == "answers" else "usage" if tenants is None else "usage_of"
        found = self._found(name, queue, long=True, tenants=list(tenants or ()))
        return {tenant: Usage(count, size) for tenant, count, size in found}

    def usage_ended(self, queue: int, tenant: str, after: int, rows: int) -> tuple[Usage, int]:
        ((jobs, size, last),) = self._found("usage_ended", queue, long=True, tenant=tenant, after=after, rows=rows)
        return Usage(jobs, size), last if jobs == rows else 0

    def census(self, queue: int, tenant: str, table: str, after: int, rows: int) -> tuple[list[Counted], int]:
        return counted(self._found(f"census_{table}", queue, tenant=tenant, after=after, rows=rows), rows)

    def ingest(self, jobs: Sequence[tuple[int, New]], journal: str, before: str, after: str) -> bool:
        def work(conn: Any) -> list[Stored] | None:
            if self._lock_note(conn, JOURNALS, journal) != before:
                return None
            self._insert.given(conn, jobs)
            self._write_note(conn, JOURNALS, journal, after)
            return [Stored(job_id) for job_id, _ in jobs]

        return self._adding(work, [job for _, job in jobs], patient=True) is not None
