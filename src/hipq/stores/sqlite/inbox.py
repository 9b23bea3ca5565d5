"""The inbox in SQLite: what matching reads and writes, and the verbs about answers."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from hipq.job.answer import KEPT, Kept, NewAnswer
from hipq.job.model import Change, Row, queue_of
from hipq.stores.filters import AnswerFilter
from hipq.stores.inbox_transaction import Numbered, deliver
from hipq.stores.sql.inbox import SqlInbox, Wanted, by_queue
from hipq.stores.sqlite.batch import NAMES, chunks, ids, in_json, no_nul, read
from hipq.stores.sqlite.connection import Connection
from hipq.stores.sqlite.rule_claims import texts
from hipq.stores.sqlite.statements import Statements
from hipq.stores.sqlite.turn import Settle
from hipq.stores.values import Delivered

_kept = msgspec.json.Decoder(list[Kept])
_rows = msgspec.json.Decoder(list[list[Any]])


class SqliteInbox(SqlInbox):
    """An `InboxTransaction` that has SQLite's write lock: that is every key's lock."""

    def __init__(self, conn: sqlite3.Connection, statements: Statements, settle: Settle) -> None:
        self._conn = conn
        self._statements = statements
        self._settle = settle

    def live(self, answers: Numbered) -> dict[int, Row]:
        found: dict[int, Row] = {}
        for queue, some in by_queue(answers):
            wanted = [Wanted(n, one.tenant, one.job_type, one.job_key) for n, one in some.items()]
            jobs = {n: job for n, job in self._find("key_holders", wanted, queue) if job}
            table = self._statements.table(queue)
            query = f"SELECT {NAMES} FROM {table} WHERE id IN (SELECT value FROM json_each(?))"
            rows = {row.id: row for row in read(self._conn, query, (in_json(list(jobs.values())),))} if jobs else {}
            found |= {n: rows[job] for n, job in jobs.items()}
        return found

    def withdraw(self, answer_id: int, states: Sequence[str]) -> str:
        query = "DELETE FROM hipq_answers WHERE id = ? AND state IN (SELECT value FROM json_each(?))"
        if self._conn.execute(query, (answer_id, texts(states))).rowcount:
            return ""
        found = self._conn.execute("SELECT state FROM hipq_answers WHERE id = ?", (answer_id,)).fetchone()
        return str(found[0]) if found else "none"

    def insert(self, answers: Sequence[Kept]) -> list[int]:
        numbers: list[int] = []
        for chunk in chunks(answers):
            values = [value for one in chunk for value in msgspec.structs.astuple(one)[1:]]
            no_nul(values)
            query = self._statements.plain("answer_insert", len(chunk), len(KEPT) - 1)
            last = self._conn.execute(query, values).lastrowid
            assert last is not None
            numbers += range(last - len(chunk) + 1, last + 1)
        return numbers

    def count_copies(self, ids: Sequence[int]) -> None:
        if ids:
            query = "UPDATE hipq_answers SET copies = copies + 1 WHERE id IN (SELECT value FROM json_each(?))"
            self._conn.execute(query, (in_json(ids),))

    def save(self, changes: Sequence[Change]) -> None:
        if self._settle.save(self._conn, changes).lost:
            raise AssertionError("a job that was locked has moved on")

    def job(self, job_id: int) -> Row | None:
        found = read(self._conn, self._statements.of("get", queue_of(job_id)), {"id": job_id})
        return found[0] if found else None

    def _find(self, name: str, rows: Sequence[Any], queue: int = 0, **values: int) -> list[list[Any]]:
        found = self._run(name, rows, queue, values)
        return _rows.decode(found[0][0]) if found else []

    def _update(self, name: str, rows: Sequence[Any], **values: int) -> list[tuple[Any, ...]]:
        return self._run(name, rows, 0, values)

    def _run(self, name: str, rows: Sequence[Any], queue: int, values: dict[str, int]) -> list[tuple[Any, ...]]:
        if not rows:
            return []
        query = self._statements.of(name, queue) if queue else self._statements.plain(name)
        return self._conn.execute(query, {"rows": msgspec.json.encode(rows).decode(), **values}).fetchall()


def given(conn: sqlite3.Connection, jobs: Sequence[int]) -> dict[int, Kept]:
    """The answers that these jobs are to look at, by the ids of the jobs (index _job)."""
    if not jobs:
        return {}
    which = "job IN (SELECT value FROM json_each(?)) AND job <> 0 AND state = 'matched'"
    query = f"SELECT * FROM hipq_answers WHERE {which}"
    return {one.job: one for one in _read(conn, query, (in_json(jobs),))}


def _read(conn: sqlite3.Connection, query: str, values: Any) -> list[Kept]:
    names = ", ".join(KEPT)
    text = conn.execute(f"SELECT json_group_array(json_array({names})) FROM ({query})", values).fetchone()[0]
    return _kept.decode(text)


class AnswerVerbs:
    _db: Connection
    _statements: Statements
    _settle: Settle

    @abstractmethod
    def notify(self) -> None: ...

    def answer(
        self,
        answers: Sequence[NewAnswer],
        now: int,
        *,
        instead_of: int = 0,
        patient: bool = True,  # noqa: ARG002 (a writer here waits for every other one)
    ) -> list[Delivered]:
        for queue in {one.queue for one in answers}:
            self._statements.table(queue)  # before the write lock is held: it may have to read the registry
        with self._db.writing() as conn:
            inbox = SqliteInbox(conn, self._statements, self._settle)
            delivered = deliver(inbox, answers, now, instead_of)
        self.notify()
        return delivered

    def answers(self, wanted: AnswerFilter) -> list[Kept]:
        where = " AND ".join(["id > :after", *(wanted.condition(column, ":{}") for column in wanted.given)])
        query = f"SELECT * FROM hipq_answers WHERE {where} ORDER BY id LIMIT :limit"
        with self._db.reading() as conn:
            return _read(conn, query, wanted._asdict())

    def count_answers(self, queue: int, tenant: str = "") -> dict[str, tuple[int, int]]:
        wanted = AnswerFilter(queue, tenant=tenant)
        where = " AND ".join(wanted.condition(column, ":{}") for column in wanted.given)
        query = f"SELECT state, count(*), sum(copies) FROM hipq_answers WHERE {where} GROUP BY state ORDER BY state"
        with self._db.reading() as conn:
            found = conn.execute(query, wanted.given).fetchall()
        return {state: (count, copies) for state, count, copies in found}

    def brought(self, queues: Sequence[int], limit: int) -> list[Kept]:
        query = """SELECT * FROM hipq_answers WHERE state = 'new' AND queue IN (SELECT value FROM json_each(?))
            ORDER BY id LIMIT ?"""
        with self._db.reading() as conn:
            return _read(conn, query, (in_json(queues), limit))

    def drop_answer(self, answer_id: int) -> bool:
        with self._db.writing() as conn:
            return (
                conn.execute("DELETE FROM hipq_answers WHERE id = ? AND state <> 'matched'", (answer_id,)).rowcount == 1
            )

    def late_answers(self, queues: Sequence[int], limit: int) -> int:
        which = "hipq_answers INDEXED BY hipq_answers_early WHERE state = 'buffered' AND job <> 0"
        early = f"SELECT DISTINCT queue FROM {which}"
        with self._db.reading() as conn:
            some = {queue for (queue,) in conn.execute(early).fetchall()} & set(queues)
            late = [self._statements.of("answer_late", queue) for queue in some]
            late = [query for query in late if ids(conn, query, {"limit": 1})]  # else nobody waits for the write lock
        return sum(self._mark_late(query, limit) for query in late)

    def _mark_late(self, query: str, limit: int) -> int:
        with self._db.writing() as conn:
            update = f"UPDATE hipq_answers SET state = 'late' WHERE id IN ({query})"
            return conn.execute(update, {"limit": limit}).rowcount

    def prune_answers(self, now: int, limit: int) -> int:
        old = "SELECT id FROM hipq_answers WHERE keep_until < ? AND state <> 'matched' ORDER BY keep_until LIMIT ?"
        with self._db.reading() as conn:
            if not ids(conn, old, (now, 1)):  # nearly always: then nobody waits for the write lock
                return 0
        with self._db.writing() as conn:
            return conn.execute(f"DELETE FROM hipq_answers WHERE id IN ({old})", (now, limit)).rowcount

    def ended(self, ids: Sequence[int]) -> list[Row]:
        found: list[Row] = []
        with self._db.reading() as conn:
            for queue in {queue_of(job_id) for job_id in ids}:
                table = f"{self._statements.table(queue)}_final"
                query = f"SELECT {NAMES} FROM {table} WHERE id IN (SELECT value FROM json_each(?))"
                found += read(conn, query, (in_json([job_id for job_id in ids if queue_of(job_id) == queue]),))
        return found
