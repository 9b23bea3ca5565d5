"""The contract, kept by PostgreSQL; and what only a server has."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row, tuple_row

from hipq.errors import Invalid, SchemaError, StoreError
from hipq.stores.clock import Clock
from hipq.stores.postgres.store import PostgresStore
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests.contract.database import Database, raw
from tests.contract.jobs import add, everything, new
from tests.contract.schema import migrated, use
from tests.contract.suite import *  # noqa: F403
from tests.servers import fresh_database


class PostgresDatabase:
    package = "hipq.stores.postgres"
    catalogue = "SELECT relname FROM pg_class"
    refusal: type[Exception] = psycopg.IntegrityError

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, clock: Clock | None = None) -> Store:
        return PostgresStore(self.url, clock)

    def connect(self, *, autocommit: bool = False, dict_rows: bool = False) -> psycopg.Connection[Any]:
        factory: Any = dict_row if dict_rows else tuple_row
        return psycopg.connect(self.url, autocommit=autocommit, row_factory=factory)

    def set_schema(self, number: int, accepts: int) -> None:
        raw(self, f"UPDATE hipq_meta SET version = {number}, accepts = {accepts}")

    def intact(self) -> bool:
        return True  # the server's own business


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """One for all tests: each has queues of its own."""
    with fresh_database() as url:
        database = PostgresDatabase(url)
        migrated(database)
        yield database


@pytest.fixture
def empty_database() -> Iterator[Database]:
    with fresh_database() as url:
        yield PostgresDatabase(url)


class TestPostgres:
    def test_a_database_nobody_migrated_is_refused(self, empty_database: Database) -> None:
        with pytest.raises(SchemaError, match="hipq migrate"):
            use(empty_database)

    def test_an_older_schema_is_refused(self, empty_database: Database) -> None:
        migrated(empty_database)
        empty_database.set_schema(0, accepts=0)
        with pytest.raises(SchemaError, match="hipq migrate"):
            use(empty_database)

    def test_a_connection_of_sqlite_is_refused(self, store: Store, queue: QueueTables) -> None:
        conn = sqlite3.connect(":memory:")
        with pytest.raises(Invalid, match="conn"):
            store.enqueue([new(queue.number)], conn=conn)
        conn.close()
        assert everything(store, queue.number) == []

    def test_a_connection_to_another_database_is_refused(
        self, store: Store, queue: QueueTables, empty_database: Database
    ) -> None:
        migrated(empty_database)
        conn = empty_database.connect()
        with pytest.raises(Invalid, match="conn"):
            store.enqueue([new(queue.number)], conn=conn)
        conn.close()
        assert everything(store, queue.number) == []

    def test_a_password_is_not_shown(self, database: Database) -> None:
        sign = "&" if "?" in database.url else "?"
        store = PostgresStore(f"{database.url}{sign}password=s3cret")
        assert "s3cret" not in store.url
        store.close()

    def test_a_transaction_that_is_open_elsewhere_stops_nobody(
        self, store: Store, engine: int, queue: QueueTables, database: Database
    ) -> None:
        conn = database.connect()
        store.enqueue([new(queue.number, "theirs")], conn=conn)
        add(store, [new(queue.number, "mine")])
        assert [row.job_key for row in everything(store, queue.number)] == ["mine"]
        conn.rollback()
        conn.close()
        assert store.renew_lease(engine, 60)

    def test_a_view_on_a_queues_table_keeps_the_queue_whole(
        self, store: Store, queue: QueueTables, database: Database
    ) -> None:
        ids = add(store, [new(queue.number, "a"), new(queue.number, "b")])
        raw(database, f"CREATE VIEW {queue.table}_view AS SELECT id FROM {queue.table}_final")
        with pytest.raises(StoreError, match="depend"):
            store.drop_queue(queue.number)
        assert [row.id for row in everything(store, queue.number)] == ids
        raw(database, f"DROP VIEW {queue.table}_view")
        store.drop_queue(queue.number)
