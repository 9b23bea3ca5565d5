"""Each command, as a user types it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hipq import Hipq
from hipq.cli.target import shown
from tests.cli.conftest import HipqCommand


def test_a_job_is_enqueued_shown_and_listed(hipq: HipqCommand) -> None:
    added = hipq("enqueue", "shop:app", "orders", "quick", '{"amount": 5}', "--key", "order-17")
    assert added.status == 0
    job_id = added.out.strip()
    shown = hipq("job", "show", "shop:app", job_id, "--json").json
    assert (shown["id"], shown["key"], shown["data"]) == (int(job_id), "order-17", {"amount": 5})
    assert (shown["app"], shown["queue"], shown["state"], shown["attempt"]) == ("shop", "orders", "initial", 0)
    text = hipq("job", "show", "shop:app", job_id).out
    assert "order-17" in text
    assert "added" in text
    assert [job["id"] for job in hipq("job", "list", "shop:app", "--json").json] == [int(job_id)]
    assert "order-17" in hipq("job", "list", "shop:app").out


def test_the_options_of_enqueue_reach_the_job(hipq: HipqCommand) -> None:
    moment = "2031-01-15T08:00:00+01:00"
    options = ("--at", moment, "--priority", "7", "--timeout", "5m", "--key", "k")
    job_id = hipq("enqueue", "shop:app", "orders", "quick", *options, "--json").json["id"]
    job = hipq("job", "show", "shop:app", str(job_id), "--json").json
    assert (job["priority"], job["timeout"], job["phase"]) == (7, 300.0, "scheduled")
    assert job["scheduled_run_time"] == "2031-01-15T07:00:00+00:00"
    assert job["data"] is None


@pytest.mark.parametrize(
    ("given", "stored", "words"),
    [
        ("backoff:3", {"strategy": "backoff", "attempts": 3, "base": 1.0, "factor": 2.0, "cap": 3600.0, "jitter": 0.1},
         "backoff(attempts=3, base=1.0, factor=2.0, cap=3600.0, jitter=0.1)"),
        ("fixed:5m", {"strategy": "fixed", "delay": 300.0, "attempts": 5}, "fixed(delay=300.0, attempts=5)"),
        ("fixed:5m:2", {"strategy": "fixed", "delay": 300.0, "attempts": 2}, "fixed(delay=300.0, attempts=2)"),
        ("schedule:1s,1m", {"strategy": "schedule", "delays": [1.0, 60.0]}, "schedule(delays=[1.0, 60.0])"),
        ("none", {"strategy": "none"}, "none"),
    ],
)  # fmt: skip
def test_a_retry_strategy_of_its_own_is_stored_and_shown(
    hipq: HipqCommand, given: str, stored: dict[str, object], words: str
) -> None:
    job_id = hipq("enqueue", "shop:app", "orders", "quick", "--retry", given).out.strip()
    assert hipq("job", "show", "shop:app", job_id, "--json").json["retry"] == stored
    assert f"retry              {words}\n" in hipq("job", "show", "shop:app", job_id).out


@pytest.mark.parametrize("given", ["backoff:x", "backoff:0", "fixed", "fixed:1:2:3", "schedule:", "pateint", "none:1"])
def test_a_retry_strategy_that_is_none_is_refused(hipq: HipqCommand, given: str) -> None:
    refused = hipq("enqueue", "shop:app", "orders", "quick", "--retry", given)
    assert refused.status == 2
    assert refused.complaint.count("\n") <= 1
    assert hipq("job", "list", "shop:app", "--json").json == []


def test_windows_lane_tenant_and_error_are_shown(hipq: HipqCommand) -> None:
    options = ("--window", "22:00-05:00@Europe/Rome", "--window", "12:00-13:00 on sat,sun", "--priority", "-2147483648")
    job_id = hipq("enqueue", "shop:app", "orders", "quick", *options, "--lane", "east", "--throttle-factor", "0.5")
    shown = hipq("job", "show", "shop:app", job_id.out.strip(), "--json").json
    windows = [
        {"start": "22:00", "end": "05:00", "tz": "Europe/Rome"},
        {"start": "12:00", "end": "13:00", "days": ["sat", "sun"]},
    ]
    assert (shown["time_windows"], shown["lane"], shown["tenant"], shown["error"]) == (windows, "east", "", "NONE")
    assert (shown["throttle_factor"], shown["priority"]) == (0.5, -(1 << 31))
    (listed,) = hipq("job", "list", "shop:app", "--json").json
    assert listed == {name: shown[name] for name in listed if name in shown} | {"age": listed["age"], "duration": None}
    text = hipq("job", "show", "shop:app", job_id.out.strip()).out
    assert "time windows       22:00-05:00 Europe/Rome, 12:00-13:00 UTC on sat sun" in text
    assert "lane               east\ntenant             (none)" in text
    assert "throttle factor    0.5\n" in text
    assert "error              NONE\n" in text
    plain = hipq("enqueue", "shop:app", "orders", "quick", "--throttle-factor", "2.0").out.strip()
    assert "throttle factor    2\n" in hipq("job", "show", "shop:app", plain).out


def test_limits_are_fractions_on_the_command_line(hipq: HipqCommand) -> None:
    where = ("queue", "limit", "shop:app", "orders")
    text = hipq(*where, "7.5", "--per-lane", "0.5", "--share", "east=33.3,west=40", "--rate", "0.1/5").out
    assert "limit 7.5, 0.5 a lane, shares east 33.3 %, west 40 %, rate 0.1 in 5 s" in text
    found = hipq(*where, "--json").json
    assert [one.get("n") for one in found["limits"]] == [7.5, 0.5, None, 0.1]
    assert [(one["lane"], one["used"], one["most"]) for one in found["lanes"]] == [("east", 0, 0.5), ("west", 0, 0.5)]
    assert hipq(*where, "0.5", "--json").status == 2, "the shares would be less than a unit"
    for bad in ("7.0005", "1e3", "NaN", "-1"):
        assert hipq(*where, "--", bad).status == 2
    assert "must be a multiple of 0.001" in hipq(*where, "7.0005").complaint


def test_data_comes_from_a_file_or_standard_input(hipq: HipqCommand, folder: Path) -> None:
    (folder / "data.json").write_text("[1, 2]")
    first = hipq("enqueue", "shop:app", "orders", "quick", "--data-file", "data.json").out.strip()
    second = hipq("enqueue", "shop:app", "orders", "quick", "--data-file", "-", stdin='"héllo"'.encode()).out.strip()
    assert hipq("job", "show", "shop:app", first, "--json").json["data"] == [1, 2]
    assert hipq("job", "show", "shop:app", second, "--json").json["data"] == "héllo"


def test_a_taken_key_is_refused_or_its_job_returned(hipq: HipqCommand) -> None:
    command = ("enqueue", "shop:app", "orders", "quick", "1", "--key", "k")
    first = hipq(*command)
    refused = hipq(*command)
    assert refused.status == 2
    assert "has the key 'k' already" in refused.complaint
    assert hipq(*command, "--on-duplicate", "return").out == first.out
    assert len(hipq("job", "list", "shop:app", "--json").json) == 1


def test_the_application_may_come_from_the_environment(hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hipq("job", "list").status == 2
    assert "HIPQ_APP" in hipq("job", "list").complaint
    monkeypatch.setenv("HIPQ_APP", "shop:app")
    job_id = hipq("enqueue", "orders", "quick", '{"a": "b:c"}', "--key", "x:y").out.strip()
    assert hipq("job", "show", job_id, "--json").json["data"] == {"a": "b:c"}
    assert hipq("job", "cancel", job_id).status == 0
    assert hipq("queue", "list").status == 0
    assert hipq("migrate").status == 0
    assert hipq("prune", "--older-than", "30d", "--yes").status == 0


def test_every_command_says_which_database_it_opened(hipq: HipqCommand, folder: Path) -> None:
    for command in (
        ("enqueue", "shop:app", "orders", "quick"),
        ("job", "list", "shop:app"),
        ("job", "show", "shop:app", "65537"),
        ("queue", "list", "shop:app"),
        ("migrate", "shop:app"),
        ("prune", "shop:app", "--older-than", "1d", "--yes"),
        ("job", "retry", "shop:app", "65537"),
        ("job", "cancel", "shop:app", "65537"),
        ("job", "why", "shop:app", "65537"),
        ("queue", "pause", "shop:app", "orders"),
        ("queue", "resume", "shop:app", "orders"),
        ("queue", "limit", "shop:app", "orders"),
        ("answer", "shop:app", "orders", "charge", "k"),
        *(("answers", command, "shop:app") for command in ("list", "count")),
        *(("answers", command, "shop:app", "1") for command in ("show", "replay", "drop")),
        ("answers", "rekey", "shop:app", "1", "k"),
        ("job", "list", "--db", "sqlite:///shop.db"),
    ):
        assert f"database: sqlite:///{folder}/shop.db" in hipq(*command).err.splitlines()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://ann:s3cret@db:5432/shop", "postgresql://ann:…@db:5432/shop"),
        ("postgresql://ann:s3c:r@et@db/shop", "postgresql://ann:…@db/shop"),
        ("postgres://db/shop?user=ann&password=s3cret", "postgres://db/shop?user=ann&password=…"),
        ("postgresql://ann@db/shop", "postgresql://ann@db/shop"),
        ("postgresql:///shop?host=/run/pg", "postgresql:///shop?host=/run/pg"),
        ("postgresql://ann:s3/cr?et@[::1]:5432/shop", "postgresql://ann:…@[::1]:5432/shop"),
        ("sqlite:///shop.db", f"sqlite:///{os.getcwd()}/shop.db"),
        ("sqlite:////var/shop.db", "sqlite:////var/shop.db"),
    ],
)
def test_a_database_is_shown_without_its_password(url: str, expected: str) -> None:
    assert shown(url) == expected


def test_jobs_are_filtered_and_paged(hipq: HipqCommand) -> None:
    ids = [hipq("enqueue", "shop:app", "orders", "quick", str(n)).out.strip() for n in range(3)]
    ids.append(hipq("enqueue", "shop:app", "mails", "mail", "--key", "m", "--delay", "1h").out.strip())

    def listed(*options: str) -> list[str]:
        return [str(job["id"]) for job in hipq("job", "list", "shop:app", "--json", *options).json]

    assert sorted(listed()) == sorted(ids)
    assert listed("-q", "orders") == ids[2::-1]
    assert listed("-q", "orders", "--oldest") == ids[:3]
    assert listed("--type", "mail") == ids[3:]
    assert listed("--key", "m", "--phase", "scheduled") == ids[3:]
    assert listed("--state", "final") == []
    every = listed()
    assert every == ids[::-1], "the newest first, of whichever queue"
    assert listed("--limit", "2") == every[:2]
    assert listed("--limit", "2", "--after", ",".join(every[:2])) == every[2:]


def test_a_job_is_cancelled_once(hipq: HipqCommand) -> None:
    job_id = hipq("enqueue", "shop:app", "orders", "quick").out.strip()
    cancelled = hipq("job", "cancel", "shop:app", job_id, "--reason", "not wanted", "--json").json
    assert (cancelled["state"], cancelled["code"], cancelled["error"]) == ("final", "cancelled", "not wanted")
    again = hipq("job", "cancel", "shop:app", job_id)
    assert again.status == 1
    assert "final" in again.complaint


def test_a_scheduled_job_is_hurried_and_a_ready_one_is_not(hipq: HipqCommand) -> None:
    job_id = hipq("enqueue", "shop:app", "orders", "quick", "--delay", "12h").out.strip()
    assert hipq("job", "retry", "shop:app", job_id, "--json").json["phase"] == "ready"
    again = hipq("job", "retry", "shop:app", job_id)
    assert again.status == 1
    assert "only a scheduled job" in again.complaint


def test_a_job_that_is_not_there_is_exit_1(hipq: HipqCommand) -> None:
    for command in ("show", "why", "cancel", "retry"):
        missing = hipq("job", command, "shop:app", "99999")
        assert missing.status == 1
        assert "there is no job 99999" in missing.complaint


def test_old_final_jobs_are_pruned(hipq: HipqCommand) -> None:
    ids = [hipq("enqueue", "shop:app", "orders", "quick").out.strip() for _ in range(2)]
    hipq("job", "cancel", "shop:app", ids[0])
    assert hipq("prune", "shop:app", "--older-than", "1h", "--yes", "--json").json == {"deleted": 0, "answers": 0}
    assert hipq("prune", "shop:app", "--older-than", "0", "--yes", "-q", "mails", "--json").json["deleted"] == 0
    assert hipq("prune", "shop:app", "--older-than", "0", "--yes").out == "deleted 1 job and 0 answers\n"
    assert [str(job["id"]) for job in hipq("job", "list", "shop:app", "--json").json] == ids[1:]


def test_queues_are_listed_with_what_they_have_to_do(hipq: HipqCommand) -> None:
    hipq("enqueue", "shop:app", "orders", "quick")
    hipq("enqueue", "shop:app", "mails", "mail", "--at", "2031-01-15T07:00:00Z")
    orders, mails = hipq("queue", "list", "shop:app", "--json").json
    assert (orders["queue"], orders["table"], orders["ready"]) == ("orders", "shop_orders", 1)
    assert orders["types"][:2] == ["quick", "gate"]
    assert (mails["ready"], mails["scheduled"], mails["next_start"]) == (0, 1, "2031-01-15T07:00:00+00:00")
    assert "2031-01-15 07:00:00Z" in hipq("queue", "list", "shop:app").out


def test_queues_only_the_database_knows_are_there_too(hipq: HipqCommand, folder: Path) -> None:
    """Another program's queue of the same instance; another instance; tables with names of their own."""
    other = Hipq("shop", f"sqlite:///{folder}/shop.db")
    job_id = other.queue("returns").enqueue("send_back", {"a": 1}, delay=60)
    other.close()
    foreign = Hipq("farm", f"sqlite:///{folder}/shop.db", table_naming=lambda _hipq, queue: f"barn_{queue}")
    id2 = foreign.queue("cows").enqueue("milk", key="rosa")
    foreign.close()
    assert hipq("job", "show", "shop:app", str(job_id), "--json").json["queue"] == "returns"
    assert hipq("job", "show", "shop:app", str(id2)).status == 1  # not this instance's
    queues = hipq("queue", "list", "--db", "sqlite:///shop.db", "--json").json
    assert {(one["app"], one["queue"], one["table"]) for one in queues} >= {
        ("shop", "returns", "shop_returns"),
        ("farm", "cows", "barn_cows"),
    }
    assert hipq("job", "show", "--db", "sqlite:///shop.db", str(id2), "--json").json["key"] == "rosa"
    assert {job["id"] for job in hipq("job", "list", "--db", "sqlite:///shop.db", "--json").json} == {job_id, id2}
    assert hipq("job", "retry", "--db", "sqlite:///shop.db", str(job_id), "--json").json["phase"] == "ready"
    assert hipq("job", "cancel", "--db", "sqlite:///shop.db", str(id2), "--json").json["state"] == "final"
    assert hipq("prune", "--db", "sqlite:///shop.db", "--older-than", "0", "--yes", "--json").json["deleted"] == 1


def test_looking_at_a_database_that_is_not_there_does_not_make_one(hipq: HipqCommand, folder: Path) -> None:
    missing = hipq("job", "list", "--db", "sqlite:///typo.db")
    assert missing.status == 2
    assert "there is no database file" in missing.complaint
    assert not (folder / "typo.db").exists()


def test_migrate_makes_a_database_and_says_so(hipq: HipqCommand, folder: Path) -> None:
    made = hipq("migrate", "--db", "sqlite:///new.db", "--json")
    assert made.status == 0
    assert isinstance(made.json["applied"], list)
    assert (folder / "new.db").exists()
    assert "is up to date" in hipq("migrate", "--db", "sqlite:///new.db").out


def test_help_and_version(hipq: HipqCommand) -> None:
    assert hipq("--version").out.startswith("hipq")
    for command in (
        "",
        "worker",
        "enqueue",
        "job",
        "job list",
        "job why",
        "queue",
        "queue list",
        "queue pause",
        "prune",
        "answer",
        "answers",
        "answers list",
        "answers rekey",
    ):
        helped = hipq(*command.split(), "--help")
        assert helped.status == 0
        assert "Usage: hipq" in helped.out
