"""The contract, kept by SQLite; and what only a file has."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hipq.errors import Invalid
from hipq.stores.clock import Clock
from hipq.stores.protocols import Store
from hipq.stores.sqlite.store import SqliteStore
from hipq.stores.values import QueueTables
from hipq.testing.clock import HandClock
from tests.contract.database import Database
from tests.contract.jobs import add, bring, claim, everything, new, row_of
from tests.contract.suite import *  # noqa: F403


def as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    """The recipe of Python's documentation."""
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


class SqliteFile:
    package = "hipq.stores.sqlite"
    catalogue = "SELECT name FROM sqlite_master"
    refusal: type[Exception] = sqlite3.IntegrityError

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def open(self, clock: Clock | None = None) -> Store:
        return SqliteStore(str(self.path), clock)

    def connect(self, *, autocommit: bool = False, dict_rows: bool = False) -> sqlite3.Connection:
        conn = sqlite3.connect(self.path, isolation_level=None if autocommit else "DEFERRED")
        if dict_rows:
            conn.row_factory = as_dict
        return conn

    def set_schema(self, number: int, accepts: int) -> None:
        conn = self.connect()
        conn.execute(f"PRAGMA user_version = {number << 8 | accepts}")
        conn.close()

    def intact(self) -> bool:
        conn = self.connect()
        found = conn.execute("PRAGMA integrity_check").fetchall()
        conn.close()
        return found == [("ok",)]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return SqliteFile(tmp_path / "jobs.db")


@pytest.fixture
def empty_database(tmp_path: Path) -> Database:
    return SqliteFile(tmp_path / "empty.db")


class TestSqlite:
    def test_a_connection_to_another_file_is_refused(self, store: Store, queue: QueueTables, tmp_path: Path) -> None:
        for path in (str(tmp_path / "another.db"), ":memory:", ""):
            conn = sqlite3.connect(path)
            with pytest.raises(Invalid, match="conn is open on"):
                store.enqueue([new(queue.number)], conn=conn)
            conn.close()
        assert everything(store, queue.number) == []

    def test_another_path_to_the_same_file_will_do(self, store: Store, queue: QueueTables, tmp_path: Path) -> None:
        os.symlink(tmp_path / "jobs.db", tmp_path / "link.db")
        conn = sqlite3.connect(tmp_path / "link.db")
        store.enqueue([new(queue.number)], conn=conn)
        conn.commit()
        conn.close()
        assert len(everything(store, queue.number)) == 1

    def test_a_lease_ends_when_its_time_has_passed(self, store: Store, queue: QueueTables, clock: HandClock) -> None:
        engine_id = store.take_lease(30, "engine")
        row = bring(store, engine_id, queue.number, "executing")
        add(store, [new(queue.number)])
        clock.advance(seconds=29.9)
        assert store.owned([queue.number], None, 10) == []
        assert store.renew_lease(engine_id, 30)
        clock.advance(seconds=30)
        assert store.owned([queue.number], None, 10) == [row]
        assert not store.renew_lease(engine_id, 30)
        assert claim(store, engine_id, queue.number) == []

    def test_a_database_in_memory_keeps_the_contract_within_its_process(self, clock: HandClock) -> None:
        store = SqliteStore("", clock)
        queue = store.queue("shop", "orders", "shop_orders")
        add(store, [new(queue.number, "a")])
        assert len(claim(store, store.take_lease(60, "engine"), queue.number)) == 1
        conn = sqlite3.connect(":memory:")
        with pytest.raises(Invalid, match="conn"):
            store.enqueue([new(queue.number)], conn=conn)
        conn.close()
        store.waker.notify()
        store.waker.wait(5)
        store.close()

    def test_a_forked_child_may_go_on_with_the_store(
        self, store: Store, queue: QueueTables, database: Database
    ) -> None:
        add(store, [new(queue.number, "parent")])
        child = os.fork()
        if child == 0:
            status = 1
            try:
                store.enqueue([new(queue.number, "child")])
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        add(store, [new(queue.number, "parent again")])
        assert [row.job_key for row in everything(store, queue.number)] == ["parent", "child", "parent again"]
        assert database.intact()

    def test_an_old_file_is_migrated_when_it_is_opened(self, tmp_path: Path) -> None:
        path = tmp_path / "own.db"
        conn = sqlite3.connect(path)
        conn.execute("CREATE TABLE own (n INTEGER)")
        conn.commit()
        conn.close()
        store = SqliteStore(str(path))
        assert store.migrate() == []
        queue = store.queue("shop", "orders", "shop_orders")
        (job_id,) = add(store, [new(queue.number, "a")])
        assert row_of(store, job_id).job_key == "a"
        store.close()
