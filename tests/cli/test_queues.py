"""`hipq queue` and `hipq job why`: limits and pauses from outside, with the code and without it, on both stores."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hipq import Failed, Hipq, Job, limit, per_lane, rate, share, window
from hipq.engine.throttle import HEAD
from hipq.limits.rules import Rules
from hipq.stores.claims import Claim
from tests.cli.conftest import HipqCommand, Worker, eventually, started


@pytest.fixture
def other(url: str) -> Iterator[Hipq]:
    """Another program of the shop, which has run with limits that shop.py knows nothing of."""
    app = Hipq("shop", url)
    app.migrate()
    app.queue("orders", limits=[limit(10), per_lane(3)]).for_engine()
    yield app
    app.close()


def rules(app: Hipq) -> Rules:
    (orders,) = app.queues
    return app.store.limits(orders.number).rules


def listed(hipq: HipqCommand, where: list[str]) -> dict[str, Any]:
    rows = hipq("queue", "list", *where, "--json").json
    (found,) = [row for row in rows if row["queue"] == "orders"]
    return dict(found)


def test_looking_never_changes_the_rules(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:
    before = rules(other)
    job_id = other.queues[0].enqueue("quick")
    for command in (("queue", "list"), ("queue", "limit"), ("job", "list"), ("job", "why"), ("job", "show")):
        subject = {"limit": ["orders"], "why": [str(job_id)], "show": [str(job_id)]}.get(command[1], [])
        for json in ([], ["--json"]):
            assert hipq(*command, *where, *subject, *json).status == 0
    assert rules(other) == before


def test_the_list_has_limits_and_pauses(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:
    found = listed(hipq, where)
    assert found["limits"] == [{"type": "limit", "n": 10}, {"type": "per lane", "n": 3}]
    assert (found["limits_changed"], found["paused"], found["paused_lanes"]) == (False, False, [])
    other.pause("orders", lane="east")
    other.queues[0].enqueue("quick")
    other.pause("orders", type="quick")
    other.rules.set_limit("orders", 4)
    text = hipq("queue", "list", *where).out
    assert "limit 4, 3 a lane" in text
    assert "lane east, type quick" in text
    assert listed(hipq, where)["limits_changed"] is True


def test_the_list_counts_jobs_and_does_not_count_all(
    hipq: HipqCommand, other: Hipq, where: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (orders,) = other.queues
    orders.enqueue_many("quick", range(4))
    orders.enqueue_many("unknown", range(2))
    orders.enqueue_many("quick", range(3), delay=3600)
    cancelled = orders.enqueue("quick")
    other.cancel(cancelled)

    def bad(_job: Job[Any]) -> Failed:
        return Failed("no")

    orders.job("bad")(bad)
    orders.enqueue_many("bad", range(2))
    other.run(until_empty=True)
    found = listed(hipq, where)
    assert [found[name] for name in ("ready", "scheduled", "running", "waiting", "retrying", "failed")] == [
        6,
        3,
        0,
        0,
        0,
        2,
    ]
    assert found["next_start"] is not None
    assert found["next_timeout"] is None
    lines = hipq("queue", "list", *where).out.splitlines()
    assert "parked" not in lines[0]
    monkeypatch.setattr("hipq.cli.queue.COUNTED_TO", 3)
    monkeypatch.setattr("hipq.looking.counts.COUNTED_TO", 3)
    lines = hipq("queue", "list", *where).out.splitlines()
    (line,) = [line for line in lines if " orders " in line]
    assert re.search(r"  3\+ +3\+ +0 +0 +0 +2  ", line), line
    assert listed(hipq, where)["ready"] == 3


def test_queues_are_paged_and_none_is_said(hipq: HipqCommand, other: Hipq, url: str) -> None:
    farm = Hipq("farm", url)
    for name in ("a", "b"):
        farm.queue(name).enqueue("milk", delay=60)
    farm.close()
    every = [row["queue"] for row in hipq("queue", "list", "--db", url, "--json").json]
    assert every == ["orders", "a", "b"]
    first = hipq("queue", "list", "--db", url, "--limit", "2", "--json")
    assert [row["queue"] for row in first.json] == every[:2]
    (line,) = [line for line in first.err.splitlines() if line.startswith("there is more: hipq ")]
    command = line.removeprefix("there is more: hipq ").split()
    assert command[-2:] == ["--after", str(first.json[-1]["number"])]
    last = hipq(*command)
    assert [row["queue"] for row in last.json] == every[2:]
    assert "there is more" not in last.err
    assert rules(other).limits
    none = hipq("queue", "list", "--db", url, "--after", "65535")
    assert (none.status, none.out) == (0, "")
    assert "no queues found" in none.err
    assert hipq("queue", "list", "--db", url, "--after", "65535", "--json").out == "[]\n"


# -- pause, resume ---------------------------------------------------------------------------------------------------
def test_a_queue_a_lane_and_a_type_are_paused_and_resumed(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:
    assert hipq("queue", "pause", *where, "orders").out == "paused in orders: everything\n"
    assert hipq("queue", "pause", *where, "orders", "--lane", "east").out == "paused in orders: everything, lane east\n"
    assert hipq("queue", "pause", *where, "orders", "--type", "quikc").status == 2
    assert rules(other).paused_types == ()
    assert hipq("enqueue", "shop:app", "orders", "quick").status == 0  # a database knows the types of its jobs
    paused = hipq("queue", "pause", *where, "orders", "--type", "quick", "--json").json
    assert paused == {
        "app": "shop", "queue": "orders", "paused": True, "paused_lanes": ["east"], "paused_types": ["quick"]
    }  # fmt: skip
    found = rules(other)
    assert (found.paused, found.paused_lanes, found.paused_types) == (True, ("east",), ("quick",))
    assert hipq("queue", "resume", *where, "orders").out == "paused in orders: lane east, type quick\n"
    assert hipq("queue", "resume", *where, "orders", "--type", "quick").out == "paused in orders: lane east\n"
    assert hipq("queue", "resume", *where, "orders", "--lane", "east", "--json").json["paused_lanes"] == []
    assert hipq("queue", "resume", *where, "orders").out == "paused in orders: nothing\n"  # it was not paused
    assert hipq("queue", "pause", *where, "orders", "--lane", "").out == "paused in orders: lane (none)\n"
    assert rules(other).limits == (limit(10), per_lane(3))


# -- limit -----------------------------------------------------------------------------------------------------------
def test_a_number_replaces_the_limit_and_leaves_the_others(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:
    shown = hipq("queue", "limit", *where, "orders", "5").out
    assert rules(other).in_force == (limit(5), per_lane(3))
    assert shown.splitlines() == [
        "queue              orders",
        "limits in force    limit 5, 3 a lane",
        "the code says      limit 10, 3 a lane",
        "units used         0",
    ]
    refused = hipq("queue", "limit", *where, "orders", "0")
    assert refused.status == 2
    assert "say --none to remove the limit, or use `hipq queue pause`" in refused.complaint
    assert hipq("queue", "limit", *where, "orders", "--json").json["limits"] != []
    assert hipq("queue", "limit", *where, "orders", "--none").status == 0
    assert rules(other).in_force == (per_lane(3),)
    assert hipq("queue", "limit", *where, "orders", "--default").status == 0
    assert rules(other).changed is None


def test_each_option_replaces_its_own_kind(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:
    assert hipq("queue", "limit", *where, "orders", "--rate", "50/1").status == 0
    assert hipq("queue", "limit", *where, "orders", "--per-lane", "2").status == 0
    assert set(rules(other).in_force) == {limit(10), per_lane(2), rate(50, per=1)}
    assert hipq("queue", "limit", *where, "orders", "--per-lane", "4", "--only").status == 0
    assert rules(other).in_force == (per_lane(4),)
    assert hipq("queue", "limit", *where, "orders", "7", "--only").status == 0
    assert rules(other).in_force == (limit(7),)
    assert hipq("queue", "limit", *where, "orders", "--only").status == 2


def test_options_give_limits_of_every_kind(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:
    options = (
        "20",
        "--share",
        "east=40, north=30",
        "--other",
        "10",
        "--per-lane",
        "7",
        "--rate",
        "50/1",
        "--rate",
        "9/2m",
    )
    shown = hipq("queue", "limit", *where, "orders", *options, "--json").json
    assert rules(other).in_force == (
        limit(20), per_lane(7), share({"east": 40, "north": 30}, other=10), rate(50, per=1), rate(9, per=120)
    )  # fmt: skip
    assert [one["type"] for one in shown["limits"]] == ["limit", "per lane", "share", "rate", "rate"]
    assert (shown["changed"], [one["type"] for one in shown["code"]]) == (True, ["limit", "per lane"])
    assert shown["lanes"] == [{"lane": "east", "used": 0, "most": 7}, {"lane": "north", "used": 0, "most": 6}]
    hipq("queue", "limit", *where, "orders", "--rate", "5/0.5", "--only")
    assert rules(other).in_force == (rate(5, per=0.5),)


def test_bad_limits_change_nothing(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:
    before = rules(other)
    for bad in (
        ["10", "--share", "east=60,west=50"],
        ["1", "--share", "east=60"],
        ["--rate", "1/0"],
        ["5", "--default"],
    ):
        ran = hipq("queue", "limit", *where, "orders", *bad)
        assert (ran.status, ran.out) == (2, "")
        assert ran.complaint
    assert rules(other) == before


def test_what_is_used_is_shown_by_lane(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:
    (orders,) = other.queues
    engine_id = other.store.take_lease(60, "test")
    for lane in ("east", "east", "", "west"):
        orders.enqueue("quick", lane=lane)
    other.store.turn(engine_id, [], [Claim(orders.number, ("quick",), 3)], other.store.now())
    shown = hipq("queue", "limit", *where, "orders", "--json").json
    assert shown["used"] == 3
    assert shown["lanes"] == [{"lane": "", "used": 1, "most": 3}, {"lane": "east", "used": 2, "most": 3}]
    assert hipq("queue", "limit", *where, "orders").out.splitlines()[-3:] == [
        "lane    used  most",
        "(none)     1     3",
        "east       2     3",
    ]


def test_limits_the_code_has_and_no_engine_has_brought_yet(hipq: HipqCommand, other: Hipq, folder: Path) -> None:
    text = (folder / "shop.py").read_text().replace('app.queue("orders")', 'app.queue("orders", throttle_limit=77)')
    (folder / "shop.py").write_text(text)
    shown = hipq("queue", "limit", "shop:app", "orders").out
    assert "limits in force    limit 10, 3 a lane" in shown
    assert "the code says      limit 77 (once an engine has started with it)" in shown
    assert hipq("queue", "limit", "shop:app", "orders", "--json").json["code_is_newer"] is True
    assert rules(other).in_force == (limit(10), per_lane(3))


def test_a_throttler_that_fails_is_shown(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:
    (orders,) = other.queues
    other.store.change_rules(orders.number, lambda found: replace(found, throttled=True))
    assert "throttler          decides too" in hipq("queue", "limit", *where, "orders").out
    engine_id = other.store.take_lease(60, "test")
    asked = other.store.ask(engine_id, Claim(orders.number, ("quick",), 1), HEAD, 60, 10, other.store.now())
    assert asked is not None
    other.store.drop_ticket(orders.number, asked.ticket, "KeyError: 'server'")
    assert "throttler          KeyError: 'server'" in hipq("queue", "limit", *where, "orders").out


def test_a_queue_of_several_instances_is_named_with_its_own(hipq: HipqCommand, other: Hipq, url: str) -> None:
    farm = Hipq("farm", url)
    farm.queue("orders").enqueue("milk")
    farm.close()
    ran = hipq("queue", "pause", "--db", url, "orders")
    assert ran.status == 2
    assert "farm.orders" in ran.complaint
    assert "shop.orders" in ran.complaint
    assert hipq("queue", "pause", "--db", url, "farm.orders", "--json").json["app"] == "farm"
    assert not rules(other).paused
    assert hipq("queue", "limit", "--db", url, "shop.orders", "6", "--json").json["app"] == "shop"
    assert rules(other).most == 6


# -- why -------------------------------------------------------------------------------------------------------------
def test_why_is_one_sentence_or_json(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:
    (orders,) = other.queues
    job_id = orders.enqueue("quick", windows=[window("01:00", "02:00", days=["mon"])], delay=timedelta(days=8))
    ran = hipq("job", "why", *where, str(job_id))
    assert ran.status == 0
    assert ran.out.startswith("it is scheduled for ")
    assert ran.out.count("\n") == 1
    found = hipq("job", "why", *where, str(job_id), "--json").json
    assert (found["id"], found["reason"]) == (job_id, "scheduled")
    assert datetime.fromisoformat(found["details"]["scheduled_run_time"]) == other.job(job_id).scheduled_run_time
    assert found["sentence"] == ran.out.strip()


def test_why_cannot_play_tricks_on_a_terminal(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:
    (orders,) = other.queues
    job_id = orders.enqueue("quick")
    other.cancel(job_id, "why not")
    engine_id = other.store.take_lease(60, "a\x1b[2J\nb")
    assert "\\x1b[2J\\nb" in hipq("job", "why", *where, str(orders.enqueue("quick"))).out
    other.store.renew_lease(engine_id, 0)
    assert "it ended with cancelled" in hipq("job", "why", *where, str(job_id)).out


def test_why_beside_a_worker(
    hipq: HipqCommand, other: Hipq, worker: Callable[..., Worker], folder: Path, where: list[str]
) -> None:
    del other  # it is there for its schema
    assert hipq("queue", "limit", *where, "orders", "1").status == 0
    first, second = (hipq("enqueue", "shop:app", "orders", "gate").out.strip() for _ in range(2))
    assert hipq("job", "why", *where, second).out == "no engine is alive\n"
    running = worker("-q", "orders")
    eventually(lambda: started(folder))
    executing = hipq("job", "why", *where, first, "--json").json
    assert executing["reason"] == "executing"
    assert executing["details"]["label"].endswith(f":{running.process.pid}")
    full = hipq("job", "why", *where, second).out
    assert full == f"its queue's limit 1 is full: 1 of 1 unit taken by job {first}\n"
    hipq("queue", "pause", *where, "orders", "--type", "gate")
    assert hipq("job", "why", *where, second).out == "job type gate is paused\n"
    (folder / "go").touch()
    eventually(lambda: hipq("job", "why", *where, first, "--json").json["reason"] == "final")
    hipq("queue", "resume", *where, "orders", "--type", "gate")
    eventually(lambda: hipq("job", "why", *where, second, "--json").json["reason"] == "final")
