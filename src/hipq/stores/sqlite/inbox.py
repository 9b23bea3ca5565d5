"""The inbox in SQLite: the write lock locks every key."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hipq.job.answer import KEPT, Kept
from hipq.stores.sql.inbox import SqlInbox
from hipq.stores.sqlite.batch import chunks, no_nul, values_of


class SqliteInbox(SqlInbox):
    def insert(self, answers: Sequence[Kept]) -> list[int]:
        numbers: list[int] = []
        for chunk in chunks(answers):
            values = [value for one in chunk for value in msgspec.structs.astuple(one)[1:]]
            no_nul(values)
            query = self._sql.statements.of("answer_insert", rows=values_of(len(chunk), len(KEPT) - 1))
            last = self._sql.conn.execute(query, values).lastrowid
            numbers += range(last - len(chunk) + 1, last + 1)
        return numbers
