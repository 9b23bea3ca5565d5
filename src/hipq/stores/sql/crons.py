"""The verbs about schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipq.job.model import New
from hipq.stores.sql.dialect import Dialect
from hipq.stores.values import Stored


class CronVerbs(Dialect):
    def cron(self, queue: int, name: str, now: int) -> int:
        values = {"queue": queue, "name": name, "now": now}
        with self._writing() as conn:
            conn.execute(self._statements.plain("add_cron"), values)
            return int(conn.execute(self._statements.plain("last_tick"), values).fetchone()[0])

    def tick(self, queue: int, name: str, last: int, tick: int, jobs: Sequence[New]) -> list[Stored] | None:
        values = {"queue": queue, "name": name, "last": last, "tick": tick}

        def work(conn: Any) -> list[Stored] | None:
            if conn.execute(self._statements.plain("tick"), values).rowcount == 0:
                return None
            return self._insert.many(conn, jobs, all_or_nothing=False)

        return self._adding(work, jobs)
