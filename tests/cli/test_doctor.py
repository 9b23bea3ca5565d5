"""`hipq doctor` as a command: what it prints, how it exits, and what it says of a database it cannot read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hipq import Hipq
from tests.cli.conftest import HipqCommand, Worker, eventually, shop_on
from tests.databases import schema_of

CHECKS = ["database", "schema", "indexes", "clock", "engines", "jobs", "answers", "storage"]


@pytest.fixture
def made(url: str) -> str:
    with shop_on(url) as app:
        for queue in app.queues:
            assert queue.number
    return url


def test_a_healthy_database_is_told_in_groups_and_in_one_line(hipq: HipqCommand, made: str, where: list[str]) -> None:
    ran = hipq("doctor", *where)
    lines = ran.out.splitlines()
    assert [line for line in lines if not line.startswith(" ")][:-1] == CHECKS
    assert all(line[2:11].strip() in ("ok", "note", "warning", "problem", "") for line in lines[1:-1] if line[0] == " ")
    assert f"  ok       at schema {schema_of(made)}, as this program" in lines
    assert "  ok       no job is stuck" in lines
    assert lines[-1].endswith(" ok")
    assert f"database: {made.split('://')[0]}" in ran.err
    assert "Traceback" not in ran.err


def test_an_engine_at_work_is_told(hipq: HipqCommand, made: str, worker: Callable[..., Worker]) -> None:
    worker("-q", "orders")
    with shop_on(made) as app:
        eventually(app.store.engines)
    assert "is alive, its lease for" in hipq("doctor", "shop:app").out


def test_json_is_a_list_of_findings(hipq: HipqCommand, made: str, where: list[str]) -> None:
    with shop_on(made) as app:
        app.queues[0].enqueue("quick")
    ran = hipq("doctor", *where, "--json", "--patience", "0")
    assert ran.status == 1
    for finding in ran.json:
        assert list(finding) == ["check", "level", "queue", "sentence", "advice", "facts"]
        assert finding["check"] in CHECKS
        assert finding["level"] in ("ok", "note", "warning", "problem")
        assert bool(finding["advice"]) == (finding["level"] != "ok")
    (late,) = [one for one in ran.json if one["check"] == "jobs" and one["level"] == "problem"]
    assert (late["queue"], late["facts"]["reason"]) == ("shop.orders", "no engine")
    assert ran.out.count("\n") == 1
    json.dumps(ran.json)


def test_warnings_fail_only_if_they_are_to(hipq: HipqCommand, folder: Path) -> None:
    with shop_on(f"sqlite:///{folder}/shop.db") as app:
        app.queues[0].enqueue("quick")
        app.pause("orders")
    assert hipq("doctor", "shop:app").status == 0
    assert hipq("doctor", "shop:app", "--strict").status == 1


def test_only_queues_of_the_application_are_told_and_by_url_all(hipq: HipqCommand, folder: Path) -> None:
    url = f"sqlite:///{folder}/shop.db"
    other = Hipq("bakery", url)
    other.queue("bread").enqueue("bake")
    other.pause("bread")
    other.close()
    with shop_on(url) as app:
        app.queues[0].enqueue("quick", delay=3600)
    assert "bakery" not in hipq("doctor", "shop:app").out
    assert "bakery.bread: the queue is paused, and 1 due job waits" in hipq("doctor", "--db", url).out


def test_names_of_others_play_no_tricks_on_a_terminal(hipq: HipqCommand, folder: Path) -> None:
    with shop_on(f"sqlite:///{folder}/shop.db") as app:
        app.store.take_lease(60, "a label\nok\x1b[2J", "{}")
    ran = hipq("doctor", "shop:app")
    assert "\x1b" not in ran.out
    assert "a label\\nok\\x1b[2J" in ran.out


# -- what cannot be read ---------------------------------------------------------------------------------------------
def test_a_file_that_is_not_there_is_the_finding_and_is_not_made(hipq: HipqCommand, folder: Path) -> None:
    before = set(folder.iterdir())
    for where in (["shop:app"], ["--db", "sqlite:///shop.db"]):
        ran = hipq("doctor", *where, "--json")
        assert ran.status == 1
        (found,) = ran.json
        assert (found["check"], found["level"]) == ("database", "problem")
        assert f"{folder}/shop.db is not there" in found["sentence"]
    assert {path for path in folder.iterdir() if path.name != "__pycache__"} == before
    command = found["advice"].split("`")[1].split()[1:]
    assert hipq(*command).status == 0
    assert hipq("doctor", *where).status == 0


def test_a_folder_is_no_database(hipq: HipqCommand, folder: Path) -> None:
    (folder / "shop.db").mkdir()
    ran = hipq("doctor", "shop:app")
    assert ran.status == 1
    assert f"{folder}/shop.db is no file" in ran.out


def test_a_file_that_is_no_database_is_the_finding(hipq: HipqCommand, folder: Path) -> None:
    content = b"this is no database, but long enough to be looked at\n" * 100
    (folder / "shop.db").write_bytes(content)
    ran = hipq("doctor", "shop:app", "--json", "--deep")
    assert ran.status == 1
    bad = [one for one in ran.json if one["level"] == "problem"]
    assert bad[0]["check"] == "database"
    assert "the database cannot be read: SQLite: file is not a database" in bad[0]["sentence"]
    assert (folder / "shop.db").read_bytes() == content


def test_an_empty_file_has_no_tables_and_gets_none(hipq: HipqCommand, folder: Path) -> None:
    (folder / "shop.db").touch()
    ran = hipq("doctor", "shop:app", "--json")
    assert ran.status == 1
    (bad,) = [one for one in ran.json if one["level"] == "problem"]
    assert bad["sentence"] == "the database has no hipq tables yet"
    assert (folder / "shop.db").read_bytes() == b""


def test_a_server_that_is_not_there_is_the_finding_without_its_password(hipq: HipqCommand) -> None:
    ran = hipq("doctor", "--db", "postgresql://ann:s3cret@127.0.0.1:1/shop")
    assert ran.status == 1
    assert "problem  the database cannot be read: PostgreSQL: " in ran.out
    assert ran.out.endswith("1 problem; 0 ok\n")
    assert "s3cret" not in ran.out + ran.err
    assert "Traceback" not in ran.err


def test_the_password_is_in_no_advice(hipq: HipqCommand, postgres: str) -> None:
    with shop_on(postgres) as app:
        app.pause("mails")
    ran = hipq("doctor", "--db", postgres.replace("postgres@", "postgres:s3cret@"))
    assert "hipq queue resume --db" in ran.out
    assert "s3cret" not in ran.out + ran.err
    with shop_on(postgres) as app:
        app.resume("mails")


# -- bad usage -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("shop:app", "--db", "sqlite:///shop.db"), "give MODULE:APP or --db, not both"),
        ((), "say which application"),
        (("--db", "mongodb://x:s3cret@y"), "hipq keeps no jobs in mongodb databases"),
        (("--db", "sqlite://"), "a database in memory is its program's own"),
        (("--db", "mariadb://ann@h"), "a MariaDB URL must name one database"),
        (("--db", "postgresql://["), "in a PostgreSQL URL must be a number"),
        (("--db", "sqlite:///a\x01b"), "must not contain control characters"),
        (("shop:app", "--patience", "long"), "patience must be a number of seconds"),
        (("ship:app",), "there is no module ship"),
        (("shop:app", "more"), "unexpected extra argument"),
    ],
)
def test_bad_usage_is_one_sentence(hipq: HipqCommand, folder: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = hipq("doctor", *arguments)
    assert ran.status == 2
    assert said in ran.complaint
    assert "s3cret" not in ran.err
    assert not (folder / "shop.db").exists()


def test_help_has_two_examples(hipq: HipqCommand) -> None:
    text = hipq("doctor", "--help").out
    assert text.count("    hipq doctor ") == 2
