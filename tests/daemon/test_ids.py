"""Ids that are given out before the store has their jobs: never twice, whoever gives them out."""

from __future__ import annotations

import threading
from collections.abc import Iterator

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
    firsts = sorted(ids.take(BLOCK) for ids in daemons for _ in range(5))
    assert firsts == [FIRST + n * BLOCK for n in range(20)]


def test_each_queue_has_ids_of_its_own(store: Store) -> None:
    for queue in (7, 8):
        ids = Ids(store, queue)
        ids.reserve()
        assert ids.take(1) == FIRST
        assert queue_of(numbered(FIRST, queue)) == queue


def test_a_daemon_that_starts_again_uses_no_id_of_before(store: Store) -> None:
    before = Ids(store, 7)
    before.reserve()
    last = max(before.take(3) + 2 for _ in range(100))
    after = Ids(store, 7)
    after.reserve()
    assert after.take(1) > last


def test_ids_come_in_a_row_from_any_thread(store: Store) -> None:
    ids = Ids(store, 7)
    ids.reserve()
    found: list[int] = []

    def take() -> None:
        for count in range(1, 100):
            found.extend(range(first := ids.take(count), first + count))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(FIRST, FIRST + 4 * 4950))


def test_they_are_scarce_before_they_are_used_up(store: Store) -> None:
    ids = Ids(store, 7)
    assert ids.scarce
    ids.reserve()
    assert not ids.scarce
    ids.take(BLOCK // 2)
    assert not ids.scarce
    ids.take(1)
    assert ids.scarce
    ids.reserve()
    assert not ids.scarce


def test_when_they_are_used_up_nothing_is_given_out_and_small_numbers_still_are(store: Store) -> None:
    ids = Ids(store, 7)
    with pytest.raises(StoreUnavailable, match="used up"):
        ids.take(1)
    ids.reserve()
    ids.take(BLOCK - 10)
    with pytest.raises(StoreUnavailable, match="used up"):
        ids.take(11)
    assert ids.take(10) == FIRST + BLOCK - 10, "a request that was too large takes nothing from others"
    with pytest.raises(StoreUnavailable, match="used up"):
        ids.take(1)


def test_what_a_block_has_not_enough_of_comes_from_the_next(store: Store) -> None:
    ids = Ids(store, 7)
    ids.reserve()
    ids.reserve()
    ids.take(BLOCK - 1)
    assert ids.take(2) == FIRST + BLOCK
    assert ids.take(BLOCK - 2) == FIRST + BLOCK + 2


def test_where_blocks_begin_is_drawn_by_chance() -> None:
    """A journal that meets a new database must not bring ids that this one gives out again."""
    starts = set()
    for _ in range(5):
        store = open_store("sqlite://")
        store.migrate()
        one = Ids(store, 1)
        for _ in range(3):
            one.reserve()
        starts |= {one.take(BLOCK) for _ in range(3)}
        store.close()
    assert len(starts) == 15
    assert min(starts) >= FIRST
