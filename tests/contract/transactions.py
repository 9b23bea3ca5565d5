"""`conn=`: jobs that commit with the user's own transaction, and never abort it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hipq.errors import DuplicateKey, Invalid, StoreRefused
from hipq.job.model import New, blank
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables, Stored
from tests.contract.database import Database, raw
from tests.contract.jobs import add, add_one, claim, everything, new, row_of


@contextmanager
def connected(database: Database, **options: bool) -> Iterator[Any]:
    conn = database.connect(**options)
    try:
        yield conn
    finally:
        conn.close()


@pytest.fixture
def orders(database: Database, app: str) -> str:
    """A table of the user's own."""
    raw(database, f"CREATE TABLE {app}_own (n INTEGER)")
    return f"{app}_own"


def large(queue: int, key: str) -> New:
    return new(queue, key, job_data='"' + "x" * 20_000 + '"')


class TestUserTransaction:
    def test_jobs_commit_with_the_users_transaction(
        self, store: Store, queue: QueueTables, queue2: QueueTables, database: Database, orders: str
    ) -> None:
        jobs = [new(queue.number), large(queue.number, "b"), new(queue2.number, "c")]
        with connected(database) as conn:
            conn.execute(f"INSERT INTO {orders} VALUES (1)")
            stored = store.enqueue(jobs, conn=conn)
            assert everything(store, queue.number) == everything(store, queue2.number) == []
            conn.commit()
        assert not any(one.duplicate for one in stored)
        assert [store.get(one.id) for one in stored] == [
            blank(job, one.id) for job, one in zip(jobs, stored, strict=True)
        ]
        assert raw(database, f"SELECT n FROM {orders}") == [(1,)]

    def test_jobs_roll_back_with_the_users_transaction(
        self, store: Store, engine: int, queue: QueueTables, database: Database, orders: str
    ) -> None:
        with connected(database) as conn:
            conn.execute(f"INSERT INTO {orders} VALUES (1)")
            stored = store.enqueue([new(queue.number, "a"), large(queue.number, "b")], conn=conn)
            conn.rollback()
        assert [store.get(one.id) for one in stored] == [None, None]
        assert raw(database, f"SELECT n FROM {orders}") == []
        assert raw(database, f"SELECT id FROM hipq_payloads WHERE id % 65536 = {queue.number}") == []
        add(store, [new(queue.number, "a"), new(queue.number, "b")])
        assert len(claim(store, engine, queue.number)) == 2

    def test_an_enqueue_alone_opens_a_transaction_that_is_the_users_to_end(
        self, store: Store, queue: QueueTables, database: Database
    ) -> None:
        with connected(database) as conn:
            store.enqueue([new(queue.number, "a")], conn=conn)
            conn.rollback()
            assert everything(store, queue.number) == []
            store.enqueue([new(queue.number, "a")], conn=conn)
            conn.commit()
        assert [row.job_key for row in everything(store, queue.number)] == ["a"]

    def test_a_connection_that_is_closed_without_a_commit_stores_nothing(
        self, store: Store, queue: QueueTables, database: Database
    ) -> None:
        with connected(database) as conn:
            store.enqueue([new(queue.number, "a")], conn=conn)
        assert everything(store, queue.number) == []

    def test_a_connection_in_autocommit_stores_at_once(
        self, store: Store, queue: QueueTables, database: Database
    ) -> None:
        with connected(database, autocommit=True) as conn:
            stored = store.enqueue([new(queue.number, "a"), large(queue.number, "b")], conn=conn)
            assert [row.id for row in everything(store, queue.number)] == [one.id for one in stored]
            with pytest.raises(DuplicateKey):
                store.enqueue([new(queue.number, "c"), new(queue.number, "a")], conn=conn, all_or_nothing=True)
        assert [row.job_key for row in everything(store, queue.number)] == ["a", "b"]

    def test_a_duplicate_does_not_abort_the_users_transaction(
        self, store: Store, queue: QueueTables, database: Database, orders: str
    ) -> None:
        job_id = add_one(store, new(queue.number, "a"))
        with connected(database) as conn:
            conn.execute(f"INSERT INTO {orders} VALUES (1)")
            stored = store.enqueue([new(queue.number, "a"), new(queue.number, "b")], conn=conn)
            assert stored[0] == Stored(job_id, duplicate=True)
            conn.execute(f"INSERT INTO {orders} VALUES (2)")
            conn.commit()
        assert raw(database, f"SELECT n FROM {orders} ORDER BY n") == [(1,), (2,)]
        assert [row.job_key for row in everything(store, queue.number)] == ["a", "b"]

    @pytest.mark.parametrize("fault", ["duplicate", "refused"])
    def test_a_batch_that_fails_leaves_the_users_transaction_as_it_was(
        self, store: Store, queue: QueueTables, database: Database, orders: str, fault: str
    ) -> None:
        add_one(store, new(queue.number, "a"))
        bad = new(queue.number, "a") if fault == "duplicate" else new(queue.number, "c", priority=1 << 63)
        with connected(database) as conn:
            conn.execute(f"INSERT INTO {orders} VALUES (1)")
            store.enqueue([new(queue.number, "kept")], conn=conn)
            with pytest.raises(DuplicateKey if fault == "duplicate" else StoreRefused):
                store.enqueue([large(queue.number, "b"), bad], all_or_nothing=True, conn=conn)
            conn.execute(f"INSERT INTO {orders} VALUES (2)")
            conn.commit()
        assert raw(database, f"SELECT n FROM {orders} ORDER BY n") == [(1,), (2,)]
        assert [row.job_key for row in everything(store, queue.number)] == ["a", "kept"]
        assert raw(database, f"SELECT id FROM hipq_payloads WHERE id % 65536 = {queue.number}") == []

    def test_the_users_savepoints_work_as_ever(
        self, store: Store, queue: QueueTables, database: Database, orders: str
    ) -> None:
        with connected(database) as conn:
            conn.execute(f"INSERT INTO {orders} VALUES (1)")
            store.enqueue([new(queue.number, "a")], conn=conn)
            conn.execute("SAVEPOINT hipq")  # even under the name we might use
            store.enqueue([new(queue.number, "b")], conn=conn)
            conn.execute("ROLLBACK TO SAVEPOINT hipq")
            store.enqueue([new(queue.number, "c")], conn=conn)
            conn.execute("RELEASE SAVEPOINT hipq")
            conn.commit()
        assert [row.job_key for row in everything(store, queue.number)] == ["a", "c"]

    @pytest.mark.parametrize("count", [1, 4, 300])
    def test_a_connection_that_returns_dicts_will_do(
        self, store: Store, queue: QueueTables, database: Database, count: int
    ) -> None:
        job_id = add_one(store, new(queue.number, "a"))
        jobs = [new(queue.number, f"k{n}") for n in range(count)] + [large(queue.number, "big"), new(queue.number, "a")]
        with connected(database, dict_rows=True) as conn:
            stored = store.enqueue(jobs, conn=conn)
            conn.commit()
        assert stored[-1] == Stored(job_id, duplicate=True)
        for job, one in zip(jobs[:-1], stored[:-1], strict=True):
            assert row_of(store, one.id) == blank(job, one.id)

    def test_many_jobs_and_many_calls_share_one_transaction(
        self, store: Store, queue: QueueTables, database: Database
    ) -> None:
        with connected(database) as conn:
            for n in range(5):
                stored = store.enqueue([new(queue.number, f"k{n}-{m}") for m in range(200)], conn=conn)
                assert not any(one.duplicate for one in stored)
            assert store.enqueue([new(queue.number, "k0-0")], conn=conn)[0].duplicate
            conn.commit()
        ids = [row.id for row in everything(store, queue.number)]
        assert len(ids) == 1000
        assert add_one(store, new(queue.number)) > ids[-1]

    def test_a_key_freed_by_nobody_but_chosen_in_the_transaction_counts(
        self, store: Store, queue: QueueTables, database: Database
    ) -> None:
        with connected(database) as conn:
            (first,) = store.enqueue([new(queue.number, "a")], conn=conn)
            assert store.enqueue([new(queue.number, "a")], conn=conn) == [Stored(first.id, duplicate=True)]
            conn.commit()
        assert [row.id for row in everything(store, queue.number)] == [first.id]

    def test_connections_of_other_libraries_are_refused(
        self, store: Store, queue: QueueTables, database: Database
    ) -> None:
        class Connection:
            """Quacks like one."""

            def __init__(self, conn: Any) -> None:
                self.conn = conn

            def __getattr__(self, name: str) -> Any:
                return getattr(self.conn, name)

        with connected(database) as conn:
            for foreign in (Connection(conn), conn.cursor(), object(), "sqlite:///shop.db", 0):
                with pytest.raises(Invalid, match="conn"):
                    store.enqueue([new(queue.number, "a")], conn=foreign)
            conn.rollback()
        assert everything(store, queue.number) == []
