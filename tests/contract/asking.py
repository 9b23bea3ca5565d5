"""What code throttlers need of a store: tickets, pages; and which engines there are."""

from __future__ import annotations

import threading
from typing import Final

import pytest
from msgspec.structs import replace

from hipq.job import transitions
from hipq.job.model import Change, Row
from hipq.job.states import PARKED
from hipq.limits.limit import limit
from hipq.stores.claims import Asked, Claim
from hipq.stores.protocols import Store
from hipq.stores.values import EngineSeen, QueueTables
from hipq.testing.clock import HandClock
from tests.contract.jobs import LATER, NOW, TYPE, add, add_one, bring, new, row_of, waits
from tests.contract.rules import OPEN, SHUT, set_rules

BEGIN: Final = ("", 0)


def ask(
    store: Store, engine_id: int, queue: int, *, after: tuple[str, int] = BEGIN, page: int = 100, seconds: float = 30,
    types: tuple[str, ...] = (TYPE,),
) -> Asked | None:  # fmt: skip
    return store.ask(engine_id, Claim(queue, types, 100), after, seconds, page, NOW)


def park(store: Store, ids: list[int]) -> None:
    rows = [row_of(store, job_id) for job_id in ids]
    store.turn(0, [Change(row, transitions.parked(row, NOW)) for row in rows], [], NOW)


def claim_admitted(store: Store, engine_id: int, queue: int, ticket: int, ids: list[int]) -> list[Row]:
    return store.turn(engine_id, [], [Claim(queue, (TYPE,), 100, (), ticket, tuple(ids))], NOW).won


@pytest.fixture
def throttled(store: Store, queue: QueueTables) -> int:
    set_rules(store, queue.number, throttled=True)
    return queue.number


