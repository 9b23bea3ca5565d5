"""`hipq tenant`: tenants are added, changed and removed, and their tokens are shown once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq.cli.main import cli
from hipq.cli.tenant import tenant
from hipq.daemon.tenancy.tenants import Tenants
from hipq.stores.open import open_store
from tests.cli.conftest import HipqCommand


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.commands, "tenant", tenant)


@pytest.fixture
def tenants(url: str) -> Iterator[Tenants]:
    store = open_store(url)
    store.migrate()
    yield Tenants(store)
    store.close()


def test_a_tenant_is_added_and_its_token_is_all_that_is_printed(hipq: HipqCommand, url: str, tenants: Tenants) -> None:
    ran = hipq("tenant", "add", "acme", "--weight", "3", "--waiting", "10", "--rate", "5", "--db", url)
    assert ran.status == 0
    assert re.fullmatch(r"hipq_[A-Za-z0-9_-]{43}\n", ran.out)
    found = tenants.get("acme")
    assert (found.weight, found.quotas.waiting, found.quotas.rate, found.quotas.running) == (3, 10, 5, 0)
    (token,) = found.tokens
    assert f"token {token.id} of acme, shown this once" in ran.err
    assert ran.out.strip() not in ran.err
    ran = hipq("tenant", "add", "acme", "--db", url)
    assert (ran.status, ran.complaint) == (1, "hipq: there is a tenant acme already")


def test_what_is_printed_lets_one_in(hipq: HipqCommand, url: str, tenants: Tenants) -> None:
    from hashlib import sha256

    found = hipq("tenant", "add", "acme", "--json", "--db", url).json
    assert found["tenant"] == "acme"
    assert found["roles"] == ["post", "read", "deploy", "operate"], "a first day's work needs no other token"
    caller = tenants.look().callers[sha256(found["token"].encode()).digest()]
    assert (caller.tenant, sorted(caller.roles)) == ("acme", sorted(found["roles"]))


def test_tenants_are_listed_and_shown_without_their_tokens(hipq: HipqCommand, url: str, tenants: Tenants) -> None:
    secret = hipq("tenant", "add", "acme", "--bytes", "1000", "--db", url).out.strip()
    hipq("tenant", "add", "bob", "--db", url)
    rows = hipq("tenant", "list", "--json", "--db", url).json
    assert [(row["tenant"], row["bytes"], row["tokens"]) for row in rows] == [("acme", 1000, 1), ("bob", 0, 1)]
    listed = hipq("tenant", "list", "--db", url).out
    assert re.search(r"^acme +1 +0 +0 +1000 +0 +0 +0 +1 ", listed, flags=re.MULTILINE)
    shown = hipq("tenant", "show", "acme", "--db", url).out
    (token,) = tenants.get("acme").tokens
    assert token.id in shown
    for text in (listed, shown, str(rows)):
        assert secret not in text
        assert token.sha256 not in text
    assert hipq("tenant", "show", "carl", "--db", url).status == 1


def test_a_quota_is_changed(hipq: HipqCommand, url: str, tenants: Tenants) -> None:
    hipq("tenant", "add", "acme", "--rate", "5", "--waiting", "7", "--db", url)
    found = hipq("tenant", "set", "acme", "--rate", "9", "--weight", "2", "--json", "--db", url).json
    assert (found["rate"], found["waiting"], found["weight"]) == (9, 7, 2)
    assert tenants.get("acme").quotas.rate == 9
    assert hipq("tenant", "set", "acme", "--db", url).status == 2
    assert hipq("tenant", "set", "acme", "--rate", "-1", "--db", url).status == 2


def test_a_tenant_is_removed_if_that_is_meant(hipq: HipqCommand, url: str, tenants: Tenants) -> None:
    hipq("tenant", "add", "acme", "--db", url)
    ran = hipq("tenant", "remove", "acme", "--db", url)
    assert ran.status == 2
    assert "say --yes" in ran.complaint
    assert hipq("tenant", "remove", "acme", "--yes", "--db", url).out == "removed tenant acme\n"
    assert tenants.list() == []
    assert "its jobs, handlers and secrets may still be here" in hipq("tenant", "add", "acme", "--db", url).complaint
    assert hipq("tenant", "add", "acme", "--again", "--db", url).status == 0


@pytest.mark.parametrize("name", ["", "a-b", ".x", "v1", "é", "a/b", "x" * 61, "*"])
def test_a_name_that_is_none_is_refused(hipq: HipqCommand, url: str, tenants: Tenants, name: str) -> None:
    ran = hipq("tenant", "add", name, "--db", url)
    assert ran.status == 2
    assert "a tenant's name must be" in ran.complaint
    assert tenants.list() == []


def test_the_usual_database_is_that_of_hipq_serve(
    hipq: HipqCommand, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HIPQ_DATABASE_URL", raising=False)
    assert "there is no database file" in hipq("tenant", "list").complaint
    assert "there is no database file" in hipq("tenant", "list", "--db", "sqlite:///none.db").complaint
    assert "--db is empty" in hipq("tenant", "list", "--db", "").complaint
    assert hipq("tenant", "add").status == 2
    assert not (folder / "daemon.db").exists()
    assert hipq("tenant", "add", "acme").status == 0
    assert "daemon.db" in hipq("tenant", "list").err
    assert [row["tenant"] for row in hipq("tenant", "list", "--json").json] == ["acme"]


@pytest.mark.parametrize("command", ["", "add", "list", "show", "set", "remove"])
def test_help_has_examples(hipq: HipqCommand, command: str) -> None:
    ran = hipq("tenant", *filter(None, [command]), "--help")
    assert ran.status == 0
    assert f"hipq tenant {command}" in ran.out
