"""Lanes that a scheduler chooses from: all are met, none is forgotten, and nobody asks more often than need be."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from hipq import Hipq
from hipq.daemon.handlers.policies import Policies
from hipq.daemon.job_factory import ORDER, PLAIN, job
from hipq.daemon.options import Options
from hipq.daemon.scheduler import FairShare
from hipq.engine import lanes as module
from hipq.engine.claim import ClaimPlanner
from hipq.engine.lanes import BATCH, Guarded, Round, Spare
from hipq.engine.loop import Engine
from hipq.engine.queues import EngineQueue
from hipq.engine.setup import Setup
from hipq.executors.execution import Execution
from hipq.job.fault import Fault
from hipq.job.run_result import Decided, Errored, Succeeded
from hipq.job.states import FINAL
from hipq.limits.tenants import PerTenant, tenant_of
from hipq.stores.filters import Filter
from hipq.testing.clock import HandClock

pytestmark = pytest.mark.every_store


class Counted:
    """A store that counts what it is asked."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.asked: Counter[str] = Counter()
        self.claims: list[str | None] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.asked[name] += 1
            if name == "turn":
                self.claims += [claim.lane for claim in arguments[2]]
            return found(*arguments, **named)

        return call


class Executor:
    """Every job is over the moment it begins; or when `release` is called."""

    broken = False

    def __init__(self, hold: bool = False) -> None:
        self.hold = hold
        self.fails: set[str] = set()
        self.ran: list[str] = []
        self.ended: deque[Execution] = deque()
        self._held: list[Execution] = []

    def launch(self, batch: Iterable[Execution]) -> None:
        for execution in batch:
            execution.run.started = execution.run.stopped = 1
            self.ran.append("judged" if execution.only_decides else execution.row.lane)
            if execution.only_decides:
                execution.run.result = Decided(Fault("error", "no"), 500)
            elif execution.row.job_type in self.fails:
                execution.run.result = Errored(Fault("error", "no"), 500)
            else:
                execution.run.result = Succeeded("null")
            (self._held if self.hold else self.ended).append(execution)

    def release(self) -> None:
        self.ended += self._held
        self._held = []

    def stopped(self, most: int) -> list[Execution]:
        return [self.ended.popleft() for _ in range(min(most, len(self.ended)))]

    def unstarted(self) -> list[Execution]:
        return []

    def abandon(self, execution: Execution) -> None: ...
    def wait_for_told(self, seconds: float) -> None: ...
    def stuck(self, steady: int) -> int:  # noqa: ARG002
        return 0

    def close(self) -> None: ...


class Bench:
    """An engine, turned by hand."""

    def __init__(self, app: Hipq, clock: HandClock, scheduler: Any = None, concurrency: int = 8, **hands: Any) -> None:
        self.app, self.clock = app, clock
        self.number = app.queue("jobs").number
        app.migrate()
        self.store = Counted(app.store)
        self.hands = Executor(**hands)
        queue = EngineQueue(
            self.number, "jobs", ORDER, Policies(Options()), scheduler=scheduler or FairShare()
        )  # fmt: skip
        self.engine = Engine(
            Setup(self.store, [queue], self.hands, app.events, clock.steady, concurrency=concurrency, lease=3600)
        )  # fmt: skip  # PostgreSQL's leases go by real time, and this clock never says that one must be renewed

    def add(self, tenant: str, name: str, count: int = 1) -> None:
        now = self.app.store.now()
        self.app.store.enqueue([job(self.number, tenant, name, b"x", PLAIN, now) for _ in range(count)])
        self.engine.wake()

    def turns(self, most: int = 400) -> int:
        """Until it would rest; how many that took."""
        for turn in range(1, most + 1):
            if self.engine.turn() > 0 and not self.hands.ended:  # else a handler would have notified it
                return turn
        pytest.fail(f"it still did not rest after {most} turns: {self.store.asked}")

    def left(self) -> int:
        return len(self.app.store.find(Filter(self.number, table="live", limit=100_000)))