class TestTickets:
    def test_without_a_ticket_nothing_of_a_throttled_queue_is_claimed(
        self, store: Store, engine: int, throttled: int
    ) -> None:
        job_id = add_one(store, new(throttled))
        turned = store.turn(engine, [], [Claim(throttled, (TYPE,), 10)], NOW)
        assert (turned.won, turned.refused) == ([], {throttled: 0})
        assert claim_admitted(store, engine, throttled, 99, [job_id]) == []

    def test_critical_jobs_need_no_ticket(self, store: Store, engine: int, throttled: int) -> None:
        add(store, [new(throttled), new(throttled, job_type="paused")])
        urgent = add(store, [new(throttled, job_type="urgent"), new(throttled, job_type="urgent", throttle_factor=99)])
        set_rules(store, throttled, [limit(1)], throttled=True, paused_types=("paused",))
        types = (TYPE, "paused", "urgent")
        turned = store.turn(engine, [], [Claim(throttled, types, 10, ("paused", "urgent"))], NOW)
        assert [(row.id, row.held) for row in turned.won] == [(job_id, 0) for job_id in urgent]
        assert throttled in turned.refused

    def test_a_throttler_is_shown_all_that_runs(self, store: Store, engine: int, throttled: int) -> None:
        many = 10_100
        set_rules(store, throttled)
        add(store, [new(throttled)] * many)
        rows = store.turn(engine, [], [Claim(throttled, (TYPE,), many)], NOW).won
        store.turn(engine, [Change(row, waits(row, LATER, NOW)) for row in rows[::2]], [], NOW)
        set_rules(store, throttled, throttled=True)
        asked = ask(store, engine, throttled)
        assert asked is not None
        assert {row.id for row in asked.running} == {row.id for row in rows}

    def test_what_was_admitted_is_claimed_and_nothing_else(self, store: Store, engine: int, throttled: int) -> None:
        ids = add(store, [new(throttled)] * 4)
        asked = ask(store, engine, throttled)
        assert asked is not None
        assert [row.id for row in asked.due] == ids
        won = claim_admitted(store, engine, throttled, asked.ticket, [ids[2], ids[1]])
        assert [row.id for row in won] == ids[1:3]
        assert claim_admitted(store, engine, throttled, asked.ticket, [ids[0]]) == []  # a ticket is used once
        assert store.peek([(throttled, (TYPE,))])[0].ready

    def test_one_engine_has_the_ticket_at_a_time(self, store: Store, other: Store, engine: int, throttled: int) -> None:
        rival = other.take_lease(60, "rival")
        (job_id,) = add(store, [new(throttled)])
        mine = ask(store, engine, throttled)
        assert mine is not None
        assert ask(other, rival, throttled) is None
        store.drop_ticket(throttled, mine.ticket, "it broke")
        assert store.limits(throttled).note == "it broke"
        theirs = ask(other, rival, throttled)
        assert theirs is not None
        assert theirs.ticket > mine.ticket
        assert claim_admitted(store, engine, throttled, mine.ticket, [job_id]) == []
        assert [row.id for row in claim_admitted(other, rival, throttled, theirs.ticket, [job_id])] == [job_id]
        assert store.limits(throttled).note == ""

    def test_its_own_ticket_an_engine_may_replace(self, store: Store, engine: int, throttled: int) -> None:
        (job_id,) = add(store, [new(throttled)])
        first, second = ask(store, engine, throttled), ask(store, engine, throttled)
        assert first is not None
        assert second is not None
        assert claim_admitted(store, engine, throttled, first.ticket, [job_id]) == []
        assert claim_admitted(store, engine, throttled, second.ticket, [job_id]) != []

    def test_the_ticket_of_a_dead_engine_is_free(self, store: Store, other: Store, engine: int, throttled: int) -> None:
        add(store, [new(throttled)])
        assert ask(store, engine, throttled) is not None
        rival = other.take_lease(60, "rival")
        assert ask(other, rival, throttled) is None
        store.renew_lease(engine, 0)
        assert ask(other, rival, throttled) is not None

    def test_a_ticket_that_is_over_claims_nothing_and_is_free(
        self, store: Store, other: Store, engine: int, throttled: int, clock: HandClock
    ) -> None:
        (job_id,) = add(store, [new(throttled)])
        rival = other.take_lease(60, "rival")
        mine = ask(store, engine, throttled, seconds=0.05)
        assert mine is not None
        clock.advance(seconds=0.1)
        threading.Event().wait(0.1)  # PostgreSQL has a clock of its own
        assert "no answer" in store.limits(throttled).note
        assert claim_admitted(store, engine, throttled, mine.ticket, [job_id]) == []
        assert ask(other, rival, throttled) is not None
        assert store.limits(throttled).note == ""

    def test_looking_takes_no_ticket_and_changes_nothing(self, store: Store, engine: int, throttled: int) -> None:
        ids = add(store, [new(throttled)] * 2)
        asked = ask(store, 0, throttled, seconds=0)
        assert asked is not None
        assert (asked.ticket, [row.id for row in asked.due]) == (0, ids)
        held = ask(store, engine, throttled)
        assert held is not None
        assert ask(store, 0, throttled, seconds=0) is not None
        assert len(claim_admitted(store, engine, throttled, held.ticket, ids)) == 2

    def test_an_engine_without_a_lease_cannot_use_one(self, store: Store, engine: int, throttled: int) -> None:
        (job_id,) = add(store, [new(throttled)])
        asked = ask(store, engine, throttled)
        assert asked is not None
        store.renew_lease(engine, 0)
        assert claim_admitted(store, engine, throttled, asked.ticket, [job_id]) == []


