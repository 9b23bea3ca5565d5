"""The database itself refuses what the state machine does not have; migrations bring it where it belongs."""

from __future__ import annotations

from contextlib import closing
from itertools import product
from typing import Any

import pytest

from hipq.errors import SchemaError
from hipq.job import transitions
from hipq.job.model import COLUMNS, Change
from hipq.job.states import CODES, ERROR, FINAL, INITIAL, NONE, PHASES, RETRY, RUNNING, SCHEDULED, WAITING, check
from hipq.stores.claims import Peek, Turned
from hipq.stores.filters import Filter
from hipq.stores.migrations import Migration, migrations
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests.contract.database import Database, raw
from tests.contract.jobs import LATER, TYPE, add, bring, claim, everything, finish, new, save, waits


def legal(table: str, state: str, phase: str, error: str) -> bool:
    if (state == FINAL) != (table == FINAL) or phase not in PHASES[state]:
        return False
    return state == FINAL or (error == NONE) == (state in (INITIAL, RUNNING))


def accepts(database: Database, conn: Any, statement: str) -> bool:
    """Whether the database takes this statement; it is undone again."""
    try:
        conn.execute(statement)
    except database.refusal:
        return False
    finally:
        conn.rollback()
    return True


class TestChecks:
    def test_the_checks_in_the_migrations_are_those_of_the_state_machine(self, database: Database) -> None:
        text = "".join(migration.queue for migration in migrations(database.package))
        assert f"CONSTRAINT {{live}}_states CHECK ({check('live')})" in text
        assert f"CONSTRAINT {{final}}_states CHECK ({check('final')})" in text

    @pytest.mark.parametrize("table", ["live", "final"])
    def test_illegal_combinations_are_refused_by_the_database(
        self, store: Store, engine: int, queue: QueueTables, database: Database, table: str
    ) -> None:
        bring(store, engine, queue.number, "initial ready", job_type="mail")
        finish(store, bring(store, engine, queue.number, "executing"))
        name = queue.table if table == "live" else f"{queue.table}_final"
        phases = [phase for some in PHASES.values() for phase in some] + ["nonsense"]
        conn = database.connect()
        try:
            for state, phase, error in product(PHASES, phases, (NONE, "{}", "")):
                update = f"UPDATE {name} SET state = '{state}', phase = '{phase}', error = '{error}'"
                expected = legal(table, state, phase, error)
                assert accepts(database, conn, update) == expected, update
            assert not accepts(database, conn, f"UPDATE {name} SET state = 'nonsense'")
        finally:
            conn.close()

    @pytest.mark.parametrize("suffix", ["", "_final"])
    def test_codes_attempts_and_factors_are_checked(
        self, store: Store, engine: int, queue: QueueTables, database: Database, suffix: str
    ) -> None:
        bring(store, engine, queue.number, "deciding", job_type="mail")
        finish(store, bring(store, engine, queue.number, "executing"))
        update = f"UPDATE {queue.table}{suffix} SET "
        conn = database.connect()
        try:
            for code in CODES:
                assert accepts(database, conn, f"{update} code = '{code}'")
            for wrong in ("code = 'OK'", "code = ''", "attempt = -1", "throttle_factor = 0", "throttle_factor = -1"):
                assert not accepts(database, conn, update + wrong), wrong
        finally:
            conn.close()

    @pytest.mark.parametrize("suffix", ["", "_final"])
    def test_no_column_takes_null(
        self, store: Store, engine: int, queue: QueueTables, database: Database, suffix: str
    ) -> None:
        bring(store, engine, queue.number, "deciding", job_type="mail")
        finish(store, bring(store, engine, queue.number, "executing"))
        conn = database.connect()
        try:
            for column in COLUMNS:
                assert not accepts(database, conn, f"UPDATE {queue.table}{suffix} SET {column} = NULL"), column
        finally:
            conn.close()

    def test_the_database_refuses_a_second_live_job_with_a_key(
        self, store: Store, queue: QueueTables, database: Database
    ) -> None:
        add(store, [new(queue.number, "a"), new(queue.number, "b")])
        conn = database.connect()
        try:
            assert not accepts(database, conn, f"UPDATE {queue.table} SET job_key = 'a'")
            assert not accepts(database, conn, f"UPDATE {queue.table} SET wait_key = 'a'")
            assert accepts(database, conn, f"UPDATE {queue.table} SET wait_key = ''")
        finally:
            conn.close()

    def test_the_state_machine_and_the_phases_name_the_same_states(self) -> None:
        assert set(PHASES) == {INITIAL, RUNNING, ERROR, RETRY, FINAL}


