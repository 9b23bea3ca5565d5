"""The loop itself: stopping, waking, several queues, a store that comes and goes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from hipq import Conflict, Hipq, Invalid, Job, NotFound, Queue
from hipq.errors import StoreRefused, StoreUnavailable
from hipq.events import Event
from hipq.testing.clock import HandClock

Run = Callable[[], None]


def in_thread(engine: Any) -> threading.Thread:
    thread = threading.Thread(target=engine.run)
    thread.start()
    return thread


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.005)


def test_the_first_stop_lets_handlers_finish_and_gives_back_what_did_not_start(app: Hipq, queue: Queue) -> None:
    started, release = threading.Semaphore(0), threading.Event()

    @queue.job
    def work(_: Job[Any]) -> str:
        started.release()
        release.wait(60)
        return "finished"

    ids = work.enqueue_many(range(6))
    engine = app.engine(concurrency=2)
    engine.batch.prefetch.measure([(("orders", "work"), 1)] * 1000)  # as if handlers were quick: it claims ahead
    thread = in_thread(engine)
    started.acquire()
    started.acquire()
    until(lambda: len(engine.in_flight) == 6)
    engine.stop()
    until(lambda: len(engine.in_flight) == 2)
    assert thread.is_alive()
    release.set()
    thread.join(60)
    engine.executor.close()
    jobs = [app.job(job_id) for job_id in ids]
    assert [job.result for job in jobs[:2]] == ["finished", "finished"]
    for job in jobs[2:]:
        assert (job.state, job.phase, job.attempt, job.failures, job.owner) == ("retry", "ready", 0, 0, 0)
        assert job.history[-1]["event"] == "given back"


def test_the_second_stop_gives_the_rest_back_at_no_cost(app: Hipq, queue: Queue) -> None:
    started, release = threading.Semaphore(0), threading.Event()

    @queue.job
    def work(_: Job[Any]) -> str:
        started.release()
        release.wait(60)
        return "too late"

    try:
        job_id = work.enqueue()
        engine = app.engine(concurrency=1)
        thread = in_thread(engine)
        started.acquire()
        engine.stop()
        engine.stop()
        thread.join(30)
        assert not thread.is_alive()
        job = app.job(job_id)
        assert (job.state, job.phase, job.attempt, job.failures, job.crashes) == ("retry", "ready", 1, 0, 0)
    finally:
        release.set()
        engine.executor.close()


def test_a_cancelled_job_keeps_nothing_of_what_its_handler_comes_to(app: Hipq, queue: Queue) -> None:
    """I8."""
    started, release = threading.Event(), threading.Event()

    @queue.job
    def work(job: Job[Any]) -> str:
        started.set()
        release.wait(60)
        job.enqueue("child", "must not be stored")
        return "too late"

    job_id = work.enqueue()
    engine = app.engine()
    lost: list[Event] = []
    app.events.subscribe(lost.append, "lost")
    thread = in_thread(engine)
    started.wait(60)
    app.cancel(job_id, "changed my mind")
    before = app.job(job_id)
    release.set()
    until(lambda: lost)
    engine.stop()
    thread.join(60)
    engine.executor.close()
    after = app.job(job_id)
    assert (after.state, after.code, after.exitcode) == ("final", "cancelled", 499)
    assert after.fault is not None
    assert after.fault.message == "changed my mind"
    assert after._row == before._row
    assert len(app.jobs("orders")) == 1


@pytest.mark.parametrize("delay", [0, 100])
def test_cancel_before_a_run_leaves_attempt_alone(app: Hipq, queue: Queue, delay: float) -> None:
    job_id = queue.enqueue("work", delay=delay)
    app.cancel(job_id)
    assert (app.job(job_id).state, app.job(job_id).attempt) == ("final", 0)


def test_retry_now_runs_a_scheduled_job_at_once(app: Hipq, queue: Queue, run: Run) -> None:
    work = queue.job("work")(lambda _: None)
    job_id = work.enqueue(delay=3600)
    app.retry_now(job_id)
    run()
    assert app.job(job_id).code == "ok"
    ready = work.enqueue()
    with pytest.raises(Conflict, match="only a scheduled job"):
        app.retry_now(ready)


@pytest.mark.parametrize("job_id", [5, 65537 + 5, 1 << 40])
def test_an_id_that_does_not_exist(app: Hipq, queue: Queue, job_id: int) -> None:
    queue.enqueue("work")
    for verb in (app.job, app.cancel, app.retry_now):
        with pytest.raises(NotFound, match=str(job_id)):
            verb(job_id)


def test_one_row_the_store_refuses_does_not_fail_its_neighbours(
    app: Hipq, queue: Queue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.job("work")(lambda _: "fine")
    ids = queue.enqueue_many("work", range(9))
    turn = app.store.turn

    def refusing(engine_id: int, changes: Any, claims: Any, now: int) -> Any:
        if any(change.before.id == ids[4] and change.after.code == "ok" for change in changes):
            raise StoreRefused("no such text")
        return turn(engine_id, changes, claims, now)

    monkeypatch.setattr(app.store, "turn", refusing)
    run()
    assert [app.job(job_id).code for job_id in ids] == ["ok"] * 4 + ["error"] + ["ok"] * 4
    assert "could not be stored: no such text" in app.job(ids[4]).error


def test_a_store_that_goes_away_is_waited_for(app: Hipq, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()
    app.events.subscribe(lambda event: seen.update([event.name]), "store down", "store back")
    runs: list[int] = []
    queue.job("work")(lambda _: runs.append(1))
    turn = app.store.turn
    calls = count()

    def flaky(*args: Any) -> Any:
        if next(calls) % 3 != 2:
            raise StoreUnavailable("away")
        return turn(*args)

    monkeypatch.setattr(app.store, "turn", flaky)
    ids = queue.enqueue_many("work", range(20))
    app.run(until_empty=True)
    assert len(runs) == 20, "a turn that failed is tried again; no handler runs twice for it"
    assert {app.job(job_id).code for job_id in ids} == {"ok"}
    assert seen["store down"] >= 1
    assert seen["store back"] >= 1


def test_jobs_nobody_took_go_on_when_the_lease_is_lost(app: Hipq, queue: Queue, clock: HandClock) -> None:
    """The store was away for longer than a lease: what runs is not run a second time for it."""
    runs: list[int] = []
    release = threading.Event()

    @queue.job
    def work(_: Job[Any]) -> str:
        runs.append(1)
        release.wait(60)
        return "once"

    lost: list[Event] = []
    app.events.subscribe(lost.append, "lease lost")
    job_id = work.enqueue()
    engine = app.engine()
    try:
        engine.turn()
        until(lambda: runs)
        first = engine.engine_id
        app.store.renew_lease(first, 0)
        clock.advance(seconds=30)
        engine.turn()
        assert len(lost) == 1
        assert engine.engine_id != first
        assert app.job(job_id).owner == engine.engine_id
        release.set()
        until(lambda: engine.turn() >= 0 and app.job(job_id).state == "final")
    finally:
        release.set()
        engine.executor.close()
    job = app.job(job_id)
    assert (runs, job.result, job.attempt, job.crashes) == ([1], "once", 1, 0)


def test_an_adoption_that_was_not_confirmed_takes_no_attempt_back(
    app: Hipq, queue: Queue, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, release = threading.Event(), threading.Event()

    @queue.job
    def work(_: Job[Any]) -> None:
        started.set()
        release.wait(60)

    job_id = work.enqueue()
    engine = app.engine()
    try:
        engine.turn()
        assert started.wait(60)
        app.store.renew_lease(engine.engine_id, 0)
        turn = app.store.turn

        def unconfirmed(*args: Any) -> Any:
            turn(*args)
            raise StoreUnavailable("the acknowledgement was lost")

        monkeypatch.setattr(app.store, "turn", unconfirmed)
        clock.advance(seconds=30)
        with pytest.raises(StoreUnavailable):
            engine.turn()
        monkeypatch.setattr(app.store, "turn", turn)
        for _ in range(2):  # less than a lease: then it would be rescued, which is right too
            clock.advance(seconds=4)
            engine.turn()
        assert app.job(job_id).attempt == 1, "it was started"
        assert all(entry["event"] != "given back" for entry in app.job(job_id).history)
    finally:
        release.set()
        engine.executor.close()


def test_a_worker_with_nothing_to_do_stops_although_the_store_is_away(
    app: Hipq, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.job("work")(lambda _: None)
    engine = app.engine()
    thread = in_thread(engine)
    until(lambda: engine.engine_id)

    def away(*_: Any) -> Any:
        raise StoreUnavailable("away")

    for verb in ("turn", "peek", "renew_lease"):
        monkeypatch.setattr(app.store, verb, away)
    engine.timetable.peek = 0
    engine.stop()
    thread.join(30)
    assert not thread.is_alive()
    engine.executor.close()


def test_work_is_shared_between_queues(app: Hipq) -> None:
    order: list[str] = []
    for name in "abc":
        queue = app.queue(name)
        queue.job("work")(lambda job: order.append(job.data))
        queue.enqueue_many("work", [name] * 50)
    app.run(until_empty=True, concurrency=1)
    assert Counter(order) == {"a": 50, "b": 50, "c": 50}
    assert set(order[:12]) == {"a", "b", "c"}, "no queue waits for another to be empty"


def test_only_the_chosen_queues_are_worked_on(app: Hipq) -> None:
    ids = []
    for name in ("one", "two"):
        queue = app.queue(name)
        queue.job("work")(lambda _: None)
        ids.append(queue.enqueue("work"))
    app.run(["two"], until_empty=True)
    assert [app.job(job_id).state for job_id in ids] == ["initial", "final"]
    with pytest.raises(Invalid, match="no such queue: three"):
        app.run(["three"])


def test_twenty_queues_cost_one_look(app: Hipq, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for number in range(20):
        queue = app.queue("q" + "abcdefghijklmnopqrstuvwxyz"[number])
        queue.job("work")(lambda _: None)
        ids.append(queue.enqueue("work"))
    app.run(until_empty=True)
    assert {app.job(job_id).code for job_id in ids} == {"ok"}
    engine = app.engine()
    engine.turn()
    engine.turn()
    calls: Counter[str] = Counter()
    for verb in ("turn", "peek", "stage", "due", "owned", "renew_lease"):
        monkeypatch.setattr(app.store, verb, _counting(getattr(app.store, verb), verb, calls))
    engine.timetable.peek = 0
    assert engine.turn() > 0
    assert calls == {"peek": 1}
    engine.executor.close()


def _counting(verb: Callable[..., Any], name: str, calls: Counter[str]) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return verb(*args, **kwargs)

    return counted


def _broken(_: Event) -> None:
    """A subscriber's bug must not stop the work."""
    raise ZeroDivisionError


