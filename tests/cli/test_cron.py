"""`hipq cron`: schedules from outside, with the code and without it, on both stores."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from hipq import Hipq
from tests.cli.conftest import HipqCommand


@pytest.fixture
def other(url: str) -> Any:
    """A program of the shop with a schedule that shop.py knows nothing of."""
    app = Hipq("shop", url)
    app.migrate()
    app.queue("orders").job("quick")(lambda _: None).cron("*/5 * * * *", {"n": 1}, tz="Europe/Rome", name="often")
    app.engine().turn()
    yield app
    app.close()


def listed(hipq: HipqCommand, where: list[str]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in hipq("cron", "list", *where, "--json").json}


def test_the_list_has_the_ticks_in_utc_and_in_the_zone(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:  # noqa: ARG001
    found = listed(hipq, where)["often"]
    assert (found["app"], found["queue"], found["type"], found["origin"]) == ("shop", "orders", "quick", "code")
    assert (found["expression"], found["tz"], found["data"], found["state"]) == (
        "*/5 * * * *",
        "Europe/Rome",
        {"n": 1},
        "ticking",
    )
    assert found["last"] is found["last_local"] is None
    assert found["next"].endswith("+00:00")
    assert found["next_local"].endswith(("+01:00", "+02:00"))
    assert datetime.fromisoformat(found["next"]) == datetime.fromisoformat(found["next_local"])
    assert "often" in hipq("cron", "list", *where, "-q", "orders").out
    assert hipq("cron", "list", *where, "--queue", "mails").out == ""


def test_a_schedule_is_added_changed_paused_run_and_removed(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:
    options = [
        "--tz",
        "Europe/Rome",
        "--name",
        "daily",
        "--priority",
        "7",
        "--window",
        "05:00-09:00",
        "--retry",
        "backoff:3",
    ]
    added = hipq("cron", "add", *where, "orders", "quick", "0 6 * * *", '{"a": 1}', *options, "--json").json
    assert (added["origin"], added["data"], added["options"]["priority"]) == ("operator", {"a": 1}, 7)
    hipq("cron", "change", *where, "orders", "daily", "30 6 * * *", "--data", "[2]", "--missed", "skip", "--overlap")
    found = listed(hipq, where)["daily"]
    assert (found["expression"], found["data"], found["missed"]) == ("30 6 * * *", [2], "skip")
    assert (found["overlap"], found["tz"], found["changed"]) == (True, "Europe/Rome", [])
    assert hipq("cron", "pause", *where, "orders", "daily", "--json").json["next"] is None
    assert "paused" in hipq("cron", "list", *where).out
    assert hipq("cron", "resume", *where, "orders", "daily", "--json").json["state"] == "ticking"
    job = other.job(int(hipq("cron", "run-now", *where, "orders", "daily").out))
    assert (job.type, job.data, job.priority) == ("quick", [2], 7)
    assert hipq("cron", "remove", *where, "orders", "daily").out == "removed daily from orders\n"
    assert listed(hipq, where).keys() == {"often"}


def test_a_change_of_one_in_code_is_taken_back(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:  # noqa: ARG001
    said = hipq("cron", "change", *where, "orders", "often", "--tz", "UTC").out
    assert "code, changed by an operator: tz" in said
    assert listed(hipq, where)["often"]["changed"] == ["tz"]
    hipq("cron", "change", *where, "orders", "often", "--default")
    assert (listed(hipq, where)["often"]["tz"], listed(hipq, where)["often"]["changed"]) == ("Europe/Rome", [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "odrers", "quick", "0 6 * * *"), "there is no queue 'odrers'; did you mean orders?"),
        (("add", "orders", "qiuck", "0 6 * * *"), "no job type 'qiuck'"),
        (("add", "orders", "quick", "0 66 * * *"), "the hour of a cron cannot be '66'"),
        (("add", "orders", "quick", "0 6 * * *", "--tz", "Mars"), "IANA"),
        (("add", "orders", "quick", "0 6 * * *", "{"), "data"),
        (("add", "orders", "quick", "0 6 * * *", "--name", "often"), "a schedule often already"),
        (("change", "orders", "oftn", "0 6 * * *"), "no schedule 'oftn'; did you mean often?"),
        (("change", "orders", "often"), "say what is to change"),
        (("change", "orders", "often", "* * * * *", "--default"), "say what is to change"),
        (("pause", "orders", "x" * 2000), "a schedule's name"),
        (("remove", "orders", "often"), "in the code, which would bring it back: pause it instead"),
        (("run-now", "orders", "nothing"), "no schedule 'nothing'; there are often"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    hipq: HipqCommand, other: Hipq, where: list[str], words: tuple[str, ...], said: str
) -> None:  # fmt: skip
    before = other.cron.list()
    ran = hipq("cron", words[0], *where, *words[1:])
    assert ran.status == 2
    assert said in ran.err
    assert other.cron.list() == before


def test_run_now_beside_a_job_that_is_not_final_is_refused(hipq: HipqCommand, other: Hipq, where: list[str]) -> None:  # noqa: ARG001
    first = hipq("cron", "run-now", *where, "orders", "often").out.strip()
    ran = hipq("cron", "run-now", *where, "orders", "often")
    assert (ran.status, f"job {first} of schedule often is not final yet" in ran.err) == (1, True)