class TestPages:
    def test_a_page_has_what_could_start_in_order_and_what_runs(
        self, store: Store, engine: int, throttled: int
    ) -> None:
        set_rules(store, throttled, throttled=False)
        executing = bring(store, engine, throttled, "executing", job_type="a")
        waiting = bring(store, engine, throttled, "waiting", job_type="b")
        bring(store, engine, throttled, "deciding", job_type="c")
        set_rules(store, throttled, throttled=True, paused_lanes=("off",), paused_types=("z",))
        ranks = [5, 1, 3]
        ids = add(store, [new(throttled, rank=rank) for rank in ranks])
        add(
            store,
            [new(throttled, rank=0, **more) for more in ({"lane": "off"}, {"time_windows": SHUT}, {"job_type": "z"})],
        )
        add(store, [new(throttled, rank=0, job_type="unknown")])
        parked = add(store, [new(throttled, rank=2, time_windows=hours) for hours in (OPEN, SHUT)])
        park(store, parked)
        asked = ask(store, engine, throttled, types=(TYPE, "z"))
        assert asked is not None
        assert [row.id for row in asked.due] == [ids[1], parked[0], ids[2], ids[0]]
        assert {row.id for row in asked.running} == {executing.id, waiting.id}

    def test_parked_jobs_come_page_by_page(self, store: Store, engine: int, throttled: int) -> None:
        ids = add(store, [new(throttled, rank=n // 3) for n in range(10)])
        park(store, ids)
        after: tuple[str, int] | None = BEGIN
        seen: list[int] = []
        pages = 0
        while after is not None:
            asked = ask(store, engine, throttled, after=after, page=4)
            assert asked is not None
            seen += [row.id for row in asked.due]
            after, pages = asked.last_parked, pages + 1
        assert (seen, pages) == (ids, 3)

    def test_fresh_jobs_are_seen_however_many_are_parked(self, store: Store, engine: int, throttled: int) -> None:
        park(store, add(store, [new(throttled, rank=0)] * 30))
        fresh = add_one(store, new(throttled, rank=9))
        asked = ask(store, engine, throttled, page=10)
        assert asked is not None
        assert asked.due[-1].id == fresh
        won = claim_admitted(store, engine, throttled, asked.ticket, [fresh, asked.due[0].id])
        assert [row.id for row in won] == [asked.due[0].id, fresh]
        assert won == [row_of(store, row.id) for row in won]
        assert all(row.phase == "executing" and row.attempt == 1 for row in won)

    def test_limits_hold_for_what_was_admitted(self, store: Store, engine: int, throttled: int) -> None:
        set_rules(store, throttled, [limit(3)], throttled=True)
        ids = add(store, [new(throttled, throttle_factor=2)] * 3)
        asked = ask(store, engine, throttled)
        assert asked is not None
        assert [row.id for row in asked.due] == ids[:1]  # the others could not start
        assert len(claim_admitted(store, engine, throttled, asked.ticket, ids)) == 1

    def test_unparked_jobs_are_ready_again(self, store: Store, engine: int, throttled: int) -> None:
        ids = add(store, [new(throttled, rank=n) for n in range(3)])
        park(store, ids)
        assert store.peek([(throttled, (TYPE,))])[0].parked
        assert store.stage(throttled, PARKED, 0, 2) == 2
        assert [row_of(store, job_id).phase for job_id in ids] == ["ready", "ready", "parked"]
        assert store.stage(throttled, PARKED, 0, 9) == 1
        set_rules(store, throttled, throttled=False)
        assert [row.id for row in store.turn(engine, [], [Claim(throttled, (TYPE,), 9)], NOW).won] == ids


class TestEngines:
    def test_engines_say_what_they_serve(self, store: Store, other: Store) -> None:
        before = {one.engine_id for one in store.engines()}
        mine = store.take_lease(60, "here:1", '{"1":["charge","!alarm"]}')
        theirs = other.take_lease(60, "there:2")
        found = [one for one in store.engines() if one.engine_id not in before]
        assert all(0 < one.lease <= 60 for one in found)
        assert [replace(one, lease=0.0) for one in found] == [
            EngineSeen(mine, "here:1", {"1": ["charge", "alarm"]}, {"1": ["alarm"]}),
            EngineSeen(theirs, "there:2", {}, {}),
        ]
        store.renew_lease(mine, 0)
        assert mine not in {one.engine_id for one in other.engines()}


class TestChangingRules:
    def test_changes_made_at_the_same_time_all_count(self, store: Store, other: Store, queue: QueueTables) -> None:
        from msgspec.structs import replace

        def pause(one: Store, lane: str) -> None:
            one.change_rules(queue.number, lambda rules: replace(rules, paused_lanes=(*rules.paused_lanes, lane)))

        threads = [
            threading.Thread(target=pause, args=(one, f"{n}")) for n, one in enumerate((store, other) * 4)
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(store.limits(queue.number).rules.paused_lanes) == [str(n) for n in range(8)]

    def test_what_is_held_and_by_whom_is_told(self, store: Store, engine: int, queue: QueueTables) -> None:
        set_rules(store, queue.number, [limit(10)])
        add(store, [new(queue.number, lane="a", throttle_factor=3), new(queue.number, lane="b")])
        won = store.turn(engine, [], [Claim(queue.number, (TYPE,), 9)], NOW).won
        heavy = max(won, key=lambda row: row.held)
        store.turn(engine, [Change(heavy, waits(heavy, LATER, NOW))], [], NOW)
        found = store.limits(queue.number)
        assert found.held == {"a": 3000, "b": 1000}
        assert found.holders[0] == (heavy.id, "a", 3000, 0)
        assert found.rules.most == 10
