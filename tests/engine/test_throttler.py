"""Throttlers that are code: what they decide happens, and they hold nothing up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from statistics import median
from typing import Any

import pytest

from hipq import Hipq, Job, Queue, Wait, admit, defer, per_lane, reject, window
from hipq.engine import throttle as step
from hipq.events import Event
from hipq.job.when import to_datetime
from hipq.job.windows import Window
from hipq.stores.claims import Claim
from tests.engine.working import one_store, real_time, until, until_empty, working
from tests.their_connection import connect

MakeApp = Callable[[], Hipq]
Jobs = list[Job[Any]]


def admit_all(due: Jobs, _running: Jobs, _now: Any) -> list[Any]:
    return [admit(job) for job in due]


class Slow:
    """A throttler that thinks until it is told what to say."""

    def __init__(self) -> None:
        self.calls = 0
        self.asked = threading.Event()
        self.answer = threading.Event()

    def __call__(self, due: Jobs, running: Jobs, now: Any) -> list[Any]:
        self.calls += 1
        self.asked.set()
        assert self.answer.wait(60)
        return admit_all(due, running, now)


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.answer.set()


def heard(*names: str, of: list[Hipq]) -> list[Event]:
    events: list[Event] = []
    for app in of:
        app.events.subscribe(events.append, *names)
    return events


def phases(app: Hipq, ids: Sequence[int]) -> list[str]:
    return [app.job(job_id).phase for job_id in ids]


def note(queue: Queue) -> str:
    return queue.app.store.limits(queue.number).note


def tables(app: Hipq) -> list[Any]:
    """All there is in the database of jobs, rules, tickets and schedules."""
    names = ("shop_orders", "shop_orders_final", "hipq_queues", "hipq_tickets", "hipq_crons", "hipq_payloads")
    conn = connect(app.url)
    found = [sorted(map(repr, conn.execute(f"SELECT * FROM {name}").fetchall())) for name in names]
    conn.close()
    return found


# -- what it says happens ---------------------------------------------------------------------------------------------
def by_data(due: Jobs, _running: Jobs, _now: Any) -> Iterator[Any]:
    for job in due:
        match job.data:
            case "admit":
                yield admit(job)
            case "defer":
                yield defer(job, timedelta(minutes=5))
            case "reject":
                yield reject(job, "its server is gone")


def near(moment: datetime, expected: datetime) -> bool:
    return abs(moment - expected) < timedelta(seconds=20)


def around_now(begin: int, end: int) -> tuple[Window, datetime]:
    """A window from so many hours after now to so many, and when it opens today."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    opens, closes = now + timedelta(hours=begin), now + timedelta(hours=end)
    return window(f"{opens:%H:%M}", f"{closes:%H:%M}"), opens


@real_time
def test_jobs_are_admitted_deferred_rejected_or_parked(app: Hipq) -> None:
    queue = app.queue("orders", throttler=by_data)
    queue.job("work")(lambda _: None)
    seen = heard("deferred", "rejected", "parked", of=[app])
    admitted, deferred, rejected, parked = ids = queue.enqueue_many("work", ["admit", "defer", "reject", "park"])
    until_empty(app)
    assert phases(app, ids) == ["done", "scheduled", "done", "parked"]
    assert app.job(admitted).code == "ok"
    assert near(app.job(deferred).scheduled_run_time, datetime.now(UTC) + timedelta(minutes=5))
    job = app.job(rejected)
    assert job.fault is not None
    assert (job.code, job.attempt, job.fault.kind, job.fault.message) == ("failed", 0, "rejected", "its server is gone")
    assert (app.job(parked).state, app.job(parked).attempt) == ("initial", 0)
    assert sorted(event.name for event in seen) == ["deferred", "parked", "rejected"]
    app.retry_now(deferred)
    until_empty(app)
    history = app.job(deferred).history
    assert [entry["event"] for entry in history] == ["deferred", "hurried", "deferred"], "it is asked about again"


@real_time
def test_a_throttler_that_says_nothing_parks_everything(app: Hipq) -> None:
    queue = app.queue("orders", throttler=lambda _due, _running, _now: None)
    queue.job("work")(lambda _: None)
    ids = queue.enqueue_many("work", range(5))
    until_empty(app)
    assert phases(app, ids) == ["parked"] * 5


