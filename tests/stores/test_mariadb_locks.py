"""MariaDB's locks by row: two transactions that meet inside, not by chance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest

from hipq.limits.limit import limit
from hipq.stores.mariadb.connection import Session
from hipq.stores.mariadb.store import MariaStore
from hipq.stores.values import QueueTables
from tests.contract.jobs import NOW, add, answer, claim, everything, new
from tests.contract.rules import set_rules
from tests.mariadb_server import fresh_maria
from tests.stores.mariadb_races import race_at_a_limit, race_of_an_answer


@pytest.fixture
def stores() -> Iterator[tuple[MariaStore, MariaStore]]:
    with fresh_maria() as url, closing(MariaStore(url)) as first, closing(MariaStore(url)) as second:
        first.migrate()
        yield first, second


@pytest.fixture
def queue(stores: tuple[MariaStore, MariaStore]) -> QueueTables:
    return stores[0].queue("shop", "orders", "shop_orders")


def test_two_engines_never_claim_under_a_limit_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, stores: tuple[MariaStore, MariaStore], queue: QueueTables
) -> None:
    assert race_at_a_limit(monkeypatch, *stores, queue).met == 0


def test_an_answer_and_its_job_never_look_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, stores: tuple[MariaStore, MariaStore], queue: QueueTables
) -> None:
    assert race_of_an_answer(monkeypatch, *stores, queue).met == 0


def test_what_is_locked_by_row_is_written(stores: tuple[MariaStore, MariaStore], queue: QueueTables) -> None:
    """A lock that is only read is known to one node of a cluster. A row that two nodes write is written by one."""
    store, _ = stores
    engine = store.take_lease(600, "engine")
    set_rules(store, queue.number, [limit(2)])
    add(store, [new(queue.number)] * 3)
    for count, wanted in ((1, 1), (2, 1), (2, 0)):
        assert len(claim(store, engine, queue.number, limit=1)) == wanted
        assert asked(store, "SELECT claims FROM hipq_queues") == count
    store.answer([answer(queue.number, "early")] * 2, NOW)
    assert asked(store, "SELECT taken FROM hipq_locks WHERE number > 0") == 1
    for _ in range(2):
        store.answer([answer(queue.number, "early")], NOW)
    assert asked(store, "SELECT taken FROM hipq_locks WHERE number > 0") == 3
    for number in (1, 2):
        ticket = store._transaction(lambda sql: store._take_ticket(sql, queue.number, engine, 60))
        assert ticket == asked(store, "SELECT number FROM hipq_tickets") == number


def test_a_conflict_at_the_commit_is_begun_again(
    monkeypatch: pytest.MonkeyPatch, stores: tuple[MariaStore, MariaStore], queue: QueueTables
) -> None:
    """As a node of Galera says it. What was not committed is not acknowledged, and is there once in the end."""
    store, _ = stores
    conflicts: list[str] = []
    real = Session.run

    def run(conn: Session, query: str, values: Any = None) -> Any:
        if query == "COMMIT" and len(conflicts) < 3:
            conflicts.append(query)
            real(conn, "ROLLBACK")
            raise pymysql.OperationalError(1213, "Deadlock found when trying to get lock; try restarting transaction")
        return real(conn, query, values)

    engine = store.take_lease(600, "engine")
    monkeypatch.setattr(Session, "run", run)
    ids = add(store, [new(queue.number, key) for key in "ab"])
    assert len(conflicts) == 3
    assert [row.id for row in everything(store, queue.number)] == ids
    conflicts.clear()
    assert [row.id for row in claim(store, engine, queue.number)] == ids
    assert len(conflicts) == 3
    assert {row.attempt for row in everything(store, queue.number)} == {1}


def asked(store: MariaStore, query: str) -> int:
    with store._using() as conn:
        ((found,),) = conn.run(query).fetchall()
    return int(found)
