"""Threads, tasks, processes: where handlers run, and how they are stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hipq import Failed, Hipq, Job, Queue, Retry, backoff, fixed
from hipq.engine.launch import Launcher
from hipq.engine.settle import settle
from hipq.engine.timetable import TIDYING
from hipq.executors.execution import Execution
from hipq.executors.processes import _silent
from hipq.job import transitions
from hipq.job.fault import Fault
from hipq.job.model import Change
from hipq.job.run_result import Crashed, Decided, Errored, RunResult
from hipq.stores.claims import Claim
from tests.engine.working import one_store

Run = Callable[[], None]


@pytest.fixture
def clock() -> None:
    """Real time: these handlers really take it."""


def test_plain_handlers_overlap(app: Hipq, queue: Queue) -> None:
    barrier = threading.Barrier(5)
    queue.job("work")(lambda _: barrier.wait(60) and None)
    ids = queue.enqueue_many("work", range(5))
    app.run(until_empty=True, concurrency=5)
    assert {app.job(job_id).code for job_id in ids} == {"ok"}


def test_async_handlers_overlap_on_one_loop(app: Hipq, queue: Queue) -> None:
    seen: list[int] = []
    together = []

    @queue.job
    async def work(job: Job[int]) -> str:
        seen.append(job.data)
        while len(seen) < 5:
            await asyncio.sleep(0.001)
        together.append(threading.get_ident())
        return "done"

    ids = work.enqueue_many(range(5))
    app.run(until_empty=True, concurrency=5)
    assert {app.job(job_id).result for job_id in ids} == {"done"}
    assert len(set(together)) == 1


def test_an_async_handler_that_raises_is_judged(app: Hipq, queue: Queue, run: Run) -> None:
    @queue.job(retry=backoff(attempts=3, base=0.01))
    async def work(job: Job[Any]) -> int:
        if job.failures < 2:
            raise OSError("not yet")
        return job.attempt

    job_id = work.enqueue()
    until = time.monotonic() + 60
    while app.job(job_id).state != "final" and time.monotonic() < until:
        run()
    assert app.job(job_id).result == 3


class Odd:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@one_store
@pytest.mark.parametrize("value", [lambda: Retry(1, reason=ValueError("x")), lambda: Failed(Odd()), lambda: Odd()])  # type: ignore[arg-type]
def test_an_odd_outcome_costs_no_hand(app: Hipq, queue: Queue, value: Callable[[], Any]) -> None:
    queue.job("odd")(lambda _: value())
    queue.job("plain")(lambda _: "fine")
    odd = queue.enqueue_many("odd", range(3))
    plain = queue.enqueue("plain")
    engine = app.engine(concurrency=1)
    try:
        engine.run(until_empty=True)
    finally:
        engine.executor.close()
    assert app.job(plain).result == "fine"
    assert all(app.job(job_id).phase != "executing" for job_id in odd)


def test_an_async_handler_that_raises_cancelled_by_itself_is_an_error(app: Hipq, queue: Queue, run: Run) -> None:
    @queue.job
    async def work(_: Job[Any]) -> None:
        task = asyncio.create_task(asyncio.sleep(10))
        task.cancel()
        await task

    job_id = work.enqueue()
    run()
    assert app.job(job_id).code == "error"
    assert "CancelledError" in app.job(job_id).error


@one_store
def test_async_handlers_that_ignore_their_cancellation_are_replaced_and_counted(
    app: Hipq, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hipq.engine.timetable.TIDYING", 1_000_000)
    release = threading.Event()

    @queue.job(run_timeout=0.2)
    async def stubborn(_: Job[Any]) -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                pass

    @queue.job
    async def quick(_: Job[Any]) -> str:
        return "quick"

    ids = [stubborn.enqueue(), quick.enqueue()]
    engine = app.engine(concurrency=2)
    try:
        engine.run(until_empty=True)
        assert engine.executor.stuck(engine.setup.steady() + TIDYING) == 1
        assert [app.job(job_id).exitcode for job_id in ids] == [504, 200]
        stubborn.enqueue_many(range(1))
        engine.run()
        assert "outlived its time-out" in engine.unfit
    finally:
        release.set()
        engine.executor.close()


def test_closing_one_engine_does_not_wait_for_another(app: Hipq, queue: Queue) -> None:
    queue.job("work")(lambda _: None)
    first, second = app.engine(), app.engine()
    closed = threading.Thread(target=first.executor.close, daemon=True)
    closed.start()
    closed.join(30)
    assert not closed.is_alive()
    second.executor.close()


def test_a_retry_handler_that_kills_its_process_ends_alone(app: Hipq, queue: Queue, run: Run) -> None:
    """A suspect's retry handler runs apart as well."""
    from hipq.job import transitions
    from hipq.job.model import Change
    from hipq.stores.claims import Claim

    @queue.job
    def work(_: Job[Any]) -> None:
        raise ValueError

    @work.retry
    def deadly(_job: Job[Any], _fault: Any) -> None:
        os._exit(9)

    other = queue.job("other")(lambda _: None).enqueue()
    job_id = work.enqueue()
    engine_id = app.store.take_lease(60, "crashed")
    now = app.store.now()
    (row,) = app.store.turn(engine_id, [], [Claim(queue.number, ("work",), 1)], now).won
    app.store.turn(engine_id, [Change(row, transitions.rescued(row, now))], [], now)
    run()
    job = app.job(job_id)
    assert (job.state, job.code) == ("final", "error")
    assert job.fault is not None
    assert (job.fault.kind, "status 9" in job.fault.message) == ("crash", True)
    assert app.job(other).code == "ok"


