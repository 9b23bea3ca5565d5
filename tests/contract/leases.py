"""Engines and their leases: who may claim, who is gone, whose jobs are whose."""

from __future__ import annotations

from hipq.job import transitions
from hipq.job.model import Change
from hipq.stores.claims import Claim, Turned
from hipq.stores.protocols import Store
from hipq.stores.values import Crew, QueueTables
from hipq.testing.clock import HandClock
from tests.contract.jobs import (
    LATER,
    NOW,
    TYPE,
    add,
    add_one,
    bring,
    claim,
    everything,
    new,
    row_of,
    save,
    waits,
)


class TestLeases:
    def test_every_engine_has_a_number_of_its_own(self, store: Store, other: Store) -> None:
        taken = []
        for n in range(6):
            taken.append((store, other)[n % 2].take_lease(60, f"engine {n}"))
            if n % 3 == 0:
                store.renew_lease(taken[-1], 0)
        assert all(engine_id > 0 for engine_id in taken)
        assert taken == sorted(set(taken))

    def test_an_engine_says_which_hipq_it_is_and_since_when(self, store: Store, other: Store) -> None:
        engine_id = store.take_lease(60, "engine", '{"1":["mail"]}', "1.2.3", NOW)
        store.take_lease(60, "an older one")
        said = [(one.engine_id, one.version, one.since) for one in other.engines() if one.label == "engine"]
        assert said == [(engine_id, "1.2.3", NOW)]
        assert ("", 0) in [(one.version, one.since) for one in other.engines()]

    def test_the_number_of_an_engine_is_not_given_again(self, store: Store) -> None:
        gone = store.take_lease(0, "gone")
        assert store.take_lease(60, "new") > gone  # which may sweep the expired one away
        assert not store.renew_lease(gone, 60)

    def test_a_live_lease_is_prolonged(self, store: Store, other: Store) -> None:
        engine_id = store.take_lease(60, "engine")
        assert store.renew_lease(engine_id, 60)
        assert other.renew_lease(engine_id, 60)

    def test_who_renews_counts_the_engines_that_serve_the_same(self, store: Store, other: Store) -> None:
        same, more = '{"1":["work"]}', '{"1":["mail","work"]}'
        first, gone, second, third = (
            one.take_lease(60, "engine", serves)
            for one, serves in ((store, same), (other, same), (store, more), (other, same))
        )
        other.renew_lease(gone, 0)
        store.take_lease(0, "expired", same)
        assert store.renew_lease(first, 60) == Crew(2, 0)
        assert other.renew_lease(third, 60) == Crew(2, 1)
        assert store.renew_lease(second, 60) == Crew(1, 0)

    def test_an_expired_lease_cannot_be_renewed(self, store: Store) -> None:
        expired = store.take_lease(0, "expired")
        assert not store.renew_lease(expired, 60)
        cut_short = store.take_lease(60, "cut short")
        assert store.renew_lease(cut_short, 1e-9)
        assert not store.renew_lease(cut_short, 60)
        assert not store.renew_lease(cut_short, 60)

    def test_a_dropped_lease_cannot_be_renewed(self, store: Store) -> None:
        engine_id = store.take_lease(60, "engine")
        store.renew_lease(engine_id, 0)
        store.renew_lease(engine_id, 0)
        assert not store.renew_lease(engine_id, 60)

    def test_an_engine_nobody_knows_has_no_lease(self, store: Store, queue: QueueTables) -> None:
        add(store, [new(queue.number)])
        for engine_id in (0, -1, 1 << 40):
            assert not store.renew_lease(engine_id, 60)
            assert claim(store, engine_id, queue.number) == []

    def test_without_a_live_lease_nothing_is_claimed(self, store: Store, queue: QueueTables) -> None:
        row = row_of(store, add_one(store, new(queue.number)))
        expired = store.take_lease(0, "expired")
        cut_short = store.take_lease(60, "cut short")
        store.renew_lease(cut_short, 1e-9)
        dropped = store.take_lease(60, "dropped")
        store.renew_lease(dropped, 0)
        for engine_id in (expired, cut_short, dropped):
            assert claim(store, engine_id, queue.number) == []
        assert row_of(store, row.id) == row

    def test_without_a_live_lease_nothing_is_judged(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = bring(store, engine, queue.number, "deciding")
        assert claim(store, store.take_lease(0, "expired"), queue.number) == []
        assert row_of(store, row.id) == row

    def test_setting_the_calendar_ends_no_lease_and_brings_none_back(
        self, store: Store, queue: QueueTables, clock: HandClock
    ) -> None:
        live, expired = store.take_lease(60, "live"), store.take_lease(0, "expired")
        add(store, [new(queue.number)] * 2)
        for days in (400, -800):
            clock.step(days * 86_400)
            assert store.renew_lease(live, 60)
            assert not store.renew_lease(expired, 60)
            assert claim(store, expired, queue.number, limit=1) == []
            assert len(claim(store, live, queue.number, limit=1)) == 1


class TestOrphans:
    def test_jobs_of_a_live_engine_are_no_orphans(self, store: Store, engine: int, queue: QueueTables) -> None:
        for place in ("executing", "being decided", "waiting", "deciding", "initial ready", "retry ready"):
            bring(store, engine, queue.number, place, job_type=place.replace(" ", "_"))
        assert store.owned([queue.number], None, 100) == []

    def test_jobs_of_an_expired_engine_are(self, store: Store, other: Store, engine: int, queue: QueueTables) -> None:
        executing = bring(store, engine, queue.number, "executing", job_type="a")
        judged = bring(store, engine, queue.number, "being decided", job_type="b")
        for place in ("waiting", "deciding", "initial ready", "retry ready"):
            bring(store, engine, queue.number, place, job_type=place.replace(" ", "_"))
        store.renew_lease(engine, 1e-9)
        assert other.owned([queue.number], None, 100) == [executing, judged]
        assert claim(other, other.take_lease(60, "next"), queue.number, types=("a", "b")) == []  # not before a rescue

    def test_jobs_of_an_engine_that_vanished_are(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = bring(store, engine, queue.number, "executing")
        store.renew_lease(engine, 0)
        store.take_lease(60, "next")
        assert store.owned([queue.number], None, 100) == [row]

    def test_orphans_are_found_in_the_queues_asked_for_up_to_a_limit(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        add(store, [new(queue.number)] * 5 + [new(queue2.number)] * 5)
        first, second = claim(store, engine, queue.number), claim(store, engine, queue2.number)
        store.renew_lease(engine, 1e-9)
        assert store.owned([queue.number], None, 100) == first
        assert {row.id for row in store.owned([queue2.number, queue.number], None, 100)} == {
            r.id for r in first + second
        }
        assert len(store.owned([queue.number], None, 3)) == 3
        assert store.owned([], None, 100) == []

    def test_many_queues_are_one_look(self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables) -> None:
        add(store, [new(queue.number)] * 3 + [new(queue2.number)] * 2)
        rows = claim(store, engine, queue.number) + claim(store, engine, queue2.number)
        both = [queue.number, queue2.number]
        assert sorted(row.id for row in store.owned(both * 130, engine)) == sorted(row.id for row in rows * 130)
        store.renew_lease(engine, 1e-9)
        assert sorted(row.id for row in store.owned(both * 130, None, 100)) == sorted(row.id for row in rows * 130)
        assert len(store.owned(both, None, 2)) == 4

    def test_a_rescued_job_runs_again_and_its_first_engine_comes_too_late(
        self, store: Store, other: Store, engine: int, queue: QueueTables
    ) -> None:
        row = bring(store, engine, queue.number, "executing")
        store.renew_lease(engine, 1e-9)
        (orphan,) = other.owned([queue.number], None, 10)
        save(other, orphan, transitions.rescued(orphan, LATER))
        assert other.owned([queue.number], None, 10) == []
        rival = other.take_lease(60, "rival")
        (again,) = claim(other, rival, queue.number, now=LATER)
        assert (again.id, again.owner, again.attempt) == (row.id, rival, 2)
        late = Change(row, transitions.succeeded(row, '"late"', 200, LATER), (new(queue.number, "child"),))
        turned = store.turn(engine, [late], [Claim(queue.number, (TYPE,), 10)], LATER)
        assert turned == Turned(frozenset({row.id}), [])
        assert everything(store, queue.number) == [again]

    def test_two_rescuers_do_not_rescue_twice(
        self, store: Store, other: Store, engine: int, queue: QueueTables
    ) -> None:
        bring(store, engine, queue.number, "executing")
        store.renew_lease(engine, 1e-9)
        (mine,), (theirs,) = store.owned([queue.number], None, 10), other.owned([queue.number], None, 10)
        rescued = save(store, mine, transitions.rescued(mine, NOW))
        assert other.turn(0, [Change(theirs, transitions.rescued(theirs, NOW))], [], NOW).lost == {mine.id}
        assert row_of(store, mine.id) == rescued


class TestOwned:
    def test_an_engine_finds_what_it_owns(
        self, store: Store, other: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        rival = other.take_lease(60, "rival")
        add(store, [new(queue.number)] * 4 + [new(queue2.number)] * 2)
        mine = claim(store, engine, queue.number, limit=2) + claim(store, engine, queue2.number, limit=1)
        theirs = claim(other, rival, queue.number, limit=1)
        both = [queue.number, queue2.number]
        assert sorted(row.id for row in store.owned(both, engine)) == sorted(row.id for row in mine)
        assert store.owned(both, rival) == theirs
        assert store.owned([queue2.number], engine) == mine[2:]
        assert store.owned([], engine) == []

    def test_what_it_settled_it_owns_no_longer(self, store: Store, engine: int, queue: QueueTables) -> None:
        executing = bring(store, engine, queue.number, "executing", job_type="a")
        judged = bring(store, engine, queue.number, "being decided", job_type="b")
        assert sorted(store.owned([queue.number], engine), key=lambda row: row.id) == [executing, judged]
        save(store, executing, waits(executing, LATER, NOW))
        save(store, judged, transitions.given_back(judged, "stopping", False, NOW))
        assert store.owned([queue.number], engine) == []

    def test_nobody_owns_the_rest(self, store: Store, engine: int, queue: QueueTables) -> None:
        for place in ("initial ready", "waiting", "deciding"):
            bring(store, engine, queue.number, place, job_type=place.replace(" ", "_"))
        assert store.owned([queue.number], 0) == []
        assert store.owned([queue.number], engine) == []
