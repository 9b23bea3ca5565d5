"""`hipq audit`: with the code and without it, on both stores."""

from __future__ import annotations

from typing import Any

import pytest

from hipq import Hipq
from hipq.job.when import SECOND
from hipq.stores.audit import entry
from tests.cli.conftest import HipqCommand


@pytest.fixture
def logged(program: Hipq) -> None:
    store = program.store
    store.queue("shop", "orders", "shop_orders")
    for hours, action in ((50, "cancel"), (30, "retry"), (1, "limit")):
        at = store.now() - hours * 3600 * SECOND
        store.record(entry(at, "ann\x1b[31m", "admin", "::1", action, "/jobs/7", {"count": hours, "key": "<b>"}))


@pytest.mark.usefixtures("logged")
def test_the_newest_first(hipq: HipqCommand, where: list[str]) -> None:
    rows: list[dict[str, Any]] = hipq("audit", *where, "--json").json
    assert [row["action"] for row in rows] == ["limit", "retry", "cancel"]
    del rows[0]["number"], rows[0]["at"]
    assert rows[0] == {
        "who": "ann\x1b[31m", "role": "admin", "via": "dashboard", "address": "::1", "action": "limit",
        "target": "/jobs/7", "details": {"count": 1, "key": "<b>"},
    }  # fmt: skip


@pytest.mark.usefixtures("logged")
def test_of_the_last_time(hipq: HipqCommand, where: list[str]) -> None:
    assert [row["action"] for row in hipq("audit", *where, "--json", "--since", "2d").json] == ["limit", "retry"]
    assert hipq("audit", *where, "--json", "--since", "10s").json == []


@pytest.mark.usefixtures("logged")
def test_page_by_page(hipq: HipqCommand, where: list[str]) -> None:
    first = hipq("audit", *where, "--json", "--limit", "2")
    assert [row["action"] for row in first.json] == ["limit", "retry"]
    after = first.err.split("--after ")[1].split()[0]
    assert [row["action"] for row in hipq("audit", *where, "--json", "--after", after).json] == ["cancel"]


@pytest.mark.usefixtures("logged")
def test_as_people_read_it(hipq: HipqCommand, where: list[str]) -> None:
    head, first, *_ = hipq("audit", *where).out.splitlines()
    assert " ".join(head.split()) == "number at who role via address action target details"
    assert "ann\\x1b[31m  admin" in first


def test_nothing(hipq: HipqCommand, where: list[str], program: Hipq) -> None:
    program.migrate()
    assert "no entries found" in hipq("audit", *where).err