def test_until_empty_waits_for_what_a_crashed_worker_left(app: Hipq, queue: Queue) -> None:
    from hipq.stores.claims import Claim

    queue.job("work")(lambda _: "done")
    job_id = queue.enqueue("work")
    engine_id = app.store.take_lease(1.0, "crashed")
    assert app.store.turn(engine_id, [], [Claim(queue.number, ("work",), 1)], app.store.now()).won
    app.run(until_empty=True, lease=1.0, poll=0.1)
    assert app.job(job_id).result == "done"


def test_process_handlers_run_elsewhere_closures_too(app: Hipq, queue: Queue, run: Run) -> None:
    secret = "closed over"

    @queue.job(process=True)
    def work(job: Job[Any]) -> dict[str, Any]:
        job.enqueue("child", {"from": os.getpid()})
        return {"pid": os.getpid(), "secret": secret}

    queue.job("child")(lambda job: job.data["from"])
    ids = work.enqueue_many(range(4))
    run()
    for job_id in ids:
        job = app.job(job_id)
        assert job.code == "ok", job.error
        assert job.result["pid"] != os.getpid()
        assert job.result["secret"] == secret
    children = app.jobs("orders", type="child")
    assert len(children) == 4
    assert {job.result for job in children} == {app.job(job_id).result["pid"] for job_id in ids}


def test_an_async_handler_may_run_in_a_process(app: Hipq, queue: Queue, run: Run) -> None:
    @queue.job(process=True)
    async def work(_: Job[Any]) -> int:
        await asyncio.sleep(0)
        return os.getpid()

    job_id = work.enqueue()
    run()
    assert app.job(job_id).result != os.getpid()


@one_store
@pytest.mark.parametrize("how", ["signal", "exit"])
def test_a_process_handler_that_dies_three_times_ends_alone(app: Hipq, queue: Queue, run: Run, how: str) -> None:
    @queue.job(process=True, retry=fixed(0, attempts=3))
    def work(job: Job[Any]) -> str:
        if job.data == "die":
            if how == "signal":
                os.kill(os.getpid(), signal.SIGSEGV)
            os._exit(3)
        return "fine"

    before, bad, after = work.enqueue_many(["live", "die", "live"])
    run()
    assert [app.job(job_id).code for job_id in (before, bad, after)] == ["ok", "error", "ok"]
    job = app.job(bad)
    assert job.fault is not None
    assert job.fault.kind == "crash"
    assert ("SIGSEGV" if how == "signal" else "status 3") in job.fault.message
    assert job.failures == 3
    assert job.attempt in (3, 4), "four, if it ran first in a process that had run another job"