@pytest.mark.parametrize("throttler", [admit_all, by_data, lambda *_: None], ids=["admits", "decides", "parks"])
def test_it_is_asked_with_a_clock_that_stands_still(app: Hipq, throttler: Any) -> None:
    queue = app.queue("orders", throttler=throttler)
    queue.job("work")(lambda _: None)
    ids = queue.enqueue_many("work", ["admit", "defer", "reject", "park"])
    until_empty(app)
    assert "ready" not in phases(app, ids)


@real_time
def test_a_job_is_deferred_into_its_window(app: Hipq) -> None:
    hours, opened = around_now(-1, 1)
    queue = app.queue("orders", throttler=lambda due, _running, _now: [defer(job, 7200) for job in due])
    queue.job("work", windows=[hours])(lambda _: None)
    job_id = queue.enqueue("work")
    until_empty(app)
    assert app.job(job_id).scheduled_run_time == opened + timedelta(days=1)


@real_time
def test_the_end_of_time_can_be_deferred_to(app: Hipq) -> None:
    last = datetime(9999, 12, 31, 23, tzinfo=UTC)
    queue = app.queue("orders", throttler=lambda due, _running, _now: [defer(job, last) for job in due])
    queue.job("work")(lambda _: None)
    ids = [queue.enqueue("work"), queue.enqueue("work", windows=[around_now(-1, 1)[0]])]
    until_empty(app)
    assert phases(app, ids) == ["scheduled", "scheduled"]


@real_time
def test_a_deferral_to_the_past_parks(app: Hipq) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    queue = app.queue("orders", throttler=lambda due, _running, _now: [defer(job, past) for job in due])
    queue.job("work")(lambda _: None)
    job_id = queue.enqueue("work")
    until_empty(app)
    assert app.job(job_id).phase == "parked"


@real_time
def test_it_sees_what_is_due_in_order_and_what_runs(app: Hipq) -> None:
    seen: list[tuple[list[Any], list[Any]]] = []

    def throttler(due: Jobs, running: Jobs, now: datetime) -> list[Any]:
        assert near(now, datetime.now(UTC))
        seen.append(([job.data for job in due], [job.data for job in running]))
        return [admit(job) for job in due if job.data == "ask"]

    queue = app.queue("orders", order="priority", throttler=throttler)
    queue.job("work")(lambda job: Wait(timeout=60) if job.data == "ask" else None)
    queue.enqueue("work", "ask")
    until_empty(app)
    queue.enqueue("work", "later", delay=60)
    queue.enqueue("unknown", "no code here")
    queue.enqueue("work", "closed", windows=[around_now(2, 3)[0]])
    queue.enqueue("work", "b", priority=7)
    queue.enqueue("work", "a", priority=3)
    until_empty(app)
    assert seen[0] == (["ask"], [])
    assert seen[-1] == (["a", "b"], ["ask"])


@real_time
def test_a_large_payload_comes_through_parking_and_deferring(app: Hipq) -> None:
    say: list[Callable[[Job[Any]], Any]] = []
    text = "é" * 200_000
    seen: list[bool] = []

    def throttler(due: Jobs, _running: Jobs, _now: Any) -> list[Any]:
        seen.extend(job.data == text for job in due)
        return [say[-1](job) for job in due] if say else []

    queue = app.queue("orders", throttler=throttler)
    ran: list[bool] = []
    queue.job("work")(lambda job: ran.append(job.data == text))
    job_id = queue.enqueue("work", text)
    until_empty(app)
    assert app.job(job_id).phase == "parked"
    say.append(lambda job: defer(job, 60))
    until_empty(app)
    assert app.job(job_id).phase == "scheduled"
    say.append(admit)
    app.retry_now(job_id)
    until_empty(app)
    assert ran == [True]
    assert all(seen)


# -- parked jobs ------------------------------------------------------------------------------------------------------
@real_time
def test_a_parked_job_starts_when_another_ends(app: Hipq) -> None:
    release = threading.Event()

    def one_at_a_time(due: Jobs, running: Jobs, _now: Any) -> list[Any]:
        return [] if running else [admit(job) for job in due[:1]]

    queue = app.queue("orders", throttler=one_at_a_time)
    queue.job("work")(lambda _: release.wait(60) and None)
    ids = queue.enqueue_many("work", range(12))
    with working(app):
        until(lambda: phases(app, ids) == ["executing"] + ["parked"] * 11)
        began = time.monotonic()
        release.set()
        until(lambda: phases(app, ids) == ["done"] * 12)
        assert time.monotonic() - began < 11 * 0.9, "it does not wait for a look once a second"


