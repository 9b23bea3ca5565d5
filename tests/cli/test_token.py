"""`hipq token`: tokens are made for what they are to do, replaced without a gap, and shown once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from hipq.daemon.tenancy.tenants import Tenants
from hipq.daemon.tenancy.tokens import Caller
from hipq.stores.open import open_store
from tests.cli.conftest import HipqCommand


@pytest.fixture
def tenants(url: str) -> Iterator[Tenants]:
    store = open_store(url)
    store.migrate()
    found = Tenants(store)
    found.add("acme")
    yield found
    store.close()


def holder(tenants: Tenants, secret: str) -> Caller | None:
    tenants.look()
    return tenants.caller(secret.strip().encode())


def test_a_token_has_the_roles_that_it_was_made_with(hipq: HipqCommand, url: str, tenants: Tenants) -> None:
    ran = hipq("token", "create", "acme", "--role", "read", "--role", "post", "--name", "the shop", "--db", url)
    assert re.fullmatch(r"hipq_[A-Za-z0-9_-]{43}\n", ran.out)
    assert ran.out.strip() not in ran.err
    found = holder(tenants, ran.out)
    assert found
    assert (found.tenant, sorted(found.roles), found.token.name) == ("acme", ["post", "read"], "the shop")
    assert found.name == f"the shop (token {found.token.id})"
    made = hipq("token", "create", "--all-tenants", "--role", "metrics", "--json", "--db", url).json
    scraper = holder(tenants, made["token"])
    assert scraper
    assert (scraper.is_operator, [*scraper.roles], made["tenant"]) == (True, ["metrics"], None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["acme"], "Missing option '--role'"),
        (["acme", "--role", "boss"], "'boss' is not one of"),
        (["acme", "--role", "admin"], "the role admin is for all tenants"),
        (["acme", "--role", "metrics"], "the role metrics is for all tenants"),
        (["--role", "post"], "say TENANT, or --all-tenants"),
        (["acme", "--all-tenants", "--role", "post"], "say TENANT, or --all-tenants"),
        (["acme", "--role", "post", "--name", "a\nb"], "a token's name must have"),
        (["carl", "--role", "post"], "there is no tenant 'carl'"),
    ],
)
def test_a_token_that_cannot_be_is_not_made(
    hipq: HipqCommand, url: str, tenants: Tenants, words: list[str], said: str
) -> None:
    ran = hipq("token", "create", *words, "--db", url)
    assert ran.status in (1, 2)
    assert said in ran.complaint
    assert tenants.look().callers == {}


def test_a_token_expires(hipq: HipqCommand, url: str, tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    made = hipq("token", "create", "acme", "--role", "post", "--expires", "90d", "--json", "--db", url).json
    expires = datetime.fromisoformat(made["expires"])
    assert expires - datetime.fromisoformat(made["made"]) < timedelta(days=90, minutes=1)
    assert holder(tenants, made["token"])
    monkeypatch.setattr("time.time_ns", lambda: round(expires.timestamp() * 1e9) + 1000)
    assert holder(tenants, made["token"]) is None
    ran = hipq("token", "create", "acme", "--role", "post", "--expires", "0s", "--db", url)
    assert "must expire after now" in ran.complaint


def test_a_rotated_token_and_its_successor_are_good_at_once(hipq: HipqCommand, url: str, tenants: Tenants) -> None:
    words = ["--role", "deploy", "--name", "ci", "--expires", "90d"]
    old = hipq("token", "create", "acme", *words, "--json", "--db", url).json
    new = hipq("token", "rotate", old["id"], "--json", "--db", url).json
    assert (new["roles"], new["name"], new["id"] != old["id"]) == (["deploy"], "ci", True)
    assert holder(tenants, old["token"])
    assert holder(tenants, new["token"])
    first, second = (one for one in tenants.tokens("acme"))
    assert first["expires"] - datetime.fromisoformat(new["made"]) == timedelta(days=1)
    assert (
        second["expires"] - second["made"] == first["expires"].__class__.fromisoformat(old["expires"]) - first["made"]
    )
    hipq("token", "rotate", new["id"], "--overlap", "0", "--db", url)
    assert holder(tenants, new["token"]) is None
    again = hipq("token", "rotate", new["id"], "--db", url)
    assert (again.status, again.complaint) == (1, f"hipq: token {new['id']} has expired: create another one")
    hipq("token", "rotate", old["id"], "--overlap", "30d", "--db", url)
    (first, *_) = tenants.tokens("acme")
    assert first["expires"] - datetime.fromisoformat(new["made"]) == timedelta(days=1), "no longer than it had"


def test_a_token_is_revoked(hipq: HipqCommand, url: str, tenants: Tenants) -> None:
    for words in (["acme", "--role", "post"], ["--all-tenants", "--role", "admin"]):
        made = hipq("token", "create", *words, "--json", "--db", url).json
        assert holder(tenants, made["token"])
        assert hipq("token", "revoke", made["id"], "--db", url).out == f"revoked token {made['id']}\n"
        assert holder(tenants, made["token"]) is None
        ran = hipq("token", "revoke", made["id"], "--db", url)
        assert (ran.status, ran.complaint) == (1, f"hipq: there is no token with the id '{made['id']}'")


def test_tokens_are_listed_with_their_use_and_never_shown(hipq: HipqCommand, url: str, tenants: Tenants) -> None:
    secret = hipq("token", "create", "acme", "--role", "post", "--name", "the shop", "--db", url).out.strip()
    hipq("token", "create", "--all-tenants", "--role", "admin", "--db", url)
    rows: list[dict[str, Any]] = hipq("token", "list", "--json", "--db", url).json
    assert [(row["tenant"], row["name"], row["used"]) for row in rows] == [
        (None, None, None),
        ("acme", "the shop", None),
    ]
    assert holder(tenants, secret)
    tenants.uses.save()
    (row,) = hipq("token", "list", "acme", "--json", "--db", url).json
    assert datetime.now().astimezone() - datetime.fromisoformat(row["used"]) < timedelta(minutes=1)
    listed = hipq("token", "list", "--db", url).out + hipq("tenant", "show", "acme", "--db", url).out
    assert "all tenants" in listed
    assert sha256(secret.encode()).hexdigest() not in listed
    assert secret not in listed


def test_a_token_can_go_to_a_file_that_only_its_owner_reads(
    hipq: HipqCommand, url: str, tenants: Tenants, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        first = hipq("tenant", "add", "bob", "--token-file", str(tmp_path / "0"), "--db", url)
        words = (["create", "acme", "--role", "post"], ["create", "--all-tenants", "--role", "admin"])
        ran = [first, *(
            hipq("token", *one, "--token-file", str(tmp_path / str(n)), "--db", url) for n, one in enumerate(words, 1)
        )]  # fmt: skip
    finally:
        os.umask(before)
    for n, one in enumerate(ran):
        file = tmp_path / str(n)
        assert (one.status, one.out) == (0, "")
        assert f"is in {file}" in one.err
        secret = file.read_text()
        assert secret.strip() not in one.err
        assert file.stat().st_mode & 0o777 == 0o600
        found = holder(tenants, secret)
        assert found
        rotated = hipq("token", "rotate", found.token.id, "--token-file", f"{file}.new", "--json", "--db", url).json
        assert (rotated["token_file"], "token" in rotated) == (f"{file}.new", False)
        assert holder(tenants, Path(f"{file}.new").read_text())


def test_a_token_file_that_cannot_be_made_makes_no_token(
    hipq: HipqCommand, url: str, tenants: Tenants, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    words = ["token", "create", "acme", "--role", "post", "--db", url, "--token-file"]
    ran = hipq(*words, str(there))
    assert (ran.status, ran.complaint) == (2, f"hipq: there is a file {there} already: a token gets a file of its own")
    assert there.read_text() == "mine"
    assert "No such file or directory" in hipq(*words, str(tmp_path / "no" / "folder")).complaint
    ran = hipq("tenant", "add", "acme", "--token-file", str(tmp_path / "second"), "--db", url)
    assert ran.complaint == "hipq: there is a tenant acme already"
    assert not (tmp_path / "second").exists()
    assert tenants.look().callers == {}


@pytest.mark.parametrize("command", ["", "create", "list", "rotate", "revoke"])
def test_help_has_examples(hipq: HipqCommand, command: str) -> None:
    ran = hipq("token", *filter(None, [command]), "--help")
    assert ran.status == 0
    assert f"hipq token {command}" in ran.out
