"""Staging what is due and claiming what is next."""

from __future__ import annotations

import random

import msgspec
import pytest
from msgspec.structs import replace

from hipq.job import transitions
from hipq.job.model import HISTORY_LIMIT, Change, Row
from hipq.job.states import READY, SCHEDULED
from hipq.job.when import LONGEST, SECOND
from hipq.limits.limit import Limit
from hipq.limits.rules import AnyLimit
from hipq.stores.claims import Claim
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests.contract.database import Database
from tests.contract.jobs import (
    FAULT,
    LATER,
    NOW,
    TYPE,
    add,
    add_one,
    bring,
    claim,
    new,
    ranked,
    row_of,
    save,
)  # fmt: skip
from tests.contract.rules import set_rules


def quiet(store: Store) -> None:
    """Hear all the news there is."""
    while store.waker.wait(0.05):
        pass


class TestClaim:
    def test_a_claimed_row_is_what_the_pure_move_says(self, store: Store, engine: int, queue: QueueTables) -> None:
        ids = add(store, [new(queue.number, f"k{n}", throttle_factor=n + 1) for n in range(5)])
        before = [row_of(store, job_id) for job_id in ids]
        won = claim(store, engine, queue.number, now=NOW + 7)
        assert won == [transitions.claimed(row, engine, NOW + 7) for row in before]
        assert won == [row_of(store, job_id) for job_id in ids]

    @pytest.mark.parametrize("types", [(TYPE,), (TYPE, "mail")], ids=["one type", "two types"])
    @pytest.mark.parametrize("factor", [0.001, 0.5, 2])
    def test_without_a_limit_a_factor_keeps_no_job_from_starting_in_its_turn(
        self, store: Store, engine: int, queue: QueueTables, factor: float, types: tuple[str, ...]
    ) -> None:
        for _ in range(3):  # a store may have learned from the first claim that there is nothing but plain jobs
            add(store, [new(queue.number, job_type=types[-1])])
            assert len(claim(store, engine, queue.number, types=types)) == 1
        factors = [1, factor, 1, factor]
        ids = add(store, [new(queue.number, job_type=types[-1], throttle_factor=one) for one in factors])
        assert [row.id for row in claim(store, engine, queue.number, types=types)] == ids
        alone = add(store, [new(queue.number, throttle_factor=factor)] * 2)
        assert [row.id for row in claim(store, engine, queue.number, types=types)] == alone

    @pytest.mark.parametrize("timeout", [0.001, 0.29, 1.001, 1 / 3, 4.35, 86_400.0, LONGEST])
    def test_the_deadline_is_the_time_out_to_the_microsecond(
        self, store: Store, engine: int, queue: QueueTables, timeout: float
    ) -> None:
        job_id = add_one(store, new(queue.number, timeout=timeout))
        before = row_of(store, job_id)
        (won,) = claim(store, engine, queue.number)
        assert won.deadline == transitions.claimed(replace(before, timeout=timeout), engine, NOW).deadline

    @pytest.mark.parametrize("place", ["retry ready", "retry scheduled"])
    def test_a_retry_is_claimed_like_a_first_run(
        self, store: Store, engine: int, queue: QueueTables, place: str
    ) -> None:
        row = bring(store, engine, queue.number, place)
        assert store.stage(queue.number, SCHEDULED, LATER, 10) == (place == "retry scheduled")
        row = row_of(store, row.id)
        (won,) = claim(store, engine, queue.number, now=LATER)
        assert won == transitions.claimed(row, engine, LATER)
        assert (won.attempt, won.error) == (2, "NONE")

    @pytest.mark.parametrize("limits", [[], [Limit(5)]], ids=["free", "limited"])
    def test_a_job_to_be_judged_by_registered_code_is_for_those_who_have_it(
        self, store: Store, engine: int, queue: QueueTables, limits: list[AnyLimit]
    ) -> None:
        left = bring(store, engine, queue.number, "deciding", meta='{"retry": {"registered": "patient"}}')
        own = bring(store, engine, queue.number, "deciding", meta='{"retry": {"strategy": "fixed", "delay": 1}}')
        set_rules(store, queue.number, limits)
        served = [(queue.number, (TYPE,))]

        def judged(*strategies: str) -> list[int]:
            found = Claim(queue.number, (TYPE,), 10, strategies=strategies)
            return [row.id for row in store.turn(engine, [], [found], NOW).won]

        assert store.peek(served)[0].ready
        assert judged("hasty") == [own.id]
        assert not store.peek(served)[0].ready
        assert not store.peek(served, ("hasty",))[0].ready
        assert store.peek(served, ("hasty", "patient"))[0].ready
        assert judged() == []
        assert judged("hasty", "patient") == [left.id]

    def test_a_long_history_stays_within_its_bound(self, store: Store, engine: int, queue: QueueTables) -> None:
        add(store, [new(queue.number)])
        for n in range(HISTORY_LIMIT):
            (row,) = claim(store, engine, queue.number, now=NOW + n)
            history = msgspec.json.decode(row.history)
            assert len(history) <= HISTORY_LIMIT + 1
            assert history[0] == {"at": NOW, "event": "claimed", "by": engine}
            assert history[-1] == {"at": NOW + n, "event": "claimed", "by": engine}
            save(store, row, transitions.given_back(row, "shutting down", True, NOW + n))

    def test_the_first_in_rank_goes_first_whatever_its_type(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        draw = random.Random(7)
        types = ("charge", "refund", "mail", "report")
        jobs = [new(queue.number, job_type=draw.choice(types), rank=draw.randrange(-20, 20)) for _ in range(300)]
        ids = add(store, jobs)
        expected = [job_id for _, job_id in sorted((job.rank, job_id) for job, job_id in zip(jobs, ids, strict=True))]
        won: list[Row] = []
        for limit in (1, 2, 7, 90, 200, 10):
            some = claim(store, engine, queue.number, types=types, limit=limit)
            assert len(some) == min(limit, 300 - len(won))
            won += some
        assert [row.id for row in won] == expected

    @pytest.mark.parametrize("types", [(TYPE,), (TYPE, "mail")], ids=["one type", "two types"])
    def test_what_wakes_us_with_an_early_rank_goes_first(
        self, store: Store, other: Store, engine: int, queue: QueueTables, database: Database, types: tuple[str, ...]
    ) -> None:
        rival = other.take_lease(60, "rival")
        given_back = add_one(store, new(queue.number, rank=-1))
        (row,) = claim(other, rival, queue.number, limit=1)
        scheduled = add_one(store, new(queue.number, rank=-2, scheduled_run_time=LATER))
        add(store, [new(queue.number, rank=n) for n in range(1500)])
        for n in range(0, 1200, 100):  # far into the ranks: a store may remember where it stopped
            won = claim(store, engine, queue.number, types=types)
            assert [row.rank for row in won] == [ranked(one) for one in range(n, n + 100)]

        def first() -> int:
            assert store.waker.wait(5)
            (won,) = claim(store, engine, queue.number, types=types, limit=1, now=LATER)
            quiet(store)
            return won.id

        quiet(store)
        save(other, row, transitions.given_back(row, "stopping", True, NOW))
        assert first() == given_back
        other.stage(queue.number, SCHEDULED, LATER, 10)
        assert first() == scheduled
        added = add_one(other, new(queue.number, rank=-3))
        assert first() == added
        conn = database.connect()
        (stored,) = other.enqueue([new(queue.number, rank=-4)], conn=conn)
        conn.commit()
        conn.close()
        assert first() == stored.id

    def test_only_types_asked_for_are_claimed(self, store: Store, engine: int, queue: QueueTables) -> None:
        a, b, c = add(store, [new(queue.number, job_type=name) for name in ("a", "b", "c")])
        assert [row.id for row in claim(store, engine, queue.number, types=("c", "a"))] == [a, c]
        assert claim(store, engine, queue.number, types=("A", "", "a", "unknown")) == []
        assert row_of(store, b).phase == READY

    def test_an_engine_without_code_claims_nothing(self, store: Store, engine: int, queue: QueueTables) -> None:
        add(store, [new(queue.number)])
        assert claim(store, engine, queue.number, types=()) == []

    def test_an_engine_with_very_many_types_claims_the_first_of_those_it_has(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        types = tuple(f"type_{n}" for n in range(600))
        wanted = [add_one(store, new(queue.number, job_type=f"type_{n}", rank=ranked(n))) for n in (7, 599, 3, 301)]
        others = add_one(store, new(queue.number, job_type="mail", rank=ranked(0)))
        judged = bring(store, engine, queue.number, "deciding", job_type="type_5")
        ids = [row.id for row in claim(store, engine, queue.number, limit=4, types=types)]
        assert ids == [judged.id, *(job_id for _, job_id in sorted(zip((7, 599, 3, 301), wanted, strict=True))[:3])]
        assert [row.id for row in claim(store, engine, queue.number, types=types)] == [wanted[1]]
        assert claim(store, engine, queue.number, types=types) == []
        assert row_of(store, others).attempt == 0

    def test_an_engine_may_know_very_many_types(self, store: Store, engine: int, queue: QueueTables) -> None:
        """So that there are jobs of many of them, and among those some for user code other than their handlers."""
        types = [f"type_{n}" for n in range(600)]
        foreign, judged = (bring(store, engine, queue.number, "deciding", job_type=name) for name in ("a", "type_99"))
        ids = add(store, [new(queue.number, job_type=name) for name in types[::20]])
        won = claim(store, engine, queue.number, limit=100, types=types)
        assert [row.id for row in won] == [judged.id, *ids]
        assert row_of(store, foreign.id) == foreign

    @pytest.mark.parametrize("limit", [0, 1, 3])
    def test_the_limit_is_kept(self, store: Store, engine: int, queue: QueueTables, limit: int) -> None:
        ids = add(store, [new(queue.number)] * 4)
        assert [row.id for row in claim(store, engine, queue.number, limit=limit)] == ids[:limit]
        assert sum(row_of(store, job_id).phase == READY for job_id in ids) == 4 - limit

    def test_one_turn_claims_from_several_queues(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        first = add(store, [new(queue.number)] * 3)
        second = add(store, [new(queue2.number, job_type="mail")] * 3)
        turned = store.turn(engine, [], [Claim(queue2.number, ("mail",), 2), Claim(queue.number, (TYPE,), 9)], NOW)
        assert [row.id for row in turned.won] == second[:2] + first

    @pytest.mark.parametrize("place", ["executing", "waiting", "being decided", "initial scheduled", "retry scheduled"])
    def test_what_is_not_ready_is_not_claimed(self, store: Store, engine: int, queue: QueueTables, place: str) -> None:
        row = bring(store, engine, queue.number, place)
        assert claim(store, engine, queue.number, now=LATER + SECOND) == []
        assert row_of(store, row.id) == row

    def test_a_calendar_set_back_starts_no_job_early(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = bring(store, engine, queue.number, "initial scheduled")
        store.stage(queue.number, SCHEDULED, LATER, 10)
        due = add_one(store, new(queue.number))
        assert [row.id for row in claim(store, engine, queue.number, now=LATER - 1)] == [due]
        assert row_of(store, row.id).phase == READY
        assert [row.id for row in claim(store, engine, queue.number, now=LATER)] == [row.id]

    def test_a_final_job_is_never_claimed(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = bring(store, engine, queue.number, "executing")
        save(store, row, transitions.refused(row, FAULT, 400, NOW))
        assert claim(store, engine, queue.number) == []

    def test_a_job_is_claimed_once(self, store: Store, other: Store, engine: int, queue: QueueTables) -> None:
        rival = other.take_lease(60, "rival")
        ids = add(store, [new(queue.number)] * 5)
        mine, theirs = claim(store, engine, queue.number, limit=3), claim(other, rival, queue.number)
        assert [row.id for row in mine + theirs] == ids
        assert [row.owner for row in mine + theirs] == [engine] * 3 + [rival] * 2

    def test_a_row_that_waits_for_its_judgement_is_taken_without_an_attempt(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        row = bring(store, engine, queue.number, "deciding")
        (won,) = claim(store, engine, queue.number, now=NOW + 5)
        assert won == transitions.claimed(row, engine, NOW + 5)
        assert (won.owner, won.attempt, won.token) == (engine, row.attempt, row.token + 1)
        assert row_of(store, row.id) == won
        assert claim(store, engine, queue.number) == []  # it has an owner now

    def test_judgements_count_against_the_limit_and_respect_types(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        deciding = [bring(store, engine, queue.number, "deciding", job_type=name) for name in ("a", "b")]
        ready = add(store, [new(queue.number, job_type="a")] * 3)
        won = claim(store, engine, queue.number, types=("a",), limit=2)
        assert {row.id for row in won} == {deciding[0].id, ready[0]}
        assert row_of(store, deciding[1].id) == deciding[1]


class TestStage:
    def test_only_what_is_due_becomes_ready(self, store: Store, queue: QueueTables) -> None:
        ids = add(store, [new(queue.number, scheduled_run_time=LATER + n) for n in range(4)])
        assert store.stage(queue.number, SCHEDULED, LATER - 1, 10) == 0
        assert store.stage(queue.number, SCHEDULED, LATER + 1, 10) == 2
        assert [row_of(store, job_id).phase for job_id in ids] == ["ready", "ready", "scheduled", "scheduled"]

    def test_the_earliest_go_first_up_to_the_limit(self, store: Store, queue: QueueTables) -> None:
        offsets = [5, 3, 9, 1, 7, 2]
        ids = add(store, [new(queue.number, scheduled_run_time=LATER + n) for n in offsets])
        for staged in ({1, 2}, {1, 2, 3, 5}, {1, 2, 3, 5, 7, 9}):
            assert store.stage(queue.number, SCHEDULED, LATER + 100, 2) == 2
            ready = {n for n, job_id in zip(offsets, ids, strict=True) if row_of(store, job_id).phase == READY}
            assert ready == staged
        assert store.stage(queue.number, SCHEDULED, LATER + 100, 2) == 0

    def test_staging_changes_the_phase_and_the_token(self, store: Store, queue: QueueTables) -> None:
        row = row_of(store, add_one(store, new(queue.number, scheduled_run_time=LATER)))
        assert store.stage(queue.number, SCHEDULED, LATER, 10) == 1
        assert row_of(store, row.id) == replace(row, phase=READY, token=row.token + 1)

    def test_a_change_decided_before_the_staging_is_lost(self, store: Store, queue: QueueTables) -> None:
        row = row_of(store, add_one(store, new(queue.number, scheduled_run_time=LATER)))
        store.stage(queue.number, SCHEDULED, LATER, 10)
        turned = store.turn(0, [Change(row, transitions.cancelled(row, "too late", LATER))], [], LATER)
        assert turned.lost == {row.id}
        assert row_of(store, row.id).phase == READY

    def test_what_is_not_scheduled_is_left_alone(self, store: Store, engine: int, queue: QueueTables) -> None:
        rows = [
            bring(store, engine, queue.number, place, job_type=place.replace(" ", "_"))
            for place in ("initial ready", "executing", "waiting", "deciding", "retry ready")
        ]
        assert store.stage(queue.number, SCHEDULED, LATER + SECOND, 100) == 0
        assert [row_of(store, row.id) for row in rows] == rows

    def test_one_queue_does_not_stage_another(self, store: Store, queue: QueueTables, queue2: QueueTables) -> None:
        row = row_of(store, add_one(store, new(queue2.number, scheduled_run_time=LATER)))
        assert store.stage(queue.number, SCHEDULED, LATER, 10) == 0
        assert row_of(store, row.id) == row