@real_time
def test_a_parked_job_starts_soon_after_the_throttler_changes_its_mind(app: Hipq) -> None:
    kind = threading.Event()
    queue = app.queue("orders", throttler=lambda due, *_: [admit(job) for job in due if kind.is_set()])
    queue.job("work")(lambda _: None)
    ids = queue.enqueue_many("work", range(3))
    with working(app):
        until(lambda: phases(app, ids) == ["parked"] * 3)
        kind.set()
        assert until(lambda: phases(app, ids) == ["done"] * 3) < 30


@real_time
def test_until_empty_leaves_what_is_parked(app: Hipq) -> None:
    queue = app.queue("orders", throttler=lambda due, *_: [admit(job) for job in due if job.data == "go"])
    queue.job("work")(lambda _: None)
    ids = queue.enqueue_many("work", ["stay", "go"])
    assert until_empty(app) < 30
    assert phases(app, ids) == ["parked", "done"]


@real_time
@pytest.mark.parametrize("held_up", ["paused", "limited"])
def test_until_empty_leaves_what_other_rules_hold_up(app: Hipq, held_up: str) -> None:
    queue = app.queue("orders", throttle_limit=1, throttler=admit_all)
    queue.job("work")(lambda _: Wait(timeout=60))
    ids = queue.enqueue_many("work", range(3))
    if held_up == "paused":
        app.pause("orders")
    assert until_empty(app) < 30
    assert phases(app, ids) == ["ready" if held_up == "paused" else "waiting", "ready", "ready"]


@real_time
@pytest.mark.parametrize("programs", [1, 2])
def test_nobody_is_asked_again_and_again_while_nothing_happens(app: Hipq, make_app: MakeApp, programs: int) -> None:
    calls: list[int] = []

    def throttler(due: Jobs, _running: Jobs, _now: Any) -> None:
        calls.append(len(due))

    apps = [app, make_app()][:programs]
    for one in apps:
        one.queue("orders", throttler=throttler).job("work")(lambda _: None)
    looks: list[int] = []
    with working(*apps):
        time.sleep(0.5)
        for one in apps:
            _counted(one, looks)
        slept = sleep(1)
        assert len(looks) <= (1 + 2 * slept) * programs, "nothing is there to be asked about"
        ids = app.queues[0].enqueue_many("work", range(3))
        until(lambda: phases(app, ids) == ["parked"] * 3)
        time.sleep(0.5)
        calls.clear()
        slept = sleep(1.5)
        assert len(calls) <= (1 + 2 * slept) * programs, "once a second is enough"
        until(lambda: calls)


def sleep(seconds: float) -> float:
    """For so long, or longer if the machine is busy: for how long."""
    began = time.monotonic()
    time.sleep(seconds)
    return time.monotonic() - began


def _counted(app: Hipq, looks: list[int]) -> None:
    ask: Any = app.store.ask
    store: Any = app.store

    def counted(*args: Any) -> Any:
        looks.append(1)
        return ask(*args)

    store.ask = counted


@real_time
@pytest.mark.parametrize("many", [300, 1200])
def test_parked_jobs_at_the_head_are_not_in_the_way_of_a_new_one(app: Hipq, many: int) -> None:
    queue = app.queue("orders", throttler=lambda due, *_: [admit(job) for job in due if job.data == "go"])
    queue.job("work")(lambda _: None)
    queue.enqueue_many("work", ["stay"] * many)
    with working(app):
        until(lambda: not app.jobs("orders", phase="ready"))
        took: list[float] = []
        while len(took) < 15 and sum(one < 1 for one in took) < 2:  # a busy machine has the more tries
            job_id = queue.enqueue("work", "go")
            took.append(until(lambda one_id=job_id: app.job(one_id).code == "ok"))  # type: ignore[misc]
    assert sorted(took)[1] < 1, "the others are looked at once a second"


