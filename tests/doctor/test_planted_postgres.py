"""Problems that only a PostgreSQL server has, made for real."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from hipq import Hipq
from tests.cli.conftest import HipqCommand, eventually
from tests.databases import sql
from tests.doctor.conftest import Doctor, alone
from tests.servers import OwnPostgres


@pytest.fixture(autouse=True)
def shop(postgres: str) -> Hipq:
    app = Hipq("shop", postgres)
    app.migrate()
    app.queue("mails")
    app.queue("orders").enqueue("quick", delay=3600)
    app.migrate()
    app.close()
    return app


@contextmanager
def setting(server: OwnPostgres, name: str, value: str) -> Iterator[None]:
    """The server with another setting, for a while."""

    def is_now(wanted: str) -> bool:
        return sql(server.url, f"SELECT setting FROM pg_settings WHERE name = '{name}'") == [(wanted,)]

    ((before,),) = sql(server.url, f"SELECT setting FROM pg_settings WHERE name = '{name}'")
    sql(server.url, f"ALTER SYSTEM SET {name} = {value}", "SELECT pg_reload_conf()")
    eventually(lambda: is_now(value))
    try:
        yield
    finally:
        sql(server.url, f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")
        eventually(lambda: is_now(before))


def test_a_database_without_tables_wants_a_migration(doctor: Doctor, postgres: str) -> None:
    sql(postgres, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    found = doctor.only()
    assert (found["check"], found["level"]) == ("schema", "problem")
    assert found["sentence"] == "the database has no hipq tables yet"
    assert sql(postgres, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]  # a look makes none
    doctor.follow(found)
    assert doctor.news() == []


# -- copies ----------------------------------------------------------------------------------------------------------
def test_what_was_dumped_and_restored_into_the_same_database_is_a_copy(doctor: Doctor, postgres: str) -> None:
    sql(
        postgres, "CREATE TABLE again (LIKE hipq_meta INCLUDING ALL)", "INSERT INTO again SELECT * FROM hipq_meta",
        "DROP TABLE hipq_meta", "ALTER TABLE again RENAME TO hipq_meta",
    )  # fmt: skip
    assert doctor.only()["facts"] == {"changed": ["table"]}


def test_a_server_that_was_restored_to_a_point_in_time_is_told_until_somebody_says_what_it_is(
    doctor: Doctor, hipq: HipqCommand, server: OwnPostgres, postgres: str
) -> None:
    server.restart(immediate=False)
    assert doctor.news() == []
    server.recover()
    found = doctor.only()
    assert (found["check"], found["level"], found["facts"]) == ("database", "warning", {"changed": ["timeline"]})
    assert "restored to an earlier point in time, or is a standby that was promoted" in found["sentence"]
    assert "`hipq restored shop:app`; if the standby had everything (a synchronous one has)" in found["advice"]
    assert hipq("restored", "--db", postgres, "--margin", "0").status == 0
    assert doctor.news() == []


def test_a_user_who_is_told_little_of_the_server_is_not_alarmed(doctor: Doctor, postgres: str) -> None:
    hidden = "FUNCTION pg_control_system(), pg_walfile_name(pg_lsn)"
    sql(
        postgres, "DROP SCHEMA public CASCADE", f"REVOKE EXECUTE ON {hidden} FROM PUBLIC", "CREATE ROLE plain LOGIN",
        "CREATE SCHEMA public AUTHORIZATION plain", "GRANT pg_read_all_stats TO plain",
    )  # fmt: skip
    try:
        app = Hipq("shop", postgres.replace("postgres@", "plain@"))
        app.migrate()
        assert app.queue("orders").number
        app.close()
        assert sql(postgres, "SELECT (place::json->>'system') IS NULL, place LIKE '%database%' FROM hipq_meta") == [
            (True, True)
        ]
        assert doctor.news("--db", postgres.replace("postgres@", "plain@")) == []
        assert doctor.news("--db", postgres) == []
    finally:
        sql(
            postgres, f"GRANT EXECUTE ON {hidden} TO PUBLIC", "DROP SCHEMA public CASCADE", "CREATE SCHEMA public",
            "DROP ROLE plain",
        )  # fmt: skip


# -- indexes and checks ----------------------------------------------------------------------------------------------
def test_an_invalid_index_is_built_again(doctor: Doctor, postgres: str) -> None:
    sql(postgres, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'shop_orders_wait'::regclass")
    found = doctor.only()
    assert (found["check"], found["level"], found["queue"]) == ("indexes", "problem", "shop.orders")
    assert "index shop_orders_wait of table shop_orders is invalid" in found["sentence"]
    sql(postgres, *found["facts"]["sql"])
    assert doctor.news() == []


def test_what_a_failed_build_left_is_to_be_dropped(doctor: Doctor, shop: Hipq, postgres: str) -> None:
    shop.queues[1].enqueue("quick", delay=3600)
    shop.close()
    with pytest.raises(psycopg.errors.UniqueViolation):
        sql(postgres, "CREATE UNIQUE INDEX CONCURRENTLY one_phase ON shop_orders (phase)")
    found = doctor.only()
    assert (found["check"], found["level"], found["queue"]) == ("indexes", "warning", "shop.orders")
    assert "index one_phase of table shop_orders is invalid and none of hipq's" in found["sentence"]
    sql(postgres, *found["facts"]["sql"])
    assert doctor.news() == []


def test_a_check_that_is_gone_or_not_valid_is_put_right(doctor: Doctor, postgres: str) -> None:
    sql(postgres, "ALTER TABLE shop_orders DROP CONSTRAINT shop_orders_states")
    found = doctor.only()
    assert (found["check"], found["level"], found["queue"]) == ("indexes", "warning", "shop.orders")
    assert "the check shop_orders_states of table shop_orders is missing" in found["sentence"]
    (add,) = found["facts"]["sql"]
    sql(postgres, f"{add} NOT VALID")
    found = doctor.only()
    assert "the check shop_orders_states of table shop_orders is not valid for all rows" in found["sentence"]
    sql(postgres, *found["facts"]["sql"])
    assert doctor.news() == []
    ((text,),) = sql(
        postgres, "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'shop_orders_states'"
    )
    ((like,),) = sql(
        postgres, "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'shop_mails_states'"
    )
    assert text == like  # it is the very check that other queues have


# -- dead rows -------------------------------------------------------------------------------------------------------
def test_a_table_without_autovacuum_is_named(doctor: Doctor, postgres: str) -> None:
    sql(postgres, "ALTER TABLE shop_orders SET (autovacuum_enabled = off)")
    found = doctor.only()
    assert (found["check"], found["level"], found["queue"]) == ("storage", "warning", "shop.orders")
    assert "autovacuum is off for table shop_orders" in found["sentence"]
    sql(postgres, *found["facts"]["sql"])
    assert doctor.news() == []


def test_a_server_without_autovacuum_is_a_problem(doctor: Doctor, server: OwnPostgres) -> None:
    with setting(server, "autovacuum", "off"):
        found = doctor.only()
    assert (found["check"], found["level"]) == ("storage", "problem")
    assert found["sentence"].startswith("autovacuum off")
    assert doctor.news() == []


def test_dead_rows_that_nobody_has_removed_are_counted(doctor: Doctor, shop: Hipq, postgres: str) -> None:
    sql(postgres, "ALTER TABLE shop_orders SET (autovacuum_enabled = off)")  # lest it be faster than we are
    shop.queues[1].enqueue_many("quick", [{}] * 12_000, delay=3600)
    shop.close()
    sql(postgres, "DELETE FROM shop_orders")

    def bloat() -> list[dict[str, object]]:
        return [one for one in doctor.news() if "dead rows beside" in one["sentence"]]

    (found,) = eventually(bloat)  # a session reports what it did when it ends
    assert (found["check"], found["level"], found["queue"]) == ("storage", "warning", "shop.orders")
    assert "table shop_orders has 12,0" in found["sentence"]
    sql(postgres, *found["facts"]["sql"])
    sql(postgres, "ALTER TABLE shop_orders RESET (autovacuum_enabled)")
    eventually(lambda: doctor.news() == [])


def test_a_transaction_that_is_open_for_long_is_named_with_its_pid(
    doctor: Doctor, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(postgres, application_name="a forgotten shell") as conn:
        conn.execute("SELECT count(*) FROM shop_orders")
        assert doctor.news("shop:app", "--patience", "0") == []  # a busy engine always has one that is young
        monkeypatch.setattr("hipq.doctor.storage.OPEN", 0)
        assert doctor.news() == []
        found = doctor.only("shop:app", "--patience", "0")
        assert (found["check"], found["level"]) == ("storage", "warning")
        assert f"(pid {conn.info.backend_pid}: " in found["sentence"]
        assert "a forgotten shell" in found["sentence"]
        sql(postgres, *found["facts"]["sql"])
        eventually(lambda: doctor.news("shop:app", "--patience", "0") == [])
        with pytest.raises(psycopg.OperationalError):
            conn.execute("SELECT 1")


def test_a_prepared_transaction_is_named(doctor: Doctor, postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipq.doctor.storage.OPEN", 0)
    sql(postgres, "CREATE TABLE bill (number TEXT)")
    with psycopg.connect(postgres) as conn:
        conn.execute("INSERT INTO bill VALUES ('17')")
        conn.execute("PREPARE TRANSACTION 'it''s left'")
    assert doctor.news() == []
    found = doctor.only("shop:app", "--patience", "0")
    assert (found["check"], found["level"]) == ("storage", "warning")
    assert "the prepared transaction it's left" in found["sentence"]
    sql(postgres, *found["facts"]["sql"])
    assert doctor.news("shop:app", "--patience", "0") == []


def test_a_slot_that_nobody_reads_from_is_named_once_it_keeps_much(
    doctor: Doctor, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql(postgres, "SELECT pg_create_physical_replication_slot('a_replica', true)")
    try:
        assert doctor.news() == []  # it keeps next to nothing yet
        monkeypatch.setattr("hipq.doctor.storage.SLOT_SIZE", 1)
        sql(postgres, "SELECT pg_switch_wal()", "CREATE TABLE bill (number TEXT)")
        found = doctor.only()
        assert (found["check"], found["level"]) == ("storage", "warning")
        assert "nobody reads from the replication slot a_replica (physical)" in found["sentence"]
        sql(postgres, *found["facts"]["sql"])
        assert doctor.news() == []
    finally:
        sql(postgres, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


# -- the server ------------------------------------------------------------------------------------------------------
def test_a_server_that_may_forget_is_a_warning(doctor: Doctor, server: OwnPostgres) -> None:
    with setting(server, "synchronous_commit", "off"):
        found = doctor.only()
    assert (found["check"], found["level"]) == ("database", "warning")
    assert found["sentence"] == "synchronous_commit is off: a crash of the server can lose what was acknowledged"
    assert doctor.news() == []


def test_connections_near_the_most_there_may_be(doctor: Doctor, postgres: str, server: OwnPostgres) -> None:
    alone(server.url)  # those of the test before count until they have gone
    with ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(psycopg.connect(postgres))
        found = doctor.only()
        assert (found["check"], found["level"]) == ("database", "warning")
        assert "of 37 connections are open: soon nobody can connect" in found["sentence"]
        for _ in range(6):
            stack.enter_context(psycopg.connect(postgres))
        assert doctor.only()["level"] == "problem"
    eventually(lambda: doctor.news() == [])


def test_a_user_who_is_not_shown_what_others_do_is_told_so(doctor: Doctor, postgres: str) -> None:
    sql(
        postgres,
        "DROP ROLE IF EXISTS hipq_guest",
        "CREATE ROLE hipq_guest LOGIN",
        "GRANT USAGE ON SCHEMA public TO hipq_guest",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO hipq_guest",
    )
    as_guest = postgres.replace("//postgres@", "//hipq_guest@")
    found = doctor.only("--db", as_guest)
    assert (found["check"], found["level"]) == ("database", "note")
    sql(postgres, "REVOKE SELECT ON hipq_answers FROM hipq_guest")
    found = doctor.news("--db", as_guest)[-1]
    assert (found["check"], found["level"]) == ("answers", "warning")
    assert found["sentence"] == "this could not be checked: permission denied for table hipq_answers"
    sql(postgres, "DROP OWNED BY hipq_guest", "DROP ROLE hipq_guest")
