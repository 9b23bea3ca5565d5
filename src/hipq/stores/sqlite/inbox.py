"""The inbox in SQLite: the write lock locks every key."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hipq.job.answer import KEPT, Kept
from hipq.job.model import Row
from hipq.stores.inbox_transaction import Numbered
from hipq.stores.sql.inbox import SqlInbox, Wanted, by_queue
from hipq.stores.sqlite.batch import chunks, no_nul, values_of


class SqliteInbox(SqlInbox):
    def live(self, answers: Numbered) -> dict[int, Row]:
        found: dict[int, Row] = {}
        for queue, some in by_queue(answers):
            wanted = [Wanted(n, one.tenant, one.job_type, one.job_key) for n, one in some.items()]
            jobs = {n: job for n, job in self._find("key_holders", wanted, queue) if job}
            rows = {row.id: row for row in self._sql.rows("these", queue, ids=list(jobs.values()))} if jobs else {}
            found |= {n: rows[job] for n, job in jobs.items()}
        return found

    def insert(self, answers: Sequence[Kept]) -> list[int]:
        numbers: list[int] = []
        for chunk in chunks(answers):
            values = [value for one in chunk for value in msgspec.structs.astuple(one)[1:]]
            no_nul(values)
            query = self._sql.statements.of("answer_insert", rows=values_of(len(chunk), len(KEPT) - 1))
            last = self._sql.conn.execute(query, values).lastrowid
            numbers += range(last - len(chunk) + 1, last + 1)
        return numbers
