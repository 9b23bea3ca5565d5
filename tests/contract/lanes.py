"""Lanes that are claimed one by one, jobs that a journal brings, and what tenants have."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from hipq.errors import DuplicateKey, Invalid, NotFound, StoreError, StoreRefused
from hipq.job import names, transitions
from hipq.job.model import Change, New, numbered
from hipq.job.when import SECOND
from hipq.limits.limit import limit
from hipq.limits.per_lane import per_lane
from hipq.stores.claims import ANY_TYPE, Claim
from hipq.stores.notes import note
from hipq.stores.protocols import Store
from hipq.stores.refusals import UNCHOSEN
from hipq.stores.values import JOURNALS, TOP, QueueTables, Usage, WaitingLane
from tests.contract.jobs import (
    LATER,
    NOW,
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
)  # fmt: skip
from tests.contract.together import at_once


def of(queue: QueueTables, job_type: str, lane: str, count: int = 1, **more: Any) -> list[New]:
    return [new(queue.number, job_type=job_type, lane=lane, **more) for _ in range(count)]


def lane_claim(store: Store, engine: int, queue: QueueTables, job_type: str, lane: str, most: int = 10) -> list[int]:
    turned = store.turn(engine, [], [Claim(queue.number, (job_type,), most, lane=lane)], NOW)
    return [row.id for row in turned.won]


class TestLanes:
    def test_tenants_come_in_order(self, store: Store, queue: QueueTables) -> None:
        for tenant in ("b", "a", "", "a.b", "B", "late"):
            phase = {"scheduled_run_time": LATER} if tenant == "late" else {}
            add(store, of(queue, "t", f"{tenant}/t", 2, tenant=tenant, **phase))
        assert store.tenants(queue.number, TOP, 10) == ["b", "a.b", "a", "B"]
        assert store.tenants(queue.number, TOP, 2) == ["b", "a.b"]
        assert store.tenants(queue.number, "a.b", 2) == ["a", "B"]
        assert store.tenants(queue.number, "B", 2) == []

    def test_their_lanes_come_in_order_with_their_counts(self, store: Store, queue: QueueTables) -> None:
        for tenant, lanes in (("a", "xyz"), ("b", "y"), ("c", "x")):
            for count, job_type in enumerate(lanes, 1):
                add(store, of(queue, job_type, f"{tenant}/{job_type}", count, tenant=tenant))
        add(store, of(queue, "x", "", 3) + of(queue, "late", "a/late", tenant="a", scheduled_run_time=LATER))
        x, y, z = WaitingLane("x", "a/x", 1), WaitingLane("y", "a/y", 2), WaitingLane("z", "a/z", 2)
        other = WaitingLane("y", "b/y", 1)
        assert store.lanes(queue.number, {"a": TOP}, 10, 2) == [z, y, x]
        assert sorted(store.lanes(queue.number, {"a": TOP, "b": TOP, "nobody": TOP}, 2, 2)) == [y, other, z]
        assert sorted(store.lanes(queue.number, {"a": "a/y", "b": "b/y"}, 2, 2)) == [x]
        assert store.lanes(queue.number, {}, 10, 10) == []

    def test_claim_groups_of_one_lane_are_one_lane(self, store: Store, queue: QueueTables) -> None:
        add(store, of(queue, "a", "x/a", 2, tenant="x") + of(queue, "a", "x/a", 1, tenant="x", throttle_factor=3))
        assert store.lanes(queue.number, {"x": TOP}, 10, 10) == [WaitingLane("a", "x/a", 3)]

    def test_an_empty_queue_has_none(self, store: Store, queue: QueueTables) -> None:
        assert store.tenants(queue.number, TOP, 10) == []
        assert store.lanes(queue.number, {"x": TOP}, 10, 10) == []
        assert store.waiting_types(queue.number, 10, todo=True) == []

    def test_types_that_wait_for_other_code(self, store: Store, engine: int, queue: QueueTables) -> None:
        for job_type in ("a", "b", "c"):
            bring(store, engine, queue.number, "deciding", job_type=job_type)
        add(store, of(queue, "ready", "x"))
        assert store.waiting_types(queue.number, 10, todo=True) == ["a", "b", "c"]
        assert store.waiting_types(queue.number, 2, todo=True) == ["a", "b"]

    def test_who_serves_any_type_sees_that_there_is_something(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        def ready() -> bool:
            (peek,) = store.peek([(queue.number, (ANY_TYPE,))])
            return peek.ready

        assert not ready()
        add(store, of(queue, "whatever", "x", scheduled_run_time=LATER))
        assert not ready()
        (job_id,) = add(store, of(queue, "whatever", "x"))
        assert ready()
        assert lane_claim(store, engine, queue, "whatever", "x") == [job_id]
        assert not ready()
        bring(store, engine, queue.number, "deciding")
        assert ready()


class TestLaneClaims:
    def test_only_jobs_of_that_lane_are_claimed_in_order(self, store: Store, engine: int, queue: QueueTables) -> None:
        add(store, of(queue, "a", "w", 2) + of(queue, "a", "y", 2) + of(queue, "a", "", 2) + of(queue, "b", "x", 2))
        late = add_one(store, new(queue.number, job_type="a", lane="x", rank=NOW + 5))
        soon = add_one(store, new(queue.number, job_type="a", lane="x", rank=NOW - 5))
        heavy = add_one(store, new(queue.number, job_type="a", lane="x", rank=NOW, throttle_factor=2))
        assert lane_claim(store, engine, queue, "a", "x", 2) == [soon, heavy]
        assert lane_claim(store, engine, queue, "a", "x", 2) == [late]
        assert lane_claim(store, engine, queue, "a", "x", 2) == []
        assert row_of(store, late).attempt == 1

    def test_many_claim_groups_of_one_lane_are_all_seen(self, store: Store, engine: int, queue: QueueTables) -> None:
        ids = [job_id for factor in range(1, 21) for job_id in add(store, of(queue, "a", "x", throttle_factor=factor))]
        add(store, of(queue, "a", "y", 5))
        assert sorted(lane_claim(store, engine, queue, "a", "x", 100)) == ids

    def test_several_lanes_in_one_turn(self, store: Store, engine: int, queue: QueueTables) -> None:
        x, y = add(store, of(queue, "a", "x", 3)), add(store, of(queue, "b", "y", 3))
        claims = [Claim(queue.number, ("b",), 2, lane="y"), Claim(queue.number, ("a",), 2, lane="x")]
        won = store.turn(engine, [], claims, NOW).won
        assert sorted(row.id for row in won) == sorted(x[:2] + y[:2])

    def test_limits_hold(self, store: Store, engine: int, queue: QueueTables) -> None:
        x = add(store, of(queue, "a", "x", 5))
        y = add(store, of(queue, "a", "y", 5))
        rules = (limit(3), per_lane(2))
        store.change_rules(queue.number, lambda before: type(before)(limits=rules))
        assert lane_claim(store, engine, queue, "a", "x") == x[:2]
        assert lane_claim(store, engine, queue, "a", "y") == y[:1]
        assert lane_claim(store, engine, queue, "a", "y") == []

    def test_a_paused_lane_and_a_dead_engine_have_none(self, store: Store, engine: int, queue: QueueTables) -> None:
        add(store, of(queue, "a", "x", 5))
        assert lane_claim(store, engine + 1000, queue, "a", "x") == []
        store.change_rules(queue.number, lambda before: type(before)(paused_lanes=("x",)))
        assert lane_claim(store, engine, queue, "a", "x") == []

    def test_what_waits_to_be_judged_comes_with_its_type(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = bring(store, engine, queue.number, "deciding")
        assert lane_claim(store, engine, queue, TYPE, "") == [row.id]

    def test_plain_claims_beside_them_go_on(self, store: Store, engine: int, queue: QueueTables) -> None:
        plain = add(store, [new(queue.number) for _ in range(3)])
        lane = add(store, of(queue, TYPE, "x", 3))
        assert [row.id for row in claim(store, engine, queue.number, limit=2)] == plain[:2]
        assert lane_claim(store, engine, queue, TYPE, "x", 2) == lane[:2]
        assert {row.id for row in claim(store, engine, queue.number)} == {plain[2], lane[2]}

    def test_no_job_is_claimed_twice(self, stores: list[Store], engine: int, queue: QueueTables) -> None:
        ids = add(stores[0], of(queue, "a", "x", 200, tenant="x"))

        def act(n: int) -> list[int]:
            found: list[int] = []
            for _ in range(100):
                found += (some := lane_claim(stores[n % 4], engine, queue, "a", "x", 7))
                if not some and not stores[n % 4].tenants(queue.number, TOP, 1):
                    break
            return found

        assert sorted(job_id for some in at_once(act, 4) for job_id in some) == ids


class TestWhatIsKept:
    def test_answers_that_no_job_has_taken_are_counted(self, store: Store, engine: int, queue: QueueTables) -> None:
        assert store.usage(queue.number, ["acme"], of="answers") == {}
        waiting = bring(store, engine, queue.number, "waiting", key="taken", tenant="acme")
        early = [answer(queue.number, f"early {n}", tenant="acme", data=f'"{"ä" * 10}"') for n in range(3)]
        taken = answer(queue.number, waiting.job_key, tenant="acme", job_type=waiting.job_type)
        outcomes = store.answer([*early, taken, answer(queue.number, "x", tenant="bcme", data="1")], NOW)
        assert [one.outcome for one in outcomes] == ["buffered"] * 3 + ["matched", "buffered"]
        assert store.usage(queue.number, ["acme", "nobody"], of="answers") == {"acme": Usage(3, 66)}
        assert store.usage(queue.number, ["acme", "bcme"], of="answers") == {"acme": Usage(3, 66), "bcme": Usage(1, 1)}
        assert store.usage(queue.number, [], of="answers") == {}

    def test_what_has_ended_is_counted_step_by_step(self, store: Store, engine: int, queue: QueueTables) -> None:
        for tenant in ("acme", "bcme"):
            add(store, [new(queue.number, tenant=tenant, job_data=f'"{"x" * size}"') for size in (8, 20_000, 98)])
        add(store, [new(queue.number, tenant="acme", scheduled_run_time=LATER, phase="scheduled")])
        rows = claim(store, engine, queue.number)
        for row in rows:
            finish(store, row)
        ended = [row for row in everything(store, queue.number) if row.tenant == "acme" and row.state == "final"]
        sizes = [len(row.job_data) + len(row.result) + len(row.history) for row in ended]
        assert len(sizes) == 3
        kind = ("charge", "final", "done")
        assert store.census(queue.number, "acme", "sizes", 0, 10) == ([(*kind, 3, sum(sizes))], 0)
        assert store.census(queue.number, "acme", "sizes", 0, 2) == ([(*kind, 2, sum(sizes[:2]))], ended[1].id)
        assert store.census(queue.number, "acme", "sizes", ended[1].id, 2) == ([(*kind, 1, sizes[2])], 0)
        assert store.census(queue.number, "nobody", "sizes", 0, 2) == ([], 0)


class TestIngest:
    def test_jobs_have_the_ids_they_were_given(self, store: Store, queue: QueueTables, app: str) -> None:
        first = 1 << 46
        jobs = [(numbered(first + n, queue.number), new(queue.number, job_data=f'"{n}"')) for n in range(300)]
        assert store.ingest(jobs, app, "", "1:100")
        for n in (0, 299):
            row = row_of(store, jobs[n][0])
            assert (row.job_data, row.job_key, row.state) == (f'"{n}"', str(row.id), "initial")
        assert note(store, JOURNALS, app) == "1:100"

    def test_what_is_read_twice_is_stored_once(self, store: Store, queue: QueueTables, app: str) -> None:
        def jobs(first: int) -> list[tuple[int, New]]:
            return [(numbered((1 << 46) + first + n, queue.number), new(queue.number)) for n in range(3)]

        assert store.ingest(jobs(0), app, "", "1:100")
        assert not store.ingest(jobs(0), app, "", "1:100")
        assert not store.ingest(jobs(9), app, "1:50", "1:150")
        assert store.ingest(jobs(3), app, "1:100", "2:20")
        assert store.usage(queue.number)[""].jobs == 6

    def test_of_many_at_once_one_is_first(self, stores: list[Store], queue: QueueTables, app: str) -> None:
        jobs = [(numbered((1 << 46) + n, queue.number), new(queue.number)) for n in range(50)]
        done = at_once(lambda n: stores[n % 4].ingest(jobs, app, "", "1:1"), 4)
        assert sorted(done) == [False, False, False, True]
        assert stores[0].usage(queue.number)[""].jobs == 50

    def test_an_id_that_somebody_uses_as_a_key_is_kept(self, store: Store, queue: QueueTables, app: str) -> None:
        job_id = numbered(1 << 46, queue.number)
        add_one(store, new(queue.number, str(job_id)))
        assert store.ingest([(job_id, new(queue.number)), (job_id + (1 << 16), new(queue.number))], app, "", "1:1")
        assert row_of(store, job_id).job_key == f"{job_id}{UNCHOSEN}"
        with pytest.raises(Invalid):
            names.key(f"{job_id}{UNCHOSEN}")
        assert row_of(store, job_id + (1 << 16)).job_key == str(job_id + (1 << 16))

    def test_an_id_that_is_taken_is_no_small_matter(self, store: Store, queue: QueueTables, app: str) -> None:
        job_id = numbered(1 << 46, queue.number)
        assert store.ingest([(job_id, new(queue.number))], app, "", "1:1")
        with pytest.raises(StoreError):
            store.ingest([(job_id, new(queue.number, key="other"))], app, "1:1", "1:2")
        assert note(store, JOURNALS, app) == "1:1"

    def test_an_id_of_a_live_or_an_ended_job_is_refused_whole(
        self, store: Store, engine: int, queue: QueueTables, app: str
    ) -> None:
        first = 1 << 46
        jobs = [(numbered(first + n, queue.number), new(queue.number, job_data=f'"{n}"')) for n in range(4)]
        assert store.ingest(jobs[:2], app, "", "1:1")
        row = next(row for row in claim(store, engine, queue.number) if row.id == jobs[0][0])
        store.turn(engine, [Change(row, transitions.succeeded(row, "null", 200, NOW))], [], NOW)
        for taken in (jobs[0], jobs[1]):
            with pytest.raises(StoreRefused, match="ids that other jobs have"):
                store.ingest([jobs[2], taken, jobs[3]], f"{app}-other", "", "1:1")
        assert [store.get(job_id) for job_id, _ in jobs[2:]] == [None, None]
        assert note(store, JOURNALS, f"{app}-other") == ""

    def test_a_key_that_is_taken_stores_nothing(self, store: Store, queue: QueueTables, app: str) -> None:
        holder = add_one(store, new(queue.number, "mine"))
        keys = enumerate(("", "mine", "x"))
        jobs = [(numbered((1 << 46) + n, queue.number), new(queue.number, key)) for n, key in keys]
        with pytest.raises(DuplicateKey) as raised:
            store.ingest(jobs, app, "", "1:1")
        assert raised.value.id == holder
        assert store.usage(queue.number)[""].jobs == 1
        assert store.ingest([jobs[0], jobs[2]], app, "", "1:1")
        assert row_of(store, jobs[2][0]).job_key == "x"

    def test_large_payloads_come_along(self, store: Store, queue: QueueTables, app: str) -> None:
        job_id, data = numbered(1 << 46, queue.number), f'"{"x" * 100_000}"'
        assert store.ingest([(job_id, new(queue.number, job_data=data))], app, "", "1:1")
        assert row_of(store, job_id).job_data == data


class TestRefusals:
    def test_each_that_is_refused_is_said_with_why_and_nothing_is_stored(
        self, store: Store, queue: QueueTables, app: str
    ) -> None:
        taken = numbered(1 << 46, queue.number)
        assert store.ingest([(taken, new(queue.number, job_data='"mine"'))], app, "", "1:1")
        add_one(store, new(queue.number, "key"))
        before = everything(store, queue.number)
        large = f'"{"x" * 100_000}"'
        bad: dict[int, dict[str, Any]] = {
            0: {"lane": "of an id that is taken"}, 5: {"priority": 1 << 63}, 6: {"tenant": "a\x00b"},
            250: {"phase": "odd"}, 298: {"job_key": "key"}, 299: {"job_data": "\ud800"},
        }  # fmt: skip
        fields = {7: {"job_data": large}, **bad}
        jobs = [
            (numbered((1 << 46) + n, queue.number), replace(new(queue.number), **fields.get(n, {}))) for n in range(300)
        ]
        found = store.refusals(jobs)
        assert sorted(found) == [jobs[n][0] for n in bad]
        assert "ids that other jobs have" in found[taken]
        assert all(found.values())
        assert everything(store, queue.number) == before
        assert note(store, JOURNALS, app) == "1:1"
        assert store.ingest([job for job in jobs if job[0] not in found], app, "1:1", "1:2")
        assert len(everything(store, queue.number)) == len(before) + 294
        assert row_of(store, jobs[7][0]).job_data == large

    def test_of_two_that_cannot_both_be_stored_the_second_is_refused(self, store: Store, queue: QueueTables) -> None:
        jobs = [(numbered((1 << 46) + n, queue.number), new(queue.number, "key")) for n in range(2)]
        assert list(store.refusals(jobs)) == [jobs[1][0]]

    def test_none_are_refused(self, store: Store, queue: QueueTables) -> None:
        assert store.refusals([]) == {}
        jobs = [(numbered((1 << 46) + n, queue.number), new(queue.number)) for n in range(300)]
        assert store.refusals(jobs) == {}
        assert everything(store, queue.number) == []

    def test_what_goes_wrong_otherwise_is_no_refusal(self, store: Store, queue: QueueTables) -> None:
        jobs = [(numbered((1 << 46) + n, number), new(number)) for n, number in enumerate((queue.number, 65_000))]
        with pytest.raises(NotFound):
            store.refusals(jobs)
        assert everything(store, queue.number) == []


class TestUsage:
    def test_each_tenant_has_its_own(self, store: Store, engine: int, queue: QueueTables) -> None:
        assert store.usage(queue.number) == {}
        add(store, [new(queue.number, tenant="acme", job_data='"12345678"') for _ in range(3)])
        large = add_one(store, new(queue.number, tenant="bcme", job_data=f'"{"é" * 10_000}"'))
        assert store.usage(queue.number) == {"acme": Usage(3, 30), "bcme": Usage(1, 20_002)}
        assert store.usage(queue.number, ["bcme", "nobody"]) == {"bcme": Usage(1, 20_002)}
        assert store.usage(queue.number, ["acme"]) == {"acme": Usage(3, 30)}
        assert store.usage(queue.number, []) == {}
        rows = claim(store, engine, queue.number)
        done = [transitions.succeeded(row, "null", 200, NOW + SECOND) for row in rows if row.id != large]
        store.turn(engine, [Change(row, after) for row, after in zip(rows, done, strict=False)], [], NOW)
        assert store.usage(queue.number) == {"bcme": Usage(1, 20_002)}


class TestOneNote:
    def test_it_is_read_alone(self, store: Store, app: str) -> None:
        assert note(store, app, "sky") == ""
        store.change_note(app, "sky", lambda _: "blue")
        assert (note(store, app, "sky"), note(store, app, "sea")) == ("blue", "")
