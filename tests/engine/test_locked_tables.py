"""PostgreSQL: somebody has locked a table of one queue, with an ALTER TABLE perhaps. The other queues go on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hipq import Hipq, Job
from hipq.errors import StoreBusy, StoreUnavailable
from hipq.events import Event
from hipq.testing.clock import HandClock
from tests.servers import fresh_database


@pytest.fixture
def url() -> Iterator[str]:
    with fresh_database() as url:
        yield url


@pytest.fixture
def app(url: str) -> Iterator[Hipq]:
    app = Hipq("shop", url)
    app.queue("orders")
    app.queue("mails")
    app.migrate()
    yield app
    app.close()


@contextmanager
def working(app: Hipq, **more: Any) -> Iterator[list[Event]]:
    seen: list[Event] = []
    app.events.subscribe(seen.append, "queue locked", "queue free", "store down", "lease lost", "lost", "rescued")
    engine = app.engine(**more)
    thread = threading.Thread(target=engine.run)
    thread.start()
    try:
        yield seen
    finally:
        engine.stop()
        thread.join(60)
        engine.executor.close()


@pytest.mark.parametrize(
    "lock",
    [
        "LOCK TABLE shop_orders IN ACCESS EXCLUSIVE MODE",
        "LOCK TABLE shop_orders_final IN ACCESS EXCLUSIVE MODE",
        "CREATE INDEX somebodys ON shop_orders (priority)",
    ],
)
def test_the_other_queues_go_on_and_what_ran_is_saved_later(app: Hipq, url: str, lock: str) -> None:
    orders, mails = app.queues
    go = threading.Event()
    running = threading.Event()

    @orders.job
    def slow(_: Job[Any]) -> str:
        running.set()
        go.wait(60)
        return "slow"

    quick = mails.job("quick")(lambda _: "quick")
    other = orders.job("other")(lambda _: "other")
    with (
        psycopg.connect(url) as theirs,
        psycopg.connect(url, autocommit=True) as looking,
        working(app, lease=6.0) as seen,
    ):
        held = slow.enqueue()
        assert running.wait(60)
        waiting = other.enqueue(delay=3600)
        theirs.execute(lock.encode())
        go.set()  # it ends, and cannot be saved
        for _ in range(3):
            _until_renewed(looking)  # the lease is kept alive
            _until_ok(looking, "mails", quick.enqueue())
        assert [event.queue for event in seen if event.name == "queue locked"] == ["orders"]
        theirs.rollback()
        app.retry_now(waiting)
        _until(lambda: app.job(held).code == app.job(waiting).code == "ok")
        assert app.job(held).attempt == 1
        assert {event.name for event in seen} <= {"queue locked", "queue free"}


def test_a_job_that_adds_one_to_a_locked_queue_waits_alone(app: Hipq, url: str) -> None:
    orders, mails = app.queues
    child = orders.job("child")(lambda _: None)
    quick = mails.job("quick")(lambda _: "quick")

    @mails.job
    def parent(job: Job[Any]) -> None:
        job.enqueue(child)

    with psycopg.connect(url) as theirs, psycopg.connect(url, autocommit=True) as looking, working(app) as seen:
        theirs.execute("LOCK TABLE shop_orders IN ACCESS EXCLUSIVE MODE")
        waits = parent.enqueue()
        for _ in range(3):
            _until_ok(looking, "mails", quick.enqueue())
        assert app.job(waits).phase == "executing"
        theirs.rollback()
        _until(lambda: app.job(waits).code == "ok")
        _until(lambda: app.jobs.count("orders", code="ok") == 1)
        assert [event.name for event in seen if event.name not in ("queue locked", "queue free")] == []


def test_jobs_that_wait_to_be_saved_take_no_hand_from_others(app: Hipq, url: str) -> None:
    orders, mails = app.queues
    go, running = threading.Event(), threading.Barrier(3)

    @orders.job
    def slow(_: Job[Any]) -> None:
        running.wait(60)
        go.wait(60)

    quick = mails.job("quick")(lambda _: None)
    with psycopg.connect(url) as theirs, working(app, concurrency=2):
        held = slow.enqueue_many([None] * 2)
        running.wait(60)
        theirs.execute("LOCK TABLE shop_orders IN ACCESS EXCLUSIVE MODE")
        go.set()
        job_id = quick.enqueue()
        _until(lambda: app.job(job_id).code == "ok")
        theirs.rollback()
        _until(lambda: all(app.job(one).code == "ok" for one in held))


def test_a_stop_while_its_jobs_cannot_be_saved_is_bounded(app: Hipq, url: str) -> None:
    orders, _ = app.queues
    go, running = threading.Event(), threading.Event()

    @orders.job
    def slow(_: Job[Any]) -> None:
        running.set()
        go.wait(60)

    with psycopg.connect(url) as theirs:
        engine = app.engine(drain=1.0)
        thread = threading.Thread(target=engine.run)
        thread.start()
        slow.enqueue()
        assert running.wait(60)
        theirs.execute("LOCK TABLE shop_orders IN ACCESS EXCLUSIVE MODE")
        go.set()
        engine.stop()
        thread.join(60)
        assert not thread.is_alive()
        engine.executor.close()


def _until_renewed(conn: psycopg.Connection[Any]) -> None:
    query = "SELECT max(lease_until) FROM hipq_engines"
    before = conn.execute(query).fetchone()
    _until(lambda: conn.execute(query).fetchone() != before)


def _until_ok(conn: psycopg.Connection[Any], queue: str, job_id: int) -> None:
    query = f"SELECT code FROM shop_{queue}_final WHERE id = {job_id}".encode()
    _until(lambda: conn.execute(query).fetchone() == ("ok",))


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("is_done", [False, True], ids=["it is not done", "only the word of it is lost"])
def test_jobs_of_a_freed_queue_are_adopted_before_anybody_may_rescue_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """The lease ran out while the queue was locked, and the store is away for a moment when the lock is gone. Whether
    the adoption was written or not: nothing may look as if it had not begun."""
    clock, go, here = HandClock(), threading.Event(), os.getpid()
    app = Hipq("shop", f"sqlite:///{tmp_path}/a.db", clock=clock)
    work = app.queue("orders").job("work")(lambda _job: os.getpid() != here or go.wait(60))
    job_id = work.enqueue()
    seen: list[Event] = []
    app.events.subscribe(seen.append, "rescued", "lost")
    engine = app.engine()
    engine.turn()
    number = work.queue.number
    with monkeypatch.context() as patched:
        patched.setattr(engine.setup.store, "locked", set)
        assert engine.watches.leave_out_locked(engine.timetable.now)
        clock.advance(seconds=600)
        engine.turn()
    assert (number in engine.watches.locked, engine.in_flight[job_id].row.owner != engine.engine_id) == (True, True)

    turn = engine.setup.store.turn

    def away(*given: Any) -> Any:
        if is_done:
            turn(*given)
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(engine.setup.store, "turn", away)
        clock.advance(seconds=1)
        with pytest.raises(StoreUnavailable):
            engine.turn()
    assert number in engine.watches.locked
    go.set()

    def wait(seconds: float) -> bool:
        clock.advance(seconds=seconds)
        time.sleep(0.01)
        return False

    monkeypatch.setattr(engine.setup.store.waker, "wait", wait)
    engine.run(until_empty=True)
    assert number not in engine.watches.locked
    engine.executor.close()
    assert (app.job(job_id).code, app.job(job_id).attempt) == ("ok", 2 if is_done else 1)
    # Where its token is another one by now, it is dropped, and rescued from a lease that nobody has.
    assert [event.name for event in seen] == (["lost", "rescued"] if is_done else [])
    app.close()


def test_a_stop_waits_for_a_job_that_cannot_be_saved_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long ago it was asked to stop: half a minute counts from when nothing else was left to wait for."""
    clock, go, gone = HandClock(), threading.Event(), threading.Event()
    app = Hipq("shop", f"sqlite:///{tmp_path}/a.db", clock=clock)
    work = app.queue("orders").job("work")(lambda _job: go.wait(60))
    job_id = work.enqueue()
    engine = app.engine(lease=600)
    engine.turn()
    engine.stop()
    began, turn = clock.steady(), engine.setup.store.turn

    def busy(engine_id: int, changes: Any, *more: Any) -> Any:
        if changes and clock.steady() < began + 42_000_000:
            raise StoreBusy("somebody has locked it")
        return turn(engine_id, changes, *more)

    def wait(_seconds: float) -> bool:
        clock.advance(seconds=1)
        if clock.steady() >= began + 36_000_000 and not gone.is_set():
            go.set()
            while not engine.in_flight[job_id].run.stopped:
                time.sleep(0.01)
            gone.set()
        return False

    monkeypatch.setattr(engine.setup.store, "turn", busy)
    monkeypatch.setattr(engine.setup.store.waker, "wait", wait)
    engine.run()
    engine.executor.close()
    assert (app.job(job_id).code, app.job(job_id).attempt, engine.stopping) == ("ok", 1, 1)
    app.close()
