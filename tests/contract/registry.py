"""The registry owns the names: a queue is found again, and no two share a table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from msgspec.structs import replace

from hipq.engine.throttle import HEAD
from hipq.errors import Conflict, NameClash, NotFound
from hipq.job.model import Change, queue_of
from hipq.job.schedule import Definition, ScheduleChange, Settings
from hipq.job.states import SCHEDULED, WAITING
from hipq.job.ticks import begun
from hipq.stores.claims import Claim
from hipq.stores.filters import AnswerFilter, Filter
from hipq.stores.large import PAYLOAD_LIMIT
from hipq.stores.migrations import relations
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests.contract.database import Database, raw
from tests.contract.jobs import (
    LATER,
    NOW,
    PLACES,
    TYPE,
    add,
    add_one,
    answer,
    bring,
    claim,
    everything,
    finish,
    new,
    row_of,
)


@pytest.fixture
def shop(app: str) -> str:
    """The name of an instance without a queue as yet."""
    return f"{app}_shop"


class TestQueues:
    def test_the_same_queue_again_is_the_same(self, store: Store, other: Store, shop: str) -> None:
        first = store.queue(shop, "orders", f"{shop}_orders")
        assert first == (first.number, shop, "orders", f"{shop}_orders")
        assert 1 <= first.number <= 65_535
        job_id = add_one(store, new(first.number))
        assert store.queue(shop, "orders", f"{shop}_orders") == first
        assert other.queue(shop, "orders", f"{shop}_orders") == first
        assert other.get(job_id) is not None

    def test_numbers_can_be_moved_on(self, store: Store, other: Store, shop: str) -> None:
        """The databases of several shards must not use the same."""
        first = store.queue(shop, "orders", f"{shop}_orders")
        last = store.answer([answer(first.number, "early")], NOW)[0].id
        store.number_above(first.number + 3, last + 1_000)
        other.number_above(1, 1)  # which is long past
        second = other.queue(shop, "more", f"{shop}_more")
        assert second.number > first.number + 3
        assert store.answer([answer(second.number, "early")], NOW)[0].id > last + 1_000
        assert store.queue(shop, "orders", f"{shop}_orders") == first

    def test_each_queue_has_its_number_and_its_table(self, store: Store, other: Store, shop: str) -> None:
        queues = [(store, other)[n % 2].queue(shop, f"q{n}", f"{shop}_q{n}") for n in range(4)]
        assert len({queue.number for queue in queues}) == 4
        assert store.queues(shop) == other.queues(shop) == queues
        ids = [add_one(store, new(queue.number)) for queue in store.queues(shop)]
        assert [queue_of(job_id) for job_id in ids] == [queue.number for queue in queues]

    def test_queues_are_listed_for_one_instance_or_for_all(self, store: Store, shop: str) -> None:
        mine = store.queue(shop, "orders", f"{shop}_orders")
        theirs = store.queue(f"{shop}_too", "orders", f"{shop}_too_orders")
        assert store.queues(shop) == [mine]
        assert store.queues(f"{shop}_too") == [theirs]
        assert store.queues(f"{shop}_nobody") == []
        assert {mine, theirs} <= set(store.queues())

    def test_two_queues_cannot_share_a_table(self, store: Store, other: Store, shop: str) -> None:
        store.queue(shop, "orders", f"{shop}_orders")
        for name, instance in (("mails", shop), ("orders", f"{shop}_too")):
            with pytest.raises(NameClash, match="orders"):
                other.queue(instance, name, f"{shop}_orders")
        assert len(store.queues(shop)) == 1

    @pytest.mark.parametrize(("first", "second"), [("x", "x_final"), ("x_final", "x")])
    def test_a_queue_cannot_be_another_ones_final_table(self, store: Store, shop: str, first: str, second: str) -> None:
        kept = store.queue(shop, first, f"{shop}_{first}")
        with pytest.raises(NameClash):
            store.queue(shop, second, f"{shop}_{second}")
        assert store.queues(shop) == [kept]
        add(store, [new(kept.number)])

    @pytest.mark.parametrize(
        "suffix", ["key", "ready", "stage", "wait", "owner", "todo", "ids", "states", "pkey", "final_key", "waited"]
    )
    @pytest.mark.parametrize("longer_first", [False, True])
    def test_a_queue_named_like_an_index_works_or_is_refused(
        self, store: Store, shop: str, suffix: str, longer_first: bool
    ) -> None:
        names = [f"{shop}_x", f"{shop}_x_{suffix}"]
        if longer_first:
            names.reverse()
        queues = [store.queue(shop, names[0], names[0])]
        try:
            queues.append(store.queue(shop, names[1], names[1]))
        except NameClash:
            pass
        assert store.queues(shop) == queues
        for queue in queues:
            add(store, [new(queue.number, "a")])

    @pytest.mark.parametrize("longer_first", [False, True])
    def test_a_queue_named_like_an_index_is_refused_by_the_name_of_the_other(
        self, store: Store, shop: str, longer_first: bool
    ) -> None:
        first, second = sorted(["q_set", "q_set_key"], reverse=longer_first)
        store.queue(shop, first, f"{shop}_{first}")
        with pytest.raises(NameClash, match=f"queue {shop}.{first} has the table .* something named {shop}_q_set_key;"):
            store.queue(shop, second, f"{shop}_{second}")

    def test_every_name_that_a_queue_takes_is_known(self, store: Store, shop: str, database: Database) -> None:
        store.queue(shop, "orders", f"{shop}_orders")
        found = {name for (name,) in raw(database, database.catalogue) if name.startswith(f"{shop}_orders")}
        assert found
        assert found <= relations(f"{shop}_orders")

    def test_another_naming_strategy_for_a_queue_is_refused(self, store: Store, other: Store, shop: str) -> None:
        kept = store.queue(shop, "orders", f"{shop}_orders")
        with pytest.raises(NameClash, match=f"{shop}_orders"):
            other.queue(shop, "orders", f"{shop}_jobs_orders")
        assert store.queues(shop) == [kept]

    def test_a_table_of_somebody_else_is_not_taken(self, store: Store, shop: str, database: Database) -> None:
        for table in (f"{shop}_orders", f"{shop}_mails_final"):
            raw(database, f"CREATE TABLE {table} (x INTEGER)")
        for name in ("orders", "mails"):
            with pytest.raises(NameClash):
                store.queue(shop, name, f"{shop}_{name}")
        assert store.queues(shop) == []
        for table in (f"{shop}_orders", f"{shop}_mails_final"):
            assert raw(database, f"SELECT count(*) FROM {table}") == [(0,)]

    def test_two_store_objects_see_each_others_jobs(
        self, store: Store, other: Store, engine: int, queue: QueueTables
    ) -> None:
        ids = add(store, [new(queue.number)] * 3)
        assert [row.id for row in everything(other, queue.number)] == ids
        row = finish(other, claim(other, engine, queue.number, limit=1)[0])
        assert row_of(store, row.id) == row
        assert [row.state for row in everything(store, queue.number)] == ["final", "initial", "initial"]

    def test_a_queue_another_process_registered_is_known_by_its_number(
        self, store: Store, other: Store, shop: str
    ) -> None:
        queue = store.queue(shop, "orders", f"{shop}_orders")  # `other` was opened before, and never told
        job_id = add_one(store, new(queue.number))
        assert other.get(job_id) == store.get(job_id)
        assert other.find(Filter(queue.number)) == [store.get(job_id)]

    def test_every_verb_knows_a_queue_another_process_registered(
        self, store: Store, database: Database, shop: str
    ) -> None:
        number = store.queue(shop, "orders", f"{shop}_orders").number
        engine_id = store.take_lease(3600, "engine")
        add(store, [new(number)] * 2)
        row = claim(store, engine_id, number, limit=1)[0]

        def knows(verb: Callable[[Store], object]) -> None:
            fresh = database.open()  # never told of any queue
            try:
                verb(fresh)
            finally:
                fresh.close()

        knows(lambda fresh: add(fresh, [new(number)]))
        knows(lambda fresh: fresh.stage(number, SCHEDULED, NOW, 10))
        knows(lambda fresh: fresh.turn(engine_id, [], [Claim(number, (TYPE,), 1)], NOW))
        knows(lambda fresh: finish(fresh, row))
        knows(lambda fresh: fresh.due(number, WAITING, NOW, 10))
        knows(lambda fresh: fresh.owned([number], None, 10))
        knows(lambda fresh: fresh.owned([number], engine_id))
        knows(lambda fresh: fresh.peek([(number, (TYPE,))]))
        knows(lambda fresh: fresh.find(Filter(number)))
        knows(lambda fresh: fresh.prune(number, (LATER, 0), 10))
        with closing(database.connect()) as conn:
            knows(lambda fresh: fresh.enqueue([new(number)], conn=conn))
            conn.commit()
        assert len(everything(store, number)) == 3

    def test_a_number_no_queue_has_is_not_found(self, store: Store, queue: QueueTables, database: Database) -> None:
        nobody = 65_000
        row = row_of(store, add_one(store, new(queue.number)))
        strange = replace(row, id=row.id - queue.number + nobody)
        verbs: list[Callable[[], object]] = [
            lambda: store.enqueue([new(nobody)]),
            lambda: store.enqueue([new(queue.number), new(nobody)]),
            lambda: store.stage(nobody, SCHEDULED, NOW, 10),
            lambda: store.turn(store.take_lease(60, "engine"), [], [Claim(nobody, (TYPE,), 1)], NOW),
            lambda: store.turn(0, [Change(strange, strange)], [], NOW),
            lambda: store.due(nobody, WAITING, NOW, 10),
            lambda: store.owned([queue.number, nobody], None, 10),
            lambda: store.owned([nobody], 1),
            lambda: store.peek([(nobody, (TYPE,))]),
            lambda: store.find(Filter(nobody)),
            lambda: store.prune(nobody, (NOW, 0), 10),
        ]
        for verb in verbs:
            with pytest.raises(NotFound, match="65000"):
                verb()
        with closing(database.connect()) as conn, pytest.raises(NotFound):
            store.enqueue([new(nobody)], conn=conn)
        assert everything(store, queue.number) == [row]


def fill(store: Store, queue: int) -> list[int]:
    """A queue with some of everything, in nobody's hands; the ids of its jobs."""
    engine = store.take_lease(3600, "test")
    rows = [
        bring(store, engine, queue, place, job_type=f"type{n}", job_data='"' + "x" * PAYLOAD_LIMIT + '"')
        for n, place in enumerate(PLACES)
    ]
    done = finish(store, bring(store, engine, queue, "executing"))
    store.answer([answer(queue, "early"), answer(queue, done.job_key)], NOW)
    assert store.ask(engine, Claim(queue, (TYPE,), 10), HEAD, 60, 10, NOW) is not None
    store.change_schedules(queue, [ScheduleChange(None, begun("daily", TYPE, Definition(Settings("0 0 * * *")), NOW))])
    store.renew_lease(engine, 0)
    return [row.id for row in (*rows, done)]


