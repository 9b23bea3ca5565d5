"""Problems that only a MariaDB server has, made for real."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pymysql
import pytest

from hipq import Hipq
from hipq.stores.mariadb.address import options_of
from hipq.stores.mariadb.health import health
from tests.cli.conftest import eventually
from tests.databases import sql
from tests.doctor.conftest import Doctor
from tests.mariadb_server import OwnMariaDB


@pytest.fixture(autouse=True)
def shop(mariadb: str) -> Hipq:
    app = Hipq("shop", mariadb)
    app.migrate()
    app.queue("mails")
    app.queue("orders").enqueue("quick", delay=3600)
    app.migrate()
    app.close()
    return app


@contextmanager
def setting(server: OwnMariaDB, name: str, value: str) -> Iterator[None]:
    """The server with another setting, for a while."""
    ((before,),) = sql(server.url, f"SELECT @@GLOBAL.{name}")
    sql(server.url, f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        sql(server.url, f"SET GLOBAL {name} = {before!r}")


def connected(url: str) -> pymysql.Connection:
    return pymysql.connect(**options_of(url))


def test_a_database_without_tables_wants_a_migration(doctor: Doctor, mariadb: str) -> None:
    sql(mariadb, "DROP DATABASE shop", "CREATE DATABASE shop")
    found = doctor.only()
    assert (found["check"], found["level"]) == ("schema", "problem")
    assert found["sentence"] == "the database has no hipq tables yet"
    assert sql(mariadb, "SHOW TABLES") == []  # a look makes none
    doctor.follow(found)
    assert doctor.news() == []


def test_a_server_that_is_away_is_told_in_one_sentence(doctor: Doctor) -> None:
    found = doctor.only("--db", "mariadb://ann@127.0.0.1:1/shop")
    assert (found["check"], found["level"]) == ("database", "problem")
    assert found["sentence"].startswith("the database cannot be read: MariaDB: Can't connect")


# -- the schema ------------------------------------------------------------------------------------------------------
def test_a_check_that_is_gone_is_put_right(doctor: Doctor, mariadb: str) -> None:
    sql(mariadb, "ALTER TABLE shop_orders DROP CONSTRAINT shop_orders_states")
    found = doctor.only()
    assert (found["check"], found["level"], found["queue"]) == ("indexes", "warning", "shop.orders")
    assert "the check shop_orders_states of table shop_orders is missing" in found["sentence"]
    sql(mariadb, *found["facts"]["sql"])
    assert doctor.news() == []


# -- settings --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "value", "level", "said"),
    [
        ("innodb_flush_log_at_trx_commit", "2", "warning", "innodb_flush_log_at_trx_commit is 2: a crash of the serv"),
        (
            "max_allowed_packet",
            "1048576",
            "warning",
            "max_allowed_packet is 1.05 MB: jobs, batches of jobs and res",
        ),
        ("wait_timeout", "20", "note", "wait_timeout is 20 s: connections that idle for so long are cut"),
        ("sql_mode", "''", "note", "sql_mode is not strict: what other programs write into hipq's tables may be cut"),
        ("read_only", "1", "problem", "the server is read_only, as a replica is: nothing can be written here"),
    ],
)
def test_a_setting_that_does_harm_is_named(
    doctor: Doctor, maria_server: OwnMariaDB, name: str, value: str, level: str, said: str
) -> None:
    with setting(maria_server, name, value):
        found = doctor.only()
    assert (found["check"], found["level"]) == ("database", level)
    assert found["sentence"].startswith(said)
    assert doctor.news() == []


def test_a_binary_log_that_is_not_synced_or_refuses_what_hipq_does(doctor: Doctor, mariadb: str) -> None:
    with OwnMariaDB(log_bin="log", binlog_format="STATEMENT") as server:
        sql(server.url, "CREATE DATABASE shop")
        found = doctor.news("--db", server.url.replace("/mysql", "/shop"))
        assert [(one["check"], one["level"]) for one in found] == [
            ("database", "warning"), ("database", "problem"), ("schema", "problem"),
        ]  # fmt: skip
        assert found[0]["sentence"].startswith("sync_binlog is 0: a crash of the server can lose")
        assert found[1]["sentence"].startswith("binlog_format is STATEMENT: the server refuses writes")
        with pytest.raises(Exception, match="BINLOG_FORMAT = STATEMENT"):  # as it says
            Hipq("shop", server.url.replace("/mysql", "/shop")).migrate()
    assert doctor.news("--db", mariadb) == []


def test_connections_near_the_most_there_may_be(doctor: Doctor, mariadb: str) -> None:
    with ExitStack() as stack:
        for _ in range(34):
            stack.enter_context(closing(connected(mariadb)))
        found = eventually(doctor.only)
        assert (found["check"], found["level"]) == ("database", "warning")
        assert "of 40 connections are open: soon nobody can connect" in found["sentence"]
        for _ in range(4):
            stack.enter_context(closing(connected(mariadb)))
        assert doctor.only()["level"] == "problem"
    eventually(lambda: doctor.news() == [])


# -- rights ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def guest(mariadb: str) -> Iterator[str]:
    sql(mariadb, "CREATE USER guest@'127.0.0.1'", "GRANT SELECT ON shop.* TO guest@'127.0.0.1'")
    yield mariadb.replace("//root@", "//guest@")
    sql(mariadb, "DROP USER guest@'127.0.0.1'")


def test_what_a_user_may_not_do_is_told_with_the_right_it_takes(doctor: Doctor, mariadb: str, guest: str) -> None:
    hidden, *found = sorted(doctor.news("--db", guest), key=lambda one: one["level"])
    assert (hidden["check"], hidden["level"]) == ("database", "note")
    assert hidden["advice"].startswith("`GRANT PROCESS ON *.* TO` this user")
    assert [(one["check"], one["level"]) for one in found] == [("database", "problem")]
    assert found[0]["sentence"].startswith("this user lacks 9 rights without which no job is added or run: INSERT on ")
    assert "DELETE on shop_orders" in found[0]["facts"]["denied"]
    sql(mariadb, "GRANT INSERT, UPDATE, DELETE ON shop.* TO guest@'127.0.0.1'")
    assert doctor.only("--db", guest) == hidden
    sql(mariadb, "GRANT PROCESS ON *.* TO guest@'127.0.0.1'")
    assert doctor.news("--db", guest) == []


# -- what holds others up --------------------------------------------------------------------------------------------
def test_a_transaction_that_is_open_for_long_is_named_with_its_id(
    doctor: Doctor, mariadb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(connected(mariadb)) as conn:
        conn.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        assert doctor.news("shop:app", "--patience", "0") == []  # a busy engine always has one that is young
        monkeypatch.setattr("hipq.doctor.storage.OPEN", 0)
        assert doctor.news() == []
        found = doctor.only("shop:app", "--patience", "0")
        assert (found["check"], found["level"]) == ("storage", "warning")
        assert f"(pid {conn.thread_id()}: root@localhost, in shop, Sleep): while it is open" in found["sentence"]
        sql(mariadb, *found["facts"]["sql"])
        eventually(lambda: doctor.news("shop:app", "--patience", "0") == [])
        with pytest.raises(pymysql.Error):
            conn.query("SELECT 1")


def test_one_that_holds_locks_others_wait_for_is_told_sooner(
    doctor: Doctor, mariadb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hipq.doctor.storage.OPEN", 0)
    lock = b"SELECT * FROM hipq_queues FOR UPDATE"
    with closing(connected(mariadb)) as conn, closing(connected(mariadb)) as waiting:
        conn.query("BEGIN")
        conn.query(lock.decode())
        waiting._execute_command(3, lock)  # without waiting for what the server says
        eventually(lambda: [one.blocks for one in health(mariadb).holdbacks].count(1))
        (found,) = [one for one in doctor.news() if one["facts"].get("blocks")]
        assert (found["check"], found["level"]) == ("storage", "warning")
        assert f"(pid {conn.thread_id()}: root@localhost, in shop, Sleep): 1 other waits" in found["sentence"]


def test_a_prepared_transaction_is_named(doctor: Doctor, mariadb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipq.doctor.storage.OPEN", 0)
    with closing(connected(mariadb)) as conn:
        for step in ("CREATE TABLE bill (number TEXT)", "XA START 'it''s left'", "INSERT INTO bill VALUES ('17')",
                     "XA END 'it''s left'", "XA PREPARE 'it''s left'"):  # fmt: skip
            conn.query(step)
    found = eventually(lambda: doctor.news("shop:app", "--patience", "0"))
    assert [(one["check"], one["level"]) for one in found] == [("storage", "warning")]
    assert "the prepared transaction X'6974" in found[0]["sentence"]
    assert doctor.news() == []
    sql(mariadb, *found[0]["facts"]["sql"])
    assert doctor.news("shop:app", "--patience", "0") == []
