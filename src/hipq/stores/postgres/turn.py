"""Settling what stopped and claiming what is next, inside the turn's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from psycopg.rows import args_row

from hipq.job.model import Brief, Change, New, Row, queue_of
from hipq.job.states import EXECUTING, FINAL, READY
from hipq.job.units import UNIT
from hipq.job.windows import ALWAYS
from hipq.limits.rules import Rules
from hipq.stores import large
from hipq.stores.claim_groups import ClaimGroup, Head, RankPosition
from hipq.stores.claims import Claim
from hipq.stores.postgres.connection import Connection
from hipq.stores.postgres.insert import Insert, in_json, keep
from hipq.stores.postgres.rule_claims import Rulebook
from hipq.stores.postgres.scan_floor import BOTTOM, ScanFloor
from hipq.stores.postgres.statements import Statements
from hipq.stores.postgres.wake import lowest, soon
from hipq.stores.rule_claims import Picked
from hipq.stores.values import Stored

_FINISHED: Final = (
    "job_data", "priority", "scheduled_run_time", "attempt", "failures", "crashes", "error", "code", "exitcode",
    "result", "history", "update_time",
)  # fmt: skip
_Finished = msgspec.defstruct("_Finished", ["id", "token", *_FINISHED])
_MOVED: Final = (
    "job_data", "state", "phase", "rank", "priority", "held", "scheduled_run_time", "deadline", "wait", "wait_key",
    "attempt", "failures", "crashes", "owner", "error", "code", "exitcode", "result", "history", "update_time",
)  # fmt: skip
_Moved = msgspec.defstruct("_Moved", ["id", "token", *_MOVED])

LOCKED: Final = -1
"""In place of a version of rules: they were read under their lock, or kept from changing."""


def rows(conn: Connection, query: bytes, values: Any, *, prepare: bool | None = None) -> list[Row]:
    return conn.cursor(row_factory=args_row(Row)).execute(query, values, prepare=prepare, binary=True).fetchall()


def listed(conn: Connection, query: bytes, values: Any) -> list[Brief]:
    cursor = conn.cursor(row_factory=args_row(Brief))
    return cursor.execute(query, values, prepare=False, binary=True).fetchall()


class Saved(NamedTuple):
    lost: frozenset[int]
    children: list[tuple[New, Stored]]
    changes: list[Change]
    """Those that were not lost."""
    ready: dict[int, RankPosition]
    """The queues that have something to do now, each with the place of the first."""
    freed: set[int]
    """The queues in which jobs that counted against limits do so no more."""


class Settle:
    """Saves changes: each happens only if its row still has the token it names."""

    def __init__(self, statements: Statements, insert: Insert) -> None:
        self._statements = statements
        self._insert = insert

    def save(self, conn: Connection, changes: Sequence[Change]) -> Saved:
        first: dict[int, Change] = {}
        for change in changes:
            first.setdefault(change.before.id, change)
        parts: dict[tuple[int, bool], list[Change]] = {}
        for job_id in sorted(first):
            parts.setdefault((queue_of(job_id), first[job_id].after.state == FINAL), []).append(first[job_id])
        if len(parts) > 1:
            self.lock(conn, first)
        saved: set[int] = set()
        ready: list[tuple[int, RankPosition]] = []
        freed: set[int] = set()
        for (queue, final), some in sorted(parts.items()):
            written = self._finish(conn, queue, some) if final else self._update(conn, queue, some)
            saved |= written
            if any(change.before.held > change.after.held for change in some if change.before.id in written):
                freed.add(queue)
            if not final:
                rows = [change.after for change in some if change.before.id in written]
                ready += [(queue, (row.rank, row.id)) for row in rows if row.phase == READY]
        children = [child for job_id, change in first.items() if job_id in saved for child in change.children]
        stored = self._insert.many(conn, children, all_or_nothing=False) if children else []
        lost = {change.before.id for change in changes if change is not first[change.before.id]}
        return Saved(
            frozenset(lost | (first.keys() - saved)),
            list(zip(children, stored, strict=True)),
            [change for job_id, change in first.items() if job_id in saved],
            lowest([*ready, *soon(children, stored)]),
            freed,
        )

    def lock(self, conn: Connection, ids: Iterable[int]) -> None:
        by_queue: dict[int, list[int]] = {}
        for job_id in ids:
            by_queue.setdefault(queue_of(job_id), []).append(job_id)
        for queue in sorted(by_queue):
            conn.execute(self._statements.of("lock", queue), {"ids": by_queue[queue]})

    def _finish(self, conn: Connection, queue: int, changes: list[Change]) -> set[int]:
        done = [
            _Finished(
                row.id, token, large.rewritten(change), row.priority, row.scheduled_run_time, row.attempt, row.failures,
                row.crashes, row.error, row.code, row.exitcode, row.result, row.history, row.update_time,
            )
            for change, row, token in ((change, change.after, change.before.token) for change in changes)
        ]  # fmt: skip
        saved = self._written(conn, "finish", queue, done)
        keep(conn, large.changed(change for change in changes if change.before.id in saved))
        return saved

    def _update(self, conn: Connection, queue: int, changes: list[Change]) -> set[int]:
        moved = [
            _Moved(
                row.id, token, large.inline(row.job_data), row.state, row.phase, row.rank, row.priority, row.held,
                row.scheduled_run_time, row.deadline, row.wait, row.wait_key, row.attempt, row.failures, row.crashes,
                row.owner, row.error, row.code, row.exitcode, row.result, row.history, row.update_time,
            )
            for row, token in ((change.after, change.before.token) for change in changes)
        ]  # fmt: skip
        saved = self._written(conn, "update", queue, moved)
        keep(conn, large.changed(change for change in changes if change.before.id in saved))
        return saved

    def _written(self, conn: Connection, name: str, queue: int, some: list[Any]) -> set[int]:
        query = self._statements.of(name, queue)
        return {job_id for (job_id,) in conn.execute(query, {"rows": in_json(some)}, binary=True).fetchall()}


class Take:
    """Claims jobs for an engine."""

    def __init__(self, statements: Statements, floors: ScanFloor, rulebook: Rulebook) -> None:
        self._statements = statements
        self._floors = floors
        self._rulebook = rulebook

    def claim(self, conn: Connection, claim: Claim, values: dict[str, Any]) -> tuple[list[Row], Picked]:
        """In a transaction: the rows claimed, in order, and what the queue's rules had to say."""
        won, picked = self.freely(conn, claim, values)
        if picked:
            return won, picked
        more, picked = self.by_rules(conn, claim._replace(limit=claim.limit - len(won)), values)
        return won + more, picked

    def freely(self, conn: Connection, claim: Claim, values: dict[str, Any]) -> tuple[list[Row], Picked | None]:
        """Where, as far as is known, there are no limits: without a lock or a transaction, by rules that were read
        before; what takes the jobs takes none if there are others by now. None = that may not be all there is."""
        if claim.limit <= 0 or not claim.types:
            return [], Picked([])
        free = self._rulebook.free(claim.queue)
        if not free:
            return [], None
        version, rules = free
        values = values | {"version": version}
        if claim.lane is None and self._rulebook.plain(claim.queue):
            return self._plainly(conn, claim, values)
        picked = self._rulebook.pick_freely(conn, claim, rules, values["now"])
        if picked.group:
            won = self._of_strand(conn, claim, picked.group, values | {"known": True})
        else:
            won, picked = self._taken(conn, claim, picked, rules, values)
        return won, picked if won else None

    def _plainly(self, conn: Connection, claim: Claim, values: dict[str, Any]) -> tuple[list[Row], Picked | None]:
        """Where nothing but the order decides: in one statement."""
        won, floored = self._read(conn, claim, values)
        if not won and floored:  # nothing must mean that there is nothing
            if rest := self._floors.rest(claim.queue, claim.types):
                later = Picked([], refused=True, again=values["now"] + round(rest * 1e6))
                return [], later if self._rulebook.still_plain(conn, claim) else None
            won, _ = self._read(conn, claim, values, bottom=True)
        enough = len(won) == claim.limit or self._rulebook.still_plain(conn, claim)
        return won, Picked([]) if enough else None

    def by_rules(self, conn: Connection, claim: Claim, values: dict[str, Any]) -> tuple[list[Row], Picked]:
        """In a transaction: what the rules of the queue let start now. What waits to be judged is taken first, apart:
        what limits remember must be what has started."""
        found = self._rulebook.locked(conn, claim)
        values = values | {"version": LOCKED}
        judged = self._take(conn, claim, [], values) if found.todo else []
        claim = claim._replace(limit=claim.limit - len(judged))
        if claim.limit <= 0 and not claim.ticket:
            return judged, Picked([])
        picked = self._rulebook.pick(conn, claim, found, values["engine_id"], values["now"])
        won, picked = self._taken(conn, claim, picked, found.rules, values)
        if claim.lane is None and len(won) < claim.limit and not picked.refused:
            self._rulebook.still_plain(conn, claim)  # then the next claim can be a plain one
        return judged + won, picked

    def _taken(
        self, conn: Connection, claim: Claim, picked: Picked, rules: Rules, values: dict[str, Any]
    ) -> tuple[list[Row], Picked]:
        won = self._take(conn, claim, picked.ids, values) if picked.ids else []
        if won and rules.lanes == "fair":
            self._rulebook.came_last(claim.queue, won[-1].lane)
        if len(won) < min(claim.limit, len(picked.ids)):  # others had them locked: there may be more behind those
            picked = picked._replace(refused=True, again=values["now"])
        return won, picked

    def _take(self, conn: Connection, claim: Claim, ids: list[int], values: dict[str, Any]) -> list[Row]:
        """These jobs, and before them any that wait to be judged."""
        query = self._statements.of("claim", claim.queue, pick="pick_these")
        asked = _asked(claim) | {"picked": ids}
        place = {job_id: number for number, job_id in enumerate(ids)}
        return sorted(rows(conn, query, values | asked), key=lambda row: place.get(row.id, -1))

    def _read(
        self, conn: Connection, claim: Claim, values: dict[str, Any], bottom: bool = False
    ) -> tuple[list[Row], bool]:
        with self._floors.reading(claim.queue, claim.types, bottom=bottom) as reading:
            if len(claim.types) == 1:
                plain = Head(ClaimGroup(claim.types[0], "", ALWAYS, UNIT), reading.floor)
                won = self._of_strand(conn, claim, plain, values | {"known": False})
            else:
                rank, job_id = reading.floor
                won = self._first(conn, claim, "pick_some", values | {"rank": rank, "id": job_id})
            if won and won[-1].phase == EXECUTING:
                reading.stopped = (won[-1].rank, won[-1].id)
                reading.claimed = sum(row.phase == EXECUTING for row in won)
        return won, reading.floor != BOTTOM

    def _of_strand(self, conn: Connection, claim: Claim, head: Head, values: dict[str, Any]) -> list[Row]:
        (job_type, lane, windows, factor), (rank, job_id) = head
        group = {"type": job_type, "lane": lane, "windows": windows, "factor": factor, "rank": rank, "id": job_id}
        return self._first(conn, claim, "pick_one", values | group)

    def _first(self, conn: Connection, claim: Claim, pick: str, values: dict[str, Any]) -> list[Row]:
        """What that picks, in order, and before it what waits to be judged."""
        query = self._statements.of("claim", claim.queue, pick=pick)
        return sorted(
            rows(conn, query, values | _asked(claim)), key=lambda row: (row.phase == EXECUTING, row.rank, row.id)
        )


def _asked(claim: Claim) -> dict[str, Any]:
    return {
        "types": list(claim.types), "critical": list(claim.critical), "strategies": ["", *claim.strategies],
        "limit": claim.limit,
    }  # fmt: skip