def test_every_change_is_an_event(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    from hipq import Failed, Retry, Wait

    seen: list[str] = []
    app.events.subscribe(lambda event: seen.append(event.name))
    app.events.subscribe(_broken, "claimed")
    outcomes = {"ok": None, "failed": Failed("x"), "again": Retry(5), "waits": Wait(timeout=5)}
    queue.job("work")(lambda job: outcomes[job.data] if job.attempt == 1 else None)
    ids = queue.enqueue_many("work", list(outcomes))
    later = queue.enqueue("work", "ok", delay=500)
    run()
    app.cancel(later)
    clock.advance(seconds=5)
    run()
    clock.advance(seconds=1)
    assert app.jobs.prune(0) == 5
    counted = Counter(seen)
    assert counted["added"] == 5
    assert counted["claimed"] == 5 + 1  # one again, one to be judged
    for name in ("failed", "again", "waits", "timed out", "gave up", "cancelled", "staged", "pruned"):
        assert counted[name] == 1, (name, counted)
    assert counted["ok"] == 2
    assert counted["engine started"] == counted["engine stopped"] == 2
    assert len(ids) == 4


def test_an_event_nobody_knows_cannot_be_subscribed_to(app: Hipq) -> None:
    with pytest.raises(ValueError, match="no such event: nonsense"):
        app.events.subscribe(print, "nonsense")
