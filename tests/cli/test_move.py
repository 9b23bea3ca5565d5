"""`hipq move` as a user types it."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from pathlib import Path

from hipq import Hipq
from tests import processes
from tests.cli.conftest import HipqCommand
from tests.servers import clean_database


def test_from_a_file_to_a_server_and_on(hipq: HipqCommand) -> None:
    ids = [hipq("enqueue", "shop:app", "orders", "quick").out.strip() for _ in range(3)]
    with clean_database() as target:
        moved = hipq("move", "sqlite:///shop.db", target)
        assert moved.status == 0
        assert "all of it has arrived, row for row" in moved.out
        assert f"export HIPQ_DATABASE_URL={target}" in moved.out
        assert "copying" in moved.err
        listed = hipq("job", "list", "--db", target, "--oldest", "--json").json
        assert [str(job["id"]) for job in listed] == ids
        assert hipq("worker", "shop:app", "--until-empty").status == 0  # by its old address
        assert [job["code"] for job in hipq("job", "list", "--db", target, "--oldest", "--json").json] == ["ok"] * 3
        followed = hipq("job", "list", "--db", "sqlite:///shop.db", "--json")
        assert [job["code"] for job in followed.json] == ["ok"] * 3
        again = hipq("move", "sqlite:///shop.db", target)
        assert (again.status, "had moved there already" in again.out) == (0, True)
        elsewhere = hipq("move", "sqlite:///shop.db", f"{target}x")
        assert elsewhere.status == 1
        assert "has moved to" in elsewhere.err


def test_as_json(hipq: HipqCommand) -> None:
    hipq("enqueue", "shop:app", "orders", "quick")
    with clean_database() as target:
        moved = hipq("move", "sqlite:///shop.db", target, "--json")
        assert moved.json["target"] == target
        assert {table["name"]: table["rows"] for table in moved.json["tables"]}["shop_orders"] == 1
        assert set(moved.json["seconds"]) == {"drain", "lock", "copy", "verify", "arrive", "leave", "open"}
        assert "copying" not in moved.err


def test_what_it_refuses(hipq: HipqCommand) -> None:
    for words, status, says in (
        ((), 2, "Missing argument 'SOURCE'"),
        (("sqlite:///shop.db",), 2, "Missing argument 'TARGET'"),
        (("sqlite:///nothing.db", "postgresql://x/y"), 2, "there is no database file"),
        (("shop.db", "postgresql://x/y"), 2, "write sqlite:///shop.db"),
        (("postgresql://x/y", "sqlite:///shop.db"), 2, "the source must be like sqlite:///shop.db"),
    ):
        refused = hipq("move", *words)
        assert (refused.status, refused.out) == (status, "")
        assert says in refused.err
    assert not Path("nothing.db").exists()
    hipq("enqueue", "shop:app", "orders", "quick")
    for target, status, says in (
        ("sqlite:///other.db", 2, "the target must be like postgresql://"),
        ("postgresql://postgres:secret@127.0.0.1:1/nothing", 1, "PostgreSQL: "),
    ):
        refused = hipq("move", "sqlite:///shop.db", target)
        assert refused.status == status
        assert says in refused.err
        assert "secret" not in refused.err
        assert "Traceback" not in refused.err
    assert hipq("job", "list", "shop:app", "--json").json[0]["state"] == "initial"


def test_a_program_that_cannot_go_there_says_so(hipq: HipqCommand) -> None:
    hipq("enqueue", "shop:app", "orders", "quick")
    with clean_database() as target:
        assert hipq("move", "sqlite:///shop.db", target).status == 0
    with sqlite3.connect("shop.db") as conn:
        conn.execute("UPDATE hipq_moved SET url = 'postgresql://me:secret@127.0.0.1:1/nothing'")
    refused = hipq("job", "list", "shop:app")
    assert refused.status == 1
    assert "have moved to postgresql://me:…@127.0.0.1:1/nothing, and this program cannot go there" in refused.err
    assert "secret" not in refused.err
    assert os.path.exists("shop.db")
    assert Hipq("shop").url == "sqlite:///shop.db"


def test_the_doctor_knows(hipq: HipqCommand) -> None:
    hipq("enqueue", "shop:app", "orders", "quick")
    with clean_database() as target:
        command = [sys.executable, "-m", "tests.move.mover", "sqlite:///shop.db", target, "leave"]
        where = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        assert processes.run(command, env=where, check=False, timeout=60).returncode == -signal.SIGKILL
        unfinished = hipq("doctor", "--db", target, "--json")
        assert unfinished.status == 1
        (problem,) = [one for one in unfinished.json if "was not finished" in one["sentence"]]
        assert problem["level"] == "problem"
        assert "hipq move SOURCE TARGET" in problem["advice"]
        assert hipq("move", "sqlite:///shop.db", target).status == 0
        assert "was not finished" not in hipq("doctor", "--db", target).out
        moved = hipq("doctor", "shop:app", "--json")
        (warning,) = [one for one in moved.json if one["level"] == "warning"]
        assert warning["sentence"] == f"the jobs of this file have moved to {target}"
        assert {one["check"] for one in moved.json} == {"database", "storage"}
