"""Limits, lanes, pauses and windows: what a claim takes is what they allow, in order, and never more."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from hipq.job import transitions, windows
from hipq.job.model import Row
from hipq.job.units import UNIT
from hipq.job.windows import window
from hipq.limits.limit import limit
from hipq.limits.per_lane import per_lane
from hipq.limits.rate import rate
from hipq.limits.rules import AnyLimit, Rules, checked
from hipq.limits.share import share
from hipq.stores.claims import Claim
from hipq.stores.filters import Filter
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from hipq.testing.clock import HandClock
from tests.contract.jobs import NOW, add, add_one, bring, claim, everything, new, ranked, save, waits
from tests.contract.oracle import Oracle

TYPES = ("charge", "mail", "report", "urgent")
OPEN = windows.dump([window("00:00", "24:00")])
SHUT = windows.dump([window("00:00", "00:01")])
assert windows.is_open(OPEN, NOW)
assert not windows.is_open(SHUT, NOW)
SETS: dict[str, list[AnyLimit]] = {
    "none": [],
    "limit": [limit(7)],
    "per lane": [per_lane(3)],
    "both": [limit(10), per_lane(4)],
    "shares": [limit(10), share({"east": 40, "north": 30, "west": 30})],
    "shares with others": [limit(10), share({"east": 50}, other=30)],
    "fractions": [limit(7.5), per_lane(2.3)],
    "shares of fractions": [limit(9.5), share({"east": 33.3, "north": 30, "west": 30})],
}


def set_rules(store: Store, queue: int, limits: list[AnyLimit] = (), **more: object) -> Rules:  # type: ignore[assignment]
    return store.change_rules(queue, lambda rules: replace(rules, limits=checked(limits), **more))


def live(store: Store, queue: int) -> list[Row]:
    return [row for row in everything(store, queue) if row.state != "final"]


class TestRules:
    @pytest.mark.parametrize("name", SETS)
    @pytest.mark.parametrize("seed", range(3))
    def test_a_claim_takes_what_a_slow_look_at_every_job_finds(
        self, store: Store, engine: int, queue: QueueTables, name: str, seed: int
    ) -> None:
        draw = random.Random(f"{name}{seed}")
        number = queue.number
        factors = [1, 1, 0.7, 0.25, 2, 3] if "fractions" in name else [1, 1, 1, 2, 3]
        lanes = (
            ["east", "north", "west"]
            if name in ("shares", "shares of fractions")
            else ["", "east", "north", "west", "süd"]
        )
        rules = set_rules(store, number, SETS[name])
        oracle = Oracle(rules, ("urgent",), {"[]": True, OPEN: True, SHUT: False})
        jobs = [
            new(
                number, job_type=draw.choice(TYPES), rank=draw.randrange(30), lane=draw.choice(lanes),
                throttle_factor=draw.choice(factors), time_windows=draw.choice(["[]", "[]", OPEN, SHUT]),
            )
            for _ in range(150)
        ]  # fmt: skip
        add(store, jobs)
        taken = 0
        for step in range(60):
            if step % 10 == 9:
                paused = {"paused": draw.random() < 0.2, "paused_lanes": tuple(draw.sample(lanes, draw.randrange(2)))}
                oracle.rules = set_rules(
                    store, number, SETS[name], **paused, paused_types=tuple(draw.sample(TYPES, draw.randrange(2)))
                )
            types = tuple(draw.sample(TYPES, draw.choice([1, 3, 4, 4, 4])))
            want = draw.choice([1, 2, 5, 20])
            expected = oracle.claim(live(store, number), types, want)
            claim = Claim(number, types, want, ("urgent",))
            would = [head.place[1] for head in store.would_start(claim, NOW)]
            assert sorted(would) == sorted(expected), f"a trial, step {step}"
            won = store.turn(engine, [], [claim], NOW).won
            assert [row.id for row in won] == expected, f"step {step}"
            assert all(row.held == (0 if row.job_type == "urgent" else row.throttle_factor) for row in won)
            taken += len(won)
            running = store.find(Filter(number, state="running", limit=1000))
            for row in draw.sample(running, draw.randrange(min(len(running), 6) + 1)):
                ended = draw.choice(
                    [transitions.succeeded(row, "1", 200, NOW), transitions.given_back(row, "no", True, NOW)]
                )
                if row.phase == "executing" and draw.random() < 0.3:
                    ended = waits(row, NOW + 10**9, NOW)
                store.turn(engine, [_change(row, ended)], [], NOW)
        assert taken > 60

    def test_what_is_used_is_seen_by_the_next_claim_of_another_engine(
        self, store: Store, other: Store, engine: int, queue: QueueTables
    ) -> None:
        rival = other.take_lease(60, "rival")
        set_rules(store, queue.number, [limit(5)])
        ids = add(store, [new(queue.number, throttle_factor=2)] * 4)
        assert [row.id for row in claim(store, engine, queue.number, limit=1)] == ids[:1]
        assert [row.id for row in claim(other, rival, queue.number)] == ids[1:2]
        assert claim(store, engine, queue.number) == []

    def test_a_changed_limit_counts_from_the_next_claim_on(
        self, store: Store, other: Store, engine: int, queue: QueueTables
    ) -> None:
        ids = add(store, [new(queue.number)] * 20)
        assert len(claim(store, engine, queue.number, limit=4)) == 4  # it knows the rules by now: none
        set_rules(other, queue.number, [limit(6)])
        assert len(claim(store, engine, queue.number)) == 2
        other.change_rules(queue.number, lambda rules: replace(rules, changed=(limit(9),)))
        assert len(claim(store, engine, queue.number)) == 3
        other.change_rules(queue.number, lambda rules: replace(rules, changed=()))
        assert [row.id for row in claim(store, engine, queue.number)] == ids[9:]

    def test_a_rate_is_never_exceeded_in_any_span(
        self, store: Store, engine: int, queue: QueueTables, clock: HandClock
    ) -> None:
        set_rules(store, queue.number, [rate(10, per=1)])
        add(store, [new(queue.number, throttle_factor=1 + n % 3) for n in range(120)])
        draw = random.Random(5)
        starts: list[tuple[int, int]] = []
        again = 0
        for _ in range(200):
            now = clock.now()
            turned = store.turn(engine, [], [Claim(queue.number, ("charge",), 100)], now)
            starts += [(now, row.throttle_factor) for row in turned.won]
            if queue.number in turned.refused:
                again = turned.refused[queue.number]
                assert turned.won or now < again <= now + 1_000_000
            step = again - now if again > now and draw.random() < 0.3 else draw.randrange(150_000)
            clock.advance(seconds=step / 1e6)
        assert len(starts) == 120
        for at, _ in starts:
            assert sum(units for when, units in starts if at <= when < at + 1_000_000) <= 10 * UNIT

    def test_a_rate_counts_starts_when_they_happen(
        self, store: Store, engine: int, queue: QueueTables, clock: HandClock
    ) -> None:
        set_rules(store, queue.number, [rate(2, per=10)])
        add(store, [new(queue.number)] * 6)
        began = clock.now()
        clock.advance(seconds=9)  # the process was stopped between the beginning of its turn and this
        assert len(store.turn(engine, [], [Claim(queue.number, ("charge",), 9)], began).won) == 2
        clock.advance(seconds=9)
        assert store.turn(engine, [], [Claim(queue.number, ("charge",), 9)], clock.now()).won == []
        clock.advance(seconds=1)
        assert len(store.turn(engine, [], [Claim(queue.number, ("charge",), 9)], clock.now()).won) == 2

    def test_a_rate_is_not_used_up_by_what_is_judged(self, store: Store, engine: int, queue: QueueTables) -> None:
        bring(store, engine, queue.number, "deciding")
        set_rules(store, queue.number, [rate(1, per=3600)])
        job_id = add_one(store, new(queue.number))
        (judged,) = claim(store, engine, queue.number, limit=1)
        assert judged.id != job_id
        assert [row.id for row in claim(store, engine, queue.number, limit=1)] == [job_id]

    def test_what_a_rate_refuses_in_the_claim_that_fills_it_is_told_when(
        self, store: Store, engine: int, queue: QueueTables, clock: HandClock
    ) -> None:
        set_rules(store, queue.number, [rate(2, per=10)])
        add(store, [new(queue.number)] * 3)
        turned = store.turn(engine, [], [Claim(queue.number, ("charge",), 9)], NOW)
        assert (len(turned.won), turned.refused) == (2, {queue.number: clock.now() + 10_000_000})

    @pytest.mark.parametrize("one", [limit(1), per_lane(1), rate(1, per=60)], ids=str)
    def test_tenths_of_a_unit_add_up_exactly(
        self, store: Store, engine: int, queue: QueueTables, one: AnyLimit
    ) -> None:
        set_rules(store, queue.number, [one])
        ids = add(store, [new(queue.number, throttle_factor=0.1)] * 11)
        won = [row.id for _ in range(4) for row in claim(store, engine, queue.number, limit=4)]
        assert won == ids[:10], "ten tenths are one"

    def test_light_jobs_do_not_pass_one_of_a_whole_unit_for_ever(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        set_rules(store, queue.number, [limit(2)])
        add(store, [new(queue.number, rank=0, throttle_factor=0.5)] * 3)
        running = claim(store, engine, queue.number)
        (whole,) = add(store, [new(queue.number, rank=1)])
        add(store, [new(queue.number, rank=2, throttle_factor=0.5)] * 50)
        passed = 0
        while whole not in [row.id for row in running]:
            won = claim(store, engine, queue.number)
            passed += len(won)
            running += won
            done = running.pop(0)
            store.turn(engine, [_change(done, transitions.succeeded(done, "1", 200, NOW))], [], NOW)
        assert 0 < passed - 1 <= 4, "what passes it is one poolful of halves"

    def test_a_heavy_job_is_passed_by_one_poolful_at_most(self, store: Store, engine: int, queue: QueueTables) -> None:
        set_rules(store, queue.number, [limit(10)])
        add(store, [new(queue.number, rank=0)] * 5)
        running = claim(store, engine, queue.number)
        (heavy,) = add(store, [new(queue.number, rank=1, throttle_factor=10)])
        add(store, [new(queue.number, rank=2)] * 500)
        passed = 0
        for _ in range(100):
            won = claim(store, engine, queue.number, limit=2)
            if heavy in [row.id for row in won]:
                break
            passed += len(won)
            running += won
            done = running.pop(0)
            store.turn(engine, [_change(done, transitions.succeeded(done, "1", 200, NOW))], [], NOW)
        else:
            pytest.fail("the heavy job never came")
        assert 0 < passed <= 10

    def test_engines_without_its_code_pass_a_heavy_job_as_little(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        _bar_mails(store, engine, queue.number)
        add(store, [new(queue.number, job_type="mail", rank=0)])
        (urgent,) = _mails(store, engine, queue.number)
        assert urgent.rank == ranked(0), "what comes before the heavy one may start"
        save(store, urgent, transitions.succeeded(urgent, "1", 200, NOW))
        assert claim(store, engine, queue.number, types=("charge",))
        assert _mails(store, engine, queue.number) == []

    def test_those_behind_a_heavy_job_are_told_when_its_engine_is_given_up(
        self, store: Store, engine: int, queue: QueueTables, clock: HandClock
    ) -> None:
        _bar_mails(store, engine, queue.number)
        turned = store.turn(engine, [], [Claim(queue.number, ("mail",), 10)], clock.now())
        again = turned.refused[queue.number] - clock.now()
        assert 0 < again <= 10_000_000
        clock.advance(seconds=again / 1e6)
        assert len(_mails(store, engine, queue.number)) == 4

    @pytest.mark.parametrize("seconds", [-3600, 3600])
    def test_those_behind_a_heavy_job_do_not_wait_for_the_calendar(
        self, store: Store, engine: int, queue: QueueTables, clock: HandClock, seconds: int
    ) -> None:
        _bar_mails(store, engine, queue.number)
        clock.step(seconds)
        assert len(_mails(store, engine, queue.number)) == 4

    @pytest.mark.parametrize("paused", [{"paused_types": ("charge",)}, {"paused_lanes": ("one",)}])
    def test_nobody_waits_for_a_heavy_job_that_is_paused(
        self, store: Store, engine: int, queue: QueueTables, paused: dict[str, tuple[str, ...]]
    ) -> None:
        _bar_mails(store, engine, queue.number)
        set_rules(store, queue.number, [limit(4)], **paused)
        assert claim(store, engine, queue.number, types=("charge",)) == []
        assert len(_mails(store, engine, queue.number)) == 4

    def test_where_a_throttler_decides_a_heavy_job_is_passed_as_little(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        set_rules(store, queue.number, [limit(4)], throttled=True)
        types = ("mail", "charge")

        def go_on(count: int) -> list[Row]:
            """The throttler admits all that it is shown."""
            asked = store.ask(engine, Claim(queue.number, types, count), ("", 0), 60, 500, NOW)
            assert asked is not None
            admitted = tuple(row.id for row in asked.due)
            return store.turn(engine, [], [Claim(queue.number, types, count, (), asked.ticket, admitted)], NOW).won

        add(store, [new(queue.number, job_type="mail", rank=0)] * 2)
        running = go_on(2)
        (heavy,) = add(store, [new(queue.number, job_type="charge", rank=1, throttle_factor=4)])
        add(store, [new(queue.number, job_type="mail", rank=5)] * 50)
        passed = 0
        while running and running[-1].id != heavy:
            row = running.pop(0)
            save(store, row, transitions.succeeded(row, "1", 200, NOW))
            running += (won := go_on(1))
            passed += len(won)
        assert ([row.id for row in running], passed) == ([heavy], 5)

    def test_a_job_heavier_than_a_lowered_limit_runs_alone(self, store: Store, engine: int, queue: QueueTables) -> None:
        set_rules(store, queue.number, [limit(10)])
        light, heavy, later = add(
            store, [new(queue.number, throttle_factor=n, rank=r) for n, r in ((1, 0), (8, 1), (1, 2))]
        )
        set_rules(store, queue.number, [limit(4)])
        (first,) = claim(store, engine, queue.number, limit=1)
        assert first.id == light
        (passing,) = claim(store, engine, queue.number)
        assert passing.id == later
        store.turn(engine, [_change(r, transitions.succeeded(r, "1", 200, NOW)) for r in (first, passing)], [], NOW)
        add(store, [new(queue.number, rank=3)])
        assert [row.id for row in claim(store, engine, queue.number)] == [heavy]

    def test_fair_lanes_take_turns(self, store: Store, engine: int, queue: QueueTables) -> None:
        set_rules(store, queue.number, lanes="fair")
        lanes = [f"lane{n:03}" for n in range(150)]
        add(store, [new(queue.number, lane="lane070", rank=0, job_type=t) for t in ("charge", "mail")] * 300)
        add(store, [new(queue.number, lane=lane, rank=9, job_type="charge") for lane in lanes for _ in range(2)])
        add(store, [new(queue.number, lane=lane, rank=9, job_type="mail") for lane in lanes[::7]])
        served: list[str] = []
        for _ in range(40):
            served += [row.lane for row in claim(store, engine, queue.number, types=("charge", "mail"), limit=10)]
        hog = served.count("lane070")
        assert set(served) == set(lanes)
        assert hog < 100, "one lane with most of the jobs does not get most of the turns"

    @pytest.mark.parametrize("most", [3, 20, 100])
    @pytest.mark.parametrize("lanes", [1, 3, 60, 150])
    def test_no_lane_is_ahead_of_another_by_more_than_one_turn(
        self, store: Store, engine: int, queue: QueueTables, lanes: int, most: int
    ) -> None:
        set_rules(store, queue.number, lanes="fair")
        names = ["", *(f"lane{n:03}" for n in range(1, lanes))]
        waiting = {lane: 5 + 40 * (n % 3) for n, lane in enumerate(names)}
        add(store, [new(queue.number, lane=lane) for lane in names for _ in range(waiting[lane])])
        served = dict.fromkeys(names, 0)
        while won := claim(store, engine, queue.number, limit=most):
            for row in won:
                served[row.lane] += 1
            had = [served[lane] for lane in names if served[lane] < waiting[lane]]
            assert max(had, default=0) - min(had, default=0) <= 1
        assert served == waiting

    def test_fair_lanes_keep_their_order_whatever_they_are_made_of(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        set_rules(store, queue.number, lanes="fair")
        add(store, [new(queue.number, lane="a", rank=-n, throttle_factor=n) for n in range(1, 101)])
        add(store, [new(queue.number, lane=f"b{n}", rank=n) for n in range(70)])
        factors: list[int] = []
        while won := claim(store, engine, queue.number, limit=5):
            factors += [row.throttle_factor for row in won if row.lane == "a"]
        assert factors == [n * UNIT for n in range(100, 0, -1)]

    def test_a_changed_rate_goes_on_counting(
        self, store: Store, engine: int, queue: QueueTables, clock: HandClock
    ) -> None:
        add(store, [new(queue.number)] * 50)
        for wanted in (rate(5, per=30), rate(4, per=30), rate(3, per=30), rate(5, per=20), rate(5, per=30)):
            set_rules(store, queue.number, [wanted])
            claim(store, engine, queue.number)
            clock.advance(seconds=1)
        assert len(store.find(Filter(queue.number, state="running"))) == 5

    def test_where_a_rate_counts_starts_no_more_are_claimed_than_can_start(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        set_rules(store, queue.number, [rate(20, per=1)])
        add(store, [new(queue.number)] * 9)
        turned = store.turn(engine, [], [Claim(queue.number, ("charge",), 9, hands=2)], NOW)
        assert len(turned.won) == 2
        assert queue.number in turned.refused
        assert store.turn(engine, [], [Claim(queue.number, ("charge",), 9, hands=0)], NOW).won == []

    def test_fair_lanes_leave_nothing_behind(self, store: Store, engine: int, queue: QueueTables) -> None:
        set_rules(store, queue.number, [per_lane(1)], lanes="fair")
        ids = add(store, [new(queue.number, lane=f"l{n % 90}") for n in range(180)])
        seen: list[int] = []
        while won := claim(store, engine, queue.number, limit=7):
            seen += [row.id for row in won]
            if len(won) < 7:
                rows = store.find(Filter(queue.number, state="running", limit=1000))
                store.turn(engine, [_change(r, transitions.succeeded(r, "1", 200, NOW)) for r in rows], [], NOW)
        assert sorted(seen) == ids

    def test_a_paused_queue_starts_nothing_and_judges_still(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        add(store, [new(queue.number)] * 2)
        (row, _) = claim(store, engine, queue.number)
        from tests.contract.jobs import FAULT

        store.turn(engine, [_change(row, transitions.errored(row, FAULT, 500, NOW))], [], NOW)
        add(store, [new(queue.number)])
        set_rules(store, queue.number, paused=True)
        turned = store.turn(engine, [], [Claim(queue.number, ("charge",), 9)], NOW)
        assert [won.id for won in turned.won] == [row.id]
        assert turned.refused == {queue.number: 0}

    def test_closed_windows_are_told(self, store: Store, engine: int, queue: QueueTables) -> None:
        shut = add(store, [new(queue.number, time_windows=SHUT, lane=lane) for lane in ("a", "b")])
        (able,) = add(store, [new(queue.number, rank=1 << 70)])
        turned = store.turn(engine, [], [Claim(queue.number, ("charge",), 9)], NOW)
        assert [row.id for row in turned.won] == [able]
        assert turned.closed == {queue.number: frozenset({SHUT})}
        found = store.due(queue.number, "ready", NOW, 10, ("charge",), (SHUT,))
        assert sorted(row.id for row in found) == shut
        assert len(store.due(queue.number, "ready", NOW, 1, ("charge",), (SHUT,))) == 1
        assert store.due(queue.number, "ready", NOW, 10, ("mail",), (SHUT,)) == []


def _bar_mails(store: Store, engine: int, queue: int) -> None:
    """As many mails as may have passed a heavy job that other engines have the code for; none runs."""
    set_rules(store, queue, [limit(4)])
    add(store, [new(queue, job_type="mail", rank=5)] * 100)
    running = claim(store, engine, queue, types=("mail",), limit=2)
    add(store, [new(queue, job_type="charge", rank=1, throttle_factor=4, lane="one")])
    assert claim(store, engine, queue, types=("charge",)) == []
    passed = 0
    while running:
        row = running.pop(0)
        save(store, row, transitions.succeeded(row, "1", 200, NOW))
        running += (won := _mails(store, engine, queue))
        passed += len(won)
    assert passed == 4


def _mails(store: Store, engine: int, queue: int) -> list[Row]:
    return claim(store, engine, queue, types=("mail",), limit=10)


def _change(before: Row, after: Row):  # type: ignore[no-untyped-def]
    from hipq.job.model import Change

    return Change(before, after)
