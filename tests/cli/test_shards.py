"""`hipq shards`, and other commands on an application that has several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import HipqCommand

PROGRAM = """
from hipq import Hipq, Job

app = Hipq("shop", {"rome": "sqlite:///rome.db", "milan": "sqlite:///milan.db"})
orders = app.queue("orders", throttle_limit=10)
alone = Hipq("alone", "sqlite:///alone.db")


@orders.job
def parcel(job: Job):
    return job.data
"""


@pytest.fixture(autouse=True)
def program(folder: Path) -> None:
    (folder / "shop.py").write_text(PROGRAM)


def test_it_lists_each_with_its_part_of_the_limits(hipq: HipqCommand) -> None:
    hipq("worker", "shop:app", "--until-empty")  # which writes down what the code says
    rows = json.loads(hipq("shards", "shop:app", "--json").out)
    assert [(row["shard"], row["slot"], row["limit"], row["state"]) for row in rows] == [
        ("rome", 0, 5, "there"), ("milan", 1, 5, "there"),
    ]  # fmt: skip
    assert hipq("shards", "shop:app").out.splitlines()[0].split() == [
        "shard", "slot", "database", "queue", "ready", "limit", "held", "state",
    ]  # fmt: skip


def test_one_that_is_away_is_told(hipq: HipqCommand, folder: Path) -> None:
    assert hipq("shards", "shop:app").status == 0
    (folder / "milan.db").rename(folder / "kept.db")
    (folder / "milan.db").mkdir()
    ran = hipq("shards", "shop:app")
    assert ran.status == 1
    assert "shard milan" in ran.out
    assert "is away" in ran.out


def test_what_is_no_list_of_shards_is_said(hipq: HipqCommand) -> None:
    assert "alone has one database" in hipq("shards", "shop:alone").err
    assert "name the application" in hipq("shards", "--db", "sqlite:///rome.db").err
    assert "this looks at one database: give --db" in hipq("doctor", "shop:app").err


def test_jobs_are_added_run_and_looked_at_as_with_one_database(hipq: HipqCommand) -> None:
    add = ["enqueue", "shop:app", "orders", "parcel"]
    ids = [hipq(*add, f'{{"n":{n}}}', "--key", f"k{n}").out.strip() for n in range(6)]
    assert hipq("worker", "shop:app", "--until-empty").status == 0
    rows = json.loads(hipq("job", "list", "shop:app", "--json").out)
    assert sorted(str(row["id"]) for row in rows) == sorted(ids)
    after = hipq("job", "list", "shop:app", "--limit", "4").err.split("--after ")[1].strip()
    rest = json.loads(hipq("job", "list", "shop:app", "--limit", "4", "--after", after, "--json").out)
    assert [row["id"] for row in rest] == [row["id"] for row in rows[4:]]
    assert json.loads(hipq("job", "show", "shop:app", ids[3], "--json").out)["result"] == {"n": 3}
    assert hipq("queue", "limit", "shop:app", "orders", "4").status == 0
    assert [row["limit"] for row in json.loads(hipq("shards", "shop:app", "--json").out)] == [2, 2]
    assert "there is no job 77" in hipq("job", "show", "shop:app", "77").err
