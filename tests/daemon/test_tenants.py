"""Tenants: who there is, with which tokens, and what each may have; on both stores."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest

from hipq.daemon.tenancy.tenants import TOKENS, Quotas, Tenants, described, tenant_name
from hipq.daemon.tenancy.tokens import ALL_TENANTS
from hipq.errors import Conflict, Invalid, NotFound
from hipq.stores.open import open_store
from hipq.stores.protocols import Store
from tests.engine.conftest import url

__all__ = ["url"]


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    found = open_store(url)
    found.migrate()
    yield found
    found.close()


@pytest.fixture
def tenants(store: Store) -> Tenants:
    return Tenants(store)


def test_a_tenant_is_added_with_its_weight_and_quotas(tenants: Tenants) -> None:
    tenants.add("acme", weight=3, quotas=Quotas(waiting=10, running=2, bytes=1000, rate=5))
    tenants.add("bob")
    assert [one.name for one in tenants.list()] == ["acme", "bob"]
    acme = tenants.get("acme")
    assert (acme.weight, acme.quotas) == (3, Quotas(10, 2, 1000, 5))
    assert tenants.get("bob").quotas == Quotas()
    with pytest.raises(Conflict, match="there is a tenant acme already"):
        tenants.add("acme")


@pytest.mark.parametrize(
    "name",
    ["", "a" * 61, ".hidden", "..", "a-b", "a/b", "a b", "a\x00", "a\n", "é", "v1", "health", "metrics", "openapi",
     "docs", "*", "a|b", "‮a"],
)  # fmt: skip
def test_a_name_that_could_be_taken_for_something_else_is_refused(name: str) -> None:
    tenants = Tenants(open_store("sqlite://"))
    with pytest.raises(Invalid, match="a tenant's name must be"):
        tenants.add(name)
    assert tenants.list() == []


def test_names_may_have_letters_digits_underscores_and_dots() -> None:
    for name in ("a", "A_1.b", "0", "_", "x" * 60):
        assert tenant_name(name) == name


@pytest.mark.parametrize("quota", [{"waiting": -1}, {"rate": 10**9}, {"running": True}, {"bytes": 1 << 63}])
def test_a_quota_that_is_no_number_of_things_is_refused(quota: dict[str, int]) -> None:
    tenants = Tenants(open_store("sqlite://"))
    with pytest.raises(Invalid, match="must be a whole number from 0"):
        tenants.add("acme", quotas=Quotas(**quota))
    with pytest.raises(Invalid, match="weight"):
        tenants.add("acme", weight=0)


def test_what_a_tenant_may_have_is_changed_and_the_rest_stays(tenants: Tenants) -> None:
    tenants.add("acme", weight=2, quotas=Quotas(waiting=10, rate=5))
    tenants.token("acme")
    changed = tenants.set("acme", rate=7, bytes=None)
    assert (changed.weight, changed.quotas, len(changed.tokens)) == (2, Quotas(waiting=10, rate=7), 1)
    with pytest.raises(NotFound):
        tenants.set("nobody", rate=7)


def test_of_a_token_only_its_hash_is_kept(tenants: Tenants, store: Store) -> None:
    tenants.add("acme")
    kept, secret = tenants.token("acme", "the shop")
    assert re.fullmatch(r"hipq_[A-Za-z0-9_-]{43}", secret), "256 bits"
    kept_text = str(store.notes("tenant"))
    assert secret not in kept_text
    assert secret.removeprefix("hipq_") not in kept_text
    assert kept.sha256 in kept_text
    shown = str(described(tenants.get("acme"))) + str(tenants.tokens("acme"))
    assert kept.id in shown
    assert "the shop" in shown
    assert kept.sha256 not in shown


def test_a_revoked_token_is_known_to_nobody(tenants: Tenants, store: Store) -> None:
    tenants.add("acme")
    first, _ = tenants.token("acme")
    second, _ = tenants.token("acme")
    other = Tenants(store)
    assert {caller.token.id for caller in other.look().callers.values()} == {first.id, second.id}
    tenants.revoke("acme", first.id)
    assert {caller.token.id for caller in tenants.known().callers.values()} == {second.id}, "here at once"
    assert {caller.token.id for caller in other.look().callers.values()} == {second.id}
    with pytest.raises(NotFound, match="has no token"):
        tenants.revoke("acme", first.id)
    with pytest.raises(NotFound):
        tenants.revoke("bob", second.id)


def test_what_is_known_is_looked_up_once_a_second(store: Store) -> None:
    now = [100.0]
    daemon, other = Tenants(store, lambda: now[0]), Tenants(store)
    other.add("acme")
    assert set(daemon.known().tenants) == {"acme"}
    other.add("bob")
    now[0] += 0.9
    assert set(daemon.known().tenants) == {"acme"}
    now[0] += 0.2
    assert set(daemon.known().tenants) == {"acme", "bob"}


def test_a_slow_look_does_not_replace_what_a_later_one_has_found(
    store: Store, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant that was known and is not any more would have no quotas for a while."""
    notes, has_read, go_on = store.notes, threading.Event(), threading.Event()

    def slow_notes(kind: str) -> dict[str, str]:
        found = notes(kind)
        if threading.current_thread() is first:
            has_read.set()
            assert go_on.wait(20)
        return found

    monkeypatch.setattr(store, "notes", slow_notes)
    first, second = (threading.Thread(target=tenants.look) for _ in range(2))
    first.start()
    assert has_read.wait(20)
    Tenants(store).add("acme", quotas=Quotas(waiting=5))
    second.start()
    second.join(0.2)  # it may have to wait for the first
    go_on.set()
    for thread in (first, second):
        thread.join()
    assert tenants.latest.tenants["acme"].quotas == Quotas(waiting=5)


def test_an_admins_token_is_no_tenants(tenants: Tenants) -> None:
    tenants.add("acme")
    _, secret = tenants.token(ALL_TENANTS)
    known = tenants.look()
    assert secret
    assert set(known.tenants) == {"acme"}
    assert [caller.is_operator for caller in known.callers.values()] == [True]
    assert [one.name for one in tenants.list()] == ["acme"]
    (kept,) = tenants.get(ALL_TENANTS).tokens
    tenants.revoke(ALL_TENANTS, kept.id)
    assert tenants.look().callers == {}


def test_a_removed_tenant_has_no_tokens_and_its_name_is_not_given_away(tenants: Tenants) -> None:
    tenants.add("acme")
    tenants.token("acme")
    tenants.remove("acme")
    assert tenants.list() == []
    assert tenants.look() == ({}, {})
    with pytest.raises(NotFound):
        tenants.token("acme")
    with pytest.raises(NotFound):
        tenants.remove("acme")
    with pytest.raises(Conflict, match="was removed"):
        tenants.add("acme")
    assert tenants.add("acme", again=True).tokens == ()
    assert set(tenants.look().tenants) == {"acme"}


def test_a_tenant_has_only_so_many_tokens(tenants: Tenants) -> None:
    tenants.add("acme")
    for _ in range(TOKENS):
        tenants.token("acme")
    with pytest.raises(Conflict, match="revoke those"):
        tenants.token("acme")
    with pytest.raises(Invalid, match="name"):
        tenants.token("acme", "a\nb")