@real_time
def test_a_throttler_sees_every_page_of_what_is_parked(app: Hipq) -> None:
    seen: set[int] = set()
    chosen = threading.Event()

    def throttler(due: Jobs, _running: Jobs, _now: Any) -> list[Any]:
        seen.update(job.data for job in due)
        return [admit(job) for job in due if job.data == 1799 and chosen.is_set()]

    queue = app.queue("orders", throttler=throttler)
    queue.job("work")(lambda _: None)
    ids = queue.enqueue_many("work", range(1800))
    with working(app):
        until(lambda: not app.jobs("orders", phase="ready"))
        assert len(seen) == 1800
        chosen.set()
        until(lambda: app.job(ids[-1]).code == "ok")


@real_time
def test_it_is_shown_500_due_jobs_at_a_time_parked_ones_included(app: Hipq) -> None:
    seen: list[int] = []

    def nothing_yet(due: Jobs, _running: Jobs, _now: Any) -> list[Any]:
        seen.append(len(due))
        return []

    queue = app.queue("asked", throttler=nothing_yet)
    work = queue.job("work")(lambda _: None)
    for _ in range(2):  # first they are new, then there are parked ones beside those that are
        work.enqueue_many([None] * 600)
        until_empty(app)
    assert max(seen) == 500


@real_time
def test_without_its_throttler_a_queue_starts_what_was_parked(app: Hipq, make_app: MakeApp) -> None:
    app.queue("orders", throttler=lambda *_: None).job("work")(lambda _: None)
    ids = app.queues[0].enqueue_many("work", range(5))
    until_empty(app)
    assert phases(app, ids) == ["parked"] * 5
    newer = make_app()
    newer.queue("orders").job("work")(lambda _: None)
    until_empty(newer)
    assert phases(newer, ids) == ["done"] * 5


@real_time
def test_a_parked_job_can_be_cancelled(app: Hipq) -> None:
    app.queue("orders", throttler=lambda *_: None).job("work")(lambda _: None)
    job_id = app.queues[0].enqueue("work")
    until_empty(app)
    app.cancel(job_id)
    assert (app.job(job_id).code, app.job(job_id).attempt) == ("cancelled", 0)


@real_time
def test_a_parked_job_whose_time_zone_is_unknown_here_stops_no_engine(app: Hipq) -> None:
    queue = app.queue("orders", throttler=lambda *_: None)
    queue.job("work")(lambda _: None)
    ids = [queue.enqueue("work", windows=[window("00:00", "24:00", "Europe/Rome")]), queue.enqueue("work")]
    until_empty(app)
    assert phases(app, ids) == ["parked", "parked"]
    change = "UPDATE shop_orders SET time_windows = replace(time_windows, 'Europe/Rome', 'Mars/Base')"
    conn = connect(app.url)
    conn.execute(change)
    conn.commit()
    conn.close()
    until_empty(app)
    found = app.dry_run("orders", admit_all)
    assert [job.id for job in found.admitted] == ids[1:]


# -- slow, failing, wrong ---------------------------------------------------------------------------------------------
@real_time
def test_a_slow_throttler_delays_nothing_else(app: Hipq, make_app: MakeApp, slow: Slow) -> None:
    other = make_app()
    for one in (app, other):
        one.queue("orders", throttler=slow).job("work")(lambda _: None)
    release = threading.Event()
    app.queue("mails").job("work")(lambda _: None)
    app.queue("holds").job("work")(lambda _: release.wait(60) and None)
    other.queue("parcels").job("work")(lambda _: None)
    said = heard("throttler slow", of=[app, other])
    with working(app, other):
        running = app.queues[2].enqueue("work")
        until(lambda: app.job(running).phase == "executing")
        throttled = app.queues[0].enqueue_many("work", range(3))
        assert slow.asked.wait(60)
        app.queues[0].enqueue_many("work", range(3))
        mail, parcel = app.queues[1].enqueue("work"), other.queues[1].enqueue("work")
        until(lambda: app.job(mail).code == "ok" and other.job(parcel).code == "ok")
        release.set()
        until(lambda: app.job(running).code == "ok")
        assert phases(app, throttled) == ["ready"] * 3
        until(lambda: said)
        assert (said[0].queue, slow.calls) == ("orders", 1)
        slow.answer.set()
        until(lambda: phases(app, throttled) == ["done"] * 3)
    assert len(said) == 1


