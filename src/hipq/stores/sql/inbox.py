"""The inbox inside a transaction, once for all stores: a question is a file of SQL with the same name in each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from hipq.job.answer import Kept
from hipq.job.matching import Ended, Pending, Placed
from hipq.job.model import Change, Row, queue_of
from hipq.stores.inbox_transaction import LOOKED_AT, NONE_APPLIED, Applied, Numbered
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.insert import Wanted, in_json
from hipq.stores.sql.settle import Settling

T = TypeVar("T")


class Since(Wanted):
    since: int
    hash: str


class Named(Wanted):
    queue: int
    twin: int
    answer_id: str


class Body(msgspec.Struct):
    position: int
    job: int
    hash: str
    job_key: str


class Looking(msgspec.Struct):
    job: int
    tenant: str
    job_type: str
    keys: tuple[str, ...]
    create_time: int
    applied: int


class Gone(msgspec.Struct):
    job: int
    answer: int


class SqlInbox(ABC):
    """An `InboxTransaction` over the statements of a store."""

    def __init__(self, sql: Sql, settle: Settling) -> None:
        self._sql = sql
        self._settle = settle
        self.changed: set[int] = set()
        """The queues whose jobs were changed, so that engines have something to do there."""

    def live(self, answers: Numbered) -> dict[int, Row]:
        """Locked, and compared again: a row may have changed before it was locked."""
        found: dict[int, Row] = {}
        for queue, some in by_queue(answers):
            wanted = [Wanted(n, one.tenant, one.job_type, one.job_key) for n, one in some.items()]
            jobs = {n: job for n, job in self._find("key_holders", wanted, queue) if job}
            if not jobs:
                continue
            ids = sorted(set(jobs.values()))
            self._lock(queue, ids)
            rows = {row.id: row for row in self._sql.rows("these", queue, ids=ids)}
            found |= {
                n: rows[job] for n, job in jobs.items() if job in rows and some[n].job_key in rows[job].answer_keys
            }
        return found

    def _lock(self, queue: int, ids: list[int]) -> None:  # noqa: B027
        """Lock live jobs in the order of their ids, where the lock of their keys is not enough."""

    @abstractmethod
    def insert(self, answers: Sequence[Kept]) -> list[int]: ...

    def final_jobs(self, ids: Sequence[int]) -> dict[int, Row]:
        queues = sorted({queue_of(job_id) for job_id in ids})
        found = [self._sql.read(Row, query, {"ids": list(ids)}) for query in self._sql.of_each("ended", queues)]
        return {row.id: row for rows in found for row in rows}

    def _find(self, name: str, rows: Sequence[Any], queue: int = 0, **values: int) -> list[Any]:
        """The rows that a statement finds for these; none, without a statement, if there are none of these."""
        return self._sql.found(name, queue, rows=in_json(rows), **values) if rows else []

    def withdraw(self, answer_id: int, states: Sequence[str]) -> str:
        if self._sql.changed("answer_withdraw", id=answer_id, states=list(states)):
            return ""
        found = self._sql.kept("answer", id=answer_id)
        return found[0].state if found else "none"

    def count_copies(self, ids: Sequence[int]) -> None:
        if ids:
            self._sql.changed("answer_copied", ids=list(ids))

    def save(self, changes: Sequence[Change]) -> None:
        if self._settle.save(self._sql.conn, changes).lost:
            raise AssertionError("a job that was locked has moved on")
        self.changed |= {queue_of(change.before.id) for change in changes}

    def holders(self, rows: Sequence[Row]) -> dict[int, int]:
        found: dict[int, int] = {}
        for queue, some in _of_each_queue((queue_of(row.id), row) for row in rows):
            wanted = [Wanted(row.id, row.tenant, row.job_type, row.wait_key) for row in some]
            hits = self._find("key_holders", wanted, queue)
            found |= {job: holder for job, holder in hits if holder not in (0, job)}
        return found

    def twins(self, answers: Numbered, now: int) -> dict[int, Pending]:
        wanted = [
            Named(n, one.tenant, one.job_type, one.job_key, one.queue, one.twin, one.answer_id)
            for n, one in answers.items()
        ]
        return {n: Pending(*twin) for n, *twin in self._find("answer_twins", wanted, now=now)}

    def applied(self, answers: Numbered, rows: Mapping[int, Row]) -> dict[int, int]:
        wanted = [Body(n, rows[n].id, one.hash, one.job_key) for n, one in answers.items()]
        return {n: answer_id for n, answer_id in self._find("answer_applied", wanted)}  # noqa: C416 (its rows may be lists)

    def ended(self, answers: Numbered, now: int) -> dict[int, Ended]:
        found: dict[int, Ended] = {}
        for queue, some in by_queue(answers):
            wanted = [
                Since(n, one.tenant, one.job_type, one.job_key, now - one.early, one.hash) for n, one in some.items()
            ]
            for n, job, same, settled in self._find("answer_ended", wanted, queue):
                found[n] = Ended(job, same, bool(settled))
        return found

    def pending(
        self, rows: Sequence[Row], now: int, after: int, applied: Applied = NONE_APPLIED
    ) -> dict[int, list[Pending]]:
        found: dict[int, list[Pending]] = {}
        for queue, some in _of_each_queue((queue_of(row.id), row) for row in rows):
            wanted = [
                Looking(row.id, row.tenant, row.job_type, row.answer_keys, row.create_time, applied.get(row.id, 0))
                for row in some
            ]
            for job, *one in self._find("answer_pending", wanted, queue, now=now, after=after, looked_at=LOOKED_AT):
                found.setdefault(job, []).append(Pending(*one))
        return {job: sorted(some)[:LOOKED_AT] for job, some in found.items()}

    def place(self, placed: Sequence[Placed]) -> None:
        if placed:
            self._sql.changed("answer_place", rows=in_json(placed))

    def mark_used(self, placed: Sequence[Placed], now: int) -> None:
        if placed:
            self._sql.changed("answer_used", rows=in_json(placed), now=now)

    def place_leftovers(self, jobs: Sequence[tuple[int, int]]) -> list[Placed]:
        return [Placed(*row) for row in self._find("answer_left", [Gone(*one) for one in jobs])]


def by_queue(answers: Numbered) -> Iterator[tuple[int, Numbered]]:
    """The answers by queue, in an order that all share, since rows are locked."""
    for queue, some in _of_each_queue((one.queue, (number, one)) for number, one in answers.items()):
        yield queue, dict(some)


def _of_each_queue(items: Iterable[tuple[int, T]]) -> list[tuple[int, list[T]]]:
    found: dict[int, list[T]] = {}
    for queue, item in items:
        found.setdefault(queue, []).append(item)
    return sorted(found.items(), key=lambda one: one[0])
