"""The registry owns the names: a queue is found again, and no two share a table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from msgspec.structs import replace

from hipq.errors import NameClash, NotFound
from hipq.job.model import Change, queue_of
from hipq.stores.base import Claim, Filter, QueueTables, Store
from hipq.testing.contract.database import Database, raw
from hipq.testing.contract.jobs import LATER, NOW, TYPE, add, add_one, claim, everything, finish, new, row_of


@pytest.fixture
def shop(app: str) -> str:
    """The name of an instance without a queue as yet."""
    return f"{app}_shop"


class TestQueues:
    def test_the_same_queue_again_is_the_same(self, store: Store, other: Store, shop: str) -> None:
        first = store.queue(shop, "orders", f"{shop}_orders")
        assert first == (first.number, shop, "orders", f"{shop}_orders")
        assert 1 <= first.number <= 65_535
        id = add_one(store, new(first.number))
        assert store.queue(shop, "orders", f"{shop}_orders") == first
        assert other.queue(shop, "orders", f"{shop}_orders") == first
        assert other.get(id) is not None

    def test_each_queue_has_its_number_and_its_table(self, store: Store, other: Store, shop: str) -> None:
        queues = [(store, other)[n % 2].queue(shop, f"q{n}", f"{shop}_q{n}") for n in range(4)]
        assert len({queue.number for queue in queues}) == 4
        assert store.queues(shop) == other.queues(shop) == queues
        ids = [add_one(store, new(queue.number)) for queue in store.queues(shop)]
        assert [queue_of(id) for id in ids] == [queue.number for queue in queues]

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
        "suffix", ["key", "ready", "stage", "wait", "owner", "todo", "ids", "states", "pkey", "final_key"]
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
        id = add_one(store, new(queue.number))
        assert other.get(id) == store.get(id)
        assert other.find(Filter(queue.number)) == [store.get(id)]

    def test_every_verb_knows_a_queue_another_process_registered(
        self, store: Store, database: Database, shop: str
    ) -> None:
        number = store.queue(shop, "orders", f"{shop}_orders").number
        sysid = store.take_lease(3600, "engine")
        add(store, [new(number)] * 2)
        row = claim(store, sysid, number, limit=1)[0]

        def knows(verb: Callable[[Store], object]) -> None:
            fresh = database.open()  # never told of any queue
            try:
                verb(fresh)
            finally:
                fresh.close()

        knows(lambda fresh: add(fresh, [new(number)]))
        knows(lambda fresh: fresh.stage(number, NOW, 10))
        knows(lambda fresh: fresh.turn(sysid, [], [Claim(number, (TYPE,), 1)], NOW))
        knows(lambda fresh: finish(fresh, row))
        knows(lambda fresh: fresh.overdue(number, NOW, 10))
        knows(lambda fresh: fresh.orphans([number], 10))
        knows(lambda fresh: fresh.owned([number], sysid))
        knows(lambda fresh: fresh.glance([(number, (TYPE,))]))
        knows(lambda fresh: fresh.find(Filter(number)))
        knows(lambda fresh: fresh.prune(number, LATER, 10))
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
            lambda: store.stage(nobody, NOW, 10),
            lambda: store.turn(store.take_lease(60, "engine"), [], [Claim(nobody, (TYPE,), 1)], NOW),
            lambda: store.turn(0, [Change(strange, strange)], [], NOW),
            lambda: store.overdue(nobody, NOW, 10),
            lambda: store.orphans([queue.number, nobody], 10),
            lambda: store.owned([nobody], 1),
            lambda: store.glance([(nobody, (TYPE,))]),
            lambda: store.find(Filter(nobody)),
            lambda: store.prune(nobody, NOW, 10),
        ]
        for verb in verbs:
            with pytest.raises(NotFound, match="65000"):
                verb()
        with closing(database.connect()) as conn, pytest.raises(NotFound):
            store.enqueue([new(nobody)], conn=conn)
        assert everything(store, queue.number) == [row]