class TestMigrations:
    def test_migrating_twice_changes_nothing(self, empty_database: Database) -> None:
        names = [migration.name for migration in migrations(empty_database.package)]
        store = empty_database.open()
        try:
            assert store.migrate() in (names, [])  # [] where opening it has done so already
            queue = store.queue("shop", "orders", "shop_orders")
            add(store, [new(queue.number, "a")])
            assert store.migrate() == []
            assert [row.job_key for row in everything(store, queue.number)] == ["a"]
        finally:
            store.close()

    def test_a_second_program_finds_the_database_migrated(self, empty_database: Database) -> None:
        first, second = empty_database.open(), empty_database.open()
        try:
            first.migrate()
            assert second.migrate() == []
            queue = first.queue("shop", "orders", "shop_orders")
            assert second.queue("shop", "orders", "shop_orders") == queue
        finally:
            first.close()
            second.close()

    def test_a_future_schema_that_accepts_this_program_works(self, empty_database: Database) -> None:
        """Before it came, while it comes, and for a program that starts after it."""
        mine = migrations(empty_database.package)[-1].number
        migrated(empty_database)
        with closing(empty_database.open()) as running:
            queue = running.queue("shop", "orders", "shop_orders")
            live_through(running, queue)
            for table in ("shop_orders", "shop_orders_final", "hipq_queues", "hipq_engines", "hipq_payloads"):
                raw(empty_database, f"ALTER TABLE {table} ADD COLUMN extra TEXT NOT NULL DEFAULT 'x'")
            empty_database.set_schema(mine + 1, accepts=mine)
            live_through(running, queue)
            with closing(empty_database.open()) as started:
                assert started.migrate() == []
                assert started.queue("shop", "orders", "shop_orders") == queue
                live_through(started, queue)
                live_through(started, started.queue("shop", "mails", "shop_mails"))

    def test_a_queue_an_older_program_adds_gets_what_it_lacks(
        self, empty_database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known = migrations(empty_database.package)
        add_column = "ALTER TABLE {table} ADD COLUMN extra TEXT NOT NULL DEFAULT 'x';\n"
        text = add_column.replace("table", "live") + add_column.replace("table", "final")
        future = [*known, Migration(known[-1].number + 1, "next.sql", 1, "-- nothing\n", text)]
        migrated(empty_database)
        with closing(empty_database.open()) as old:
            first = old.queue("shop", "first", "shop_first")
            monkeypatch.setattr("hipq.stores.migrations.migrations", lambda _: future)
            with closing(empty_database.open()) as young:
                assert young.migrate() in (["next.sql"], [])  # [] where opening it has done so already
                added = [old.queue("shop", name, f"shop_{name}") for name in ("second", "third")]
                assert young.queue("shop", "second", "shop_second") == added[0]
                assert young.migrate() == ["next.sql"]  # the third
                assert young.migrate() == []
                young.queue("shop", "fourth", "shop_fourth")
                for queue in young.queues():
                    assert old.queue(*queue[1:]) == young.queue(*queue[1:]) == queue
                    live_through(old, queue)
                    live_through(young, queue)
                    for table in (queue.table, f"{queue.table}_final"):
                        assert raw(empty_database, f"SELECT count(extra) FROM {table}") == [(0,)]
                assert first in young.queues()

    def test_a_future_schema_that_does_not_is_refused(self, empty_database: Database) -> None:
        mine = migrations(empty_database.package)[-1].number
        migrated(empty_database)
        empty_database.set_schema(mine + 2, accepts=mine + 1)
        with pytest.raises(SchemaError, match="upgrade hipq"):
            use(empty_database)
        with pytest.raises(SchemaError, match="upgrade hipq"):
            migrated(empty_database)


def live_through(store: Store, queue: QueueTables) -> None:
    """Every verb, in one queue, which is empty again afterwards."""
    engine_id = store.take_lease(60, "engine")
    add(store, [new(queue.number, "one")])
    add(store, [new(queue.number, job_data='"' + "x" * 20_000 + '"'), new(queue.number, scheduled_run_time=LATER)])
    add(store, [new(queue.number) for _ in range(300)])
    assert store.stage(queue.number, SCHEDULED, LATER, 10) == 1
    rows = claim(store, engine_id, queue.number, limit=400, now=LATER)
    assert len(store.owned([queue.number], engine_id)) == len(rows) == 303
    assert everything(store, queue.number) == sorted(rows, key=lambda row: row.id)
    rows[0] = save(store, rows[0], waits(rows[0], LATER, LATER))
    assert store.due(queue.number, WAITING, LATER, 10) == rows[:1]
    assert store.peek([(queue.number, (TYPE,))]) == [Peek(queue.number, False, 0, LATER, True)]
    changes = [Change(row, transitions.succeeded(row, "null", 200, LATER)) for row in rows]
    assert store.turn(engine_id, changes, [], LATER) == Turned(frozenset(), [])
    assert [row.id for row in store.find(Filter(queue.number, job_key="one"))] == [rows[0].id]
    assert store.get(rows[0].id) == changes[0].after
    assert store.owned([queue.number], None, 10) == []
    store.renew_lease(engine_id, 0)
    assert store.prune(queue.number, (LATER + 1, 0), 1000).deleted == 303


def migrated(database: Database) -> None:
    store = database.open()
    try:
        store.migrate()
    finally:
        store.close()


def use(database: Database) -> None:
    """Open it and do something, as a program does that was never told to migrate."""
    store = database.open()
    try:
        store.queue("shop", "orders", "shop_orders")
    finally:
        store.close()
