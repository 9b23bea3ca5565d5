"""How often a throttler is asked, and about what: as often as there is a reason to, and about every job in time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from hipq import Hipq, Invalid, Job, Wait, admit, limit, share, window
from hipq.errors import StoreUnavailable

pytestmark = pytest.mark.every_store


@pytest.fixture
def app(url: str) -> Iterator[Hipq]:
    app = Hipq("shop", url)
    app.migrate()
    yield app
    app.close()


def nothing(_: Job[Any]) -> None: ...


def test_a_throttler_that_refuses_is_asked_about_once_a_second(app: Hipq) -> None:
    asked: list[int] = []

    def refuses(due: list[Job[Any]], _running: list[Job[Any]], _now: datetime) -> None:
        asked.append(len(due))

    queue = app.queue("orders", throttler=refuses)
    queue.job("work")(nothing)
    queue.enqueue("work")
    engine = app.engine()
    thread = threading.Thread(target=engine.run)
    began = time.monotonic()
    thread.start()
    while len(asked) < 3 and time.monotonic() < began + 60:
        time.sleep(0.05)
    took = time.monotonic() - began
    engine.stop()
    thread.join(60)
    engine.executor.close()
    assert 3 <= len(asked) <= 2 + 2 * took, (asked, took)


def test_until_empty_returns_when_all_that_is_left_was_refused(app: Hipq) -> None:
    queue = app.queue("orders", throttler=lambda due, _running, _now: [admit(job) for job in due if job.data])
    queue.job("work")(nothing)
    ids = queue.enqueue_many("work", [True, False, True])
    app.run(until_empty=True)
    assert [app.job(job_id).phase for job_id in ids] == ["done", "parked", "done"]


def test_jobs_behind_the_first_page_have_their_turn_though_jobs_end_all_the_time(
    app: Hipq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hipq.engine.throttle.PAGE", 50)

    def three_each(due: list[Job[Any]], running: list[Job[Any]], _now: datetime) -> Iterator[Any]:
        busy = Counter(job.data for job in running)
        for job in due:
            if busy[job.data] < 3:
                busy[job.data] += 1
                yield admit(job)

    queue = app.queue("orders", throttler=three_each)
    ran: list[str] = []

    @queue.job
    def work(job: Job[Any]) -> None:
        ran.append(job.data)
        time.sleep(0.01)

    queue.enqueue_many("work", ["one"] * 400)
    late = queue.enqueue_many("work", ["two"] * 10)
    engine = app.engine()
    thread = threading.Thread(target=engine.run)
    thread.start()
    until = time.monotonic() + 60
    while any(app.job(job_id).state != "final" for job_id in late) and time.monotonic() < until:
        time.sleep(0.05)
    engine.stop()
    thread.join(60)
    engine.executor.close()
    assert all(app.job(job_id).state == "final" for job_id in late)
    before = ran[: max(n for n, data in enumerate(ran) if data == "two")].count("one")
    assert before < 400, "they did not have to wait for all others"


def test_an_answer_that_finds_no_free_hand_gives_the_ticket_back(app: Hipq) -> None:
    ask, answer = threading.Event(), threading.Event()

    def slow(due: list[Job[Any]], _running: list[Job[Any]], _now: datetime) -> list[Any]:
        ask.set()
        answer.wait(60)
        return [admit(job) for job in due]

    throttled, other = app.queue("orders", throttler=slow), app.queue("other")
    throttled.job("work")(nothing)
    release = threading.Event()
    other.job("hog")(lambda _job: release.wait(60))
    throttled.enqueue("work")
    engine = app.engine(concurrency=1)
    thread = threading.Thread(target=engine.run)
    thread.start()
    assert ask.wait(30)
    other.enqueue("hog")
    while not other.running_jobs:
        time.sleep(0.01)
    answer.set()
    again = Hipq("shop", app.url)
    free = again.queue("orders", throttler=slow)
    free.job("work")(nothing)
    again.run(["orders"], until_empty=True)
    assert [job.state for job in again.jobs("orders")] == ["final"]
    release.set()
    engine.stop()
    thread.join(60)
    engine.executor.close()
    again.close()


def test_a_program_that_adds_jobs_learns_of_limits_before_it_refuses_any(app: Hipq) -> None:
    app.queue("orders", limits=[limit(10), share({"east": 50})]).job("work")(nothing)
    app.run(until_empty=True)
    program = Hipq("shop", app.url)
    adds = program.queue("orders")
    with pytest.raises(Invalid, match="share"):
        adds.enqueue("work", lane="west")
    with pytest.raises(Invalid, match="above"):
        adds.enqueue("work", lane="east", throttle_factor=9)
    app.rules.set_limit("orders", [limit(100), share({"east": 50, "west": 50})])
    adds.enqueue("work", lane="west")
    adds.enqueue("work", lane="east", throttle_factor=50)
    program.close()


def test_the_first_change_of_a_limit_keeps_the_others_of_the_code(app: Hipq) -> None:
    queue = app.queue("orders", limits=[limit(10), share({"east": 50})])
    app.rules.set_limit("orders", 4)  # no engine has ever been here
    assert [str(one) for one in queue.rules.in_force] == ["limit 4", "shares east 50 %"]


def test_a_child_process_does_not_ask_for_the_time(app: Hipq, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = app.queue("orders")
    queue.job("work", process=True, windows=[window("00:00", "24:00")])(lambda job: job.data)
    job_id = queue.enqueue("work", 5)
    engine = app.engine()
    monkeypatch.setattr(engine.executor._launcher, "_now", lambda: (_ for _ in ()).throw(StoreUnavailable("away")))  # type: ignore[attr-defined]
    engine.run(until_empty=True)
    engine.executor.close()
    assert (app.job(job_id).code, app.job(job_id).result) == ("ok", 5)


def test_what_waits_keeps_its_units_and_until_empty_does_not_wait_for_it(app: Hipq) -> None:
    queue = app.queue("orders", throttle_limit=1)
    queue.job("work", timeout=3600)(lambda _job: Wait())
    ids = queue.enqueue_many("work", range(2))
    app.run(until_empty=True)
    assert [app.job(job_id).phase for job_id in ids] == ["waiting", "ready"]