@real_time
def test_a_throttler_that_sleeps_delays_no_turn(app: Hipq) -> None:
    def sleepy(due: Jobs, running: Jobs, now: Any) -> list[Any]:
        time.sleep(4)
        return admit_all(due, running, now)

    app.queue("orders", throttler=sleepy).job("work")(lambda _: None)
    mails = app.queue("mails")
    mails.job("work")(lambda _: None)
    took: list[float] = []
    with working(app):
        job_id = app.queues[0].enqueue("work")
        began = time.monotonic()
        while app.job(job_id).code != "ok":
            mail, added = mails.enqueue("work"), time.monotonic()
            until(lambda mail=mail: app.job(mail).code == "ok")  # type: ignore[misc]
            took.append(time.monotonic() - added)
            assert time.monotonic() - began < 60
    assert time.monotonic() - began > 3.5
    assert len(took) > 2, "else the first of them took as long as the throttler slept"
    assert median(took) < 2


@real_time
def test_a_throttler_that_raises_is_asked_again_later_and_later(app: Hipq) -> None:
    calls: list[float] = []

    def throttler(due: Jobs, _running: Jobs, _now: Any) -> list[Any]:
        calls.append(time.monotonic())
        if len(calls) < 3:
            raise ZeroDivisionError("a bug \x00 \ud800 of theirs")
        return [admit(job) for job in due]

    queue = app.queue("orders", throttler=throttler)
    queue.job("work")(lambda _: None)
    failed = heard("throttler failed", of=[app])
    job_id = queue.enqueue("work")
    with working(app):
        until(lambda: failed)
        assert "ZeroDivisionError: a bug" in failed[0].details["error"]
        until(lambda: "ZeroDivisionError" in note(queue))
        assert app.job(job_id).phase == "ready"
        queue.enqueue_many("work", range(3))  # news must not make it hurry
        until(lambda: app.job(job_id).code == "ok")
        until(lambda: note(queue) == "")
    assert 0.9 < calls[1] - calls[0] < 60
    assert 1.9 < calls[2] - calls[1] < 60
    assert len(failed) == 2


def _elsewhere(due: Jobs) -> list[Any]:
    from hipq.job.model import Row

    return [admit(Job(Row(**{**_fields(due[0]._row), "id": due[0].id + 65536 * 99})))]


def _fields(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


@one_store
@real_time
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda due: [admit(due[0]), reject(due[0], "no")], "is not due, or was decided on twice"),
        (_elsewhere, "is not due, or was decided on twice"),
        (lambda _: "admit", "a throttler answers with admit(job), defer(job, until) or reject(job, reason), not 'a'"),
        (lambda due: due, "a throttler answers with admit(job), defer(job, until) or reject(job, reason), not <Job"),
        (lambda due: admit(due[0]), "a throttler answers with admit(job)"),
        (lambda due: [admit(due[0].id)], "a throttler answers with admit(job)"),
        (lambda _: 5, "'int' object is not iterable"),
        (lambda due: [reject(due[0], "")], "a reason must have 1 to 1000 characters"),
        (lambda due: [reject(due[0], None)], "a reason must have 1 to 1000 characters"),  # type: ignore[arg-type]
        (lambda due: [defer(due[0], "noon")], "until must be a number of seconds or a timedelta, not str"),  # type: ignore[arg-type]
        (lambda due: [defer(due[0], float("nan"))], "until must be between 0 seconds and a hundred years"),
        (lambda due: [defer(due[0], -1)], "until must be between 0 seconds and a hundred years"),
        (lambda due: [defer(due[0], to_datetime(0).replace(tzinfo=None))], "until has no time zone"),
    ],
)
def test_a_wrong_answer_is_said_clearly_and_nothing_of_it_counts(
    app: Hipq, answer: Callable[[Jobs], Any], message: str
) -> None:
    queue = app.queue("orders", throttler=lambda due, *_: answer(due))
    queue.job("work")(lambda _: None)
    failed = heard("throttler failed", of=[app])
    ids = queue.enqueue_many("work", range(2))
    with working(app):
        until(lambda: failed)
        until(lambda: note(queue))
    assert message in failed[0].details["error"]
    assert message in note(queue)
    assert phases(app, ids) == ["ready", "ready"]


