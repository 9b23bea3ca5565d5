"""Settling what stopped and claiming what is next, inside the turn's transaction."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hipq.job.model import Change, Row, queue_of
from hipq.job.states import EXECUTING, FINAL
from hipq.job.tally import CountedTypes, tally
from hipq.job.units import UNIT
from hipq.job.windows import ALWAYS
from hipq.limits.rules import Rules
from hipq.stores import large
from hipq.stores.claim_groups import ClaimGroup, Head
from hipq.stores.claims import Claim
from hipq.stores.postgres.connection import Connection
from hipq.stores.postgres.dialect import PostgresSql
from hipq.stores.postgres.insert import Insert, keep
from hipq.stores.postgres.rule_claims import PostgresRulebook
from hipq.stores.postgres.scan_floor import BOTTOM, ScanFloor
from hipq.stores.rule_claims import Picked
from hipq.stores.sql.activity import counted
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.insert import in_json
from hipq.stores.sql.rule_claims import MANY_TYPES, narrowed
from hipq.stores.sql.settle import FINISHED, MOVED, Settling, finished, moved
from hipq.stores.sql.statements import Statements

_Finished = msgspec.defstruct("_Finished", list(FINISHED))
_Moved = msgspec.defstruct("_Moved", list(MOVED))
NOTHING: Final = -1
"""In place of the number of jobs that must be saved for them to be counted: there is nothing to count."""
LOCKED: Final = -1
"""In place of a version of rules: they were read under their lock, or kept from changing."""


class Settle(Settling):
    def __init__(self, statements: Statements[bytes], insert: Insert) -> None:
        self._statements = statements
        self._insert = insert
        self._types = CountedTypes()

    def _write(self, conn: Connection, changes: dict[int, Change]) -> set[int]:
        parts: dict[tuple[int, bool], list[Change]] = {}
        for job_id in sorted(changes):
            change = changes[job_id]
            parts.setdefault((queue_of(job_id), change.after.state == FINAL), []).append(change)
        if len(parts) > 1:
            self.lock(PostgresSql(conn, self._statements), changes)
        saved: set[int] = set()
        for queue, final in sorted(parts):
            some = parts[queue, final]
            if final:
                saved |= self._put(conn, "finish", queue, some, [_Finished(*finished(change)) for change in some])
            else:
                saved |= self._put(conn, "update", queue, some, [_Moved(*moved(change)) for change in some])
        return saved

    def _put(self, conn: Connection, name: str, queue: int, changes: list[Change], rows: list[Any]) -> set[int]:
        counts = tally(changes, self._types)
        values = {"rows": in_json(rows), "counts": counted(counts), "jobs": len(rows) if counts else NOTHING}
        found = conn.execute(self._statements.of(name, queue), values, binary=True).fetchall()
        saved = {job_id for (job_id,) in found}
        if len(saved) < len(rows):  # then nothing was counted there
            counts = tally([change for change in changes if change.before.id in saved], self._types)
            conn.execute(self._statements.of("activity_add"), {"counts": counted(counts)})
        keep(conn, large.changed(change for change in changes if change.before.id in saved))
        return saved


class Take:
    """Claims jobs for an engine."""

    def __init__(self, statements: Statements[bytes], floors: ScanFloor, rulebook: PostgresRulebook) -> None:
        self._statements = statements
        self._floors = floors
        self._rulebook = rulebook

    def claim(self, sql: Sql, claim: Claim, values: dict[str, Any]) -> tuple[list[Row], Picked]:
        """In a transaction: the rows claimed, in order, and what the queue's rules had to say."""
        won, picked = self.freely(sql, claim, values)
        if picked:
            return won, picked
        more, picked = self.by_rules(sql, claim._replace(limit=claim.limit - len(won)), values)
        return won + more, picked

    def freely(self, sql: Sql, claim: Claim, values: dict[str, Any]) -> tuple[list[Row], Picked | None]:
        """Where, as far as is known, there are no limits: without a lock or a transaction, by rules that were read
        before; what takes the jobs takes none if there are others by now. None = that may not be all there is."""
        group = claim.types if len(claim.types) <= MANY_TYPES else ()
        claim = claim._replace(types=narrowed(sql, claim.queue, claim.types))
        if claim.limit <= 0 or not claim.types:
            return [], Picked([])
        free = self._rulebook.free(claim.queue)
        if not free:
            return [], None
        version, rules = free
        values = values | {"version": version}
        if claim.lane is None and self._rulebook.plain(claim.queue):
            return self._plainly(sql, claim, values, group)
        picked = self._rulebook.pick_freely(sql, claim, rules, values["now"])
        if picked.group:
            won = self._of_group(sql, claim, picked.group, values | {"known": True})
        else:
            won, picked = self._taken(sql, claim, picked, rules, values)
        return won, picked if won else None

    def _plainly(
        self, sql: Sql, claim: Claim, values: dict[str, Any], group: tuple[str, ...]
    ) -> tuple[list[Row], Picked | None]:
        """Where nothing but the order decides: in one statement. `group`: the types that have a floor together."""
        won, floored = self._read(sql, claim, values, group)
        if not won and floored:  # nothing must mean that there is nothing
            if rest := self._floors.rest(claim.queue, group):
                later = Picked([], refused=True, again=values["now"] + round(rest * 1e6))
                return [], later if self._rulebook.still_plain(sql, claim) else None
            won, _ = self._read(sql, claim, values, group, bottom=True)
        enough = len(won) == claim.limit or self._rulebook.still_plain(sql, claim)
        return won, Picked([]) if enough else None

    def by_rules(self, sql: Sql, claim: Claim, values: dict[str, Any]) -> tuple[list[Row], Picked]:
        """In a transaction: what the rules of the queue let start now. What waits to be judged is taken first, apart:
        what limits remember must be what has started."""
        claim = claim._replace(types=narrowed(sql, claim.queue, claim.types))
        found = self._rulebook.locked(sql, claim)
        values = values | {"version": LOCKED}
        judged = self._take(sql, claim, [], values) if found.todo else []
        claim = claim._replace(limit=claim.limit - len(judged))
        if claim.limit <= 0 and not claim.ticket:
            return judged, Picked([])
        picked = self._rulebook.pick_now(sql, claim, claim.limit, found, values["engine_id"], values["now"])
        won, picked = self._taken(sql, claim, picked, found.rules, values)
        if claim.lane is None and len(won) < claim.limit and not picked.refused:
            self._rulebook.still_plain(sql, claim)  # then the next claim can be a plain one
        return judged + won, picked

    def _taken(
        self, sql: Sql, claim: Claim, picked: Picked, rules: Rules, values: dict[str, Any]
    ) -> tuple[list[Row], Picked]:
        won = self._take(sql, claim, picked.ids, values) if picked.ids else []
        if won and rules.lanes == "fair":
            self._rulebook.came_last(claim.queue, won[-1].lane)
        if len(won) < min(claim.limit, len(picked.ids)):  # others had them locked: there may be more behind those
            picked = picked._replace(refused=True, again=values["now"])
        return won, picked

    def _take(self, sql: Sql, claim: Claim, ids: list[int], values: dict[str, Any]) -> list[Row]:
        """These jobs, and before them any that wait to be judged."""
        query = self._statements.of("claim", claim.queue, pick="pick_these")
        asked = _asked(claim) | {"picked": ids}
        place = {job_id: number for number, job_id in enumerate(ids)}
        return sorted(sql.read(Row, query, values | asked), key=lambda row: place.get(row.id, -1))

    def _read(
        self, sql: Sql, claim: Claim, values: dict[str, Any], group: tuple[str, ...], bottom: bool = False
    ) -> tuple[list[Row], bool]:
        with self._floors.reading(claim.queue, group, bottom=bottom) as reading:
            if len(claim.types) == 1:
                plain = Head(ClaimGroup(claim.types[0], "", ALWAYS, UNIT), reading.floor)
                won = self._of_group(sql, claim, plain, values | {"known": False})
            else:
                rank, job_id = reading.floor
                won = self._first(sql, claim, "pick_some", values | {"rank": rank, "id": job_id})
            if won and won[-1].phase == EXECUTING:
                reading.stopped = (won[-1].rank, won[-1].id)
                reading.claimed = sum(row.phase == EXECUTING for row in won)
        return won, reading.floor != BOTTOM

    def _of_group(self, sql: Sql, claim: Claim, head: Head, values: dict[str, Any]) -> list[Row]:
        (job_type, lane, windows, factor), (rank, job_id) = head
        group = {"type": job_type, "lane": lane, "windows": windows, "factor": factor, "rank": rank, "id": job_id}
        return self._first(sql, claim, "pick_one", values | group)

    def _first(self, sql: Sql, claim: Claim, pick: str, values: dict[str, Any]) -> list[Row]:
        """What that picks, in order, and before it what waits to be judged."""
        query = self._statements.of("claim", claim.queue, pick=pick)
        return sorted(
            sql.read(Row, query, values | _asked(claim)), key=lambda row: (row.phase == EXECUTING, row.rank, row.id)
        )


def _asked(claim: Claim) -> dict[str, Any]:
    return {
        "types": list(claim.types), "critical": list(claim.critical), "strategies": ["", *claim.strategies],
        "limit": claim.limit,
    }  # fmt: skip
