"""Settling what stopped and claiming what is next, inside the turn's transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hipq.job.activity import COUNTERS
from hipq.job.model import Change, Row
from hipq.job.tally import tally
from hipq.job.units import UNIT
from hipq.job.windows import ALWAYS
from hipq.stores import large
from hipq.stores.claims import Claim
from hipq.stores.mariadb.connection import Session
from hipq.stores.mariadb.dialect import MariaSql, in_json
from hipq.stores.mariadb.insert import chunks, keep
from hipq.stores.mariadb.rule_claims import MariaRulebook
from hipq.stores.rule_claims import Picked
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.rule_claims import beside_others
from hipq.stores.sql.settle import TokenSettling
from hipq.stores.sql.take import Take

_ADD = (
    f"INSERT INTO hipq_activity (queue, starts, job_type, grain, writer, {', '.join(COUNTERS)}) VALUES {{}} "
    f"ON DUPLICATE KEY UPDATE {', '.join(f'{name} = hipq_activity.{name} + VALUES({name})' for name in COUNTERS)}"
)


def add_counters(sql: Sql, rows: list[tuple[Any, ...]]) -> None:
    """Add to counters (primary key): of each row the queue, when it starts, the type, the grain and the writer."""
    width = 5 + len(COUNTERS)
    values = {f"v{n}": value for n, value in enumerate(value for row in rows for value in row)}
    places = (f"({', '.join(f'%(v{n * width + m})s' for m in range(width))})" for n in range(len(rows)))
    sql.run((_ADD.format(", ".join(places)),), values)


class Settle(TokenSettling):
    def _tokens(self, conn: Session, queue: int, ids: list[int]) -> dict[int, int]:
        return dict(MariaSql(conn, self._statements).found("lock", queue, ids=ids))

    def _delete(self, conn: Session, queue: int, ids: list[int]) -> None:
        MariaSql(conn, self._statements).changed("finished", queue, ids=ids)

    def _put(
        self, conn: Session, name: str, queue: int, changes: list[Change], row: Callable[[Change], tuple[Any, ...]]
    ) -> None:
        sql = MariaSql(conn, self._statements)
        for rows in chunks(row(change) for change in changes):
            sql.changed(name, queue, rows=in_json(rows))
        keep(sql, large.changed(changes))

    def _count(self, conn: Session, saved: list[Change]) -> None:
        """Each connection has rows of its own, so nobody waits for anybody."""
        if counts := tally(saved, self._types):
            rows = [(*minute, 60, conn.process, *counters) for minute, counters in sorted(counts.items())]
            add_counters(MariaSql(conn, self._statements), rows)


class MariaTake(Take):
    def __init__(self, rulebook: MariaRulebook) -> None:
        self._rulebook = rulebook

    def claim(self, sql: Sql, engine_id: int, claim: Claim, now: int) -> tuple[list[Row], Picked]:
        won, picked = super().claim(sql, engine_id, claim, now)
        if (
            picked.ids
        ):  # without the lock, not all that is picked is taken: the next turn is that of the lane after this
            self._rulebook.came_last(claim.queue, next((row.lane for row in won if row.id == picked.ids[-1]), ""))
        return won, picked

    def _todo(self, sql: MariaSql, claim: Claim) -> list[int]:  # type: ignore[override]
        values = {"types": list(claim.types), "strategies": ["", *claim.strategies], "limit": claim.limit}
        return [job_id for (job_id,) in sql.found("pick_todo", claim.queue, **values)]

    def _ready(self, sql: MariaSql, claim: Claim, want: int, engine_id: int, now: int) -> Picked:  # type: ignore[override]
        """Under the queue's row, which is read alone if there are limits: nobody else claims there meanwhile."""
        if (want <= 0 and not claim.ticket) or not claim.types:
            return Picked([])
        found = self._rulebook.locked(sql, claim)
        if claim.lane is None and self._rulebook.is_plain(sql, claim, found.rules):
            return Picked(self._plain(sql, claim, want, now))
        picked = self._rulebook.pick_now(sql, claim, want, found, engine_id, now)
        return self._locked(sql, claim, picked, want, now)

    def _plain(self, sql: MariaSql, claim: Claim, want: int, now: int) -> list[int]:
        """Where nothing but the order decides."""
        if len(claim.types) == 1:
            group = {"job_type": claim.types[0], "lane": "", "windows": ALWAYS, "factor": UNIT}
            return [job_id for (job_id,) in sql.found("pick_ready", claim.queue, **group, now=now, limit=want)]
        limit = beside_others(want)
        heads = sql.each(
            ("pick_heads", claim.queue, {"type": name, "now": now, "limit": limit}) for name in claim.types
        )
        return self._first(sql, claim, [job_id for _, job_id in sorted(heads)], want)

    def _locked(self, sql: MariaSql, claim: Claim, picked: Picked, want: int, now: int) -> Picked:
        ids = self._first(sql, claim, picked.ids, want)
        if len(ids) < min(want, len(picked.ids)):  # others had them locked: there may be more behind those
            picked = picked._replace(refused=True, again=now)
        return picked._replace(ids=ids)

    def _first(self, sql: MariaSql, claim: Claim, ids: list[int], want: int) -> list[int]:
        """The first of these that nobody else has locked, locked: no more than are wanted."""
        won: list[int] = []
        while ids and len(won) < want:
            some, ids = ids[: want - len(won)], ids[want - len(won) :]
            got = {job_id for (job_id,) in sql.found("pick_these", claim.queue, ids=some)}
            won += [job_id for job_id in some if job_id in got]
        return won
