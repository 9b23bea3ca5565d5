"""Tokens at the door: known ones are let in without a thread, and nothing is known of those that are not good."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hipq.daemon.tenancy.authenticator import LOOKUP_SECONDS, Authenticator
from hipq.daemon.tenancy.tenants import Tenants
from hipq.daemon.tenancy.tokens import ALL_TENANTS
from hipq.errors import StoreUnavailable
from hipq.stores.open import open_store
from hipq.stores.protocols import Store


@pytest.fixture
def store() -> Iterator[Store]:
    found = open_store("sqlite://")
    found.migrate()
    yield found
    found.close()


class Counting(Tenants):
    """Counts looks; can be told that the store is away, or slow."""

    looks = 0
    away = False
    slow: threading.Event | None = None

    def look(self) -> Any:
        self.looks += 1
        if self.slow:
            self.slow.wait(20)
        if self.away:
            raise StoreUnavailable
        return super().look()


def bearer(secret: str) -> bytes:
    return f"Bearer {secret}".encode()


def test_a_token_says_whose_it_is(store: Store) -> None:
    tenants = Counting(store)
    tenants.add("acme")
    tenants.add("bob")
    _, acme = tenants.token("acme")
    _, admin = tenants.token(ALL_TENANTS)
    door = Authenticator(tenants)

    async def ask() -> None:
        assert door.quickly(bearer(acme)) is None, "nothing is known yet"
        caller = await door.caller(bearer(acme))
        assert caller
        assert caller.tenant == "acme"
        assert door.quickly(bearer(acme)) == caller
        assert door.quickly(b"bearer " + acme.encode()) == caller, "the word may be spelled like this"
        assert door.may_act_for(caller, "acme")
        assert not door.may_act_for(caller, "bob")
        boss = await door.caller(bearer(admin))
        assert boss
        assert boss.is_operator
        assert door.may_act_for(boss, "bob")
        assert not door.may_act_for(boss, "carl"), "whom nobody has added"

    asyncio.run(ask())
    assert tenants.looks == 1


@pytest.mark.parametrize(
    "said", [b"", b"Bearer", b"Bearer ", b"Basic abc", b"Bearer x", b"Bearer \xff\x00", b"Bearer " + b"a" * 100_000]
)
def test_what_is_no_token_is_nobodys(store: Store, said: bytes) -> None:
    tenants = Tenants(store)
    tenants.add("acme")
    tenants.token("acme")
    assert asyncio.run(Authenticator(tenants).caller(said)) is None


def test_a_token_made_this_moment_is_good_at_once(store: Store) -> None:
    tenants, other = Counting(store), Tenants(store)
    tenants.add("acme")
    door = Authenticator(tenants)

    async def ask() -> Any:
        await door.caller(b"")
        _, secret = other.token("acme")
        return await door.caller(bearer(secret))

    assert asyncio.run(ask()).tenant == "acme"


def test_rubbish_does_not_keep_the_store_busy(store: Store) -> None:
    tenants = Counting(store)
    tenants.add("acme")
    door = Authenticator(tenants)

    async def ask() -> None:
        found = await asyncio.gather(*(door.caller(bearer(f"rubbish{number}")) for number in range(1000)))
        assert set(found) == {None}

    asyncio.run(ask())
    assert tenants.looks <= 5


def test_while_the_store_is_away_tokens_known_last_are_good(store: Store) -> None:
    now = [10.0]
    tenants = Counting(store, lambda: now[0])
    tenants.add("acme")
    _, secret = tenants.token("acme")
    door = Authenticator(tenants)

    async def ask() -> None:
        assert await door.caller(bearer(secret))
        tenants.away = True
        now[0] += 60
        assert await door.caller(bearer(secret))
        with pytest.raises(StoreUnavailable, match="this token cannot be checked"):
            await door.caller(bearer("other"))  # it may be good: 401 would be untrue

    asyncio.run(ask())


def test_a_new_token_is_good_however_slow_the_store_is(store: Store) -> None:
    tenants, other = Counting(store), Tenants(store)
    tenants.add("acme")
    door = Authenticator(tenants)

    async def ask() -> Any:
        await door.caller(b"")
        tenants.slow = threading.Event()
        _, secret = other.token("acme")
        asyncio.get_running_loop().call_later(2 * LOOKUP_SECONDS, tenants.slow.set)
        return await door.caller(bearer(secret))

    assert asyncio.run(ask()).tenant == "acme"


def test_a_store_that_does_not_answer_holds_nobody_up(store: Store) -> None:
    now = [10.0]
    tenants = Counting(store, lambda: now[0])
    tenants.add("acme")
    _, secret = tenants.token("acme")
    door = Authenticator(tenants)

    async def ask() -> None:
        assert await door.caller(bearer(secret))
        tenants.slow = threading.Event()
        now[0] += 60
        for _ in range(50):  # the first waits a moment, the others not at all
            assert await asyncio.wait_for(door.caller(bearer(secret)), 10)
        tenants.slow.set()

    asyncio.run(ask())
    assert tenants.looks == 2


def test_with_nothing_known_yet_and_the_store_away_nobody_is_turned_down(store: Store) -> None:
    tenants = Counting(store)
    tenants.away = True
    with pytest.raises(StoreUnavailable, match="no token can be checked"):
        asyncio.run(Authenticator(tenants).caller(bearer("x")))


def test_a_revoked_token_is_good_for_a_second_at_most(store: Store) -> None:
    now = [10.0]
    tenants, other = Tenants(store, lambda: now[0]), Tenants(store)
    tenants.add("acme")
    kept, secret = tenants.token("acme")
    door = Authenticator(tenants)

    async def ask() -> None:
        assert await door.caller(bearer(secret))
        other.revoke("acme", kept.id)
        now[0] += 1.0
        assert door.quickly(bearer(secret)) is None
        assert await door.caller(bearer(secret)) is None

    asyncio.run(ask())


def test_without_tokens_everybody_may_act_for_any_tenant(store: Store) -> None:
    door = Authenticator(Tenants(store), tokens=False)
    caller = door.quickly(b"")
    assert caller
    assert door.may_act_for(caller, "anybody")
    assert not door.may_act_for(caller, "v1")
    assert not door.may_act_for(caller, "a-b")