# -- tickets ----------------------------------------------------------------------------------------------------------
@real_time
def test_an_answer_that_comes_after_its_ticket_claims_nothing(
    app: Hipq, make_app: MakeApp, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "TICKET_SECONDS", 0.3)
    other = make_app()
    ran: list[str] = []
    app.queue("orders", throttler=slow).job("work")(lambda _: ran.append("late"))
    job_id = app.queues[0].enqueue("work")
    with working(app):
        assert slow.asked.wait(60)
        other.queue("orders", throttler=lambda *_: None).job("work")(lambda _: ran.append("other"))
        with working(other):
            until(lambda: other.job(job_id).phase == "parked")
            time.sleep(0.4)  # the other engine's own ticket is over too, or handed in
            slow.answer.set()
            until(lambda: slow.calls > 1 or ran)
    history = [entry["event"] for entry in other.job(job_id).history]
    assert history.count("claimed") == len(ran) <= 1
    assert slow.calls > 1, "what it said too late does not count: it is asked again"


@real_time
def test_an_engine_without_a_lease_loses_its_ticket_to_others(app: Hipq, make_app: MakeApp, slow: Slow) -> None:
    other = make_app()
    app.queue("orders", throttler=slow).job("work")(lambda _: "the first")
    job_id = app.queues[0].enqueue("work")
    with working(app, lease=600) as engines:
        assert slow.asked.wait(60)
        app.store.renew_lease(engines[0].engine_id, 0)  # as if it had been killed a lease ago
        other.queue("orders", throttler=admit_all).job("work")(lambda _: "the second")
        with working(other):
            assert until(lambda: other.job(job_id).code == "ok") < 40, "a ticket is for a minute"
            slow.answer.set()
            time.sleep(0.3)
    assert (other.job(job_id).result, other.job(job_id).attempt) == ("the second", 1)


@real_time
def test_an_engine_whose_hands_are_full_keeps_no_ticket(app: Hipq, make_app: MakeApp, slow: Slow) -> None:
    """While its throttler thought, another queue took its only hand: what was admitted must be free to others."""
    other = make_app()
    release = threading.Event()
    app.queue("orders", throttler=slow).job("work")(lambda _: None)
    app.queue("mails").job("work")(lambda _: release.wait(60) and None)
    job_id = app.queues[0].enqueue("work")
    try:
        with working(app, concurrency=1):
            assert slow.asked.wait(60)
            mail = app.queues[1].enqueue("work")
            until(lambda: app.job(mail).phase == "executing")
            slow.answer.set()
            other.queue("orders", throttler=admit_all).job("work")(lambda _: None)
            with working(other):
                assert until(lambda: other.job(job_id).code == "ok") < 40, "a ticket is for a minute"
            release.set()
    finally:
        release.set()


@real_time
def test_an_engine_that_is_stopping_keeps_no_ticket(app: Hipq, make_app: MakeApp) -> None:
    """It lets its handlers finish, which may take long; meanwhile others must be able to ask."""
    other, release, answer, asked = make_app(), threading.Event(), threading.Event(), threading.Event()

    def throttler(due: Jobs, running: Jobs, now: Any) -> list[Any]:
        if running:
            asked.set()
            answer.wait(60)
        return admit_all(due, running, now)

    queue = app.queue("orders", throttler=throttler)
    queue.job("work")(lambda job: release.wait(60) and None if job.data == "long" else None)
    long = queue.enqueue("work", "long")
    try:
        with working(app) as engines:
            until(lambda: app.job(long).phase == "executing")
            job_id = queue.enqueue("work", "short")
            assert asked.wait(30)
            engines[0].stop()
            answer.set()
            other.queue("orders", throttler=admit_all).job("work")(lambda _: None)
            with working(other):
                assert until(lambda: other.job(job_id).code == "ok") < 40, "a ticket is for a minute"
            release.set()
    finally:
        answer.set()
        release.set()


