"""Large payloads live beside their rows: nobody outside the store can tell."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from hipq.job import transitions
from hipq.job.model import Change, blank
from hipq.job.run_result import Rerun
from hipq.job.states import WAITING
from hipq.stores.claims import Claim
from hipq.stores.filters import Filter
from hipq.stores.large import PAYLOAD_LIMIT
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests.contract.database import Database, raw
from tests.contract.jobs import FAULT, NOW, ORDER, add, add_one, bring, claim, finish, new, row_of, save, waits

SIZES: Final = (PAYLOAD_LIMIT - 1, PAYLOAD_LIMIT, PAYLOAD_LIMIT + 1, 9 * 1024, 1 << 20)


def text(size: int, letter: str = "x") -> str:
    """A JSON string of so many characters."""
    return '"' + letter * (size - 2) + '"'


def payloads(database: Database, job_id: int) -> int:
    ((count,),) = raw(database, f"SELECT count(*) FROM hipq_payloads WHERE id = {job_id}")
    return int(count)


class TestLargePayloads:
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("letter", ["x", "é", "🏦"])
    def test_a_payload_of_any_size_comes_back_as_it_was(
        self, store: Store, other: Store, engine: int, queue: QueueTables, size: int, letter: str
    ) -> None:
        job = new(queue.number, "a", job_data=text(size, letter))
        job_id = add_one(store, job)
        assert row_of(other, job_id) == blank(job, job_id)
        assert store.find(Filter(queue.number)) == [blank(job, job_id)]
        (won,) = claim(store, engine, queue.number)
        assert won.job_data == job.job_data
        done = finish(store, won)
        assert row_of(other, job_id) == done
        assert done.job_data == job.job_data

    def test_large_and_small_ones_share_a_batch(self, store: Store, engine: int, queue: QueueTables) -> None:
        jobs = [new(queue.number, job_data=text(20_000 + n if n % 3 else 10 + n)) for n in range(60)]
        add(store, jobs)
        won = claim(store, engine, queue.number)
        assert [row.job_data for row in won] == [job.job_data for job in jobs]

    @pytest.mark.parametrize("place", ["waiting", "deciding", "retry scheduled"])
    def test_every_look_at_a_job_shows_its_payload(
        self, store: Store, engine: int, queue: QueueTables, place: str
    ) -> None:
        row = bring(store, engine, queue.number, place, job_data=text(30_000))
        assert row.job_data == text(30_000)
        assert row_of(store, row.id) == row

    def test_lists_of_rows_carry_their_payloads(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = bring(store, engine, queue.number, "executing", job_data=text(30_000))
        assert store.owned([queue.number], engine) == [row]
        waiting = save(store, row, waits(row, NOW, NOW))
        assert store.due(queue.number, WAITING, NOW, 10) == [waiting]
        orphan = bring(store, engine, queue.number, "executing", job_type="refund", job_data=text(40_000))
        store.renew_lease(engine, 0)
        assert store.owned([queue.number], None, 10) == [orphan]

    @pytest.mark.parametrize(
        ("before", "after"), [(100, 30_000), (30_000, 100), (30_000, 40_000)], ids=["grows", "shrinks", "changes"]
    )
    def test_a_payload_a_retry_changed_is_the_one_that_counts(
        self, store: Store, engine: int, queue: QueueTables, before: int, after: int
    ) -> None:
        row = bring(store, engine, queue.number, "deciding", job_data=text(before))
        row = save(store, row, transitions.retried(row, Rerun(FAULT, data=text(after, "y")), ORDER, NOW))
        assert row.job_data == text(after, "y")
        assert row_of(store, row.id) == row
        (won,) = claim(store, engine, queue.number)
        assert won.job_data == text(after, "y")
        assert row_of(store, row.id) == won
        assert row_of(store, row.id) == won
        done = finish(store, won)
        assert row_of(store, row.id) == done

    def test_an_equal_payload_that_is_another_object_is_no_change(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        row = bring(store, engine, queue.number, "executing", job_data=text(30_000))
        copy = replace(row, job_data="".join([row.job_data[:5], row.job_data[5:]]))
        save(store, row, waits(copy, NOW, NOW))
        assert row_of(store, row.id).job_data == text(30_000)

    def test_a_lost_change_leaves_the_payload_alone(self, store: Store, engine: int, queue: QueueTables) -> None:
        old = bring(store, engine, queue.number, "deciding", job_data=text(30_000))
        (row,) = claim(store, engine, queue.number)
        late = transitions.retried(old, Rerun(FAULT, data=text(30_000, "z")), ORDER, NOW)
        turned = store.turn(engine, [Change(old, late)], [Claim(queue.number, ("charge",), 5)], NOW)
        assert turned.lost == {old.id}
        assert row_of(store, old.id) == row

    def test_a_prune_takes_the_payload_too(
        self, store: Store, engine: int, queue: QueueTables, database: Database
    ) -> None:
        jobs = [new(queue.number, key, job_data=text(30_000)) for key in ("a", "b", "c")]
        a, b, c = add(store, jobs)
        for seconds, row in enumerate(claim(store, engine, queue.number, limit=2)):
            finish(store, row, NOW + seconds)
        assert [payloads(database, job_id) for job_id in (a, b, c)] == [1, 1, 1]
        assert store.prune(queue.number, (NOW + 9, 0), 1).deleted == 1
        assert [payloads(database, job_id) for job_id in (a, b, c)] == [0, 1, 1]
        assert store.prune(queue.number, (NOW + 9, 0), 10).deleted == 1
        assert [payloads(database, job_id) for job_id in (a, b, c)] == [0, 0, 1]
        assert row_of(store, c).job_data == text(30_000)
