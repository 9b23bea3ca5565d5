"""How far jobs have come, as their handlers say: stored beside them."""

from __future__ import annotations

from msgspec.structs import replace

from hipq.job.model import Row
from hipq.job.progress import Report, Reported
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests.contract.database import Database, raw
from tests.contract.jobs import NOW, bring, finish, row_of


def report(row: Row, fraction: float, message: str = "") -> Report:
    return Report(row.id, row.token, row.attempt, fraction, message)


def running(store: Store, engine: int, queue: QueueTables, key: str = "") -> Row:
    return bring(store, engine, queue.number, "executing", key=key)


class TestProgress:
    def test_the_last_word_is_kept(self, store: Store, other: Store, engine: int, queue: QueueTables) -> None:
        row = running(store, engine, queue)
        assert store.progress(row.id, row.attempt) is None
        assert store.report([report(row, 0.25, "page 1 of 4")], NOW) == {row.id}
        assert other.progress(row.id, row.attempt) == Reported(0.25, "page 1 of 4", NOW)
        assert store.report([report(row, 1, '"it\'s" ☃ \\')], NOW + 7) == {row.id}
        assert other.progress(row.id, row.attempt) == Reported(1.0, '"it\'s" ☃ \\', NOW + 7)

    def test_the_job_is_as_it_was(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = running(store, engine, queue)
        store.report([report(row, 0.5)], NOW + 1)
        assert row_of(store, row.id) == row

    def test_who_has_lost_the_job_writes_nothing(self, store: Store, engine: int, queue: QueueTables) -> None:
        lost, mine = running(store, engine, queue, "a"), running(store, engine, queue, "b")
        stale = replace(report(lost, 0.5), token=lost.token - 1)
        assert store.report([stale, report(mine, 0.75)], NOW) == {mine.id}
        assert store.progress(lost.id, lost.attempt) is None
        assert store.progress(mine.id, mine.attempt) == Reported(0.75, "", NOW)
        assert store.report([replace(report(mine, 0.9), token=0)], NOW) == set()
        assert store.progress(mine.id, mine.attempt) == Reported(0.75, "", NOW)

    def test_who_has_ended_the_job_writes_nothing(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = running(store, engine, queue)
        finish(store, row)
        assert store.report([report(row, 1)], NOW) == set()

    def test_another_attempt_begins_anew(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = running(store, engine, queue)
        store.report([report(row, 0.5)], NOW)
        assert store.progress(row.id, row.attempt + 1) is None
        store.report([replace(report(row, 0.1), attempt=row.attempt + 1)], NOW)
        assert store.progress(row.id, row.attempt + 1) == Reported(0.1, "", NOW)
        assert store.progress(row.id, row.attempt) is None
        assert store.report([report(row, 0.9)], NOW) == set()
        assert store.progress(row.id, row.attempt + 1) == Reported(0.1, "", NOW)

    def test_jobs_of_several_queues_at_once(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        rows = [running(store, engine, one, key) for one in (queue, queue2) for key in "ab"]
        assert store.report([report(row, n / 4) for n, row in enumerate(rows)], NOW) == {row.id for row in rows}
        found = [store.progress(row.id, row.attempt) for row in rows]
        assert found == [Reported(n / 4, "", NOW) for n in range(4)]

    def test_that_of_jobs_that_ended_is_deleted(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables, database: Database
    ) -> None:
        rows = [running(store, engine, queue, key) for key in "abcd"]
        elsewhere = running(store, engine, queue2)
        store.report([report(row, 0.5) for row in (*rows, elsewhere)], NOW)
        for row in (*rows[:3], elsewhere):
            finish(store, row)
        assert store.maintain([queue.number], NOW, 2).progress == 2
        assert store.maintain([queue.number], NOW, 2).progress == 1
        assert store.maintain([queue.number], NOW, 2).progress == 0
        ours = f"SELECT id FROM hipq_progress WHERE id % 65536 IN ({queue.number}, {queue2.number}) ORDER BY id"
        assert {job_id for (job_id,) in raw(database, ours)} == {rows[3].id, elsewhere.id}
        assert store.maintain([queue.number, queue2.number], NOW, 2).progress == 1
        assert raw(database, ours) == [(rows[3].id,)]

    def test_that_of_a_queue_goes_with_it(
        self, store: Store, engine: int, queue: QueueTables, database: Database
    ) -> None:
        row = running(store, engine, queue)
        store.report([report(row, 0.5)], NOW)
        finish(store, row)
        store.renew_lease(engine, 0)
        store.drop_queue(queue.number)
        assert raw(database, f"SELECT id FROM hipq_progress WHERE id = {row.id}") == []
