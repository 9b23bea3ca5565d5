"""The inbox in PostgreSQL: keys are advisory locks, taken before any row is locked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from hipq.job.answer import KEPT, Kept
from hipq.job.model import Row
from hipq.stores.inbox_transaction import Numbered
from hipq.stores.sql.inbox import SqlInbox, by_queue
from hipq.stores.sql.insert import Wanted

_Inserted: Final = msgspec.defstruct("_Inserted", list(KEPT[1:]))


class PostgresInbox(SqlInbox):
    def live(self, answers: Numbered) -> dict[int, Row]:
        found: dict[int, Row] = {}
        for queue, some in by_queue(answers):
            wanted = [Wanted(n, one.tenant, one.job_type, one.job_key) for n, one in some.items()]
            found |= {n: Row(*row) for n, *row in self._find("answer_live", wanted, queue)}
        return found

    def insert(self, answers: Sequence[Kept]) -> list[int]:
        new = [_Inserted(*msgspec.structs.astuple(one)[1:]) for one in answers]
        return [answer_id for (answer_id,) in self._find("answer_insert", new)]
