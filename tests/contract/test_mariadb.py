"""The contract, kept by MariaDB; and what only it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from pymysql.cursors import Cursor, DictCursor

from hipq.errors import Invalid, SchemaError
from hipq.stores.clock import Clock
from hipq.stores.mariadb.address import options_of
from hipq.stores.mariadb.store import MariaStore
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests.contract.database import Database, raw
from tests.contract.jobs import NOW, add, add_one, bring, everything, finish, new
from tests.contract.schema import migrated, use
from tests.contract.suite import *  # noqa: F403
from tests.mariadb_server import fresh_maria


class Connection(pymysql.Connection):  # type: ignore[misc]  # it has no types
    """With the shortcut that the other two drivers have."""

    def execute(self, query: str) -> Cursor:
        cursor = self.cursor()
        cursor.execute(query)
        return cursor


class MariaDatabase:
    package = "hipq.stores.mariadb"
    refusal: type[Exception] = pymysql.Error
    catalogue = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, clock: Clock | None = None) -> Store:
        return MariaStore(self.url, clock)

    def connect(self, *, autocommit: bool = False, dict_rows: bool = False) -> Any:
        kind = DictCursor if dict_rows else Cursor
        return Connection(**options_of(self.url), autocommit=autocommit, cursorclass=kind, ssl_disabled=True)

    def set_schema(self, number: int, accepts: int) -> None:
        raw(self, f"UPDATE hipq_meta SET version = {number}, accepts = {accepts}")

    def intact(self) -> bool:
        return True  # the server's own business


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """One for all tests: each has queues of its own."""
    with fresh_maria() as url:
        database = MariaDatabase(url)
        migrated(database)
        yield database


@pytest.fixture
def empty_database() -> Iterator[Database]:
    with fresh_maria() as url:
        yield MariaDatabase(url)


class TestMariaDB:
    def test_a_database_nobody_migrated_is_refused(self, empty_database: Database) -> None:
        with pytest.raises(SchemaError, match="hipq migrate"):
            use(empty_database)

    def test_an_older_schema_is_refused(self, empty_database: Database) -> None:
        migrated(empty_database)
        empty_database.set_schema(0, accepts=0)
        with pytest.raises(SchemaError, match="hipq migrate"):
            use(empty_database)

    def test_a_connection_to_another_database_is_refused(
        self, store: Store, queue: QueueTables, empty_database: Database
    ) -> None:
        migrated(empty_database)
        conn = empty_database.connect()
        with pytest.raises(Invalid, match="conn"):
            store.enqueue([new(queue.number)], conn=conn)
        conn.close()
        assert everything(store, queue.number) == []

    def test_a_number_that_was_given_before_is_given_to_no_other_job(
        self, store: Store, engine: int, queue: QueueTables, database: Database
    ) -> None:
        """As Galera does when a node was away: the job would be taken for the one that has it, or could never end."""
        ended = finish(store, bring(store, engine, queue.number, "executing"))
        live = add_one(store, new(queue.number, "live"))
        raw(database, f"ALTER SEQUENCE {queue.table}_ids RESTART 1")
        ids = [add_one(store, new(queue.number, key, create_time=NOW + 1)) for key in ("", "a")]
        raw(database, f"ALTER SEQUENCE {queue.table}_ids RESTART 1")
        ids += add(store, [new(queue.number, key, create_time=NOW + 2) for key in ("", "b", "", "c", "")])
        assert len({live, ended.id, *ids}) == 9
        assert {row.id for row in everything(store, queue.number)} == {live, ended.id, *ids}
