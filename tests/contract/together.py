"""Several at once, in threads and in processes: nothing is lost, nothing happens twice."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import TypeVar

import msgspec
import pytest

from hipq.job import transitions
from hipq.job.model import Change, Row
from hipq.job.states import FINAL, SCHEDULED
from hipq.stores.claims import Claim
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables, Stored
from hipq.testing.clock import HandClock
from tests.contract import other_process
from tests.contract.database import Database
from tests.contract.jobs import LATER, NOW, TYPE, add, add_one, claim, everything, new, row_of, waits

T = TypeVar("T")


@pytest.fixture
def stores(store: Store, database: Database, clock: HandClock, queue: QueueTables) -> Iterator[list[Store]]:
    """Four store objects on one database, as four processes have them."""
    more = [database.open(clock) for _ in range(3)]
    for one in more:
        one.queues()
    assert queue in more[0].queues()
    yield [store, *more]
    for one in more:
        one.close()


def at_once(act: Callable[[int], T], threads: int = 8) -> list[T]:
    """Run it in so many threads that start together."""
    barrier = Barrier(threads)

    def run(n: int) -> T:
        barrier.wait()
        return act(n)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))


class TestThreads:
    def test_the_same_key_from_many_threads_is_one_job(self, stores: list[Store], queue: QueueTables) -> None:
        for key in ("a", "b", "c", "d", "e"):
            stored = at_once(lambda n, key=key: stores[n % 4].enqueue([new(queue.number, key)])[0])  # type: ignore[misc]
            assert len({one.id for one in stored}) == 1
            assert sum(not one.duplicate for one in stored) == 1
        assert len(everything(stores[0], queue.number)) == 5

    def test_the_same_keys_in_any_order_are_one_job_each(
        self, stores: list[Store], queue: QueueTables, queue2: QueueTables
    ) -> None:
        for one in stores:
            one.queues()

        def act(n: int) -> list[Stored]:
            jobs = [new(number, f"k{m}") for m in range(50) for number in (queue.number, queue2.number)]
            random.Random(n).shuffle(jobs)
            return stores[n % 4].enqueue(jobs)

        stored = [one for some in at_once(act) for one in some]
        assert sum(not one.duplicate for one in stored) == 100
        assert len({one.id for one in stored}) == 100
        assert len(everything(stores[0], queue.number)) == len(everything(stores[0], queue2.number)) == 50

    def test_all_or_nothing_from_many_threads_is_one_batch(self, stores: list[Store], queue: QueueTables) -> None:
        def act(n: int) -> bool:
            jobs = [new(queue.number, f"k{m}") for m in range(20)]
            try:
                stores[n % 4].enqueue(jobs[::-1] if n % 2 else jobs, all_or_nothing=True)
            except ValueError:
                return False
            return True

        assert sum(at_once(act)) == 1
        assert len(everything(stores[0], queue.number)) == 20

    def test_many_threads_lose_no_job(self, stores: list[Store], queue: QueueTables) -> None:
        def act(n: int) -> list[int]:
            return [
                job_id
                for m in range(15)
                for job_id in add(stores[n % 4], [new(queue.number, f"{n}-{m}"), new(queue.number)])
            ]

        ids = [job_id for some in at_once(act) for job_id in some]
        assert len(set(ids)) == 8 * 15 * 2
        assert [row.id for row in everything(stores[0], queue.number)] == sorted(ids)

    def test_a_key_may_end_while_it_is_asked_for(self, stores: list[Store], queue: QueueTables) -> None:
        done = Event()

        def ask(store: Store) -> list[Stored]:
            return [store.enqueue([new(queue.number, "a")])[0] for _ in range(60)]

        def end(store: Store) -> list[Stored]:
            engine_id = store.take_lease(60, "engine")
            while not done.is_set():
                rows = claim(store, engine_id, queue.number)
                store.turn(
                    engine_id, [Change(row, transitions.succeeded(row, "null", 200, NOW)) for row in rows], [], NOW
                )
            return []

        def act(n: int) -> list[Stored]:
            if n == 0:
                return end(stores[0])
            try:
                return ask(stores[n])
            finally:
                if n == 1:
                    done.set()

        stored = [one for some in at_once(act, 4) for one in some]
        rows = everything(stores[0], queue.number)
        assert sorted(one.id for one in stored if not one.duplicate) == [row.id for row in rows]
        assert {one.id for one in stored} == {row.id for row in rows}

    def test_two_engines_never_claim_the_same_job(self, stores: list[Store], queue: QueueTables) -> None:
        ids = add(stores[0], [new(queue.number)] * 400)

        def act(n: int) -> list[Row]:
            store, ran = stores[n % 4], []
            engine_id = store.take_lease(60, f"engine {n}")
            won = claim(store, engine_id, queue.number, limit=7)
            while won:
                ran += won
                changes = [Change(row, transitions.succeeded(row, str(engine_id), 200, NOW)) for row in won]
                turned = store.turn(engine_id, changes, [Claim(queue.number, (TYPE,), 7)], NOW)
                assert turned.lost == frozenset()
                won = turned.won
            return ran

        ran = [row for some in at_once(act, 4) for row in some]
        assert sorted(row.id for row in ran) == ids
        rows = everything(stores[0], queue.number)
        assert {(row.state, row.attempt) for row in rows} == {(FINAL, 1)}
        assert {row.id: str(row.owner) for row in ran} == {row.id: row.result for row in rows}

    def test_of_two_writes_of_a_row_one_is_lost(self, stores: list[Store], engine: int, queue: QueueTables) -> None:
        add(stores[0], [new(queue.number)] * 60)
        rows = claim(stores[0], engine, queue.number)

        def act(n: int) -> frozenset[int]:
            changes = [
                Change(row, transitions.succeeded(row, str(n), 200, NOW) if n % 2 else waits(row, LATER, NOW))
                for row in (rows[::-1] if n // 2 % 2 else rows)
            ]
            return stores[n].turn(engine, changes, [], NOW).lost

        lost = Counter(job_id for some in at_once(act, 4) for job_id in some)
        assert lost == {row.id: 3 for row in rows}
        assert {row.token for row in everything(stores[0], queue.number)} == {rows[0].token + 1}

    def test_a_row_is_staged_once(self, stores: list[Store], queue: QueueTables) -> None:
        ids = add(stores[0], [new(queue.number, scheduled_run_time=LATER)] * 100)
        staged = at_once(lambda n: sum(stores[n].stage(queue.number, SCHEDULED, LATER, 10) for _ in range(20)), 4)
        assert sum(staged) == 100
        assert {row_of(stores[0], job_id).token for job_id in ids} == {1}

    def test_a_final_row_is_pruned_once(self, stores: list[Store], engine: int, queue: QueueTables) -> None:
        add(stores[0], [new(queue.number)] * 100)
        rows = claim(stores[0], engine, queue.number)
        stores[0].turn(0, [Change(row, transitions.succeeded(row, "null", 200, NOW)) for row in rows], [], NOW)

        def act(n: int) -> int:
            deleted = 0
            while (pruned := stores[n].prune(queue.number, (LATER, 0), 10)).last is not None:
                deleted += pruned.deleted  # may be 0: rows another prune holds are passed over
            return deleted

        assert sum(at_once(act, 4)) == 100

    def test_a_queue_registered_by_many_at_once_is_one_queue(self, stores: list[Store], app: str) -> None:
        for name in ("p", "q", "r"):
            found = at_once(lambda n, name=name: stores[n].queue(app, name, f"{app}_{name}"), 4)  # type: ignore[misc]
            assert len(set(found)) == 1
        assert len({queue.number for queue in stores[0].queues(app)}) == len(stores[0].queues(app))

    def test_engines_that_start_at_once_have_numbers_of_their_own(self, stores: list[Store]) -> None:
        taken = at_once(lambda n: [stores[n % 4].take_lease(60, "engine") for _ in range(5)])
        assert len({engine_id for some in taken for engine_id in some}) == 40


class TestProcesses:
    def test_what_a_process_was_told_survives_its_death(
        self, store: Store, queue: QueueTables, database: Database
    ) -> None:
        with other_process.start("die", database.url, queue.number) as process:
            output, _ = process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL
        ids = msgspec.json.decode(output, type=list[int])
        rows = everything(store, queue.number)
        assert [row.id for row in rows] == ids
        assert [row.state for row in rows] == ["final", "running", "initial", "initial", "initial"]
        assert add_one(store, new(queue.number)) > ids[-1]
        assert database.intact()

    def test_four_processes_run_every_job_once(self, store: Store, queue: QueueTables, database: Database) -> None:
        processes = [other_process.start("work", database.url, queue.number) for _ in range(4)]
        outputs = [process.communicate(timeout=120)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * 4
        ran = [job_id for output in outputs for job_id in msgspec.json.decode(output, type=list[int])]
        rows = everything(store, queue.number)
        assert len(rows) == 4 * other_process.JOBS
        assert sorted(ran) == [row.id for row in rows]
        assert {(row.state, row.attempt, row.code) for row in rows} == {(FINAL, 1, "ok")}
        assert database.intact()
