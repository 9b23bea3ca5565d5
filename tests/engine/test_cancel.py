"""Handlers whose jobs are cancelled while they run: each kind is told, soon, by whichever program, on both stores."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq, Job, Queue, Retry
from hipq.executors import processes
from tests.engine.working import one_store, real_time, until, working

SOON = 30.0
"""Far below the lease's third, at which an engine would have noticed anyway, and far above what it takes."""


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Where handlers, in whatever process, say what became of them."""
    return tmp_path / "told"


def says(told: Path, word: str) -> Callable[[], bool]:
    return lambda: told.exists() and word in told.read_text().split()


def say(told: Path, word: str) -> None:
    with told.open("a") as file:
        file.write(f"{word}\n")


def declare(queue: Queue, told: Path) -> None:
    @queue.job
    def thread(job: Job[Any]) -> str:
        say(told, "thread-began")
        while not job.cancelled:
            time.sleep(0.005)
        say(told, "thread-ended")
        return "too late"

    @queue.job
    async def task(_job: Job[Any]) -> None:
        say(told, "task-began")
        try:
            await asyncio.sleep(60)
        finally:
            say(told, "task-ended")

    @queue.job(process=True)
    def process(_job: Job[Any]) -> None:
        say(told, "process-began")
        try:
            time.sleep(60)
        finally:
            say(told, "process-ended")

    @queue.job(process=True)
    async def async_process(_job: Job[Any]) -> None:
        say(told, "async_process-began")
        try:
            await asyncio.sleep(60)
        finally:
            say(told, "async_process-ended")


@real_time
@pytest.mark.parametrize("kind", ["thread", "task", "process", "async_process"])
def test_a_running_handler_is_told_by_another_program(make_app: Callable[[], Hipq], told: Path, kind: str) -> None:
    app, other = make_app(), make_app()
    queue = app.queue("orders")
    declare(queue, told)
    names: list[str] = []
    app.events.subscribe(lambda event: names.append(event.name), "told to stop", "lost", "ok", "error", "again")
    job_id = queue.enqueue(kind)
    with working(app, lease=60.0):
        until(says(told, f"{kind}-began"))
        time.sleep(0.05)  # long enough for it to be looked after
        other.queue("orders")
        other.cancel(job_id, "not wanted")
        assert until(says(told, f"{kind}-ended")) < SOON
        until(lambda: "told to stop" in names)
    assert names == ["told to stop"]
    job = app.job(job_id)
    assert (job.state, job.code, job.exitcode, job.attempt) == ("final", "cancelled", 499, 1)
    assert str(job.fault) == "not wanted"


@real_time
@pytest.mark.parametrize("kind", ["thread", "task", "process", "async_process"])
def test_a_cancel_that_only_the_sweep_notices_is_a_cancel(
    app: Hipq, queue: Queue, told: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It compares what the engine has with what it owns, and finds that one is gone."""
    declare(queue, told)
    names: list[str] = []
    app.events.subscribe(lambda event: names.append(event.name), "told to stop", "lost", "handler stuck")
    job_id = queue.enqueue(kind)
    with working(app, concurrency=1, lease=1.0) as (engine,):
        monkeypatch.setattr(engine.lease, "drop_cancelled", lambda _now, _steady: None)
        until(says(told, f"{kind}-began"))
        app.cancel(job_id)
        until(says(told, f"{kind}-ended"))
    assert (names, engine.unfit) == (["told to stop"], "")
    assert app.job(job_id).exitcode == 499