@real_time
def test_one_engine_at_a_time_is_asked(app: Hipq, make_app: MakeApp) -> None:
    inside, most, lock = [0], [0], threading.Lock()

    def throttler(due: Jobs, running: Jobs, _now: Any) -> list[Any]:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        time.sleep(0.01)
        with lock:
            inside[0] -= 1
        return [admit(job) for job in due[: 3 - len(running)]]

    apps = [app, make_app(), make_app()]
    running, peak = [0], [0]

    def work(_: Job[Any]) -> None:
        with lock:
            running[0] += 1
            peak[0] = max(peak[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1

    for one in apps:
        one.queue("orders", throttler=throttler).job("work")(work)
    ids = app.queues[0].enqueue_many("work", range(40))
    with working(*apps):
        until(lambda: all(app.job(job_id).code == "ok" for job_id in ids))
    assert most[0] == 1
    assert peak[0] <= 3, "what it counted as running it could rely on"


# -- together with other rules ----------------------------------------------------------------------------------------
@real_time
def test_limits_hold_for_what_a_throttler_admits(app: Hipq, make_app: MakeApp) -> None:
    apps = [app, make_app()]
    lock, inside, most = threading.Lock(), {"a": 0.0, "b": 0.0}, [0.0, 0.0]

    def work(job: Job[Any]) -> None:
        with lock:
            inside[job.lane] += job.throttle_factor
            most[0] = max(most[0], *inside.values())
            most[1] = max(most[1], sum(inside.values()))
        time.sleep(0.01)
        with lock:
            inside[job.lane] -= job.throttle_factor

    for one in apps:
        queue = one.queue("orders", throttle_limit=5, limits=[per_lane(3)], throttler=admit_all)
        queue.job("work")(work)
        queue.job("alarm", critical=True)(lambda _: None)
    ids = [app.queues[0].enqueue("work", lane="ab"[n % 2], throttle_factor=1 + n % 3) for n in range(30)]
    with working(*apps):
        until(lambda: all(app.job(job_id).code == "ok" for job_id in ids))
    assert most == [3, 5]


@real_time
def test_a_critical_job_is_admitted_although_the_limit_is_full(app: Hipq) -> None:
    queue = app.queue("orders", throttle_limit=1, throttler=admit_all)
    queue.job("work")(lambda _: Wait(timeout=60))
    queue.job("alarm", critical=True)(lambda _: None)
    ids = queue.enqueue_many("work", range(2))
    until_empty(app)
    alarm = queue.enqueue("alarm")
    found = app.dry_run("orders", admit_all)
    assert [job.id for job in found.admitted] == [alarm]
    until_empty(app)
    assert app.job(alarm).code == "ok"
    assert phases(app, ids) == ["waiting", "ready"]


@real_time
@pytest.mark.parametrize("how", ["refuses", "raises", "hangs"])
def test_a_critical_job_is_not_held_back_by_a_throttler(app: Hipq, slow: Slow, how: str) -> None:
    shown: list[str] = []

    def throttler(due: Jobs, running: Jobs, now: Any) -> list[Any]:
        shown.extend(job.type for job in due)
        if how == "raises":
            raise RuntimeError("no")
        return [reject(job, "no") for job in due] if how == "refuses" else slow(due, running, now)

    queue = app.queue("orders", throttler=throttler)
    queue.job("work")(lambda _: None)
    queue.job("alarm", critical=True)(lambda _: None)
    queue.enqueue("work")
    with working(app):
        until(lambda: shown)
        alarms = queue.enqueue_many("alarm", range(3))
        until(lambda: phases(app, alarms) == ["done"] * 3)
        assert "throttler" not in str(app.why(queue.enqueue("alarm", delay=60)))
        slow.answer.set()
    assert set(shown) == {"work"}, "it is not asked about them"


@real_time
def test_what_was_parked_before_its_type_became_critical_starts(app: Hipq, make_app: MakeApp) -> None:
    app.queue("orders", throttler=lambda _due, _running, _now: []).job("alarm")(lambda _: None)
    parked = app.queues[0].enqueue("alarm")
    until_empty(app)
    assert phases(app, [parked]) == ["parked"]
    other = make_app()
    other.queue("orders", throttler=lambda _due, _running, _now: []).job("alarm", critical=True)(lambda _: None)
    with working(other):
        until(lambda: other.job(parked).code == "ok")


def test_running_jobs_are_not_cut(app: Hipq) -> None:
    queue = app.queue("orders")
    queue.job("work")(lambda _: None)
    queue.enqueue_many("work", range(10_100))
    engine_id = app.store.take_lease(3600, "test")
    won = app.store.turn(engine_id, [], [Claim(queue.number, ("work",), 10_050)], app.store.now()).won
    assert {job.id for job in queue.running_jobs} == {row.id for row in won}
    assert len(won) == 10_050


@real_time
def test_a_pause_counts_although_the_throttler_was_asked_before_it(app: Hipq, slow: Slow) -> None:
    queue = app.queue("orders", throttler=slow)
    queue.job("work")(lambda _: None)
    job_id = queue.enqueue("work")
    with working(app):
        assert slow.asked.wait(60)
        app.pause("orders")
        slow.answer.set()
        time.sleep(0.5)
        assert app.job(job_id).state == "initial"
        app.resume("orders")
        until(lambda: app.job(job_id).code == "ok")


@real_time
def test_a_throttler_without_handlers_keeps_nobody_busy(app: Hipq) -> None:
    app.queue("orders", throttler=admit_all)
    app.queue("mails").job("work")(lambda _: None)
    job_id = app.queues[1].enqueue("work")
    assert until_empty(app) < 30
    assert app.job(job_id).code == "ok"


@real_time
def test_an_engine_with_a_throttler_and_no_handlers_sleeps(app: Hipq) -> None:
    app.queue("orders", throttler=admit_all)
    with working(app) as engines:
        engine: Any = engines[0]
        time.sleep(0.5)
        turns, turn = count(), engine.turn
        engine.turn = lambda: (next(turns), turn())[1]
        time.sleep(1)
    assert next(turns) < 50


@one_store
@real_time
def test_a_throttler_that_never_answers_is_asked_again(app: Hipq, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipq.engine.throttle.TICKET_SECONDS", 0.3)
    questions = count()
    queue = app.queue("orders", throttler=lambda *asked: slow(*asked) if next(questions) < 2 else admit_all(*asked))
    queue.job("work")(lambda _: None)
    job_id = queue.enqueue("work")
    said = heard("throttler failed", of=[app])
    with working(app):
        until(lambda: app.job(job_id).state == "final")
    errors = [event.details["error"] for event in said]
    assert len(errors) >= 2, "on a busy machine the one that answers may be late, too"
    assert set(errors) == {"it has not answered for 0.3 s"}
    assert app.job(job_id).code == "ok"


@one_store
@real_time
def test_a_process_whose_throttler_never_answers_is_replaced(
    app: Hipq, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hipq.engine.throttle.TICKET_SECONDS", 0.1)
    monkeypatch.setattr("hipq.engine.throttle.LONGEST_BACKOFF", 100_000)
    app.queue("orders", throttler=slow).job("work")(lambda _: None)
    app.queues[0].enqueue("work")
    with working(app) as engines:
        until(lambda: bool(engines[0].unfit))
    assert "throttler" in engines[0].unfit


# -- dry runs ---------------------------------------------------------------------------------------------------------
@real_time
def test_a_dry_run_reports_and_changes_nothing(app: Hipq) -> None:
    queue = app.queue("orders", throttler=lambda due, *_: [admit(job) for job in due if job.data == "run"])
    queue.job("work")(lambda _: Wait(timeout=60))
    queue.enqueue_many("work", ["run", "defer", "park"])
    until_empty(app)
    queue.enqueue_many("work", ["admit", "reject", "park"])
    before = tables(app)
    found = app.dry_run("orders", by_data)
    assert tables(app) == before
    assert [job.data for job in found.admitted] == ["admit"]
    ((job, moment),) = found.deferred
    assert (job.data, near(moment, datetime.now(UTC) + timedelta(minutes=5))) == ("defer", True)
    assert [(job.data, reason) for job, reason in found.rejected] == [("reject", "its server is gone")]
    assert [job.data for job in found.parked] == ["park", "park"]
    assert found.running == 1
    with pytest.raises(ZeroDivisionError):
        app.dry_run("orders", lambda *_: 1 / 0)  # type: ignore[arg-type]
    assert tables(app) == before


@real_time
def test_a_dry_run_shows_all_that_are_parked(app: Hipq) -> None:
    queue = app.queue("orders", throttler=lambda *_: ())
    queue.job("work")(lambda _: None)
    queue.enqueue_many("work", range(200))
    until_empty(app)
    queue.enqueue("work")
    assert len(app.dry_run("orders", lambda *_: ()).parked) == 201


@real_time
def test_a_dry_run_takes_no_ticket_and_needs_none(app: Hipq, slow: Slow) -> None:
    app.queue("orders", throttler=slow).job("work")(lambda _: None)
    job_id = app.queues[0].enqueue("work")
    with working(app):
        assert slow.asked.wait(60)
        before = tables(app)[3]
        assert [job.id for job in app.dry_run("orders", admit_all).admitted] == [job_id]
        assert tables(app)[3] == before
        slow.answer.set()
        until(lambda: app.job(job_id).code == "ok")
