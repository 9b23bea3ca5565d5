"""The inbox in PostgreSQL: what matching reads and writes, and the verbs about answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec
from psycopg.rows import args_row

from hipq.job.answer import KEPT, Kept, NewAnswer
from hipq.job.model import Change, Row, queue_of
from hipq.stores.claim_groups import RankPosition
from hipq.stores.filters import AnswerFilter
from hipq.stores.inbox_transaction import Key, Numbered, deliver, lock_number
from hipq.stores.postgres.connection import Connection, in_transaction, patiently
from hipq.stores.postgres.insert import in_json
from hipq.stores.postgres.scan_floor import TOP
from hipq.stores.postgres.session import LONG_SECONDS
from hipq.stores.postgres.statements import READ, Statements
from hipq.stores.postgres.turn import Settle, rows
from hipq.stores.sql.inbox import SqlInbox, Wanted, by_queue
from hipq.stores.values import Delivered

_Inserted = msgspec.defstruct("_Inserted", list(KEPT[1:]))


def lock_keys(conn: Connection, statements: Statements, keys: Iterable[Key]) -> None:
    """Lock keys, first in the transaction, before any row is locked."""
    numbers = sorted({lock_number(key) for key in keys})
    if numbers:
        conn.execute(statements.plain("answer_lock"), {"numbers": numbers})


class PostgresInbox(SqlInbox):
    """An `InboxTransaction` that has locked the keys by `lock_keys`."""

    def __init__(self, conn: Connection, statements: Statements, settle: Settle) -> None:
        self._conn = conn
        self._statements = statements
        self._settle = settle
        self.changed: set[int] = set()
        """The queues whose jobs were changed, so that engines have something to do there."""

    def live(self, answers: Numbered) -> dict[int, Row]:
        found: dict[int, Row] = {}
        for queue, some in by_queue(answers):
            wanted = [Wanted(n, one.tenant, one.job_type, one.job_key) for n, one in some.items()]
            found |= {n: Row(*row) for n, *row in self._find("answer_live", wanted, queue)}
        return found

    def withdraw(self, answer_id: int, states: Sequence[str]) -> str:
        values = {"id": answer_id, "states": list(states)}
        if self._conn.execute(self._statements.plain("answer_withdraw"), values).fetchall():
            return ""
        found = _read(self._conn, _ONE, {"id": answer_id})
        return found[0].state if found else "none"

    def insert(self, answers: Sequence[Kept]) -> list[int]:
        new = [_Inserted(*msgspec.structs.astuple(one)[1:]) for one in answers]
        return [answer_id for (answer_id,) in self._find("answer_insert", new)]

    def count_copies(self, ids: Sequence[int]) -> None:
        if ids:
            self._conn.execute(self._statements.plain("answer_copied"), {"ids": list(ids)})

    def save(self, changes: Sequence[Change]) -> None:
        if changes:
            if self._settle.save(self._conn, changes).lost:
                raise AssertionError("a job that was locked has moved on")
            self.changed |= {queue_of(change.before.id) for change in changes}

    def job(self, job_id: int) -> Row | None:
        found = rows(self._conn, self._statements.of("get", queue_of(job_id)), {"id": job_id})
        return found[0] if found else None

    def _find(self, name: str, rows: Sequence[Any], queue: int = 0, **values: int) -> list[tuple[Any, ...]]:
        if not rows:
            return []
        query = self._statements.of(name, queue) if queue else self._statements.plain(name)
        return self._conn.execute(query, {"rows": in_json(rows), **values}, binary=True).fetchall()

    def _update(self, name: str, rows: Sequence[Any], **values: int) -> list[tuple[Any, ...]]:
        found = self._conn.execute(self._statements.plain(name), {"rows": in_json(rows), **values}) if rows else None
        return found.fetchall() if found and found.description else []


def _read(conn: Connection, query: bytes, values: Any) -> list[Kept]:
    return conn.cursor(row_factory=args_row(Kept)).execute(query, values, binary=True).fetchall()


def _key_of(conn: Connection, answer_id: int) -> list[Key]:
    """The key of an answer, to be locked: a job that is about to be given the answer holds that lock."""
    return [(one.queue, one.tenant, one.job_type, one.job_key) for one in _read(conn, _ONE, {"id": answer_id})]


def given(conn: Connection, statements: Statements, jobs: list[int]) -> dict[int, Kept]:
    """The answers that these jobs are to look at, by the ids of the jobs."""
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
                inbox = PostgresInbox(conn, self._statements, self._settle)
                return deliver(inbox, answers, now, instead_of), inbox.changed

            delivered, changed = patiently(conn, work) if patient else in_transaction(conn, work)
            self._announce(conn, dict.fromkeys(changed, TOP))
        self.notify()
        return delivered

    def answers(self, wanted: AnswerFilter) -> list[Kept]:
        where = " AND ".join(["id > %(after)s", *(wanted.condition(column, "%({})s") for column in wanted.given)])
        query = f"SELECT {', '.join(KEPT)} FROM hipq_answers WHERE {where} ORDER BY id LIMIT %(limit)s"
        with self._using(LONG_SECONDS) as conn:
            return _read(conn, query.encode(), wanted._asdict())

    def count_answers(self, queue: int, tenant: str = "") -> dict[str, tuple[int, int]]:
        wanted = AnswerFilter(queue, tenant=tenant)
        where = " AND ".join(wanted.condition(column, "%({})s") for column in wanted.given)
        query = f"SELECT state, count(*), sum(copies)::bigint FROM hipq_answers WHERE {where} GROUP BY 1 ORDER BY 1"
        with self._using(LONG_SECONDS) as conn:
            found = conn.execute(query.encode(), wanted.given).fetchall()
        return {state: (count, copies) for state, count, copies in found}

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
                # Without the lock the answer might be deleted after a job has looked, and before the job is given it.
                lock_keys(conn, self._statements, _key_of(conn, answer_id))
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
            f"SELECT {READ} FROM {self._statements.table(queue)}_final l WHERE id = ANY (%s::bigint[])"
            for queue in by_queue
        ]
        if not parts:
            return []
        with self._using() as conn:
            return rows(conn, " UNION ALL ".join(parts).encode(), list(by_queue.values()))


_ONE: Final = f"SELECT {', '.join(KEPT)} FROM hipq_answers WHERE id = %(id)s".encode()