@real_time
def test_the_only_hand_of_a_worker_may_be_deaf_to_a_cancel(
    app: Hipq, queue: Queue, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that takes no notice has its own time; the worker goes on with another one meanwhile."""
    go_on = threading.Event()

    @queue.job(run_timeout=30)
    def deaf(_job: Job[Any]) -> None:
        say(told, "began")
        go_on.wait(25)

    queue.job("quick")(lambda _: None)
    job_id = deaf.enqueue()
    with working(app, concurrency=1, lease=1.0) as (engine,):
        monkeypatch.setattr(engine.lease, "drop_cancelled", lambda _now, _steady: None)
        until(says(told, "began"))
        app.cancel(job_id)
        until(lambda: not engine.in_flight)
        after = queue.enqueue("quick")
        until(lambda: app.job(after).state == "final")
        assert engine.unfit == ""
        go_on.set()


@one_store
@real_time
def test_a_cancel_that_is_noticed_with_a_new_lease_is_a_cancel(
    app: Hipq, queue: Queue, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(queue, told)
    names: list[str] = []
    app.events.subscribe(lambda event: names.append(event.name), "told to stop", "lost")
    job_id = queue.enqueue("process")
    with working(app, lease=1.0) as (engine,):
        monkeypatch.setattr(engine.lease, "drop_cancelled", lambda _now, _steady: None)
        until(says(told, "process-began"))
        with monkeypatch.context() as lost:
            lost.setattr(app.store, "renew_lease", lambda _engine_id, _seconds: False)
            app.cancel(job_id)
            until(says(told, "process-ended"))
    assert names == ["told to stop"]


@real_time
def test_one_that_has_no_hand_yet_never_starts(make_app: Callable[[], Hipq], told: Path) -> None:
    app, other = make_app(), make_app()
    queue = app.queue("orders")
    go_on = threading.Event()

    @queue.job
    def blocking(_job: Job[Any]) -> None:
        go_on.wait(20)

    @queue.job
    def waiting(_job: Job[Any]) -> None:
        say(told, "ran")

    blocker, job_id = queue.enqueue("blocking"), queue.enqueue("waiting")
    with working(app, concurrency=1, lease=60.0):
        until(lambda: app.job(blocker).state == "running")
        other.queue("orders")
        other.cancel(job_id)
        go_on.set()
        until(lambda: app.job(blocker).state == "final")
    assert not told.exists()
    assert app.job(job_id).exitcode == 499


@real_time
def test_a_process_that_takes_no_notice_is_killed_and_so_is_what_it_started(
    app: Hipq, queue: Queue, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACE", 0.3)

    @queue.job(process=True)
    def deaf(_job: Job[Any]) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        say(told, f"{os.getpid()} {child.pid}")
        time.sleep(60)

    job_id = queue.enqueue("deaf")
    with working(app, lease=60.0):
        until(lambda: told.exists() and len(told.read_text().split()) == 2)
        pids = [int(word) for word in told.read_text().split()]
        app.cancel(job_id)
        until(lambda: not any(map(_alive, pids)), SOON)
    assert app.job(job_id).exitcode == 499


@real_time
def test_what_a_child_started_goes_with_it_when_it_dies(app: Hipq, queue: Queue, told: Path) -> None:
    @queue.job(process=True)
    def dies(_job: Job[Any]) -> None:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        say(told, str(child.pid))
        os.kill(os.getpid(), signal.SIGKILL)

    queue.enqueue("dies")
    with working(app):
        until(lambda: told.exists() and told.read_text().split())
        pids = [int(word) for word in told.read_text().split()]
        until(lambda: not any(map(_alive, pids)), SOON)


@one_store
@real_time
def test_a_handler_that_overran_is_told_too(app: Hipq, queue: Queue, told: Path) -> None:
    @queue.job(run_timeout=0.3)
    def endless(job: Job[Any]) -> None:
        while not job.cancelled:
            time.sleep(0.005)
        say(told, "ended")

    job_id = queue.enqueue("endless")
    with working(app) as (engine,):
        assert until(says(told, "ended")) < SOON
        until(lambda: app.job(job_id).state == "final")
        until(lambda: engine.executor.stuck(engine.setup.steady()) == 0)
    assert "ran longer than 0.3 s" in str(app.job(job_id).fault)


@real_time
def test_the_retry_handler_is_not_asked_about_a_job_that_was_cancelled(app: Hipq, queue: Queue, told: Path) -> None:
    @queue.job(process=True, retry=lambda _job, _fault: say(told, "asked"))
    def slow(_job: Job[Any]) -> None:
        say(told, "began")
        try:
            time.sleep(60)
        finally:
            say(told, "ended")

    job_id = queue.enqueue("slow")
    with working(app):
        until(says(told, "began"))
        time.sleep(0.05)
        app.cancel(job_id)
        until(says(told, "ended"))
    assert told.read_text().split() == ["began", "ended"]


@one_store
@real_time
def test_a_signal_that_is_not_the_engines_changes_nothing(app: Hipq, queue: Queue, told: Path) -> None:
    """A service manager sends it to all processes of a service: the engine lets handlers finish."""

    @queue.job(process=True)
    def work(_job: Job[Any]) -> str:
        say(told, str(os.getpid()))
        time.sleep(0.5)
        return "done"

    job_id = queue.enqueue("work")
    with working(app):
        until(lambda: told.exists() and told.read_text().split())
        os.kill(int(told.read_text()), signal.SIGTERM)
        until(lambda: app.job(job_id).state == "final")
    assert (app.job(job_id).result, app.job(job_id).attempt) == ("done", 1)


@real_time
def test_as_many_as_there_are_hands(app: Hipq, queue: Queue, told: Path) -> None:
    """Threads that take no notice until their own time is over: the worker goes on with others."""
    go_on = threading.Event()

    @queue.job(run_timeout=30)
    def deaf(_job: Job[Any]) -> None:
        say(told, "began")
        go_on.wait(20)

    @queue.job
    def quick(_job: Job[Any]) -> None: ...

    ids = queue.enqueue_many("deaf", range(2))
    with working(app, concurrency=2) as (engine,):
        until(lambda: told.exists() and len(told.read_text().split()) == 2)
        time.sleep(0.05)
        assert app.jobs.cancel_all("orders", state="running").changed == 2
        until(lambda: not engine.in_flight)
        job_id = queue.enqueue("quick")
        until(lambda: app.job(job_id).state == "final")
        assert engine.unfit == ""
        assert engine.executor.stuck(engine.setup.steady()) == 0
        assert engine.executor.stuck(engine.setup.steady() + 31_000_000) == 2
        go_on.set()
    assert [app.job(job_id).exitcode for job_id in ids] == [499, 499]


@one_store
@real_time
def test_a_process_past_its_time_is_killed_before_its_job_runs_again(app: Hipq, queue: Queue, told: Path) -> None:
    @queue.job(process=True, run_timeout=2, retry=lambda job, _fault: Retry(0) if job.attempt < 2 else None)
    def slow(job: Job[Any]) -> None:
        say(told, f"began-{job.attempt}")
        try:
            time.sleep(20)
        finally:
            say(told, f"ended-{job.attempt}")

    job_id = queue.enqueue("slow")
    with working(app):
        until(lambda: app.job(job_id).state == "final")
    assert told.read_text().split() == ["began-1", "began-2"]


@one_store
@real_time
@pytest.mark.parametrize("kind", ["thread", "task", "process"])
def test_a_worker_that_stops_lets_those_finish_that_were_told(app: Hipq, queue: Queue, told: Path, kind: str) -> None:
    @queue.job
    def thread(job: Job[Any]) -> None:
        say(told, "began")
        while not job.cancelled:
            time.sleep(0.005)
        time.sleep(0.5)
        say(told, "ended")

    @queue.job
    async def task(_job: Job[Any]) -> None:
        say(told, "began")
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.5)
            say(told, "ended")

    @queue.job(process=True)
    def process(_job: Job[Any]) -> None:
        say(told, "began")
        try:
            time.sleep(60)
        finally:
            time.sleep(0.5)
            say(told, "ended")

    job_id = queue.enqueue(kind)
    with working(app) as (engine,):
        until(says(told, "began"))
        time.sleep(0.05)
        app.cancel(job_id)
        until(lambda: not engine.in_flight)
    assert told.read_text().split() == ["began", "ended"]


@one_store
@real_time
def test_handlers_that_overran_have_a_moment_to_end(app: Hipq, queue: Queue) -> None:
    """All hands at once: they end by themselves, and the worker goes on."""

    @queue.job(run_timeout=0.2)
    def over(_job: Job[Any]) -> None:
        time.sleep(1)

    @queue.job
    def quick(_job: Job[Any]) -> None: ...

    queue.enqueue_many("over", range(2))
    with working(app, concurrency=2) as (engine,):
        until(lambda: app.jobs.count("orders", live=False) == 2)
        job_id = queue.enqueue("quick")
        until(lambda: app.job(job_id).state == "final")
        until(lambda: engine.executor.stuck(engine.setup.steady() + 60_000_000) == 0)
        assert engine.unfit == ""


def test_outside_a_handler_no_job_is_cancelled(app: Hipq, queue: Queue) -> None:
    job_id = queue.enqueue("anything")
    assert app.job(job_id).cancelled is False


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
