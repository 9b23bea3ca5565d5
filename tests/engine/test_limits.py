"""Limits, lanes, pauses: what runs at a time, from what the code says to what several engines do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from hipq import Hipq, Invalid, Job, JobType, Queue, Wait, limit, per_lane, rate, share, window
from hipq.job.units import UNIT, Number
from hipq.job.units import number as units
from hipq.limits.rules import AnyLimit
from hipq.stores.claims import Claim
from hipq.testing.clock import HandClock
from tests.engine.working import real_time, until, until_empty, working

pytestmark = pytest.mark.every_store

MakeApp = Callable[[], Hipq]


class Gate:
    """Handlers that wait in here until they are let go, one by one or all at once."""

    def __init__(self) -> None:
        self.inside: list[Job[Any]] = []
        self._permits = threading.Semaphore(0)
        self._open = False
        self._lock = threading.Lock()

    def __call__(self, job: Job[Any]) -> None:
        with self._lock:
            self.inside.append(job)
        if not self._open:
            self._permits.acquire(timeout=60)
        with self._lock:
            self.inside.remove(job)

    def release(self, count: int = 1) -> None:
        self._permits.release(count)

    def open(self) -> None:
        self._open = True
        self._permits.release(1000)

    def holds(self, count: int, seconds: float = 0.3) -> None:
        """So many come in, and no more."""
        until(lambda: len(self.inside) >= count)
        time.sleep(seconds)
        assert len(self.inside) == count


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def claims(job: Job[Any]) -> list[Any]:
    return [entry["at"] for entry in job.history if entry["event"] == "claimed"]


def held(queue: Queue) -> dict[str, Number]:
    return {lane: units(held) for lane, held in queue.app.store.limits(queue.number).held.items()}


# -- how much runs at a time ------------------------------------------------------------------------------------------
@real_time
@pytest.mark.parametrize("below_one", [0, -1, -1000])
def test_a_throttle_limit_below_one_is_none(app: Hipq, gate: Gate, below_one: int) -> None:
    queue = app.queue("orders", throttle_limit=below_one)
    queue.job("work")(gate)
    assert queue.throttle_limit == 0
    queue.enqueue_many("work", range(20))
    with working(app, concurrency=20):
        gate.holds(20, 0)
        gate.open()


@real_time
def test_a_limit_of_one_runs_jobs_strictly_one_after_another(app: Hipq, make_app: MakeApp) -> None:
    spans: list[tuple[float, float]] = []

    def work(_: Job[Any]) -> None:
        began = time.monotonic()
        time.sleep(0.005)
        spans.append((began, time.monotonic()))

    apps = [app, make_app()]
    for one in apps:
        one.queue("orders", throttle_limit=1).job("work")(work)
    queue = app.queues[0]
    queue.enqueue_many("work", range(40))
    with working(*apps):
        until(lambda: len(spans) == 40)
        until(lambda: held(queue) == {})
    assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))


@real_time
def test_each_lane_has_its_limit(app: Hipq, gate: Gate) -> None:
    queue = app.queue("orders", limits=[per_lane(2)])
    queue.job("work")(gate)
    for lane in ("", "east", "west"):
        queue.enqueue_many("work", range(4), lane=lane)
    with working(app, concurrency=20):
        gate.holds(6)
        assert Counter(job.lane for job in gate.inside) == {"": 2, "east": 2, "west": 2}
        assert held(queue) == {"": 2, "east": 2, "west": 2}
        gate.open()
        until(lambda: held(queue) == {} and not app.jobs("orders", phase="ready"))


@real_time
def test_a_share_is_a_hard_cap(app: Hipq, gate: Gate) -> None:
    queue = app.queue("orders", throttle_limit=10, limits=[share({"east": 40, "west": 30}, other=30)])
    queue.job("work")(gate)
    queue.enqueue_many("work", range(20), lane="east")
    for lane in ("north", "south", ""):
        queue.enqueue_many("work", range(3), lane=lane)
    with working(app, concurrency=30):
        gate.holds(7)
        lanes = Counter(job.lane for job in gate.inside)
        assert lanes["east"] == 4, "nobody gets what the west does not use"
        assert sum(lanes.values()) - lanes["east"] == 3, "all other lanes have one part together"
        gate.open()


@real_time
def test_a_critical_job_starts_although_the_limit_is_full(app: Hipq, gate: Gate) -> None:
    queue = app.queue("orders", throttle_limit=2)
    queue.job("work")(gate)
    alarm = queue.job("alarm", critical=True)(gate)
    queue.enqueue_many("work", range(5))
    with working(app):
        gate.holds(2)
        ids = alarm.enqueue_many(range(3), throttle_factor=50)
        until(lambda: len(gate.inside) == 5)
        assert held(queue) == {"": 2}
        assert [app.job(job_id)._row.held for job_id in ids] == [0, 0, 0]
        gate.open()


@real_time
def test_a_full_queue_holds_up_no_other(app: Hipq, gate: Gate) -> None:
    limited, free = app.queue("orders", throttle_limit=1), app.queue("mails")
    limited.job("work")(gate)
    done: list[int] = []
    free.job("work")(lambda job: done.append(job.data))
    limited.enqueue_many("work", range(200))
    with working(app, concurrency=4):
        gate.holds(1, 0)
        free.enqueue_many("work", range(200))
        until(lambda: len(done) == 200)
        gate.holds(1, 0)
        gate.open()
        until(lambda: not app.jobs("orders", phase="ready"))
    assert len(done) == 200


@real_time
def test_two_programs_with_different_code_share_one_limit(app: Hipq, make_app: MakeApp, gate: Gate) -> None:
    other = make_app()
    for one, kind in ((app, "charge"), (other, "mail")):
        one.queue("orders", throttle_limit=4).job(kind)(gate)
    app.queues[0].enqueue_many("charge", range(5))
    other.queues[0].enqueue_many("mail", range(5), throttle_factor=2)
    started: list[str] = []
    for one in (app, other):
        one.events.subscribe(lambda event: started.append(event.job.job_type) if event.job else None, "claimed")
    with working(app, other):
        while len(started) < 10:
            until(lambda: gate.inside)
            assert sum(app.store.limits(app.queues[0].number).held.values()) <= 4 * UNIT
            gate.release()
            time.sleep(0.02)
        gate.open()
        until(lambda: held(app.queues[0]) == {})
    assert Counter(started) == {"charge": 5, "mail": 5}


# -- what waits, and what a rate lets start ---------------------------------------------------------------------------
def test_a_waiting_job_keeps_its_units_until_its_time_out(app: Hipq, clock: HandClock) -> None:
    queue = app.queue("orders", throttle_limit=3)
    queue.job("ask")(lambda _: Wait(timeout=60))
    queue.job("work")(lambda _: "done")
    waits, held_up = queue.enqueue("ask", throttle_factor=2), queue.enqueue("work", throttle_factor=2)
    fits = queue.enqueue("work")
    until_empty(app)
    assert (app.job(waits).phase, app.job(held_up).phase, app.job(fits).code) == ("waiting", "ready", "ok")
    assert held(queue) == {"": 2}
    clock.advance(seconds=59)
    until_empty(app)
    assert app.job(held_up).phase == "ready"
    clock.advance(seconds=1)
    until_empty(app)
    assert (app.job(waits).exitcode, app.job(held_up).code) == (504, "ok")
    assert held(queue) == {}


def test_a_cancelled_waiting_job_gives_its_units_back(app: Hipq) -> None:
    queue = app.queue("orders", throttle_limit=1)
    queue.job("ask")(lambda _: Wait(timeout=60))
    queue.job("work")(lambda _: "done")
    waits, held_up = queue.enqueue("ask"), queue.enqueue("work")
    until_empty(app)
    app.cancel(waits)
    assert held(queue) == {}
    until_empty(app)
    assert app.job(held_up).code == "ok"


@real_time
def test_a_waiting_job_that_is_cancelled_elsewhere_lets_the_next_one_start(app: Hipq, make_app: MakeApp) -> None:
    queue = app.queue("orders", throttle_limit=1)
    queue.job("ask")(lambda _: Wait(timeout=60))
    queue.job("work")(lambda _: "done")
    waits, held_up = queue.enqueue("ask"), queue.enqueue("work")
    other = make_app()
    other.queue("orders")
    with working(app):
        until(lambda: app.job(waits).phase == "waiting")
        other.cancel(waits)
        until(lambda: app.job(held_up).code == "ok")
    assert app.job(waits).code == "cancelled"


@real_time
def test_a_rate_is_kept_and_waited_for(app: Hipq, make_app: MakeApp) -> None:
    apps = [app, make_app()]
    for one in apps:
        one.queue("orders", limits=[rate(4, per=0.5)]).job("work")(lambda _: None)
    ids = [app.queues[0].enqueue("work", throttle_factor=factor) for factor in (1, 2, 1, 1, 2, 1)]
    began = time.monotonic()
    took = until_empty(app)
    assert [app.job(job_id).code for job_id in ids] == ["ok"] * 6, "it waits for what will soon be allowed"
    assert took >= 0.45  # two clocks are compared
    ids += app.queues[0].enqueue_many("work", range(8))
    with working(*apps):
        until(lambda: all(app.job(job_id).code == "ok" for job_id in ids))
    assert time.monotonic() - began >= 1.45, "16 units, 4 at most in any half second: the last not before the fourth"


# -- what is refused when a job is added ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("limits", "options", "message"),
    [
        ([limit(3)], {"throttle_factor": 4}, "throttle_factor 4 is above the queue's limit 3"),
        ([per_lane(3)], {"throttle_factor": 4}, "throttle_factor 4 is above the queue's 3 a lane"),
        ([rate(3, per=60)], {"throttle_factor": 4}, "throttle_factor 4 is above the queue's rate 3 in 60 s"),
        ([limit(9), share({"east": 40})], {"throttle_factor": 4, "lane": "east"}, "above the 3.6 units of 9"),
        ([limit(9), share({"east": 40})], {"lane": "west"}, "lane 'west' has no share in this queue: there are east"),
        ([limit(9), share({"east": 40})], {}, "lane '' has no share"),
    ],
)
def test_what_could_never_run_is_refused(
    app: Hipq, limits: list[AnyLimit], options: dict[str, Any], message: str
) -> None:
    queue = app.queue("orders", limits=limits)
    ran: list[str] = []
    work = queue.job("work")(lambda job: ran.append(job.type))
    alarm = queue.job("alarm", critical=True)(lambda job: ran.append(job.type))

    @queue.job
    def parent(job: Job[Any]) -> None:
        job.enqueue(work, **options)

    def never(add: Callable[[], object]) -> None:
        with pytest.raises(Invalid, match=message):
            add()

    never(lambda: work.enqueue(**options))
    never(lambda: work.enqueue_many([1, 2], **options))
    never(lambda: asyncio.run(work.aenqueue(**options)))
    never(lambda: asyncio.run(work.aenqueue_many([1, 2], **options)))
    assert app.jobs("orders") == []
    chained, critical = parent.enqueue(lane="east" if len(limits) > 1 else None), alarm.enqueue(**options)
    until_empty(app)
    assert app.job(chained).code == "error"
    assert message in app.job(chained).error
    assert app.job(critical).code == "ok", "limits do not concern a critical job"
    assert ran == ["alarm"]


def test_other_lanes_are_taken_where_they_have_a_share(app: Hipq) -> None:
    queue = app.queue("orders", throttle_limit=10, limits=[share({"east": 40}, other=20)])
    work = queue.job("work")(lambda _: None)
    ids = [work.enqueue(lane="west"), work.enqueue(throttle_factor=2)]
    with pytest.raises(Invalid, match="above the 2 units of 10 that lane 'west' has"):
        work.enqueue(lane="west", throttle_factor=3)
    until_empty(app)
    assert {app.job(job_id).code for job_id in ids} == {"ok"}


def test_lane_by_names_the_lane(app: Hipq) -> None:
    queue = app.queue("orders", lane_by=lambda job: job.data["region"], limits=[per_lane(1)])
    work = queue.job("work")(lambda _: None)
    ids = [work.enqueue({"region": "east"}), work.enqueue({"region": "east"}, lane="mine")]
    assert [app.job(job_id).lane for job_id in ids] == ["east", "mine"]
    for data, message in (({}, "lane_by raised KeyError: 'region'"), ({"region": 7}, "a lane must be a string")):
        with pytest.raises(Invalid, match=message):
            work.enqueue(data)
        with pytest.raises(Invalid, match=message):
            work.enqueue_many([{"region": "east"}, data])
        with pytest.raises(Invalid, match=message):
            asyncio.run(work.aenqueue(data))
    assert len(app.jobs("orders")) == 2


# -- changed while it runs --------------------------------------------------------------------------------------------
@real_time
def test_a_changed_limit_is_seen_by_the_engines_of_other_programs(app: Hipq, make_app: MakeApp, gate: Gate) -> None:
    operator = make_app()
    operator.queue("orders")
    queue = app.queue("orders", throttle_limit=2)
    queue.job("work")(gate)
    queue.enqueue_many("work", range(60))
    with working(app, concurrency=20, poll=60.0, lease=600.0):  # it is told: by itself it would not look for long
        gate.holds(2)
        operator.rules.set_limit("orders", 5)
        assert until(lambda: len(gate.inside) == 5) < 30
        gate.holds(5)
        operator.rules.set_limit("orders", 1)
        gate.release(4)
        until(lambda: len(gate.inside) == 1)
        for _ in range(3):
            (before,) = gate.inside
            gate.release()
            until(lambda before=before: gate.inside and before not in gate.inside)  # type: ignore[misc]
            gate.holds(1, 0.05)
        operator.rules.set_limit("orders", None)
        assert until(lambda: len(gate.inside) == 2) < 30
        gate.holds(2)
        operator.rules.set_limit("orders", "none")
        until(lambda: len(gate.inside) == 20)
        operator.rules.set_limit("orders", [per_lane(3)])
        gate.open()
        until(lambda: not app.jobs("orders", phase="ready"))


def test_what_an_operator_changed_outlives_engines_and_new_code(app: Hipq, make_app: MakeApp) -> None:
    queue = app.queue("orders", throttle_limit=5)
    queue.job("work")(lambda _: Wait(timeout=60))
    until_empty(app)
    app.rules.set_limit("orders", 2)
    until_empty(app)
    again = make_app()
    newer = again.queue("orders", throttle_limit=7)
    newer.job("work")(lambda _: Wait(timeout=60))
    newer.enqueue_many("work", range(10))
    until_empty(again)
    assert held(newer) == {"": 2}
    assert newer.throttle_limit == 2
    again.rules.set_limit("orders", None)
    until_empty(again)
    assert held(newer) == {"": 7}


def test_a_number_replaces_the_limit_and_leaves_the_rest(app: Hipq) -> None:
    parts = share({"east": 50, "west": 50})
    queue = app.queue("orders", throttle_limit=10, limits=[parts, per_lane(8)])
    queue.job("work")(lambda _: None)

    def in_force() -> set[str]:
        return {str(one) for one in app.store.limits(queue.number).rules.in_force}

    app.rules.set_limit("orders", 20)
    assert in_force() == {"limit 20", str(parts), "8 a lane"}, "before any engine has brought the code's limits"
    until_empty(app)
    assert in_force() == {"limit 20", str(parts), "8 a lane"}
    app.rules.set_limit("orders", "none")
    assert in_force() == {"8 a lane", str(parts)}  # shares stay, for when there is a limit again
    app.rules.set_limit("orders", [limit(3)])
    assert in_force() == {"limit 3"}
    app.rules.set_limit("orders", None)
    assert in_force() == {"limit 10", str(parts), "8 a lane"}
    app.rules.set_limit("orders", 12.5)
    assert in_force() == {"limit 12.5", str(parts), "8 a lane"}
    app.rules.set_limit("orders", None)
    for nonsense in ("3", 12.0005, 1e300, float("nan"), True, [3], {"limit": 3}):
        with pytest.raises(Invalid):
            app.rules.set_limit("orders", nonsense)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="less than one unit"):
        app.rules.set_limit("orders", 1)
    assert in_force() == {"limit 10", str(parts), "8 a lane"}


def test_a_job_heavier_than_a_lowered_limit_runs_alone(app: Hipq) -> None:
    queue = app.queue("orders", throttle_limit=9)
    queue.job("work")(lambda _: None)
    job_id = queue.enqueue("work", throttle_factor=9)
    app.rules.set_limit("orders", 2)
    until_empty(app)
    assert app.job(job_id).code == "ok"


def test_a_limit_set_while_a_claim_is_under_way_counts_what_that_takes(make_app: MakeApp, url: str) -> None:
    """PostgreSQL: the claim was made without a lock, since there was no limit, and is not committed yet."""
    if not url.startswith("postgres"):
        pytest.skip("SQLite has one writer at a time")
    one, other = make_app(), make_app()
    for app in (one, other):
        for name in ("orders", "mails"):
            app.queue(name).job("work")(lambda _: None)
    queue = one.queues[0]
    for kind in ("work", "more"):
        queue.enqueue_many(kind, range(10))
    stores: list[Any] = [one.store, other.store]
    engine_ids = [store.take_lease(60, "test") for store in stores]
    for store in stores:
        store.limits(queue.number)
    take = stores[0]._take.claim
    claimed, go_on = threading.Event(), threading.Event()

    def slowly(*args: Any) -> Any:
        found = take(*args)
        claimed.set()
        assert go_on.wait(60)
        return found

    stores[0]._take.claim = slowly
    wanted = [Claim(queue.number, ("work",), 4), Claim(one.queues[1].number, ("work",), 4)]
    claiming = threading.Thread(target=lambda: stores[0].turn(engine_ids[0], [], wanted, stores[0].now()))
    claiming.start()
    assert claimed.wait(60)
    setting = threading.Thread(target=lambda: other.rules.set_limit("orders", 5))
    setting.start()
    setting.join(0.3)
    if setting.is_alive():  # it waits for those who may have claimed without it
        go_on.set()
        setting.join(60)
    stores[1].turn(engine_ids[1], [], [Claim(queue.number, ("more",), 10)], stores[1].now())
    go_on.set()
    claiming.join(60)
    assert sum(held(queue).values()) <= 5


# -- pauses -----------------------------------------------------------------------------------------------------------
def test_a_paused_queue_starts_nothing_until_it_is_resumed(app: Hipq) -> None:
    queue, other = app.queue("orders"), app.queue("mails")
    for one in (queue, other):
        one.job("work")(lambda _: None)
        one.job("alarm", critical=True)(lambda _: None)
    ids = [queue.enqueue("work"), queue.enqueue("alarm"), other.enqueue("work")]
    app.pause("orders")
    until_empty(app)
    assert [app.job(job_id).state for job_id in ids] == ["initial", "initial", "final"]
    app.resume("orders")
    until_empty(app)
    assert [app.job(job_id).state for job_id in ids] == ["final"] * 3


def test_a_lane_or_a_type_is_paused_by_itself(app: Hipq) -> None:
    queue = app.queue("orders")
    for kind in ("work", "mail"):
        queue.job(kind)(lambda _: None)
    ids = [queue.enqueue(kind, lane=lane) for kind in ("work", "mail") for lane in ("east", "")]
    app.pause("orders", lane="")
    app.pause("orders", type="mail")
    until_empty(app)
    assert [app.job(job_id).state for job_id in ids] == ["final", "initial", "initial", "initial"]
    app.resume("orders")
    until_empty(app)
    assert [app.job(job_id).state for job_id in ids] == ["final", "initial", "initial", "initial"], (
        "not in the same words"
    )
    app.resume("orders", lane="")
    until_empty(app)
    assert [app.job(job_id).state for job_id in ids] == ["final", "final", "initial", "initial"]
    app.resume("orders", type="mail")
    until_empty(app)
    assert {app.job(job_id).state for job_id in ids} == {"final"}
    with pytest.raises(Invalid, match="not both"):
        app.pause("orders", lane="a", type="b")


@real_time
def test_what_runs_goes_on_when_its_queue_is_paused_elsewhere(app: Hipq, make_app: MakeApp, gate: Gate) -> None:
    operator = make_app()
    operator.queue("orders")
    queue = app.queue("orders")
    queue.job("work")(gate)
    ids = queue.enqueue_many("work", range(6))
    with working(app, concurrency=2):
        gate.holds(2)
        operator.pause("orders")
        gate.open()
        until(lambda: [app.job(job_id).code for job_id in ids].count("ok") == 2)
        time.sleep(0.3)
        assert [app.job(job_id).state for job_id in ids].count("initial") == 4
        operator.resume("orders")
        assert until(lambda: all(app.job(job_id).code == "ok" for job_id in ids)) < 30


def test_rules_outlive_the_program_that_set_them(app: Hipq, make_app: MakeApp) -> None:
    app.queue("orders")
    app.pause("orders")
    again = make_app()
    queue = again.queue("orders")
    queue.job("work")(lambda _: None)
    job_id = queue.enqueue("work")
    until_empty(again)
    assert again.job(job_id).state == "initial"


# -- lanes that take turns --------------------------------------------------------------------------------------------
@real_time
@pytest.mark.parametrize("concurrency", [1, 3])
def test_fair_lanes_take_turns(app: Hipq, concurrency: int) -> None:
    order = _served(app, concurrency, ["one", "three", "two"])
    for lane in ("one", "three", "two"):
        assert order[: 19 + concurrency].count(lane) == 4, order  # of jobs that start together, any may note it first


@real_time
@pytest.mark.parametrize("concurrency", [1, 3])
def test_jobs_without_a_lane_have_their_turn_too(app: Hipq, concurrency: int) -> None:
    order = _served(app, concurrency, ["one", "", "two"])
    assert order[: 19 + concurrency].count("") == 4, order


def _served(app: Hipq, concurrency: int, small: list[str]) -> list[str]:
    """The lanes of jobs in the order they start, where one lane has most of them."""
    queue = app.queue("orders", lanes="fair")
    order: list[str] = []

    @queue.job
    def work(job: Job[Any]) -> None:
        order.append(job.lane)
        time.sleep(0.02)

    work.enqueue_many(range(40), lane="crowd")
    for lane in small:
        work.enqueue_many(range(4), lane=lane)
    until_empty(app, concurrency=concurrency)
    assert len(order) == 52
    return order


# -- until nothing is left that could start ---------------------------------------------------------------------------
@real_time
@pytest.mark.parametrize("queues", [1, 12])
def test_until_empty_runs_all_that_a_limit_lets_start_in_turn(app: Hipq, queues: int) -> None:
    ran: list[int] = []
    app.queue("orders", throttle_limit=1).job("work")(lambda job: ran.append(job.data))
    for letter in "abcdefghijkl"[1:queues]:
        app.queue(f"other_{letter}").job("work")(lambda _: None)
    app.queues[0].enqueue_many("work", range(10))
    until_empty(app)
    assert ran == list(range(10))


def _paused(app: Hipq, queue: Queue, work: JobType, _clock: HandClock) -> list[int]:
    app.pause(queue.name)
    return [work.enqueue()]


def _shut_out(_app: Hipq, _queue: Queue, work: JobType, clock: HandClock) -> list[int]:
    ids: list[int] = [work.enqueue(windows=[window("08:00", "09:00")])]
    clock.advance(hours=2)
    return ids


def _behind_one_that_waits(app: Hipq, queue: Queue, work: JobType, _clock: HandClock) -> list[int]:
    app.rules.set_limit(queue.name, 1)
    queue.job("ask")(lambda _: Wait(timeout=3600))
    queue.enqueue("ask", priority=0)
    return [work.enqueue()]


@pytest.mark.parametrize("left", [_paused, _shut_out, _behind_one_that_waits])
def test_until_empty_leaves_what_cannot_start(
    app: Hipq, clock: HandClock, left: Callable[[Hipq, Queue, JobType, HandClock], list[int]]
) -> None:
    queue, other = app.queue("orders", order="priority"), app.queue("mails")
    work = queue.job("work")(lambda _: None)
    other.job("work")(lambda _: None)
    ids = left(app, queue, work, clock)
    done = other.enqueue("work")
    assert until_empty(app) < 30
    assert app.job(done).code == "ok"
    assert [app.job(job_id).state for job_id in ids] == ["initial"]


# -- heavy jobs among light ones --------------------------------------------------------------------------------------
@real_time
@pytest.mark.parametrize("lanes", ["ordered", "fair"])
def test_a_heavy_job_is_passed_by_one_poolful_at_most(app: Hipq, make_app: MakeApp, lanes: str) -> None:
    apps = [app, make_app()]
    for one in apps:
        queue = one.queue("orders", throttle_limit=4, order="priority", lanes=lanes)
        queue.job("work")(lambda job: time.sleep(0.01 + job.id % 3 / 100))
    queue = app.queues[0]
    with working(*apps):
        light = _keep_coming(queue, "work", ["", "b", "d"])
        heavy = [queue.enqueue("work", priority=0, throttle_factor=4, lane=lane) for lane in ("a", "c")]
        light += _keep_coming(queue, "work", ["", "b", "d"])
        until(lambda: all(app.job(job_id).state == "final" for job_id in heavy))
    for job_id in heavy:
        others = [app.job(one) for one in (*light, *heavy) if one != job_id]
        poolfuls = 2 if lanes == "ordered" else 12  # the other heavy one; fairly, each lane has its turn in between
        assert _passed(app.job(job_id), others) <= 4 * poolfuls


@real_time
def test_a_heavy_job_is_not_starved_by_a_program_that_has_no_code_for_it(app: Hipq, make_app: MakeApp) -> None:
    other = make_app()
    queue = app.queue("orders", throttle_limit=4, order="priority")
    queue.job("heavy")(lambda _: None)
    other.queue("orders", throttle_limit=4, order="priority").job("work")(
        lambda job: time.sleep(0.01 + job.id % 3 / 100)
    )
    with working(app, other):
        light = _keep_coming(queue, "work", [""])
        job_id = queue.enqueue("heavy", priority=0, throttle_factor=4)
        light += _keep_coming(queue, "work", [""])
        until(lambda: app.job(job_id).state == "final")
    # A poolful, and what starts until the program that has the code has come to it.
    assert _passed(app.job(job_id), [app.job(one) for one in light]) <= 60


def _keep_coming(queue: Queue, kind: str, lanes: list[str]) -> list[int]:
    """Light jobs that are never all done while the test looks on: some 20 ms each, four at a time."""
    ids: list[int] = []
    for number in range(100):
        ids.append(queue.enqueue(kind, lane=lanes[number % len(lanes)]))
        time.sleep(0.001)
    return ids


def _passed(heavy: Job[Any], others: list[Job[Any]]) -> float:
    """The units of others that started while it could have. Programs' clocks are some milliseconds apart."""
    (started,) = claims(heavy)
    return sum(
        job.throttle_factor
        for job in others
        if any((at - heavy.create_time).total_seconds() > 0.005 and at < started for at in claims(job)[:1])
    )
