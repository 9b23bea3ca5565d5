"""What running handlers say of themselves: how far they have come, and that they are alive. Engines turned by hand."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hipq import Answer, Hipq, Invalid, Job, Progress, Queue, Wait, fixed
from hipq.engine.launch import Launcher
from hipq.engine.loop import Engine
from hipq.errors import StoreBusy
from hipq.executors.execution import Run as Said
from hipq.executors.telling import PAUSE, Telling, hear
from hipq.job.progress import Report, Reported
from hipq.job.when import to_datetime
from hipq.stores.claims import Claim
from hipq.testing.clock import HandClock
from tests.engine.working import one_store, real_time, until, working

every_kind = pytest.mark.parametrize("kind", ["thread", "task", "process", "async process"])


class Handler:
    """A handler that does what a test says, in whatever process it is."""

    def __init__(self) -> None:
        self._commands, self._orders = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), "rw", strict=True))
        self._done, self._acts = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), "rw", strict=True))

    def declare(self, queue: Queue, kind: str, **options: Any) -> None:
        if kind in ("thread", "process"):

            @queue.job("work", process=kind == "process", **options)
            def work(job: Job[Any]) -> Any:
                while (command := self._commands.readline()) != "end\n":
                    self._obey(job, command)

        else:

            @queue.job("work", process=kind == "async process", **options)
            async def task(job: Job[Any]) -> Any:
                while (command := await asyncio.to_thread(self._commands.readline)) != "end\n":
                    self._obey(job, command)

    def _obey(self, job: Job[Any], command: str) -> None:
        fraction, _, message = command.strip().partition(" ")
        if fraction == "beat":
            job.heartbeat()
        else:
            job.progress(float(fraction), message)
        print("done", file=self._acts, flush=True)

    def does(self, command: str) -> None:
        print(command, file=self._orders, flush=True)
        assert self._done.readline() == "done\n"

    def ends(self) -> None:
        print("end", file=self._orders, flush=True)

    def close(self) -> None:
        for file in (self._orders, self._commands, self._done, self._acts):  # who still reads orders hears of their end
            file.close()


@pytest.fixture
def handler() -> Iterator[Handler]:
    made = Handler()
    yield made
    made.close()


@contextmanager
def turned(app: Hipq, handler: Handler) -> Iterator[Engine]:
    """An engine that is turned by hand; at the end, its handlers end."""
    engine = app.engine()
    try:
        yield engine
    finally:
        try:
            handler.ends()
            until(lambda: engine.turn() >= 0 and not engine.in_flight)
        finally:
            engine.executor.close()


def run_of(engine: Engine, job_id: int) -> Said:
    return engine.in_flight[job_id].run


@every_kind
def test_what_a_handler_says_is_stored_about_once_a_second(
    app: Hipq, queue: Queue, clock: HandClock, handler: Handler, kind: str
) -> None:
    handler.declare(queue, kind)
    told: list[Any] = []
    app.events.subscribe(lambda event: told.append((event.details, event.queue)), "progress reported")
    job_id = queue.enqueue("work")
    with turned(app, handler) as engine:
        until(lambda: engine.turn() >= 0 and job_id in engine.in_flight)
        handler.does("0.25 page 1 of 4")
        until(lambda: run_of(engine, job_id).reported)
        clock.advance(seconds=1)
        engine.turn()
        assert (job_id.progress.fraction, job_id.progress.message) == (0.25, "page 1 of 4")
        assert job_id.progress.at == to_datetime(clock.now())
        for n in range(50):
            handler.does(f"0.5 {n}")
        handler.does("0.75")
        until(lambda: run_of(engine, job_id).reported == Reported(0.75, ""))
        clock.advance(seconds=0.9)
        engine.turn()
        assert app.job(job_id).progress.fraction == 0.25
        clock.advance(seconds=0.2)
        engine.turn()
        assert str(app.job(job_id).progress) == "75%"
        clock.advance(seconds=10)
        engine.turn()
    assert told == [
        ({"fraction": 0.25, "message": "page 1 of 4"}, "orders"),
        ({"fraction": 0.75, "message": ""}, "orders"),
    ]
    assert app.job(job_id).progress.fraction is None  # it has ended


def test_jobs_of_an_engine_are_written_together(
    app: Hipq, queue: Queue, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = [False]

    @queue.job
    async def work(job: Job[int]) -> None:
        job.progress(job.data / 10)
        while not go[0]:
            await asyncio.sleep(0.005)

    written: list[list[int]] = []
    ids = work.enqueue_many(range(10))
    engine = app.engine(concurrency=10)
    report = app.store.report

    def noted(reports: list[Report], now: int) -> set[int]:
        written.append(sorted(one.id for one in reports))
        return report(reports, now)

    monkeypatch.setattr(app.store, "report", noted)
    until(lambda: engine.turn() >= 0 and all(one in engine.in_flight for one in ids))
    until(lambda: all(run_of(engine, one).reported for one in ids))
    clock.advance(seconds=1)
    engine.turn()
    assert len(written) <= 2  # some had perhaps said it before the first look
    assert sorted(one for some in written for one in some) == sorted(ids)
    assert [one.progress.fraction for one in ids] == [n / 10 for n in range(10)]
    go[0] = True
    until(lambda: engine.turn() >= 0 and not engine.in_flight)
    engine.executor.close()


def test_the_last_word_before_a_wait_is_kept(app: Hipq, queue: Queue, run: Callable[[], None]) -> None:
    @queue.job
    def work(job: Job[Any]) -> Wait:
        job.progress(0.1)
        job.progress(0.5, "sent")
        return Wait()

    @work.answered
    def more(job: Job[Any], answer: Answer) -> Any:
        job.progress(answer.data, "received")
        return Progress() if answer.data < 1 else None

    job_id = work.enqueue(key="k")
    run()
    assert str(job_id.progress) == "50% sent"
    work.answer("k", 0.75, answer_id="1")
    run()
    assert (app.job(job_id).phase, str(job_id.progress)) == ("waiting", "75% received")
    work.answer("k", 1, answer_id="2")
    run()
    assert (app.job(job_id).state, job_id.progress.fraction, job_id.progress.at) == ("final", None, None)


def test_the_last_attempt_shows_how_far_it_came_until_the_next_says_so(
    app: Hipq, queue: Queue, clock: HandClock, handler: Handler
) -> None:
    handler.declare(queue, "thread", run_timeout=10, retry=fixed(5, attempts=2))
    job_id = queue.enqueue("work")
    with turned(app, handler) as engine:
        until(lambda: engine.turn() >= 0 and job_id in engine.in_flight)
        handler.does("0.5")
        clock.advance(seconds=1)
        engine.turn()
        late = run_of(engine, job_id)
        clock.advance(seconds=10)
        until(lambda: engine.turn() >= 0 and app.job(job_id).state == "retry")
        assert app.job(job_id).progress.fraction == 0.5
        handler.ends()
        until(lambda: not late.is_under_way)  # else the next attempt might read that it is to end
        clock.advance(seconds=6)
        until(lambda: engine.turn() >= 0 and app.job(job_id).attempt == 2)
        assert app.job(job_id).progress.fraction is None


@every_kind
def test_a_heartbeat_gives_a_handler_its_time_anew(
    app: Hipq, queue: Queue, clock: HandClock, handler: Handler, kind: str
) -> None:
    handler.declare(queue, kind, run_timeout=10)
    job_id = queue.enqueue("work")
    with turned(app, handler) as engine:
        until(lambda: engine.turn() >= 0 and job_id in engine.in_flight and run_of(engine, job_id).started)
        for _ in range(5):
            clock.advance(seconds=9)
            handler.does("beat")
            until(lambda: run_of(engine, job_id).beat)
            engine.turn()
            assert app.job(job_id).phase == "executing"
            handler.does("0.5")  # which is no heartbeat
        clock.advance(seconds=9)
        engine.turn()
        assert app.job(job_id).phase == "executing"
        clock.advance(seconds=2)
        until(lambda: engine.turn() >= 0 and app.job(job_id).state == "final")
    assert app.job(job_id).error.find("ran longer than 10 s") > 0


def test_heartbeats_do_not_prolong_the_time_out(app: Hipq, queue: Queue, clock: HandClock, handler: Handler) -> None:
    handler.declare(queue, "thread", run_timeout=10, timeout=15)
    job_id = queue.enqueue("work")
    with turned(app, handler) as engine:
        until(lambda: engine.turn() >= 0 and job_id in engine.in_flight and run_of(engine, job_id).started)
        for _ in range(2):
            clock.advance(seconds=8)
            handler.does("beat")
            engine.turn()
        until(lambda: engine.turn() >= 0 and app.job(job_id).state == "final")
    assert app.job(job_id).fault is not None


def test_progress_can_wait_for_who_is_in_the_way(
    app: Hipq, queue: Queue, clock: HandClock, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler.declare(queue, "thread")
    job_id = queue.enqueue("work")
    with turned(app, handler) as engine:
        until(lambda: engine.turn() >= 0 and job_id in engine.in_flight)
        handler.does("0.5")

        def busy(*_: Any) -> set[int]:
            raise StoreBusy("somebody has it locked")

        with monkeypatch.context() as patch:
            patch.setattr(app.store, "report", busy)
            clock.advance(seconds=1)
            engine.turn()
        assert job_id.progress.fraction is None
        clock.advance(seconds=1)
        engine.turn()
        assert job_id.progress.fraction == 0.5


@real_time
def test_it_is_seen_while_the_handler_runs(app: Hipq, queue: Queue, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    @queue.job(process=True)
    def work(job: Job[Any]) -> None:
        for n in range(2_000):
            job.progress(n / 2_000, "x" * 500)
        job.progress(0.9, "nearly")
        until(gate.exists)

    job_id = work.enqueue()
    with working(app):
        until(lambda: job_id.progress.message == "nearly")
        gate.touch()
        until(lambda: app.job(job_id).state == "final")
    assert app.job(job_id).code == "ok"


def test_it_is_deleted_some_time_after_the_end(app: Hipq, queue: Queue, clock: HandClock, handler: Handler) -> None:
    handler.declare(queue, "thread")
    job_id = queue.enqueue("work")
    with turned(app, handler) as engine:
        until(lambda: engine.turn() >= 0 and job_id in engine.in_flight)
        handler.does("0.5")
        clock.advance(seconds=1)
        engine.turn()
    assert app.store.progress(job_id, 1)
    engine = app.engine()
    engine.turn()
    engine.executor.close()
    assert app.store.progress(job_id, 1) is None


@one_store
def test_what_a_child_says_of_a_job_is_over_with_its_reply(app: Hipq, queue: Queue) -> None:
    @queue.job
    def work(job: Job[Any]) -> None:
        for n in range(10):
            job.progress(n / 10)

    work.enqueue()
    claims = [Claim(queue.number, ("work",), 1)]
    (row,) = app.store.turn(app.store.take_lease(60, "by hand"), [], claims, app.store.now()).won
    launcher = Launcher(app.store.now, app.database.steady, lambda _: queue.chained)
    sent: list[bytes] = []
    request, before = msgspec.json.encode(("orders", row, None, 10**15)), set(threading.enumerate())
    reply = launcher.serve(request, lambda: False, sent.append, lambda _, __: work.spec)
    left = [one for one in set(threading.enumerate()) - before if isinstance(one, threading.Timer)]
    assert all(one.finished.is_set() for one in left)
    assert msgspec.json.decode(reply)[2] == [0.9, "", 0]


# -- what is said -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fraction", [-0.1, 1.01, float("nan"), "0.5", None, True])
@one_store
def test_a_fraction_is_from_0_to_1(app: Hipq, queue: Queue, run: Callable[[], None], fraction: Any) -> None:
    queue.job("work")(lambda job: job.progress(fraction))
    job_id = queue.enqueue("work")
    run()
    assert "progress takes a fraction from 0 to 1, not " in app.job(job_id).error


def test_any_text_will_do_and_its_beginning_is_kept(queue: Queue, run: Callable[[], None]) -> None:
    @queue.job
    def work(job: Job[str]) -> Wait:
        job.progress(1, {"odd": "a\0b\ud800 'c' ☃", "long": "x" * 200 + "y"}[job.data])
        return Wait()

    odd, long = work.enqueue("odd"), work.enqueue("long")
    run()
    assert odd.progress.message == "a\\x00b\\ud800 'c' ☃"
    assert long.progress.message == "x" * 199 + "…"


@one_store
def test_nobody_but_a_handler_says_it(app: Hipq, queue: Queue) -> None:
    job = app.job(queue.enqueue("work"))
    with pytest.raises(Invalid, match=r"inside a handler only; elsewhere look at job\.progress\.fraction"):
        job.progress(0.5)
    with pytest.raises(Invalid, match="inside a handler only"):
        job.heartbeat()


# -- from a child process ---------------------------------------------------------------------------------------------
def test_a_child_tells_the_first_word_at_once_and_the_last_one_after_a_pause() -> None:
    child, engine, sent = Said(), Said(), list[bytes]()
    telling = Telling(child, sent.append)
    assert child.tell
    for n in range(1_000):
        child.reported, child.beat = Reported(n / 1_000, ""), True
        child.tell()
    hear(sent[0], engine)
    assert (engine.reported, engine.beat) == (Reported(0, ""), True)
    until(lambda: b"0.999" in sent[-1])
    hear(sent[-1], engine)
    assert engine.reported == Reported(0.999, "")
    telling.end()
    count = len(sent)
    assert 2 <= count < 1_000
    child.tell()
    assert len(sent) == count  # nothing comes between the reply and the next job
    assert PAUSE < 0.25  # which is how often the engine looks


def test_a_handler_of_signals_may_say_it_in_the_middle_of_another_word() -> None:
    child, sent = Said(), list[bytes]()

    def send(message: bytes) -> None:
        sent.append(message)
        assert child.tell
        child.tell()  # as in a signal that comes just now

    telling = Telling(child, send)
    assert child.tell
    thread = threading.Thread(target=child.tell, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    telling.end()
    assert len(sent) == 1


def test_a_process_that_the_handler_forked_says_nothing_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    run, sent = Said(), list[bytes]()
    Telling(run, sent.append)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert run.tell
    run.tell()
    assert sent == []
