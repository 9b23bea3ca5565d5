"""Commands that change something are in the audit log: with who typed them, and without what jobs carry."""

from __future__ import annotations

from typing import Any

import click
import pytest

from hipq import Hipq
from hipq.cli.audited import user
from hipq.cli.main import cli
from tests.cli.conftest import HipqCommand


def entries(hipq: HipqCommand, url: str) -> list[dict[str, Any]]:
    return list(hipq("audit", "--db", url, "--json").json)


@pytest.fixture
def jobs(program: Hipq) -> list[int]:
    program.migrate()
    (orders,) = [queue for queue in program.queues if queue.name == "orders"]
    return [orders.job_type("quick").enqueue({"canary": n}, delay=3600) for n in range(3)]


def test_what_commands_did_to_jobs(hipq: HipqCommand, where: list[str], url: str, jobs: list[int]) -> None:
    first, *others = map(str, jobs)
    for words in (
        ["job", "cancel", first, "--reason", "ordered twice"],
        ["job", "change", *others, "--priority", "7"],
        ["job", "retry", "--state", "initial", "--yes"],
        ["queue", "pause", "orders"],
        ["queue", "resume", "orders"],
        ["queue", "limit", "orders", "5"],
        ["queue", "limit", "orders"],
        ["cron", "add", "orders", "quick", "0 6 * * *", '{"canary": 1}', "--name", "daily"],
        ["prune", "--older-than", "30d", "--yes"],
    ):
        verb = 2 if words[0] != "prune" else 1
        ran = hipq(*words[:verb], *where, *words[verb:])
        assert ran.status == 0, (words, ran)
    found = entries(hipq, url)[::-1]
    assert [(one["action"], one["target"], one["details"]) for one in found] == [
        ("job cancel", first, {"reason": "ordered twice"}),
        ("job change", " ".join(others), {"priority": "7"}),
        ("job retry", "", {"state": "initial"}),
        ("queue pause", "orders", {}),
        ("queue resume", "orders", {}),
        ("queue limit", "orders 5", {}),
        ("cron add", "orders quick 0 6 * * *", {"name": "daily"}),
        ("prune", "", {"older_than": "2592000.0"}),
    ]
    assert {(one["via"], one["who"], one["role"]) for one in found} == {("command", user(), "database")}
    assert all(one["address"] for one in found)
    assert "canary" not in str(found)


@pytest.mark.usefixtures("jobs")
def test_what_failed_or_was_declined_is_not_there(hipq: HipqCommand, where: list[str], url: str) -> None:
    assert hipq("job", "cancel", *where, "1").status != 0
    assert hipq("job", "cancel", *where, "--state", "initial").status != 0, "it was not said --yes"
    assert hipq("job", "list", *where).status == 0
    assert entries(hipq, url) == []


def test_what_commands_did_to_tenants_and_tokens(hipq: HipqCommand, url: str) -> None:
    hipq("migrate", "--db", url)
    first = hipq("tenant", "add", "acme", "--rate", "5", "--json", "--db", url).json
    hipq("tenant", "set", "acme", "--weight", "2", "--db", url)
    made = hipq("token", "create", "acme", "--role", "post", "--role", "read", "--name", "shop", "--json", "--db", url)
    rotated = hipq("token", "rotate", made.json["id"], "--json", "--db", url).json
    hipq("token", "revoke", made.json["id"], "--db", url)
    hipq("tenant", "remove", "acme", "--yes", "--db", url)
    found = entries(hipq, url)[::-1]
    assert [(one["action"], one["target"], one["details"]) for one in found] == [
        ("tenant add", "acme", {"rate": "5", "token": first["id"]}),
        ("tenant set", "acme", {"weight": "2"}),
        ("token create", "acme", {"roles": "post read", "name": "shop", "token": made.json["id"]}),
        ("token rotate", f"shop (token {made.json['id']})", {"tenant": "acme", "token": rotated["id"]}),
        ("token revoke", f"shop (token {made.json['id']})", {"tenant": "acme"}),
        ("tenant remove", "acme", {}),
    ]
    for secret in (first["token"], made.json["token"], rotated["token"]):
        assert secret not in str(found)


def test_no_command_that_asks_before_it_changes_is_left_out() -> None:
    """Who asks, changes: --yes is the sign of it."""

    def leaves(one: click.Command, path: str = "hipq") -> dict[str, click.Command]:
        if isinstance(one, click.Group):
            inside = [leaves(sub, f"{path} {key}") for key, sub in one.commands.items()]
            return {name: leaf for some in inside for name, leaf in some.items()}
        return {path: one}

    asking = {path: one for path, one in leaves(cli).items() if any("--yes" in param.opts for param in one.params)}
    not_recorded = {path for path, one in asking.items() if "did" not in names(one.callback)}
    assert not_recorded == {"hipq journal recover", "hipq waiter cancel"}, "of files, and of DynamoDB"


def names(function: Any) -> set[str]:
    """What a function, and those that it wraps, call by name."""
    found = set[str]()
    while function is not None:
        found |= set(function.__code__.co_names)
        function = getattr(function, "__wrapped__", None)
    return found
