"""Adding jobs: ids, keys, and every field as it was given."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hipq.errors import DuplicateKey
from hipq.job import transitions
from hipq.job.model import COLUMNS, Change, New, blank, queue_of
from hipq.job.names import FACTOR_MAX
from hipq.job.order import PRIORITY_MAX, PRIORITY_MIN
from hipq.job.when import LATEST, LONGEST
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables, Stored
from tests.contract.database import Database, raw
from tests.contract.jobs import NOW, TYPE, add, add_one, bring, claim, everything, finish, new, row_of


class TestEnqueue:
    @pytest.mark.parametrize("count", [1, 3, 300, 2000])
    def test_a_batch_is_stored_whole_and_in_order(self, store: Store, queue: QueueTables, count: int) -> None:
        jobs = [new(queue.number, f"k{n}", job_data=f'{{"n":{n}}}') for n in range(count)]
        ids = add(store, jobs)
        assert ids == sorted(set(ids))
        assert everything(store, queue.number) == [blank(job, job_id) for job, job_id in zip(jobs, ids, strict=True)]

    def test_an_empty_batch_stores_nothing(self, store: Store, queue: QueueTables) -> None:
        assert store.enqueue([]) == []
        assert everything(store, queue.number) == []

    def test_a_new_job_has_been_touched_by_nobody(self, store: Store, queue: QueueTables) -> None:
        row = row_of(store, add_one(store, new(queue.number, "order-17")))
        assert (row.state, row.phase, row.error, row.code) == ("initial", "ready", "NONE", "NONE")
        assert (row.attempt, row.failures, row.crashes, row.owner, row.held, row.deadline) == (0, 0, 0, 0, 0, 0)
        assert (row.result, row.history, row.update_time) == ("", "[]", row.create_time)

    def test_ids_grow_from_batch_to_batch(self, store: Store, other: Store, queue: QueueTables) -> None:
        ids = [job_id for n in range(10) for job_id in add((store, other)[n % 2], [new(queue.number)] * (n + 1))]
        assert ids == sorted(set(ids))

    def test_an_id_carries_the_number_of_its_queue(self, store: Store, queue: QueueTables, queue2: QueueTables) -> None:
        jobs = [new((queue, queue2)[n % 3 == 0].number, f"k{n}") for n in range(30)]
        ids = add(store, jobs)
        assert [queue_of(job_id) for job_id in ids] == [job.queue for job in jobs]
        assert [row_of(store, job_id).job_key for job_id in ids] == [job.job_key for job in jobs]

    def test_ids_are_not_used_again_after_a_prune(self, store: Store, engine: int, queue: QueueTables) -> None:
        first = add_one(store, new(queue.number))
        finish(store, claim(store, engine, queue.number)[0])
        assert store.prune(queue.number, (NOW + 1, 0), 10).deleted == 1
        assert add_one(store, new(queue.number)) > first

    def test_no_column_is_null(self, store: Store, engine: int, queue: QueueTables, database: Database) -> None:
        for place in ("executing", "waiting", "deciding", "retry scheduled", "initial ready"):
            bring(store, engine, queue.number, place, job_type=place.replace(" ", "_"))
        finish(store, bring(store, engine, queue.number, "executing"))
        nulls = " OR ".join(f"{column} IS NULL" for column in COLUMNS)
        for table, rows in ((queue.table, 5), (f"{queue.table}_final", 1)):
            assert raw(database, f"SELECT count(*) FROM {table}") == [(rows,)]
            assert raw(database, f"SELECT count(*) FROM {table} WHERE {nulls}") == [(0,)]

    @pytest.mark.parametrize(
        "fields",
        [
            {"tenant": "Società Ünïcode", "job_type": "Ünïcode.type-1", "lane": "ost/北"},
            {"job_key": "order 17 / ключ 🔑 'quoted' \"twice\" \\ % :x ? $1 {live}"},
            {"job_data": '{"text":"\\u0001 \\n \\\\ \'\'"}'},
            {"job_data": '"é 🏦 \u2028 \u202e"'},
            {"job_data": "null"},
            {"job_data": "0.1"},
            {"rank": "f" * 24, "priority": PRIORITY_MAX, "throttle_factor": FACTOR_MAX},
            {"rank": "0" * 18, "priority": PRIORITY_MIN},
            {"scheduled_run_time": LATEST, "create_time": LATEST},
            {"scheduled_run_time": 0, "create_time": 0},
            {"timeout": 0.001},
            {"timeout": 1 / 3},
            {"timeout": 1.001},
            {"timeout": LONGEST},
            {"time_windows": '[["22:00","05:00","Europe/Rome"]]'},
        ],
        ids=lambda fields: " ".join(fields),
    )
    def test_fields_come_back_as_they_were_given(
        self, store: Store, queue: QueueTables, fields: dict[str, object]
    ) -> None:
        job = replace(new(queue.number, "k"), **fields)
        job_id = add_one(store, job)
        assert row_of(store, job_id) == blank(job, job_id)


class TestKeys:
    def test_a_job_without_a_key_has_its_id_as_key(self, store: Store, queue: QueueTables) -> None:
        ids = add(store, [new(queue.number)] * 3)
        assert [row_of(store, job_id).job_key for job_id in ids] == [str(job_id) for job_id in ids]

    def test_a_second_live_job_with_a_key_is_reported(self, store: Store, queue: QueueTables) -> None:
        job_id = add_one(store, new(queue.number, "a", job_data="1"))
        again = store.enqueue([new(queue.number, "a", job_data="2"), new(queue.number, "b")])
        assert again[0] == Stored(job_id, duplicate=True)
        assert not again[1].duplicate
        assert [(row.job_key, row.job_data) for row in everything(store, queue.number)] == [
            ("a", "1"),
            ("b", '{"amount":5}'),
        ]

    def test_a_key_twice_in_one_batch_is_one_job(self, store: Store, queue: QueueTables) -> None:
        keys = [f"k{n % 100}" for n in range(300)]
        stored = store.enqueue([new(queue.number, key) for key in keys])
        assert [one.duplicate for one in stored] == [n >= 100 for n in range(300)]
        assert [one.id for one in stored[100:]] == [stored[n % 100].id for n in range(100, 300)]
        assert len(everything(store, queue.number)) == 100

    @pytest.mark.parametrize("place", ["initial scheduled", "executing", "waiting", "deciding", "retry scheduled"])
    def test_a_key_is_taken_wherever_its_job_is(
        self, store: Store, engine: int, queue: QueueTables, place: str
    ) -> None:
        row = bring(store, engine, queue.number, place, key="a")
        assert store.enqueue([new(queue.number, "a")]) == [Stored(row.id, duplicate=True)]
        assert row_of(store, row.id) == row

    def test_a_key_is_free_again_when_its_job_is_final(self, store: Store, engine: int, queue: QueueTables) -> None:
        ids = []
        for _ in range(3):
            ids.append(add_one(store, new(queue.number, "a")))
            finish(store, claim(store, engine, queue.number)[0])
        assert [row_of(store, job_id).job_key for job_id in ids] == ["a", "a", "a"]

    def test_the_same_key_of_another_type_tenant_or_queue_is_another_job(
        self, store: Store, queue: QueueTables, queue2: QueueTables
    ) -> None:
        jobs = [
            new(queue.number, "a"),
            new(queue.number, "a", job_type="refund"),
            new(queue.number, "a", tenant="acme"),
            new(queue2.number, "a"),
        ]
        assert len(set(add(store, jobs))) == 4

    def test_tenant_and_type_do_not_run_into_each_other(self, store: Store, queue: QueueTables) -> None:
        pairs = [("a", "b-c"), ("a-b", "c"), ("", "a-b-c"), ("ab", "c"), ("a", "bc")]
        jobs = [new(queue.number, "k", tenant=tenant, job_type=job_type) for tenant, job_type in pairs]
        assert len(set(add(store, jobs))) == len(pairs)

    def test_keys_differ_by_case_and_spaces(self, store: Store, queue: QueueTables) -> None:
        assert len(set(add(store, [new(queue.number, key) for key in ("a", "A", "a ", " a", "á", "a\u0301")]))) == 6

    def test_all_or_nothing_stores_nothing_on_a_duplicate(self, store: Store, queue: QueueTables) -> None:
        job_id = add_one(store, new(queue.number, "a"))
        with pytest.raises(DuplicateKey) as caught:
            store.enqueue([new(queue.number, key) for key in ("b", "a", "c")], all_or_nothing=True)
        assert (caught.value.job_type, caught.value.key, caught.value.id) == (TYPE, "a", job_id)
        assert [row.job_key for row in everything(store, queue.number)] == ["a"]

    def test_all_or_nothing_looks_within_the_batch_and_at_every_queue(
        self, store: Store, queue: QueueTables, queue2: QueueTables
    ) -> None:
        for batch in (
            [new(queue.number, "a"), new(queue.number, "a")],
            [new(queue2.number, "x"), new(queue.number, "a"), new(queue.number, "a"), new(queue2.number, "y")],
        ):
            with pytest.raises(DuplicateKey):
                store.enqueue(batch, all_or_nothing=True)
        assert everything(store, queue.number) == everything(store, queue2.number) == []

    def test_all_or_nothing_stores_a_batch_without_duplicates(self, store: Store, queue: QueueTables) -> None:
        stored = store.enqueue([new(queue.number, key) for key in "abc"], all_or_nothing=True)
        assert [one.duplicate for one in stored] == [False] * 3

    def test_a_key_somebody_chose_never_stands_in_the_way_of_an_id(self, store: Store, queue: QueueTables) -> None:
        last = add_one(store, new(queue.number))
        step = 1 << 16
        taken = [str(last + step * n) for n in range(2, 6)]
        add(store, [new(queue.number, key) for key in taken[:2]])
        stored = store.enqueue([new(queue.number), new(queue.number, taken[2]), new(queue.number, taken[3])])
        assert not any(one.duplicate for one in stored)
        ids = add(store, [new(queue.number)] * 20)
        rows = [row_of(store, job_id) for job_id in ids]
        assert all(row.job_key == str(row.id) for row in rows)
        assert not {row.job_key for row in rows} & set(taken)

    def test_an_id_that_serves_as_key_is_taken(self, store: Store, queue: QueueTables) -> None:
        job_id = add_one(store, new(queue.number))
        assert store.enqueue([new(queue.number, str(job_id))]) == [Stored(job_id, duplicate=True)]

    def test_a_duplicate_leaves_no_payload_behind(self, store: Store, queue: QueueTables, database: Database) -> None:
        large: New = new(queue.number, "a", job_data='"' + "x" * 20_000 + '"')
        job_id = add_one(store, large)
        store.enqueue([large, large])
        with pytest.raises(DuplicateKey):
            store.enqueue([new(queue.number, "b", job_data=large.job_data), large], all_or_nothing=True)
        found = raw(database, f"SELECT id FROM hipq_payloads WHERE id % 65536 = {queue.number}")
        assert found == [(job_id,)]

    def test_a_job_that_ends_may_leave_another_with_its_key(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        row = bring(store, engine, queue.number, "executing", key="a")
        child = new(queue.number, "a", job_data='"next"')
        store.turn(0, [Change(row, transitions.succeeded(row, "null", 200, NOW), (child,))], [], NOW)
        live = [row for row in everything(store, queue.number) if row.state != "final"]
        assert [(row.job_key, row.job_data) for row in live] == [("a", '"next"')]