def test_more_lanes_than_one_look_shows_are_all_served(app: Hipq, clock: HandClock) -> None:
    bench = Bench(app, clock, concurrency=50)
    now = app.store.now()
    news = [job(bench.number, f"t{n % 7}", f"type{n:03}", b"x", PLAIN, now) for n in range(700) for _ in range(2)]
    app.store.enqueue(news)
    bench.turns()
    assert bench.left() == 0
    assert len(set(bench.hands.ran)) == 700


def test_lanes_that_come_and_go_are_served_at_once(app: Hipq, clock: HandClock) -> None:
    bench = Bench(app, clock)
    bench.turns()
    for n in range(20):
        bench.add(f"t{n % 3}", f"type{n % 5}", 1 + n % 4)
        assert bench.turns() < 12
        assert bench.left() == 0


def test_a_lane_with_more_than_there_is_room_for_is_not_looked_for_again_each_time(app: Hipq, clock: HandClock) -> None:
    bench = Bench(app, clock, concurrency=1)
    bench.engine.batch.prefetch.room = lambda free: free  # type: ignore[method-assign]  # claims nothing ahead
    bench.add("a", "x", 60)
    bench.turns()
    assert bench.left() == 0
    assert bench.store.asked["lanes"] <= 6


def test_a_tenant_with_more_lanes_than_can_be_known_hides_nobody(
    app: Hipq, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LANES", 4)
    monkeypatch.setattr(module, "KNOWN", 8)
    bench = Bench(app, clock, concurrency=2)
    bench.engine.batch.prefetch.room = lambda free: free  # type: ignore[method-assign]  # claims nothing ahead
    now = app.store.now()
    app.store.enqueue([job(bench.number, "hog", f"a{n:02}", b"x", PLAIN, now) for n in range(30) for _ in range(40)])
    app.store.enqueue([job(bench.number, "small", "z", b"x", PLAIN, now)])
    bench.turns(2_000)
    assert bench.left() == 0
    assert bench.hands.ran.index("small/z") < 600, "half of what the other has"


def test_a_noticed_lane_comes_before_any_look(app: Hipq, clock: HandClock) -> None:
    bench = Bench(app, clock, concurrency=2)
    bench.engine.batch.prefetch.room = lambda free: free  # type: ignore[method-assign]  # claims nothing ahead
    now = app.store.now()
    app.store.enqueue([job(bench.number, "hog", f"t{n:03}", b"x", PLAIN, now) for n in range(600)])
    bench.engine.turn()
    app.store.enqueue([job(bench.number, "small", "z", b"x", PLAIN, now)])
    bench.engine.notice(bench.number, [("z", "small/z")])
    bench.engine.turn()
    assert bench.hands.ran[2:3] == ["small/z"]


def test_what_waits_to_be_judged_is_claimed_whatever_the_scheduler_says(app: Hipq, clock: HandClock) -> None:
    bench = Bench(app, clock)
    bench.hands.fails.add("bad")
    bench.add("a", "bad", 3)
    bench.add("a", "good", 3)
    bench.turns()
    assert bench.hands.ran.count("judged") == 3
    assert bench.left() == 0


def test_an_idle_engine_asks_little(app: Hipq, clock: HandClock) -> None:
    bench = Bench(app, clock)
    bench.turns()
    bench.store.asked.clear()
    for _ in range(60):
        clock.advance(seconds=1.0)
        bench.turns(3)
    assert bench.store.asked["lanes"] == 0
    assert bench.store.asked["turn"] == 0
    assert bench.store.asked["peek"] <= 61


class Asleep:
    """Wants nothing, until it does."""

    def __init__(self) -> None:
        self.awake = False
        self.running: Counter[str] = Counter()

    def select_jobtype_to_run(self, jobtypes: Sequence[str], jobcounts: Mapping[str, int]) -> str | None:  # noqa: ARG002
        return jobtypes[-1] if self.awake and jobtypes else None

    def jobs_started(self, jobtype: str, count: int) -> None:
        self.running[jobtype] += count

    def jobs_stopped(self, jobtype: str, count: int) -> None:
        self.running[jobtype] -= count


@pytest.mark.parametrize("lanes", [3, 300])
def test_a_scheduler_that_wants_nothing_makes_no_busy_loop_and_is_asked_again(
    app: Hipq, clock: HandClock, lanes: int
) -> None:
    scheduler = Asleep()
    bench = Bench(app, clock, scheduler)
    now = app.store.now()
    app.store.enqueue([job(bench.number, "a", f"t{n}", b"x", PLAIN, now) for n in range(lanes)])
    assert bench.turns() <= 5
    bench.store.asked.clear()
    for _ in range(20):
        clock.advance(seconds=1.0)
        bench.turns(6)
    assert bench.store.asked["lanes"] <= 20 * (lanes // 256 + 2)
    assert bench.store.claims == []
    scheduler.awake = True
    clock.advance(seconds=2.0)
    bench.turns()
    assert bench.left() == 0
    assert sum(scheduler.running.values()) == 0


class Bad:
    """A scheduler that cannot be relied on."""

    def __init__(self, how: str) -> None:
        self.how = how

    def select_jobtype_to_run(self, jobtypes: Sequence[str], jobcounts: Mapping[str, int]) -> Any:
        if self.how == "raises":
            raise RuntimeError("a bug")
        if self.how == "meddles":
            jobtypes.clear()  # type: ignore[attr-defined]
            jobcounts.clear()  # type: ignore[attr-defined]
        return {"unknown": "nobody/nothing", "always": "a/t0", "odd": 17, "meddles": "x"}[self.how]

    def jobs_started(self, jobtype: str, count: int) -> None:  # noqa: ARG002
        raise RuntimeError("a bug here too")

    def jobs_stopped(self, jobtype: str, count: int) -> None:  # noqa: ARG002
        raise RuntimeError("and here")


@pytest.mark.parametrize("how", ["raises", "unknown", "always", "odd", "meddles"])
def test_a_bad_plug_in_can_neither_stall_nor_crash_anything(
    app: Hipq, clock: HandClock, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(app, clock, Guarded(Bad(how)))
    for n in range(40):
        bench.add("a" if n % 2 else "b", f"t{n}", 3)
    bench.turns()
    assert bench.left() == 0
    said = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert 1 <= len(said) <= 3, "and it is said once, not with every job"


@pytest.mark.parametrize("chosen", ["a/x", "nobody/nothing"])
def test_a_round_takes_no_lane_that_it_has_not_offered(app: Hipq, clock: HandClock, chosen: str) -> None:
    class Stubborn(Asleep):
        def select_jobtype_to_run(self, jobtypes: Sequence[str], jobcounts: Mapping[str, int]) -> str | None:  # noqa: ARG002
            return chosen

    bench = Bench(app, clock)
    bench.add("a", "x", 5)
    bench.add("b", "y", 5)
    found = Round(app.store, bench.number, Stubborn())
    found.stale()
    assert [claim.lane for claim in found.claims(100, 100)] == (["a/x"] if chosen == "a/x" else [])


def test_a_tenant_at_its_limit_costs_others_little(app: Hipq, clock: HandClock) -> None:
    bench = Bench(app, clock, concurrency=20, hold=True)
    app.store.change_rules(bench.number, lambda rules: type(rules)(limits=(PerTenant({"full": 2}),)))
    now = app.store.now()
    app.store.enqueue([job(bench.number, "full", f"t{n:03}", b"x", PLAIN, now) for n in range(300)])
    bench.turns()
    assert len(bench.hands.ran) == 2
    bench.store.claims.clear()
    bench.add("other", "job", 5)
    bench.turns()
    assert bench.hands.ran.count("other/job") == 5
    assert len(bench.store.claims) <= 20, "not all lanes of the one that is full are tried"
    for _ in range(3):
        bench.hands.release()
        clock.advance(seconds=0.1)
        bench.turns()
    assert len(bench.hands.ran) == 2 + 5 + 6, "as soon as there is room it goes on"


def test_lanes_that_limits_refuse_make_no_busy_loop(app: Hipq, clock: HandClock) -> None:
    bench = Bench(app, clock, hold=True)
    app.store.change_rules(bench.number, lambda rules: type(rules)(paused=True))
    now = app.store.now()
    app.store.enqueue([job(bench.number, f"t{n}", "x", b"x", PLAIN, now) for n in range(20)])
    bench.turns(60)
    bench.store.asked.clear()
    for _ in range(10):
        clock.advance(seconds=1.0)
        bench.turns(60)
    assert bench.store.asked["turn"] <= 300
    assert bench.hands.ran == []
    app.store.change_rules(bench.number, lambda rules: type(rules)())
    clock.advance(seconds=1.5)
    bench.turns()
    assert len(bench.hands.ran) == 8


def test_a_paused_lane_does_not_stop_the_others_of_its_tenant(app: Hipq, clock: HandClock) -> None:
    bench = Bench(app, clock)
    app.store.change_rules(bench.number, lambda rules: type(rules)(paused_lanes=("a/t0",)))
    now = app.store.now()
    app.store.enqueue([job(bench.number, "a", f"t{n % 5}", b"x", PLAIN, now) for n in range(100)])
    bench.turns()
    assert bench.left() == 20
    assert "a/t0" not in bench.hands.ran


def test_a_plain_queue_beside_one_with_a_scheduler_gets_its_part(app: Hipq, clock: HandClock) -> None:
    done: list[int] = []
    plain = app.queue("plain")
    plain.job("work")(lambda job: done.append(job.id))
    bench = Bench(app, clock)
    queues = [*bench.engine.setup.queues, plain.for_engine()]
    bench.engine = Engine(Setup(bench.store, queues, bench.hands, app.events, clock.steady, concurrency=4, lease=3600))
    bench.add("a", "x", 200)
    plain.enqueue_many("work", range(50))
    bench.engine.wake()
    bench.turns()
    assert bench.left() == 0
    assert len(app.store.find(Filter(plain.number, state=FINAL, limit=1000))) == 50
    assert "" in bench.hands.ran[:60], "it did not have to wait until the other was done"


def test_no_claim_is_for_more_than_a_batch(app: Hipq, clock: HandClock) -> None:
    bench = Bench(app, clock)
    bench.add("a", "x", 3 * BATCH)
    found = Round(app.store, bench.number, FairShare())
    found.stale()
    assert [claim.limit for claim in found.claims(1000, 1000)] == [BATCH]


def test_where_there_is_no_room_only_newcomers_are_claimed_one_lane_each(app: Hipq, clock: HandClock) -> None:
    bench = Bench(app, clock)
    for tenant in ("busy", "new", "newer", "newest"):
        bench.add(tenant, "x", 30)
        bench.add(tenant, "y", 30)
    found = Round(app.store, bench.number, FairShare())
    found.stale()
    assert found.claims(0, 0) == [], "nothing is spare"
    spare = Spare(2, frozenset({"busy"}), each=7)
    assert found.wants(spare)
    claims = found.claims(0, 0, spare)
    assert [claim.limit for claim in claims] == [7, 7]
    chosen = {tenant_of(claim.lane or "") for claim in claims}
    assert len(chosen) == 2
    assert "busy" not in chosen
    everybody = frozenset({"busy", "new", "newer", "newest"})
    while found.looking:
        assert found.claims(0, 0, Spare(2, everybody)) == []
    assert not found.wants(Spare(2, everybody))
    assert not found.wants(Spare(0, frozenset()))


def test_a_scheduler_that_wants_nothing_on_spare_hands_is_left_alone_until_something_changes(
    app: Hipq, clock: HandClock
) -> None:
    bench = Bench(app, clock, scheduler=Asleep())
    bench.add("new", "x", 5)
    planner, spare = ClaimPlanner(bench.engine.watches), Spare(2, frozenset({"busy"}))
    while planner.wants(0, spare):
        assert planner.claims(0, 0, spare) == []
    assert planner.wants(1, spare), "what there is room for is another matter"
    bench.engine.notice(bench.number, [("x", "new/x")])
    assert planner.wants(0, spare)
