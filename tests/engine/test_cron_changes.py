"""Schedules that operators change while engines run, and those they add: an operator's word wins, and no tick is lost,
comes twice, or comes in a burst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from hipq import Hipq, Invalid, Job, Queue, window
from hipq.cron import CronSchedule
from hipq.engine.loop import Engine
from hipq.errors import Conflict, StoreUnavailable
from hipq.events import Event
from hipq.job.schedule import DeclaredSchedule, Settings
from hipq.stores.forwarding import Forwarding
from hipq.testing.clock import HandClock
from tests.engine.test_cron import Run, ticks


def work(_: Job[Any]) -> None: ...


def one(app: Hipq, name: str = "work") -> CronSchedule:
    (found,) = [each for each in app.cron.list() if each.name == name]
    return found


def turns(engine: Engine, count: int = 3) -> None:
    for _ in range(count):
        engine.turn()


@pytest.fixture
def seen(queue: Queue) -> list[Any]:
    """What the jobs of the type `work` had as data."""
    found: list[Any] = []
    queue.job("work")(lambda job: found.append(job.data))
    return found


# -- listing ----------------------------------------------------------------------------------------------------------
def test_schedules_are_listed_though_no_engine_runs(
    app: Hipq, make_app: Callable[[], Hipq], clock: HandClock, run: Run
) -> None:
    night = app.queue("orders").job("work")(work)
    night.cron("*/5 * * * *", {"deep": True}, tz="Europe/Rome", priority=7, throttle_factor=1.5, retry=None,
               windows=[window("22:00", "23:00")])  # fmt: skip
    run()
    clock.advance(minutes=6)
    run()
    other = make_app()
    other.queue("orders")
    found = one(other)
    assert (found.expression, found.tz, found.data) == ("*/5 * * * *", "Europe/Rome", {"deep": True})
    assert (found.last, found.next) == (
        datetime(2027, 1, 15, 8, 5, tzinfo=UTC),
        datetime(2027, 1, 15, 8, 10, tzinfo=UTC),
    )
    assert (found.origin, found.changed, found.state) == ("code", (), "no engine")
    windows = [{"start": "22:00", "end": "23:00"}]
    assert found.options == {"priority": 7, "throttle_factor": 1.5, "windows": windows, "retry": {"strategy": "none"}}


def test_the_state_says_whether_anybody_ticks_it(make_app: Callable[[], Hipq]) -> None:
    old, new = make_app(), make_app()
    kept = old.queue("orders").job("work")(work)
    kept.cron("* * * * *")
    kept.cron("* * * * *", name="gone")
    first = old.engine()
    first.turn()
    assert {each.name: each.state for each in old.cron.list()} == {"work": "ticking", "gone": "ticking"}
    first.leave()
    first.executor.close()
    new.queue("orders").job("work")(work).cron("* * * * *")
    second = new.engine()
    second.turn()
    new.cron.add("orders", "work", "* * * * *", name="added")
    states = {each.name: each.state for each in new.cron.list()}
    assert states == {"work": "ticking", "gone": "code gone", "added": "ticking"}
    second.leave()
    second.executor.close()
    assert {each.state for each in new.cron.list()} == {"no engine"}


# -- an operator's schedules ------------------------------------------------------------------------------------------
def test_a_schedule_of_an_operator_ticks(
    app: Hipq, queue: Queue, clock: HandClock, run: Run, seen: list[Any], make_app: Callable[[], Hipq]
) -> None:
    operator = make_app()
    operator.queue("orders")
    assert queue.enqueue("work", "before")
    made = operator.cron.add("orders", "work", "*/5 * * * *", {"a": 1}, name="added", priority=7)
    assert (made.origin, made.next) == ("operator", datetime(2027, 1, 15, 8, 5, tzinfo=UTC))
    run()
    clock.advance(minutes=5)
    run()
    assert seen == ["before", {"a": 1}]
    assert [job.priority for job in app.jobs("orders", key="cron:added")] == [7]


def test_a_running_engine_notices_what_is_added_and_changed(
    app: Hipq, queue: Queue, clock: HandClock, make_app: Callable[[], Hipq]
) -> None:
    queue.job("work")(work)
    app.pause("orders")
    engine, operator = app.engine(lease=36_000), make_app()
    turns(engine)
    operator.queue("orders")
    operator.cron.add("orders", "work", "*/10 * * * *", "added", name="added", overlap=True)
    clock.advance(seconds=2)  # a poll
    turns(engine)
    clock.advance(minutes=10)
    turns(engine)
    operator.cron.change("orders", "added", expression="*/4 * * * *", data="changed")
    clock.advance(minutes=4)
    turns(engine)
    operator.cron.remove("orders", "added")
    clock.advance(minutes=4)
    turns(engine)
    engine.executor.close()
    assert [(job.data, f"{job.scheduled_run_time:%H:%M}") for job in app.jobs("orders")] == [
        ("changed", "08:12"), ("added", "08:10"),
    ]  # fmt: skip


def test_an_engine_without_the_code_of_its_type_leaves_it(
    app: Hipq, queue: Queue, clock: HandClock, run: Run, make_app: Callable[[], Hipq]
) -> None:
    other = make_app()
    other.queue("orders").job("elsewhere")(work)
    other.cron.add("orders", "elsewhere", "*/5 * * * *")
    queue.job("work")(work)
    run()
    clock.advance(minutes=5)
    run()
    assert ticks(app) == []
    other.run(until_empty=True)
    assert ticks(app) == ["08:05"]


def test_what_an_operator_gets_wrong_is_refused_before_anything_is_stored(app: Hipq, queue: Queue) -> None:
    queue.job("work")(work)

    @queue.job
    def typed(job: Job[int]) -> None: ...

    app.cron.add("orders", "work", "0 6 * * *", name="there")
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: app.cron.add("odrers", "work", "0 6 * * *"), "no such queue"),
        (lambda: app.cron.add("orders", "wrk", "0 6 * * *"), "did you mean work"),
        (lambda: app.cron.add("orders", "work", "0 66 * * *"), "hour"),
        (lambda: app.cron.add("orders", "work", "0 6 * * *", tz="Mars"), "IANA"),
        (lambda: app.cron.add("orders", "work", "0 6 * * *", missed="all"), "overlap"),
        (lambda: app.cron.add("orders", "work", "0 6 * * *", name="there"), "already"),
        (lambda: app.cron.add("orders", "typed", "0 6 * * *", "seven"), "does not fit"),
        (lambda: app.cron.change("orders", "there", expression="x"), "five fields"),
        (lambda: app.cron.change("orders", "there", missed="all"), "overlap"),
        (lambda: app.cron.change("orders", "there"), "nothing is to change"),
        (lambda: app.cron.change("orders", "their", tz="UTC"), "did you mean there"),
        (lambda: app.cron.reset("orders", "there"), "not in code"),
        (lambda: app.cron.run_now("orders", "x"), "there are there"),
    ]
    for wrong, said in refused:
        with pytest.raises(Invalid, match=said):
            wrong()
    assert [(each.name, each.expression, each.missed) for each in app.cron.list()] == [("there", "0 6 * * *", "one")]


# -- what the code says, and an operator instead ----------------------------------------------------------------------
def test_an_operators_change_wins_over_the_code_until_it_is_reset(
    make_app: Callable[[], Hipq], clock: HandClock
) -> None:
    first, second = make_app(), make_app()
    first.queue("orders").job("work")(work).cron("0 * * * *", "one")
    first.run(until_empty=True)
    changed = first.cron.change("orders", "work", expression="*/20 * * * *")
    assert (changed.expression, changed.data, changed.changed) == ("*/20 * * * *", "one", ("expression",))
    second.queue("orders").job("work")(work).cron("30 * * * *", "two")
    clock.advance(minutes=20)
    second.run(until_empty=True)
    assert (one(second).expression, one(second).data) == ("*/20 * * * *", "two")
    assert ticks(second) == ["08:20"]
    reset = second.cron.reset("orders", "work")
    assert (reset.expression, reset.changed) == ("30 * * * *", ())
    clock.advance(minutes=10)
    second.run(until_empty=True)
    assert ticks(second) == ["08:20", "08:30"]


def test_an_operators_schedule_that_code_declares_becomes_the_codes(make_app: Callable[[], Hipq]) -> None:
    app = make_app()
    job_type = app.queue("orders").job("work")(work)
    app.cron.add("orders", "work", "0 6 * * *", "operator", name="nightly")
    job_type.cron("0 3 * * *", "code", name="nightly")
    app.run(until_empty=True)
    found = one(app, "nightly")
    assert (found.origin, found.expression, found.data) == ("code", "0 6 * * *", "operator")
    assert one(app, "nightly") == app.cron.change("orders", "nightly", data="operator")
    assert app.cron.reset("orders", "nightly").data == "code"


def test_a_schedule_that_is_gone_from_the_code_ticks_no_more_and_can_be_removed(
    make_app: Callable[[], Hipq], clock: HandClock
) -> None:
    old, new, nobody = make_app(), make_app(), make_app()
    old.queue("orders").job("work")(work).cron("*/5 * * * *", name="gone")
    old.run(until_empty=True)
    nobody.queue("orders")
    with pytest.raises(Invalid, match="no engine runs that could tell"):
        nobody.cron.remove("orders", "gone")
    with pytest.raises(Invalid, match="pause it instead"):
        old.cron.remove("orders", "gone")
    new.queue("orders").job("work")(work)
    clock.advance(minutes=30)
    new.run(until_empty=True)
    assert ticks(new) == []
    assert one(new, "gone").last is None
    new.cron.remove("orders", "gone")
    assert new.cron.list() == []


def test_code_that_has_it_brings_back_what_was_removed(make_app: Callable[[], Hipq], clock: HandClock) -> None:
    """Old programs beside new ones: an operator who names the new one cannot know."""
    old, new = make_app(), make_app()
    old.queue("orders").job("work")(work).cron("*/5 * * * *", name="gone", overlap=True)
    engine = old.engine(lease=1.0)
    turns(engine)
    engine.lease.engine_id, kept = 0, engine.engine_id
    old.store.renew_lease(kept, 0)  # it is silent
    new.queue("orders").job("work")(work)
    new.cron.remove("orders", "gone")
    clock.advance(minutes=5)
    turns(engine)
    clock.advance(minutes=5)
    turns(engine)
    engine.executor.close()
    assert ticks(old) == ["08:10"]


# -- pauses -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("missed", ["one", "all", "skip"])
def test_ticks_that_come_while_it_is_paused_are_skipped(
    app: Hipq, queue: Queue, clock: HandClock, run: Run, missed: str
) -> None:
    queue.job("work")(work).cron("0 * * * *", missed=missed, overlap=True)
    run()
    paused = app.cron.pause("orders", "work")
    assert (paused.state, paused.next) == ("paused", None)
    clock.advance(hours=3)
    run()
    assert app.cron.resume("orders", "work").next == datetime(2027, 1, 15, 12, tzinfo=UTC)
    run()
    clock.advance(hours=1)
    run()
    assert ticks(app) == ["12:00"]


def test_a_schedule_in_code_can_be_paused_before_an_engine_has_started(
    app: Hipq, queue: Queue, clock: HandClock, run: Run
) -> None:
    queue.job("work")(work).cron("*/5 * * * *")
    app.cron.pause("orders", "work")
    run()
    clock.advance(minutes=10)
    run()
    assert ticks(app) == []


@pytest.mark.parametrize("change", ["resume", "expression", "code"])
def test_a_change_after_the_clock_was_set_back_adds_no_tick_twice(
    app: Hipq, queue: Queue, clock: HandClock, make_app: Callable[[], Hipq], change: str
) -> None:
    queue.job("work")(work).cron("*/5 * * * *", overlap=True)
    app.run(until_empty=True)
    clock.advance(minutes=5)
    app.run(until_empty=True)
    clock.step(-60)
    if change == "resume":
        app.cron.pause("orders", "work")
        app.cron.resume("orders", "work")
    elif change == "expression":
        app.cron.change("orders", "work", expression="*/5 * * * *", tz="Europe/Rome")
    else:
        app = make_app()
        app.queue("orders").job("work")(work).cron("5-55/5 * * * *", overlap=True)
    app.run(until_empty=True)
    clock.advance(minutes=2)
    app.run(until_empty=True)
    assert ticks(app) == ["08:05"]
    clock.advance(minutes=4)
    app.run(until_empty=True)
    assert ticks(app) == ["08:05", "08:10"]


def test_a_pause_beside_a_tick_is_before_it_or_after_it(
    app: Hipq, queue: Queue, clock: HandClock, make_app: Callable[[], Hipq]
) -> None:
    """The operator is faster than the engine, which has the schedule in memory, and due."""
    queue.job("work")(work).cron("*/5 * * * *")
    engine, operator = app.engine(lease=36_000), make_app()
    turns(engine)
    operator.queue("orders")
    clock.advance(minutes=5)
    change, said = app.store.change_schedules, []

    class Late(Forwarding):
        def _call(self, verb: str, given: tuple[Any, ...], more: dict[str, Any]) -> Any:
            if verb == "change_schedules":
                said.append(operator.cron.pause("orders", "work"))
                return change(*given)
            return getattr(app.store, verb)(*given, **more)

        def __getattr__(self, name: str) -> Any:
            return getattr(app.store, name)

    engine._turn._due._schedules._store = Late().as_store()
    turns(engine)
    engine.executor.close()
    assert len(said) == 1
    assert (ticks(app), one(app).state) == ([], "paused")


# -- run now ----------------------------------------------------------------------------------------------------------
def test_run_now_adds_a_job_and_moves_no_tick(
    app: Hipq, queue: Queue, clock: HandClock, run: Run, seen: list[Any]
) -> None:
    queue.job_type("work").cron("0 * * * *", "data")
    clock.advance(minutes=1)
    run()
    job_id = app.cron.run_now("orders", "work")
    with pytest.raises(Conflict, match=f"job {job_id} of schedule work is not final"):
        app.cron.run_now("orders", "work")
    run()
    assert seen == ["data"]
    assert (one(app).last, one(app).next) == (None, datetime(2027, 1, 15, 9, tzinfo=UTC))
    app.cron.pause("orders", "work")
    app.cron.change("orders", "work", overlap=True)
    app.cron.run_now("orders", "work")
    clock.advance(seconds=1)
    app.cron.run_now("orders", "work")
    run()
    assert len(seen) == 3


def test_changes_are_events(app: Hipq, queue: Queue) -> None:
    said: list[Event] = []
    app.events.subscribe(said.append, "schedule changed")
    queue.job("work")(work)
    app.cron.add("orders", "work", "0 6 * * *")
    app.cron.pause("orders", "work")
    app.cron.pause("orders", "work")  # as it was
    app.cron.remove("orders", "work")
    assert [(event.queue, event.details["schedule"]) for event in said] == [("orders", "work")] * 3


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_start_whose_write_is_lost_stores_the_schedules_all_the_same(
    app: Hipq, queue: Queue, clock: HandClock, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.job("work")(work).cron("*/5 * * * *")
    engine, change = app.engine(lease=36_000), app.store.change_schedules

    def broken(*args: Any) -> Any:
        if lost == "after":
            change(*args)
        raise StoreUnavailable("cut")

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "change_schedules", broken)
        with pytest.raises(StoreUnavailable):
            engine.turn()
    turns(engine)
    clock.advance(minutes=5)
    turns(engine)
    engine.executor.close()
    assert ticks(app) == ["08:05"]


# -- very many --------------------------------------------------------------------------------------------------------
MANY = 10_000


class Counting(Forwarding):
    def __init__(self, app: Hipq) -> None:
        self._app_store, self.verbs = app.store, Counter[str]()

    def _call(self, verb: str, given: tuple[Any, ...], more: dict[str, Any]) -> Any:
        self.verbs[verb] += 1
        return getattr(self._app_store, verb)(*given, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app_store, name)


def test_ten_thousand_schedules_cost_a_turn_no_statement_more_than_none(
    make_app: Callable[[], Hipq], clock: HandClock
) -> None:
    """Each verb here is a statement or, of those that write, one transaction with at most four and the insert."""
    app = make_app()
    queue = app.queue("orders")
    queue.job("work")(work)
    for n in range(MANY):  # as `cron` does, which checks each
        queue.add_schedule(DeclaredSchedule(f"s{n:05}", "work", Settings(f"{n % 60} {n // 60 % 24} * * *")))
    app.pause("orders")
    counting = Counting(app)
    app.database._store = counting.as_store()
    engine = app.engine(lease=36_000)
    turns(engine)
    assert counting.verbs["change_schedules"] == 10  # the first start ever: a thousand at once
    assert counting.verbs["schedules"] == 2
    counting.verbs.clear()
    turns(engine, 10)
    assert not {"schedules", "change_schedules"} & counting.verbs.keys()
    clock.advance(minutes=1)  # seven of them are due
    turns(engine, 4)
    assert (counting.verbs["schedules"], counting.verbs["change_schedules"]) == (1, 1)
    engine.executor.close()
    assert len(ticks(app)) == 7
    again = app.engine(lease=36_000)
    counting.verbs.clear()
    turns(again)
    assert (counting.verbs["schedules"], counting.verbs["change_schedules"]) == (2, 0)
    again.executor.close()
