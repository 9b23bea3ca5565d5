"""What a store does while somebody else's transaction is in the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import psycopg
import pytest
from msgspec.structs import replace

from hipq.engine.throttle import HEAD
from hipq.errors import StoreBusy
from hipq.job import transitions
from hipq.job.model import Change
from hipq.limits.limit import limit
from hipq.stores.claims import Claim
from hipq.stores.open import without_password
from hipq.stores.postgres import connection
from hipq.stores.postgres.session import LOCK_SECONDS
from hipq.stores.postgres.store import PostgresStore
from hipq.stores.values import QueueTables, Stored
from tests.contract.jobs import NOW, add, add_one, claim, new, row_of
from tests.servers import fresh_database

LEASE_SECONDS: Final = 10.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with fresh_database() as url:
        yield url


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(url)) as store:
        store.migrate()
        yield store


@pytest.fixture
def queue(store: PostgresStore) -> QueueTables:
    return store.queue("shop", "orders", "shop_orders")


def test_a_turn_gives_up_long_before_its_lease_ends(store: PostgresStore, queue: QueueTables, url: str) -> None:
    engine_id = store.take_lease(LEASE_SECONDS, "engine")
    add(store, [new(queue.number)] * 2)
    held, free = claim(store, engine_id, queue.number)
    done, also_done = (Change(row, transitions.succeeded(row, "null", 200, NOW)) for row in (held, free))
    with closing(psycopg.connect(url)) as conn:
        conn.execute(f"SELECT FROM {queue.table} WHERE id = {held.id} FOR UPDATE".encode())
        started = time.monotonic()
        with pytest.raises(StoreBusy, match="another transaction"):
            store.turn(engine_id, [done, also_done], [], NOW)
        assert time.monotonic() - started < LEASE_SECONDS / 3
        assert store.turn(engine_id, [also_done], [], NOW).lost == frozenset()
    assert store.turn(engine_id, [done], [], NOW).lost == frozenset()


@pytest.mark.parametrize("jobs", [1, 2, 300])
def test_a_program_that_adds_a_job_waits_longer(store: PostgresStore, queue: QueueTables, url: str, jobs: int) -> None:
    key = f"key {jobs}"
    stored: list[Stored] = []
    wanted = [new(queue.number, key), *[new(queue.number)] * (jobs - 1)]
    thread = threading.Thread(target=lambda: stored.extend(store.enqueue(wanted)))
    with closing(psycopg.connect(url)) as conn:
        ((holder, _),) = store.enqueue([new(queue.number, key)], conn=conn)
        thread.start()
        thread.join(LOCK_SECONDS + 0.5)
        assert thread.is_alive(), "it gave up"
        conn.commit()
        thread.join(30)
    assert stored[0] == (holder, True)
    assert len(stored) == jobs
    assert not any(one.duplicate for one in stored[1:])


def test_its_patience_ends_too_and_nothing_is_added(
    store: PostgresStore, queue: QueueTables, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CALLER_SECONDS", LOCK_SECONDS + 0.2)
    with closing(psycopg.connect(url)) as conn:
        store.enqueue([new(queue.number, "taken")], conn=conn)
        with pytest.raises(StoreBusy):
            store.enqueue([new(queue.number, "taken")])
    job_id = add_one(store, new(queue.number, "taken"))
    assert row_of(store, job_id).job_key == "taken"
    with store._using() as conn:
        assert conn.execute("SHOW lock_timeout").fetchone() == ("1500ms",)  # as before


def test_a_renewal_that_is_not_committed_yet_does_not_end_a_lease(store: PostgresStore, queue: QueueTables) -> None:
    """The time an orphan is judged by is that of the statement, which no evaluation inside it moves on."""
    for name in ("orphans", "take_lease"):
        text = store._statements.files[name]
        assert "lease_until > clock_timestamp()" not in text, name
        assert "lease_until <= clock_timestamp()" not in text, name
    assert store.owned([queue.number], None, 10) == []


def test_there_is_one_way_to_hide_a_password(url: str) -> None:
    sign = "&" if "?" in url else "?"
    with closing(PostgresStore(f"{url}{sign}password=s3cret")) as store:
        assert store.url == without_password(f"{url}{sign}password=s3cret")


@pytest.mark.parametrize("lanes", ["ordered", "fair"])
def test_a_claim_finds_what_is_behind_those_that_others_are_claiming(
    store: PostgresStore, url: str, lanes: str
) -> None:
    queue = store.queue("shop", lanes, f"shop_{lanes}")
    store.change_rules(queue.number, lambda rules: replace(rules, lanes=lanes))
    add(store, [new(queue.number, lane=f"lane{n:03}") for n in range(20) for _ in range(5)])
    engine = store.take_lease(60, "test")
    with closing(psycopg.connect(url)) as other:
        other.execute(f"SELECT FROM {queue.table} WHERE lane < 'lane004' FOR UPDATE".encode())
        won = claim(store, engine, queue.number, limit=10)
        assert [row.lane for row in won if row.lane < "lane004"] == []
        assert len(won) == 10
        other.execute(f"SELECT FROM {queue.table} FOR UPDATE".encode())
        turned = store.turn(engine, [], [Claim(queue.number, ("charge",), 10)], NOW)
        assert (turned.won, turned.refused) == ([], {queue.number: NOW}), "they are all taken: look again"


def test_who_asks_waits_for_a_claim_before_it_takes_the_ticket(store: PostgresStore, url: str) -> None:
    """A claim has the admission lock and then looks at its ticket: the other way round they would deadlock."""
    queue = store.queue("shop", "asked", "shop_asked")
    store.change_rules(queue.number, lambda rules: replace(rules, limits=(limit(5),), throttled=True))
    engine, wanted = store.take_lease(60, "test"), Claim(queue.number, ("charge",), 10)
    first = store.ask(engine, wanted, HEAD, 60, 500, NOW)
    assert first is not None
    with closing(psycopg.connect(url)) as claiming:
        claiming.execute("SET lock_timeout = '300ms'")
        claiming.execute("SELECT FROM hipq_queues WHERE number = %s FOR UPDATE", (queue.number,))
        asking = threading.Thread(target=lambda: store.ask(engine, wanted, HEAD, 60, 500, NOW))
        asking.start()
        asking.join(0.3)
        assert asking.is_alive()
        claiming.execute("UPDATE hipq_tickets SET engine_id = 0 WHERE queue = %s", (queue.number,))
        claiming.commit()
        asking.join(10)
    again = store.ask(engine, wanted, HEAD, 60, 500, NOW)
    assert again is not None
    assert again.ticket == first.ticket + 2


def test_it_tells_which_queues_somebody_has_locked_or_waits_to_lock(store: PostgresStore, url: str) -> None:
    """Also where a lock is only asked for: whoever comes after that waits behind it."""
    one, other = (store.queue("shop", name, f"shop_{name}") for name in ("one", "other"))
    numbers = [one.number, other.number]
    assert store.locked(numbers) == set()
    with closing(psycopg.connect(url)) as reading, closing(psycopg.connect(url)) as altering:
        reading.execute(f"SELECT FROM {one.table}".encode())
        assert store.locked(numbers) == set()
        lock = f"LOCK TABLE {one.table} IN ACCESS EXCLUSIVE MODE".encode()
        thread = threading.Thread(target=lambda: altering.execute(lock))
        thread.start()
        while store.locked(numbers) != {one.number}:
            assert thread.is_alive()
        reading.rollback()
        thread.join(60)
        assert store.locked(numbers) == {one.number}
        assert store.locked([other.number]) == set()
        altering.rollback()
    assert store.locked(numbers) == set()
