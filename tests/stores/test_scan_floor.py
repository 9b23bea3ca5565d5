"""Where claims start to read, on PostgreSQL; and that what they cost stays a part of the time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from hipq.stores.claims import Claim
from hipq.stores.postgres import scan_floor
from hipq.stores.postgres.scan_floor import BOTTOM, LONGEST, SHARE, WORTH, ScanFloor
from hipq.stores.postgres.store import PostgresStore
from tests.contract.jobs import NOW, new
from tests.servers import clean_database

TYPES = ("work",)
DEAR = 0.1


class Moments:
    """In place of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Moments:
    moments = Moments()
    monkeypatch.setattr(scan_floor, "time", moments)
    return moments


def read(some: ScanFloor, moments: Moments, took: float, claimed: int = 0) -> bool:
    """A claim; whether it started from the bottom."""
    with some.reading(1, TYPES) as reading:
        moments.now += took
        reading.claimed = claimed
        reading.stopped = ("5", 5)
    return reading.floor == BOTTOM


def test_a_claim_from_the_bottom_takes_a_twentieth_of_the_time(moments: Moments) -> None:
    some = ScanFloor()
    assert read(some, moments, DEAR, WORTH)
    assert not read(some, moments, 0.001)
    assert some.rest(1, TYPES) == pytest.approx(DEAR * SHARE - 0.001)
    moments.now += DEAR * SHARE
    assert some.rest(1, TYPES) == 0
    assert read(some, moments, 600), "as if the process had been stopped"
    assert some.rest(1, TYPES) == LONGEST


def test_when_nobody_listened_for_a_while_claims_start_from_the_bottom(moments: Moments) -> None:
    some = ScanFloor()
    assert read(some, moments, DEAR, WORTH)
    assert not read(some, moments, 0.001)
    some.forget()
    assert read(some, moments, 0.001)


def test_what_is_cheap_is_done_at_once(moments: Moments) -> None:
    some = ScanFloor()
    assert read(some, moments, 0.001, WORTH)
    assert some.rest(1, TYPES) == 0


@pytest.fixture
def store() -> Iterator[Any]:
    with clean_database() as url:
        store = PostgresStore(url)
        store.migrate()
        yield store
        store.close()


def floored(store: PostgresStore, moments: Moments) -> tuple[int, int, Claim]:
    """A queue whose claims start at a floor, and for which it would be dear to start from the bottom."""
    queue = store.queue("shop", "orders", "shop_orders").number
    engine_id = store.take_lease(60, "test")
    claim = Claim(queue, TYPES, WORTH)
    assert not store.turn(engine_id, [], [claim], NOW).won  # from here on it knows that the queue has no limits
    store.enqueue([new(queue, job_type="work", rank=10) for _ in range(WORTH)])
    assert len(store.turn(engine_id, [], [claim], NOW).won) == WORTH
    store._floors._floors[queue, TYPES].from_bottom_took = DEAR
    store._floors._floors[queue, TYPES].from_bottom_at = moments.now + LONGEST
    return queue, engine_id, claim


def test_a_job_below_the_floor_that_nobody_told_of_is_claimed_a_while_later_if_that_is_dear(
    store: PostgresStore, moments: Moments
) -> None:
    queue, engine_id, claim = floored(store, moments)
    other = PostgresStore(store._db._url)  # whose notice does not arrive: nobody listens here
    other.enqueue([new(queue, job_type="work", rank=5)])
    other.close()
    turned = store.turn(engine_id, [], [claim], NOW)
    assert not turned.won
    assert turned.refused == {queue: NOW + round(LONGEST * 1e6)}, "it is told when to ask again"
    moments.now += LONGEST
    assert len(store.turn(engine_id, [], [claim], NOW).won) == 1


@pytest.mark.parametrize("job", [{"lane": "east"}, {"throttle_factor": 2}])
def test_a_job_of_another_kind_stops_nothing_while_it_is_dear_to_look_below_the_floor(
    store: PostgresStore, moments: Moments, job: dict[str, Any]
) -> None:
    queue, engine_id, claim = floored(store, moments)
    store.enqueue([new(queue, job_type="work", rank=20, **job), *(new(queue, job_type="work", rank=20) for _ in "ab")])
    assert len(store.turn(engine_id, [], [claim], NOW).won) == 3


def test_a_duplicate_uses_up_no_notice(store: PostgresStore) -> None:
    queue = store.queue("shop", "orders", "shop_orders").number
    store.enqueue([new(queue, "order-17")])
    with psycopg.connect(store._db._url, autocommit=True) as other:
        other.execute("LISTEN hipq")
        for _ in range(20):
            assert store.enqueue([new(queue, "order-17")])[0].duplicate
        store.enqueue([new(queue, "order-18")])
        assert len(list(other.notifies(timeout=5, stop_after=1))) == 1


def test_a_process_of_the_server_is_ours_only_as_long_as_our_connection_lives(store: PostgresStore) -> None:
    with store._db.using() as conn:
        process = conn.info.backend_pid
        assert store._db.is_own(process)
        conn.close()
    assert not store._db.is_own(process)  # the next to have its number is somebody else