@one_store
def test_a_process_a_handler_forked_answers_for_nobody(app: Hipq, queue: Queue) -> None:
    @queue.job(process=True)
    def forks(_: Job[Any]) -> str:
        if os.fork() == 0:
            time.sleep(0.2)
            raise SystemExit(0)
        return "parent"

    @queue.job(process=True)
    def after(job: Job[Any]) -> Any:
        time.sleep(0.4)
        return job.data

    first = forks.enqueue()
    ids = after.enqueue_many(range(3), delay=0.05)
    engine = app.engine(concurrency=1)
    thread = threading.Thread(target=engine.run)
    thread.start()
    until(lambda: app.job(ids[-1]).state == "final", "all are done")
    engine.stop()
    thread.join(60)
    engine.executor.close()
    assert app.job(first).result == "parent"
    assert [app.job(job_id).result for job_id in ids] == [0, 1, 2]


@one_store
def test_a_child_that_died_while_idle_is_not_blamed_on_the_next_job(app: Hipq, queue: Queue) -> None:
    queue.job("first", process=True)(lambda _: os.getpid())
    queue.job("innocent", process=True)(lambda _: "fine")
    first = queue.enqueue("first")
    engine = app.engine(concurrency=1)
    thread = threading.Thread(target=engine.run)
    thread.start()
    try:
        until(lambda: app.job(first).state == "final", "the first is done")
        child = app.job(first).result
        os.kill(child, signal.SIGKILL)
        executor: Any = engine.executor
        idle = executor._fork_server._idle  # a child that is dead and not yet reaped says nothing: no test of this rule
        until(
            lambda: not any(map(_silent, (one.connection for one in idle))),
            "the engine could know that its process is dead",
        )
        second = queue.enqueue("innocent")
        until(lambda: app.job(second).state == "final", "the second is done")
    finally:
        engine.stop()
        thread.join(60)
        engine.executor.close()
    assert (app.job(first).code, app.job(second).code) == ("ok", "ok")
    assert (app.job(second).attempt, app.job(second).crashes) == (1, 0)


@one_store
@pytest.mark.parametrize("odd", ["signal", "stdout", "str"])
def test_odd_ends_of_a_process_are_told_apart(app: Hipq, queue: Queue, run: Run, odd: str) -> None:
    class Bad(Exception):
        def __str__(self) -> str:
            raise SystemExit

    @queue.job(process=True, retry=lambda _, __: None)
    def work(_: Job[Any]) -> str:
        if odd == "signal":
            os.kill(os.getpid(), 40)
        if odd == "str":
            raise Bad
        sys.stdout.close()
        return "ok"

    job_id = work.enqueue()
    run()
    job = app.job(job_id)
    if odd == "stdout":
        assert (job.result, job.attempt) == ("ok", 1)
    else:
        assert (job.state, job.code) == ("final", "error")
        assert ("signal 40" if odd == "signal" else "could not be had") in job.error


