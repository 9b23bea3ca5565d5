"""How often PostgreSQL is asked and waited for: by a turn under limits, with the queue's lock held; by one new job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Protocol, TypeVar

import pytest
from msgspec.structs import replace

from hipq.job import transitions
from hipq.job.model import Change
from hipq.job.units import UNIT
from hipq.limits.limit import limit
from hipq.limits.per_lane import per_lane
from hipq.stores.claims import Claim
from hipq.stores.postgres.session import Session
from hipq.stores.postgres.store import PostgresStore
from hipq.stores.values import QueueTables
from tests.contract.jobs import NOW, add, new, row_of
from tests.servers import fresh_database

T = TypeVar("T")


class Counted(Protocol):
    def __call__(self, call: Callable[[], T]) -> tuple[int, T]: ...


@pytest.fixture
def store() -> Iterator[PostgresStore]:
    with fresh_database() as url, closing(PostgresStore(url)) as store:
        store.migrate()
        yield store


@pytest.fixture
def queue(store: PostgresStore) -> QueueTables:
    return store.queue("shop", "orders", "shop_orders")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    trips = 0
    wait = Session.wait

    def waited(self: Session, *given: Any, **more: Any) -> Any:
        nonlocal trips
        trips += 1
        return wait(self, *given, **more)

    def count(call: Callable[[], T]) -> tuple[int, T]:
        nonlocal trips
        trips = 0
        found = call()
        return trips, found

    monkeypatch.setattr(Session, "wait", waited)
    return count


@pytest.mark.parametrize(("lanes", "most"), [("ordered", 6), ("fair", 8)])
def test_a_turn_under_limits_takes_few(
    store: PostgresStore, queue: QueueTables, counted: Counted, lanes: str, most: int
) -> None:
    """BEGIN, what saves, the lock, all that is read under it, what claims, COMMIT. Where lanes take turns, also the
    heads of the lanes before the one that came last, and what is behind them."""
    store.change_rules(queue.number, lambda rules: replace(rules, limits=(limit(20), per_lane(8)), lanes=lanes))
    engine_id = store.take_lease(100, "engine")
    add(store, [new(queue.number, lane=lane) for lane in "abc"] * 24)
    wanted = Claim(queue.number, ("charge",), 20)
    won = store.turn(engine_id, [], [wanted], NOW).won  # after which the rules are known
    for _ in range(2):
        changes = [Change(row, transitions.succeeded(row, "null", 200, NOW)) for row in won]
        trips, turned = counted(lambda: store.turn(engine_id, changes, [wanted], NOW))  # noqa: B023 - called here
        assert (trips <= most, len(turned.lost), len(turned.won)) == (True, 0, 20), trips
        won = turned.won


def test_what_is_read_ahead_starts_nothing_that_came_meanwhile(store: PostgresStore, queue: QueueTables) -> None:
    """Whatever becomes ready after a look that finds no job is left to the next claim, which sums up what counts."""
    store.change_rules(queue.number, lambda rules: replace(rules, limits=(limit(1),)))
    engine_id = store.take_lease(100, "engine")
    add(store, [new(queue.number)])
    wanted = Claim(queue.number, ("charge",), 20)
    assert len(store.turn(engine_id, [], [wanted], NOW).won) == 1
    reader = store._rulebook.reader
    with store._reading() as sql:
        found = reader(sql, queue.number, NOW)
        found.look_ahead(["charge"], ["charge"], ("", "", 0), 10, [], 10)
        add(store, [new(queue.number)])
        assert (found.held().by_lane, found.heads(["charge"], ("", "", 0), 20)) == ({"": UNIT}, [])
        assert len(reader(sql, queue.number, NOW).heads(["charge"], ("", "", 0), 20)) == 1
    assert not store.turn(engine_id, [], [wanted], NOW).won


def test_one_job_is_one_round_trip_from_its_connections_third_on(
    store: PostgresStore, queue: QueueTables, counted: Counted
) -> None:
    """The first is sent with its types, the second after it was prepared. If that is gone, it is prepared anew."""

    ids = []

    def trips() -> int:
        taken, stored = counted(lambda: store.enqueue([new(queue.number)]))
        ids.append(stored[0].id)
        return taken

    assert [trips() for _ in range(4)] == [1, 2, 1, 1]
    with store._using() as conn:
        conn.execute("DEALLOCATE ALL")
    assert [trips() for _ in range(2)] == [3, 1]
    assert [row_of(store, job_id).job_key for job_id in ids] == [str(job_id) for job_id in ids]
