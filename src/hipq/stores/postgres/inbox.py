"""The inbox: what matching reads and writes, and the verbs about answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec
from psycopg.rows import args_row

from hipq.job.answer import KEPT, Kept, NewAnswer
from hipq.job.matching import Ended, Pending, Placed
from hipq.job.model import Change, Row, queue_of
from hipq.stores.claim_groups import RankPosition
from hipq.stores.filters import AnswerFilter
from hipq.stores.inbox_transaction import (
    LOOKED_AT,
    NONE_APPLIED,
    Applied,
    Key,
    Numbered,
    by_queue,
    deliver,
    lock_number,
)
from hipq.stores.postgres.connection import Connection, in_transaction, patiently
from hipq.stores.postgres.insert import in_json
from hipq.stores.postgres.scan_floor import TOP
from hipq.stores.postgres.session import LONG_SECONDS
from hipq.stores.postgres.statements import READ, Statements
from hipq.stores.postgres.turn import Settle, rows
from hipq.stores.values import Delivered

_Inserted = msgspec.defstruct("_Inserted", list(KEPT[1:]))
_Twin = msgspec.defstruct("_Twin", ["position", "twin", "queue", "tenant", "job_type", "job_key", "answer_id"])
_Wanted = msgspec.defstruct("_Wanted", ["position", "tenant", "job_type", "job_key"])
_Applied = msgspec.defstruct("_Applied", ["position", "job", "hash", "job_key"])
_Since = msgspec.defstruct("_Since", ["position", "tenant", "job_type", "job_key", "since", "hash"])
_Seeks = msgspec.defstruct("_Seeks", ["job", "tenant", "job_type", "keys", "create_time", "applied"])
_Wants = msgspec.defstruct("_Wants", ["job", "tenant", "job_type", "wait_key"])
_Gone = msgspec.defstruct("_Gone", ["job", "answer"])
_Placed = msgspec.defstruct("_Placed", ["id", "state", "job", "note"])


def lock_keys(conn: Connection, statements: Statements, keys: Iterable[Key]) -> None:
    """First in its transaction, before any row is locked."""
    numbers = sorted({lock_number(key) for key in keys})
    if numbers:
        conn.execute(statements.plain("answer_lock"), {"numbers": numbers})


class PostgresMail:
    """In a transaction that has locked the keys."""

    def __init__(self, conn: Connection, statements: Statements, settle: Settle) -> None:
        self._conn = conn
        self._statements = statements
        self._settle = settle
        self.stirred: set[int] = set()
        """Queues in which jobs have something for engines to do now, or made room for others."""

    def live(self, answers: Numbered) -> dict[int, Row]:
        found: dict[int, Row] = {}
        for queue, some in by_queue(answers):
            wanted = [_Wanted(n, new.tenant, new.job_type, new.job_key) for n, new in some]
            for number, *row in self._rows(self._statements.of("answer_live", queue), wanted):
                found[number] = Row(*row)
        return found

    def holders(self, rows: Sequence[Row]) -> dict[int, int]:
        found: dict[int, int] = {}
        for queue in {queue_of(row.id) for row in rows}:
            wanted = [
                _Wants(row.id, row.tenant, row.job_type, row.wait_key) for row in rows if queue_of(row.id) == queue
            ]
            hits = self._rows(self._statements.of("key_holders", queue), wanted)
            found |= {job: holder for job, holder in hits if holder not in (0, job)}
        return found

    def withdraw(self, answer_id: int, states: Sequence[str]) -> str:
        values = {"id": answer_id, "states": list(states)}
        if self._conn.execute(self._statements.plain("answer_withdraw"), values).fetchall():
            return ""
        found = _read(self._conn, _ONE, {"id": answer_id})
        return found[0].state if found else "none"

    def twins(self, answers: Numbered, now: int) -> dict[int, Pending]:
        wanted = [
            _Twin(n, new.twin, new.queue, new.tenant, new.job_type, new.job_key, new.answer_id) for n, new in answers
        ]
        found = self._rows(self._statements.plain("answer_twins"), wanted, now=now)
        return {number: Pending(*one) for number, *one in found}

    def applied(self, answers: Numbered, rows: dict[int, Row]) -> dict[int, int]:
        wanted = [_Applied(n, rows[n].id, new.hash, new.job_key) for n, new in answers]
        return dict(self._rows(self._statements.plain("answer_applied"), wanted))

    def ended(self, answers: Numbered, now: int) -> dict[int, Ended]:
        found: dict[int, Ended] = {}
        for queue, some in by_queue(answers):
            wanted = [_Since(n, new.tenant, new.job_type, new.job_key, now - new.early, new.hash) for n, new in some]
            for number, *ended in self._rows(self._statements.of("answer_ended", queue), wanted):
                found[number] = Ended(*ended)
        return found

    def pending(
        self, rows: Sequence[Row], now: int, after: int, applied: Applied = NONE_APPLIED
    ) -> dict[int, list[Pending]]:
        found: dict[int, list[Pending]] = {}
        for queue in sorted({queue_of(row.id) for row in rows}):
            wanted = [
                _Seeks(row.id, row.tenant, row.job_type, row.answer_keys, row.create_time, applied.get(row.id, 0))
                for row in rows
                if queue_of(row.id) == queue
            ]
            query = self._statements.of("answer_pending", queue)
            for job_id, *one in self._rows(query, wanted, now=now, after=after, looked_at=LOOKED_AT):
                found.setdefault(job_id, []).append(Pending(*one))
        return {job: some[:LOOKED_AT] for job, some in found.items()}

    def insert(self, answers: Sequence[Kept]) -> list[int]:
        if not answers:
            return []
        new = [_Inserted(*msgspec.structs.astuple(one)[1:]) for one in answers]
        return [job_id for (job_id,) in self._rows(self._statements.plain("answer_insert"), new)]

    def copied(self, ids: Sequence[int]) -> None:
        if ids:
            self._conn.execute(self._statements.plain("answer_copied"), {"ids": list(ids)})

    def place(self, some: Sequence[Placed]) -> None:
        self._write("answer_place", [_Placed(*one) for one in some])

    def used(self, some: Sequence[Placed], now: int) -> None:
        self._write("answer_used", [_Placed(*one) for one in some], now=now)

    def left(self, jobs: Sequence[tuple[int, int]]) -> list[Placed]:
        found = self._rows(self._statements.plain("answer_left"), [_Gone(*one) for one in jobs])
        return [Placed(*row) for row in found]

    def save(self, changes: Sequence[Change]) -> None:
        if changes:
            if self._settle.save(self._conn, changes).lost:
                raise AssertionError("a job that was locked has moved on")
            self.stirred |= {queue_of(change.before.id) for change in changes}

    def _write(self, name: str, some: list[Any], **more: int) -> None:
        if some:
            self._conn.execute(self._statements.plain(name), {"rows": in_json(some), **more})

    def _rows(self, query: bytes, some: list[Any], **more: int) -> list[tuple[Any, ...]]:
        return self._conn.execute(query, {"rows": in_json(some), **more}, binary=True).fetchall()


def _read(conn: Connection, query: bytes, values: Any) -> list[Kept]:
    return conn.cursor(row_factory=args_row(Kept)).execute(query, values, binary=True).fetchall()


def _key_of(conn: Connection, answer_id: int) -> list[Key]:
    """The key of an answer: whoever looks for it there has the lock."""
    return [(one.queue, one.tenant, one.job_type, one.job_key) for one in _read(conn, _ONE, {"id": answer_id})]


def given(conn: Connection, statements: Statements, jobs: list[int]) -> dict[int, Kept]:
    """The answers that these jobs have to look at."""
    if not jobs:
        return {}
    return {one.job: one for one in _read(conn, statements.plain("answer_given"), {"jobs": jobs})}


class AnswerVerbs:
    _statements: Statements
    _settle: Settle

    @abstractmethod
    def _using(self, answer_seconds: float = 0) -> AbstractContextManager[Connection]: ...
    @abstractmethod
    def _announce(self, conn: Connection, ready: Mapping[int, RankPosition]) -> None: ...
    @abstractmethod
    def notify(self) -> None: ...

    def answer(
        self, answers: Sequence[NewAnswer], now: int, *, instead_of: int = 0, patient: bool = True
    ) -> list[Delivered]:
        if not answers:
            return []
        with self._using() as conn:

            def work() -> tuple[list[Delivered], set[int]]:
                before = _key_of(conn, instead_of) if instead_of else []
                lock_keys(conn, self._statements, [*before, *(one.whole_key for one in answers)])
                mail = PostgresMail(conn, self._statements, self._settle)
                return deliver(mail, answers, now, instead_of), mail.stirred

            delivered, stirred = patiently(conn, work) if patient else in_transaction(conn, work)
            self._announce(conn, dict.fromkeys(stirred, TOP))
        self.notify()
        return delivered

    def answers(self, wanted: AnswerFilter) -> list[Kept]:
        where = " AND ".join(["id > %(after)s", *(wanted.condition(column, "%({})s") for column in wanted.given)])
        query = f"SELECT {', '.join(KEPT)} FROM hipq_answers WHERE {where} ORDER BY id LIMIT %(limit)s"
        with self._using(LONG_SECONDS) as conn:
            return _read(conn, query.encode(), wanted._asdict())

    def count_answers(self, queue: int) -> dict[str, tuple[int, int]]:
        query = b"SELECT state, count(*), sum(copies)::bigint FROM hipq_answers WHERE queue = %s GROUP BY 1 ORDER BY 1"
        with self._using(LONG_SECONDS) as conn:
            return {state: (count, copies) for state, count, copies in conn.execute(query, (queue,)).fetchall()}

    def brought(self, queues: Sequence[int], limit: int) -> list[Kept]:
        query = (
            f"SELECT {', '.join(KEPT)} FROM hipq_answers WHERE state = 'new' AND queue = ANY (%s) ORDER BY id LIMIT %s"
        )
        with self._using() as conn:
            return _read(conn, query.encode(), (list(queues), limit))

    def drop_answer(self, answer_id: int) -> bool:
        query = b"DELETE FROM hipq_answers WHERE id = %s AND state <> 'matched' RETURNING id"
        with self._using() as conn:

            def work() -> bool:
                lock_keys(
                    conn, self._statements, _key_of(conn, answer_id)
                )  # else it may go to a job that has just looked
                return bool(conn.execute(query, (answer_id,)).fetchall())

            return patiently(conn, work)

    def late_answers(self, queues: Sequence[int], limit: int) -> int:
        early = b"SELECT DISTINCT queue FROM hipq_answers WHERE state = 'buffered' AND job <> 0"
        with self._using() as conn:
            some = sorted({queue for (queue,) in conn.execute(early).fetchall()} & set(queues))
            late = [self._statements.of("answer_late", queue) for queue in some]
            return sum(len(conn.execute(query, {"limit": limit}).fetchall()) for query in late)

    def prune_answers(self, now: int, limit: int) -> int:
        with self._using() as conn:
            return len(conn.execute(self._statements.plain("answer_prune"), {"now": now, "limit": limit}).fetchall())

    def ended(self, ids: Sequence[int]) -> list[Row]:
        by_queue = {
            queue: [job_id for job_id in ids if queue_of(job_id) == queue]
            for queue in {queue_of(job_id) for job_id in ids}
        }
        parts = [
            f"SELECT {READ} FROM {self._statements.table(queue).table}_final l WHERE id = ANY (%s::bigint[])"
            for queue in by_queue
        ]
        if not parts:
            return []
        with self._using() as conn:
            return rows(conn, " UNION ALL ".join(parts).encode(), list(by_queue.values()))


_ONE: Final = f"SELECT {', '.join(KEPT)} FROM hipq_answers WHERE id = %(id)s".encode()