@one_store
def test_a_blocked_event_loop_asks_for_another_process(
    app: Hipq, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hipq.executors.tasks.DEAF", 0.3)
    release = threading.Event()

    @queue.job(run_timeout=0.1)
    async def blocks(_: Job[Any]) -> None:
        release.wait(60)

    blocks.enqueue()
    try:
        with pytest.raises(RuntimeError, match="must be replaced"):
            app.run(concurrency=1)
    finally:
        release.set()


def test_slow_retry_handlers_of_async_jobs_hold_up_nobody(app: Hipq, queue: Queue) -> None:
    release = threading.Event()
    queue.job("slow", retry=lambda _job, _fault: release.wait(60) and None)(_fails)
    queue.job("quick", retry=lambda _job, _fault: None)(_fails)
    queue.enqueue_many("slow", range(12))
    job_id = queue.enqueue("quick", delay=0.2)
    engine = app.engine(concurrency=20)
    thread = threading.Thread(target=engine.run)
    thread.start()
    try:
        until(lambda: app.job(job_id).state == "final", "the quick one is judged")
        assert {job.phase for job in app.jobs("orders", type="slow")} == {"executing"}, "the slow ones still think"
    finally:
        release.set()
        engine.stop()
        thread.join(60)
        engine.executor.close()


async def _fails(_: Job[Any]) -> None:
    raise ValueError


def test_a_nursery_that_died_costs_its_jobs_nothing_and_ends_the_worker(app: Hipq, queue: Queue) -> None:
    queue.job("work", process=True)(lambda _: "done")
    job_id = queue.enqueue("work")
    engine = app.engine()
    os.kill(engine.executor._fork_server.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    os.waitpid(engine.executor._fork_server.pid, 0)  # type: ignore[attr-defined]
    engine.run()
    engine.executor.close()
    assert "no child process" in engine.unfit
    job = app.job(job_id)
    assert (job.state, job.attempt, job.failures, job.crashes) == ("retry", 0, 0, 0)
    app.run(until_empty=True)
    assert app.job(job_id).result == "done"


@one_store
def test_run_timeout_of_a_thread_frees_its_place(app: Hipq, queue: Queue) -> None:
    release = threading.Event()
    try:

        @queue.job(run_timeout=0.2)
        def stuck(_: Job[Any]) -> str:
            release.wait(60)
            return "too late"

        queue.job("quick")(lambda _: "quick")
        slow = stuck.enqueue()
        quick = queue.enqueue_many("quick", range(3))
        engine = app.engine(concurrency=2)
        try:
            engine.run(until_empty=True)
            assert engine.executor.stuck(engine.setup.steady() + TIDYING) == 1
        finally:
            engine.executor.close()
        job = app.job(slow)
        assert (job.state, job.code, job.exitcode) == ("final", "error", 504)
        assert job.fault is not None
        assert job.fault.is_a(TimeoutError)
        assert {app.job(job_id).code for job_id in quick} == {"ok"}
    finally:
        release.set()


@one_store
def test_when_every_thread_is_stuck_the_process_asks_to_be_replaced(
    app: Hipq, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hipq.engine.timetable.TIDYING", 1_000_000)
    release = threading.Event()
    queue.job("stuck", run_timeout=0.1)(lambda _: release.wait(60) and None)
    queue.enqueue_many("stuck", range(2))
    try:
        with pytest.raises(RuntimeError, match="must be replaced"):
            app.run(concurrency=2)
    finally:
        release.set()


@one_store
def test_run_timeout_cancels_a_task(app: Hipq, queue: Queue, run: Run) -> None:
    cancelled = threading.Event()

    @queue.job(run_timeout=0.1)
    async def work(_: Job[Any]) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    job_id = work.enqueue()
    run()
    assert app.job(job_id).exitcode == 504
    assert cancelled.wait(30)


@one_store
def test_run_timeout_kills_a_process_and_what_it_started(app: Hipq, queue: Queue, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "pids"

    @queue.job(process=True, run_timeout=2)  # in which it has begun, on a machine however busy
    def work(_: Job[Any]) -> None:
        grandchild = os.fork()
        if grandchild == 0:
            time.sleep(60)
            os._exit(0)
        file.write_text(f"{os.getpid()} {grandchild}")
        time.sleep(60)

    job_id = work.enqueue()
    run()
    assert app.job(job_id).exitcode == 504
    for pid in map(int, file.read_text().split()):
        until = time.monotonic() + 60
        while _alive(pid):
            assert time.monotonic() < until, f"process {pid} outlived its time-out"
            time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_jobs_that_found_no_free_hand_are_given_back_once_not_again_and_again(app: Hipq, queue: Queue) -> None:
    """Quick handlers make an engine claim ahead; then all hands are taken by slow ones."""
    release = threading.Event()
    queue.job("work")(lambda job: release.wait(60) and None if job.data == "slow" else None)
    queue.enqueue_many("work", ["quick"] * 2000)
    engine = app.engine(concurrency=2)
    thread = threading.Thread(target=engine.run)
    thread.start()
    try:
        until(lambda: not app.jobs("orders", state="initial", limit=1), "the quick ones are done")
        waiting = queue.enqueue_many("work", ["slow"] * 2 + ["behind"] * 50)[2:]
        until(lambda: any(app.job(job_id).state == "retry" for job_id in waiting), "they are given back")
        time.sleep(2.5)
        given = [sum(entry["event"] == "given back" for entry in app.job(job_id).history) for job_id in waiting]
        assert max(given) <= 2, given
        release.set()
        until(lambda: all(app.job(job_id).code == "ok" for job_id in waiting), "they run after all")
        assert {app.job(job_id).attempt for job_id in waiting} == {1}
    finally:
        release.set()
        engine.stop()
        thread.join(60)
        engine.executor.close()


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, f"did not happen: {what}"
        time.sleep(0.01)


def test_slow_handlers_hoard_nothing(make_app: Callable[[], Hipq]) -> None:
    """What cannot be started soon is left to others: the second engine gets its share."""
    ran: list[str] = []
    apps = [make_app(), make_app()]
    for name, app in zip("ab", apps, strict=True):

        def work(_: Job[Any], name: str = name) -> None:
            time.sleep(0.05)
            ran.append(name)

        app.queue("orders").job("work")(work)
    apps[0].queues[0].enqueue_many("work", range(120))
    threads = [threading.Thread(target=app.run, kwargs={"until_empty": True, "concurrency": 2}) for app in apps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ran) == 120
    assert min(ran.count("a"), ran.count("b")) >= 10


def test_a_child_does_not_ask_the_database_for_the_time(app: Hipq, queue: Queue) -> None:
    """Its retry handler has `run_timeout`; a connection would take more of that than a short one has."""

    @queue.job(retry=lambda _, __: Retry(5))
    def work(_: Job[Any]) -> None:
        raise OSError("it broke")

    work.enqueue()
    claims = [Claim(queue.number, ("work",), 1)]
    (row,) = app.store.turn(app.store.take_lease(60, "by hand"), [], claims, app.store.now()).won

    def asked() -> int:
        raise AssertionError("it asked")

    launcher = Launcher(asked, app.database.steady, lambda _: queue.chained)
    reply = launcher.serve(
        msgspec.json.encode(("orders", row, None, 10**15)), lambda: False, lambda _: None, lambda _, __: work.spec
    )
    ending, *_ = msgspec.json.decode(reply, type=tuple[RunResult, list[Any], None, list[Any]])
    assert isinstance(ending, Decided)
    assert ending.again is not None
    assert ending.again.delay == 5


ASKED = Fault("error", "no child can be asked")


@pytest.mark.parametrize(
    ("crashes", "ending", "state"),
    [(0, Errored(ASKED), "final"), (1, Crashed(ASKED), "error"), (4, Crashed(ASKED), "final")],
    ids=["it could not be asked", "it crashed", "it crashed for the third time"],
)
def test_a_retry_handler_may_end_its_job_and_never_the_engine(
    app: Hipq, queue: Queue, crashes: int, ending: RunResult, state: str
) -> None:
    @queue.job(retry=lambda _, __: Retry(5))
    def work(_: Job[Any]) -> None: ...

    work.enqueue()
    engine_id, now = app.store.take_lease(60, "by hand"), app.store.now()
    (row,) = app.store.turn(engine_id, [], [Claim(queue.number, ("work",), 1)], now).won
    judged = replace(transitions.errored(row, Fault("error", "it broke"), 500, now), crashes=crashes)
    change = settle(Execution(judged, work.spec, 0).ended(ending), queue.order, now)
    assert (change.after.state, change.after.code) == (state, "error")
    if state == "final":
        assert change.event == "gave up"
        assert "no child can be asked" in change.after.error


def test_a_retry_handler_that_kills_its_process_is_asked_three_times(
    app: Hipq, queue: Queue, run: Run, tmp_path: Path
) -> None:
    """After it has taken a worker down with it, it is asked in a process apart."""

    def asked(_: Job[Any], __: Fault) -> None:
        with (tmp_path / "asked").open("a") as file:
            file.write("x")
        os._exit(9)

    @queue.job(retry=asked)
    def work(_: Job[Any]) -> None: ...

    job_id = work.enqueue()
    engine_id, now = app.store.take_lease(60, "by hand"), app.store.now()
    (row,) = app.store.turn(engine_id, [], [Claim(queue.number, ("work",), 1)], now).won
    suspect = replace(transitions.errored(row, Fault("error", "it broke"), 500, now), crashes=1)
    assert not app.store.turn(engine_id, [Change(row, suspect)], [], now).lost
    run()
    assert (app.job(job_id).state, app.job(job_id).code) == ("final", "error")
    assert (tmp_path / "asked").read_text() == "xxx"
