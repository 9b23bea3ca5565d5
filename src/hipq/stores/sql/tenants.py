"""The verbs about tenants and their lanes, notes, and jobs that come from a journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from hipq.job.model import New
from hipq.stores.claim_groups import RankPosition
from hipq.stores.sql.dialect import Dialect, Sql
from hipq.stores.values import JOURNALS, LAST, NEXT, Counted, Stored, Usage, WaitingLane
from hipq.stores.waker import lowest, soon


class TenantVerbs(Dialect):
    def tenants(self, queue: int, before: str, most: int) -> list[str]:
        return [name for (name,) in self._found("tenants", queue, before=before, most=most)]

    def lanes(self, queue: int, before: Mapping[str, str], each: int, count: int) -> list[WaitingLane]:
        places = msgspec.json.encode(before).decode()
        return [WaitingLane(*row) for row in self._found("lanes", queue, places=places, each=each, count=count)]

    def usage(
        self, queue: int, tenants: Sequence[str] | None = None, *, of: Literal["jobs", "answers"] = "jobs"
    ) -> dict[str, Usage]:
        name = "usage_answers" if of == "answers" else "usage" if tenants is None else "usage_of"
        found = self._found(name, queue, long=True, tenants=list(tenants or ()))
        return {tenant: Usage(count, size) for tenant, count, size in found}

    def census(
        self, queue: int, tenant: str, table: Literal["live", "final", "sizes"], after: int, rows: int
    ) -> tuple[list[Counted], int]:
        found = self._found(f"census_{table}", queue, long=True, tenant=tenant, after=after, rows=rows)
        counted = [Counted(*one[:4], *one[5:]) for one in found]
        more = sum(one.jobs for one in counted) == rows
        return counted, max((one[4] for one in found), default=0) if more else 0

    def _found(self, name: str, queue: int = 0, *, long: bool = False, **values: Any) -> list[Any]:
        with self._reading(long=long) as sql:
            return sql.found(name, queue, **values)


class NoteVerbs(Dialect):
    def notes(self, kind: str, start: str = "", *, exact: bool = False) -> dict[str, str]:
        with self._reading() as sql:
            return dict(sql.found("notes", kind=kind, start=start, end=start + (NEXT if exact else LAST)))

    def change_note(self, kind: str, name: str, change: Callable[[str], str]) -> str:
        def work(sql: Sql) -> str:
            before = self._lock_note(sql, kind, name)
            after = change(before)
            if after != before:
                sql.changed("write_note", kind=kind, name=name, value=after)
            return after

        return self._transaction(work)

    def ingest(self, jobs: Sequence[tuple[int, New]], journal: str, before: str, after: str) -> bool:
        def work(sql: Sql) -> list[Stored] | None:
            if self._lock_note(sql, JOURNALS, journal) != before:
                return None
            self._insert.given(sql.conn, jobs)
            sql.changed("write_note", kind=JOURNALS, name=journal, value=after)
            return [Stored(job_id) for job_id, _ in jobs]

        def ready(stored: list[Stored] | None) -> Mapping[int, RankPosition]:
            return lowest(soon([job for _, job in jobs], stored)) if stored else {}

        if self._transaction(work, ready=ready) is None:
            return False
        self.waker.notify()
        return True
