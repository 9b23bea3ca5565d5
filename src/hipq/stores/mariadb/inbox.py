"""The inbox in MariaDB: keys are rows, locked before any other row is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hipq.job.answer import KEPT, Kept
from hipq.job.matching import Pending, Placed
from hipq.job.model import Row, queue_of
from hipq.stores.inbox_transaction import LOOKED_AT, NONE_APPLIED, Applied
from hipq.stores.mariadb.dialect import MariaSql, check, some_of
from hipq.stores.sql.inbox import SqlInbox
from hipq.stores.sql.insert import Wanted

_ANSWERS = 200
"""In one statement."""


class MariaInbox(SqlInbox):
    _sql: MariaSql

    def _lock(self, queue: int, ids: list[int]) -> None:
        self._sql.found("lock", queue, ids=ids)

    def insert(self, answers: Sequence[Kept]) -> list[int]:
        numbers: list[int] = []
        for some in some_of(answers, _ANSWERS):
            values = [msgspec.structs.astuple(one)[1:] for one in some]
            for row in values:
                check(row)
            width = len(KEPT) - 1
            places = (f"({', '.join(f':v{n * width + m}' for m in range(width))})" for n in range(len(some)))
            statements = self._sql.statements
            (query,) = statements.spell(statements.text("answer_insert", answers=", ".join(places)))
            cursor = self._sql.execute(
                query, {f"v{n}": value for n, value in enumerate(v for row in values for v in row)}
            )
            if cursor.description:
                numbers += [number for (number,) in cursor.fetchall()]
            else:
                first = cursor.lastrowid
                ((step,),) = self._sql.execute("SELECT @@auto_increment_increment", {}).fetchall()
                numbers += range(first, first + step * len(some), step)
        return numbers

    def pending(
        self, rows: Sequence[Row], now: int, after: int, applied: Applied = NONE_APPLIED
    ) -> dict[int, list[Pending]]:
        """First of which jobs there is anything at all; hardly ever of any."""
        found: dict[int, list[Pending]] = {}
        by: dict[int, list[Row]] = {}
        for row in rows:
            by.setdefault(queue_of(row.id), []).append(row)
        for queue, some in sorted(by.items()):
            wanted = [Wanted(row.id, row.tenant, row.job_type, key) for row in some for key in row.answer_keys]
            have = {job for (job,) in self._find("answer_any", wanted, queue, now=now, after=after)}
            for row in some:
                if row.id not in have:
                    continue
                values = {
                    "job": row.id, "tenant": row.tenant, "job_type": row.job_type, "keys": list(row.answer_keys),
                    "create_time": row.create_time, "applied": applied.get(row.id, 0), "now": now, "after": after,
                    "looked_at": LOOKED_AT,
                }  # fmt: skip
                of_job = self._sql.found("answer_pending", queue, **values)
                found[row.id] = sorted(
                    Pending(answer, job, attempt, bool(copy)) for _, answer, job, attempt, copy in of_job
                )
        return {job: some[:LOOKED_AT] for job, some in found.items() if some}

    def place_leftovers(self, jobs: Sequence[tuple[int, int]]) -> list[Placed]:
        left = super().place_leftovers(jobs)
        self.place([Placed(one.id, one.state, 0, one.note) for one in left])
        return left
