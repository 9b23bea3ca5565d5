"""Ids that are given out before the store has their jobs: never twice, whoever gives them out."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from statistics import mean

import pytest

from hipq.daemon.ids import BLOCK, FIRST, Ids
from hipq.errors import StoreUnavailable
from hipq.job.model import numbered, queue_of
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


def test_blocks_of_several_daemons_never_overlap(store: Store, url: str) -> None:
    other = open_store(url)
    try:
        daemons = [Ids(one, 7) for one in (store, other, store, other)]

        def reserve(ids: Ids) -> None:
            for _ in range(5):
                ids.reserve()

        threads = [threading.Thread(target=reserve, args=(ids,)) for ids in daemons]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        other.close()
    firsts = sorted(ids.take("acme", BLOCK) for ids in daemons for _ in range(5))
    assert firsts == [FIRST + n * BLOCK for n in range(20)]


def test_each_queue_has_ids_of_its_own(store: Store) -> None:
    for queue in (7, 8):
        ids = Ids(store, queue)
        ids.reserve()
        assert ids.take("acme", 1) == FIRST
        assert queue_of(numbered(FIRST, queue)) == queue


def test_a_daemon_that_starts_again_uses_no_id_of_before(store: Store) -> None:
    before = Ids(store, 7)
    before.reserve()
    last = max(before.take("acme", 3) + 2 for _ in range(100))
    after = Ids(store, 7)
    after.reserve()
    assert after.take("acme", 1) > last


def test_ids_come_in_a_row_from_any_thread(store: Store) -> None:
    ids = Ids(store, 7)
    ids.reserve()
    found: list[int] = []
    others: list[int] = []

    def take() -> None:
        for count in range(1, 100):
            found.extend(range(first := ids.take("acme", count), first + count))
            others.append(ids.take("bob", 1))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*found, *others}) == 4 * 4950 + 4 * 99
    assert FIRST <= min(found) <= max(found) < FIRST + BLOCK


def test_they_are_scarce_before_they_are_used_up(store: Store) -> None:
    ids = Ids(store, 7)
    assert ids.scarce
    ids.reserve()
    assert not ids.scarce
    ids.take("acme", BLOCK // 2 - 64)
    assert not ids.scarce
    ids.take("acme", 65)
    assert ids.scarce
    ids.reserve()
    assert not ids.scarce


def test_when_they_are_used_up_nothing_is_given_out_and_small_numbers_still_are(store: Store) -> None:
    ids = Ids(store, 7)
    with pytest.raises(StoreUnavailable, match="used up"):
        ids.take("acme", 1)
    ids.reserve()
    ids.take("acme", BLOCK - 10)
    with pytest.raises(StoreUnavailable, match="used up"):
        ids.take("acme", 11)
    assert ids.take("acme", 10) == FIRST + BLOCK - 10, "a request that was too large takes nothing from others"
    with pytest.raises(StoreUnavailable, match="used up"):
        ids.take("acme", 1)


def test_what_a_block_has_not_enough_of_comes_from_the_next(store: Store) -> None:
    ids = Ids(store, 7)
    ids.reserve()
    ids.reserve()
    ids.take("acme", BLOCK - 1)
    assert ids.take("acme", 2) == FIRST + BLOCK
    assert ids.take("acme", BLOCK - 64) == FIRST + BLOCK + 64
    ids.reserve()
    assert ids.take("bob", 1) == FIRST + 2 * BLOCK, "nobody goes on in a block that another has left"
    assert ids.take("acme", 1) == FIRST + 2 * BLOCK + 64


def test_where_blocks_begin_is_drawn_by_chance() -> None:
    """A journal that meets a new database must not bring ids that this one gives out again."""
    starts = set()
    for _ in range(5):
        store = open_store("sqlite://")
        store.migrate()
        one = Ids(store, 1)
        for _ in range(3):
            one.reserve()
        starts |= {one.take("acme", BLOCK) for _ in range(3)}
        store.close()
    assert len(starts) == 15
    assert min(starts) >= FIRST


# -- what ids tell of others -------------------------------------------------------------------------------------------
def differences_by_chance(store: Store, others: int, draws: Random, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Between each two of 300 ids of one tenant, while another adds `others` jobs in between, one at a time."""
    monkeypatch.setattr(secrets, "randbelow", draws.randrange)
    ids = Ids(store, 1)
    ids.reserve()
    found = []
    for _ in range(300):
        found.append(ids.take("acme", 1))
        for _ in range(others):
            ids.take("bob", 1)
    assert found == sorted(set(found)), "a tenant's ids grow"
    return [after - before for before, after in pairwise(found)]


def test_by_chance_ids_do_not_tell_how_many_jobs_others_add(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("sqlite://")
    store.migrate()
    draws = Random(18)
    spans: dict[int, list[int]] = {}
    for others in (0, 1, 37, 200):
        seen = [differences_by_chance(store, others, draws, monkeypatch) for _ in range(30)]
        assert all(one.count(1) >= 295 for one in seen), "64 ids in a row, whatever others do"
        spans[others] = [sum(one) for one in seen]
    store.close()
    low, high = min(spans[0]), max(spans[0])
    for others in (1, 37, 200):
        assert low <= mean(spans[others]) <= high, (others, spans)


def test_by_chance_two_daemons_never_give_the_same_id_also_after_a_restart(store: Store) -> None:
    taken: list[int] = []
    for _restart in range(3):
        for daemon in (Ids(store, 7), Ids(store, 7)):
            daemon.reserve()
            mine = {tenant: [daemon.take(tenant, 1 + n % 70) for n in range(100)] for tenant in ("acme", "bob", "")}
            assert all(some == sorted(some) for some in mine.values())
            taken += [first + k for some in mine.values() for n, first in enumerate(some) for k in range(1 + n % 70)]
    assert len(set(taken)) == len(taken)


def test_by_chance_a_large_request_fits_between_what_many_others_have(store: Store) -> None:
    ids = Ids(store, 7)
    ids.reserve()
    for n in range(2000):
        ids.take(f"tenant{n}", 1)
    firsts = [ids.take("acme", 100_000) for _ in range(8)]
    assert len({first // BLOCK for first in firsts}) <= 2
    assert ids.take("tenant7", 1) < firsts[-1]