def filed(database: Database, queue: int) -> dict[str, int]:
    """How many rows the tables that all queues share have under a number."""
    conditions = {
        "answers": "queue",
        "tickets": "queue",
        "crons": "queue",
        "queues": "number",
        "payloads": "id % 65536",
    }
    return {
        name: int(raw(database, f"SELECT count(*) FROM hipq_{name} WHERE {column} = {queue}")[0][0])
        for name, column in conditions.items()
    }


class TestDroppedQueues:
    def test_a_dropped_queue_leaves_nothing_and_takes_nothing_of_others(
        self, store: Store, other: Store, shop: str, database: Database
    ) -> None:
        queue, beside = (store.queue(shop, name, f"{shop}_{name}") for name in ("orders", "mails"))
        ids, kept = fill(store, queue.number), fill(store, beside.number)
        rows, shared = everything(store, beside.number), filed(database, beside.number)
        assert filed(database, queue.number) == shared
        assert min(shared.values()) > 0
        store.drop_queue(queue.number)
        assert set(filed(database, queue.number).values()) == {0}
        assert store.queues(shop) == other.queues(shop) == [beside]
        assert [store.get(job_id) for job_id in ids] == [None] * len(ids)
        assert store.answers(AnswerFilter(queue.number)) == []
        for table in (queue.table, f"{queue.table}_final"):
            raw(database, f"CREATE TABLE {table} (x INTEGER)")  # which it could not, were it there
        assert everything(store, beside.number) == rows
        assert {row.id for row in rows} == set(kept)
        assert filed(database, beside.number) == shared

    def test_its_number_is_not_given_again(self, store: Store, other: Store, shop: str) -> None:
        first, second = (store.queue(shop, name, f"{shop}_{name}") for name in ("orders", "mails"))
        store.drop_queue(second.number)
        store.drop_queue(first.number)
        third = other.queue(shop, "bills", f"{shop}_bills")
        assert third.number > second.number > first.number
        with pytest.raises(NotFound):
            store.enqueue([new(second.number)])

    def test_a_queue_of_its_name_begins_anew(self, store: Store, other: Store, engine: int, shop: str) -> None:
        before = store.queue(shop, "orders", f"{shop}_orders")
        fill(store, before.number)
        store.drop_queue(before.number)
        after = store.queue(shop, "orders", f"{shop}_orders")
        assert after.number > before.number
        assert everything(store, after.number) == []
        for one in (store, other):
            job_id = add_one(one, new(after.number))
            assert queue_of(job_id) == after.number
            (row,) = claim(one, engine, after.number)
            assert row_of(other, finish(one, row).id).state == "final"

    def test_while_an_engine_serves_it_nothing_is_dropped(self, store: Store, other: Store, shop: str) -> None:
        queue = store.queue(shop, "orders", f"{shop}_orders")
        ids = fill(store, queue.number)
        engine = other.take_lease(3600, "a machine", f'{{"{queue.number}": ["{TYPE}"]}}')
        with pytest.raises(Conflict, match=r"orders.*a machine"):
            store.drop_queue(queue.number)
        assert sorted(row.id for row in everything(store, queue.number)) == sorted(ids)
        other.renew_lease(engine, 0)
        store.drop_queue(queue.number)
        assert store.queues(shop) == []

    def test_while_an_engine_has_a_job_of_it_nothing_is_dropped(self, store: Store, shop: str) -> None:
        queue = store.queue(shop, "orders", f"{shop}_orders")
        engine = store.take_lease(3600, "a machine")
        row = bring(store, engine, queue.number, "executing")
        with pytest.raises(Conflict, match="a machine"):
            store.drop_queue(queue.number)
        assert finish(store, row).state == "final"
        store.drop_queue(queue.number)
        assert store.queues(shop) == []

    def test_a_dead_engines_job_keeps_nobody_from_dropping_it(self, store: Store, shop: str) -> None:
        queue = store.queue(shop, "orders", f"{shop}_orders")
        engine = store.take_lease(3600, "a machine", f'{{"{queue.number}": ["{TYPE}"]}}')
        bring(store, engine, queue.number, "executing")
        store.renew_lease(engine, 0)
        store.drop_queue(queue.number)
        assert store.queues(shop) == []

    def test_a_number_no_queue_has_cannot_be_dropped(self, store: Store, shop: str) -> None:
        queue = store.queue(shop, "orders", f"{shop}_orders")
        with pytest.raises(NotFound, match="65000"):
            store.drop_queue(65_000)
        store.drop_queue(queue.number)
        with pytest.raises(NotFound, match=str(queue.number)):
            store.drop_queue(queue.number)
