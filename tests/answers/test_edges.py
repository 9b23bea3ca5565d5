"""Where two rules about answers meet: memory and failures, lifetimes and silence, crashes and call-offs."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import Any

import pytest

from hipq import Failed, Hipq, Invalid, Job, NotFound, Progress, Queue, Retry, StoreUnavailable, Wait, fixed
from hipq.engine import prune
from hipq.engine.loop import Engine
from hipq.stores import inbox_transaction
from hipq.testing.clock import HandClock
from tests.engine.working import until
from tests.their_connection import committed

Run = Callable[[], None]


def test_an_id_is_known_as_long_as_its_job_has_the_answer_before_it(queue: Queue, run: Run, clock: HandClock) -> None:
    """However long that is, and for as long again as the queue says after it was looked at."""
    seen: list[Any] = []
    ask = queue.job("ask", timeout=10 * 86_400)(lambda _: Wait())

    @ask.answered
    def look(_: Job[Any], answer: Any) -> Progress:
        if len(seen) < 1:
            seen.append("failed")
            raise OSError
        seen.append(answer.data)
        return Progress()

    ask.enqueue(key="k")
    run()
    assert ask.answer("k", "40 %", answer_id="m") == "matched"
    clock.advance(hours=25)
    assert ask.answer("k", "40 %", answer_id="m") == "duplicate", "nobody has looked yet"
    run()
    clock.advance(seconds=1)
    run()
    assert seen == ["failed", "40 %"]
    clock.advance(hours=23)
    run()
    assert ask.answer("k", "40 %", answer_id="m") == "duplicate"
    clock.advance(hours=2)
    run()
    assert ask.answer("k", "40 %", answer_id="m") == "matched"


def test_a_job_whose_answer_is_gone_waits_for_another(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    ask = queue.job("ask", timeout=60)(lambda _: Wait())
    ask.answered(lambda _, answer: answer.data)
    job_id = ask.enqueue(key="k")
    run()
    ask.answer("k", 1)
    (kept,) = app.answers.list()
    row = app.store.get(job_id)
    assert row
    assert not app.store.drop_answer(kept.id), "not by the front door"
    _behind_its_back(app, f"DELETE FROM hipq_answers WHERE id = {kept.id}")
    run()
    assert app.job(job_id).phase == "waiting"
    clock.advance(seconds=61)
    run()
    assert app.job(job_id).code == "error"


def _behind_its_back(app: Hipq, query: str) -> None:
    if app.url.startswith("sqlite"):
        with closing(sqlite3.connect(app.url.removeprefix("sqlite:///"), isolation_level=None)) as file:
            file.execute(query)
    else:
        with committed(app.url) as conn:
            conn.execute(query)


def test_silence_that_means_again_ends_with_the_jobs_lifetime(
    app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    ask = queue.job("ask", lifetime=60)(lambda _: Wait(timeout=10, on_timeout=Retry(1)))
    job_id = ask.enqueue()
    for _ in range(9):
        run()
        clock.advance(seconds=11)
    assert (app.job(job_id).state, app.job(job_id).code) == ("final", "error")
    assert app.job(job_id).attempt <= 7


@pytest.mark.parametrize("cause", ["time-out", "cancel"])
def test_a_cancel_handler_that_kills_its_process_changes_nothing(
    app: Hipq, queue: Queue, run: Run, clock: HandClock, cause: str
) -> None:
    ask = queue.job("ask", timeout=10, process=True, retry=fixed(60, attempts=5))(lambda _: Wait())
    ask.cancelled(lambda _: os._exit(7))
    job_id = ask.enqueue(key="k")
    run()
    if cause == "cancel":
        app.cancel(job_id)
    else:
        clock.advance(seconds=11)
    run()
    job = app.job(job_id)
    if cause == "cancel":
        assert (job.state, job.code, job.exitcode) == ("final", "cancelled", 499)
    else:
        assert (job.state, job.failures) == ("retry", 1)
    assert "cancel handler failed" in [entry["event"] for entry in job.history]


def test_a_job_with_an_answer_before_it_is_called_off_when_it_is_cancelled(app: Hipq, queue: Queue, run: Run) -> None:
    told: list[str] = []
    ask = queue.job("ask")(lambda _: Wait())
    ask.answered(lambda *_: Progress())
    ask.cancelled(lambda job: told.append(job.key))
    job_id = ask.enqueue(key="k")
    run()
    ask.answer("k", "40 %")
    app.cancel(job_id)
    assert app.job(job_id).phase == "cancelling"
    run()
    assert (app.job(job_id).code, app.job(job_id).exitcode, told) == ("cancelled", 499, ["k"])
    assert [one.state for one in app.answers.list()] == ["late"]


@pytest.mark.parametrize("clock", [None], ids=["real"])
def test_a_retry_handler_that_takes_too_long_over_an_answer_ends_the_job(app: Hipq, queue: Queue) -> None:
    over = threading.Event()
    ask = queue.job("ask", run_timeout=1, retry=lambda *_: over.wait(60) and None)(lambda _: Wait())
    job_id = ask.enqueue(key="k")
    app.run(until_empty=True)
    ask.answer("k", "no", error=True)
    try:
        app.run(until_empty=True)
    finally:
        over.set()
    assert app.job(job_id).code == "error"
    assert "retry handler ran longer" in app.job(job_id).error


def test_many_answers_to_other_attempts_do_not_hide_the_right_one(
    app: Hipq, queue: Queue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("inbox_transaction", "sql.inbox"):
        monkeypatch.setattr(f"hipq.stores.{file}.LOOKED_AT", 3)
    ask = queue.job("ask", fence="attempt")(lambda _: Wait())
    for n in range(7):
        ask.answer("k", n, attempt=7)
    ask.answer("k", "right", attempt=1)
    job_id = ask.enqueue(key="k")
    run()
    run()
    assert app.job(job_id).result == "right"
    assert [one.state for one in app.answers.list()] == ["late"] * 7 + ["settled"]


def test_without_a_fence_an_answer_to_an_earlier_attempt_stops_a_retry(
    app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    def fails(_: Job[Any]) -> None:
        raise OSError

    ask = queue.job("ask", retry=fixed(10, attempts=5))(fails)
    job_id = ask.enqueue(key="k")
    for _ in range(2):
        run()
        clock.advance(seconds=10)
    assert app.job(job_id).attempt == 2
    assert ask.answer("k", "paid", attempt=1) == "matched"
    run()
    assert app.result(job_id, timeout=5) == "paid"


def test_a_key_that_another_job_has_is_an_error_for_the_retry_handler(
    app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    asked: list[str] = []

    def judge(_: Job[Any], fault: Any) -> Retry | None:
        asked.append(str(fault))
        return Retry(5) if len(asked) == 1 else None

    ask = queue.job("ask", retry=judge)(lambda _: Wait(key="taken"))
    first, second = ask.enqueue(), ask.enqueue()
    run()
    phases = {job_id: app.job(job_id).phase for job_id in (first, second)}
    assert sorted(phases.values()) == ["scheduled", "waiting"]
    holder = next(job_id for job_id in phases if phases[job_id] == "waiting")
    assert f"another live ask job (id {holder}) has the key 'taken'" in asked[0]
    ask.answer("taken", 1)
    clock.advance(seconds=5)
    run()
    ask.answer("taken", 2)
    assert {app.result(first, timeout=5), app.result(second, timeout=5)} == {1, 2}


def test_no_turn_locks_more_keys_than_it_may_also_after_the_store_was_away(
    app: Hipq, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.store, "changes_at_once", 10)
    ask = queue.job("ask")(lambda _: Wait())
    ask.enqueue_many([None] * 50)
    engine = app.engine(concurrency=50)
    seen: list[int] = []
    turn = app.store.turn

    def away(engine_id: int, changes: Any, claims: Any, now: int) -> Any:
        seen.append(len(inbox_transaction.keys_to_lock(changes)))
        if seen[-1] > 0 and sum(count > 0 for count in seen) <= 4:
            raise StoreUnavailable("away")
        return turn(engine_id, changes, claims, now)

    monkeypatch.setattr(app.store, "turn", away)
    _drive(engine, lambda: len(app.jobs("orders", phase="waiting", limit=100)) == 50)
    assert max(seen) == 10


def _drive(engine: Engine, done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        try:
            engine.turn()
        except StoreUnavailable:
            pass
        time.sleep(0.005)
    engine.executor.close()


def test_engines_delete_old_answers_faster_than_they_come(
    app: Hipq, queue: Queue, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "STEP", 10)
    queue.job("ask")(lambda _: Wait())
    app.answer_many({"queue": "orders", "type": "ask", "key": f"k{n}", "data": n} for n in range(95))
    clock.advance(days=8)
    engine = app.engine()
    for _ in range(10):
        engine.turn()  # no time passes
    engine.executor.close()
    assert app.answers.list() == []


def test_who_waits_for_a_result_hears_that_the_app_was_closed(app: Hipq, queue: Queue) -> None:
    job_id = queue.job("ask")(lambda _: Wait()).enqueue()
    heard: list[BaseException] = []

    def wait() -> None:
        try:
            app.result(job_id)
        except BaseException as error:
            heard.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    until(lambda: app.database._results and app.database._results._waiting)
    app.close()
    thread.join(30)
    assert [type(error) for error in heard] == [StoreUnavailable]
    assert app.job(job_id).state == "initial", "it opens again when it is used again"
    with pytest.raises(TimeoutError):
        asyncio.run(app.aresult(job_id, timeout=0.05))


def test_code_that_could_never_be_called_is_refused(queue: Queue) -> None:
    ask = queue.job("ask")(lambda _: Wait())

    async def later(*_: Any) -> None: ...

    with pytest.raises(Invalid, match="on_late must be a plain function"):
        ask.on_late(later)
    no_code: Any = "charge"
    with pytest.raises(Invalid, match="an answer handler must be a function"):
        ask.answered(no_code)
    with pytest.raises(Invalid, match="a cancel handler must be a function"):
        ask.cancelled(no_code)
    with pytest.raises(Invalid, match='fence must be "attempt"'):
        queue.job("other", fence="key")(lambda _: None)


def test_an_error_that_says_nothing_is_told_as_one(app: Hipq, queue: Queue, run: Run) -> None:
    ask = queue.job("ask")(lambda _: Wait())
    ask.answered(lambda *_: Failed("not asked"))
    job_id = ask.enqueue(key="k")
    run()
    ask.answer("k", error=True)
    run()
    assert str(app.job(job_id).fault) == "answer: it says that the work failed"


def test_whoever_brings_the_answer_need_not_know_that_somebody_looks_at_it(
    app: Hipq, queue: Queue, run: Run, make_app: Callable[[], Hipq]
) -> None:
    """Nor that nobody does: the job says so itself."""
    ask, post = (queue.job(name)(lambda _: Wait()) for name in ("ask", "post"))
    ask.answered(lambda *_: Failed("declined"))
    web = make_app().queue("orders")
    web_ask, web_post = (web.job(name)(lambda _: Wait()) for name in ("ask", "post"))
    web_post.answered(lambda *_: Failed("not asked"))
    ids = [ask.enqueue(key="k"), post.enqueue(key="k")]
    run()
    assert [one.answer("k", "declined") for one in (web_ask, web_post)] == ["matched", "matched"]
    assert [app.job(job_id).phase for job_id in ids] == ["answered", "done"]
    run()
    assert [app.job(job_id).code for job_id in ids] == ["failed", "ok"]


def test_cancelling_twice_is_cancelling_once(app: Hipq, queue: Queue, run: Run) -> None:
    told: list[str] = []
    ask = queue.job("ask")(lambda _: Wait())
    ask.cancelled(lambda job: told.append(job.key))
    job_id = ask.enqueue(key="k")
    run()
    app.cancel(job_id, "first")
    app.cancel(job_id, "second")
    run()
    assert (told, app.job(job_id).exitcode, str(app.job(job_id).fault)) == (["k"], 499, "first")


def test_an_answer_whose_handler_took_its_process_down_three_times_is_used_up(
    app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    ask = queue.job("ask", process=True)(lambda _: Wait())
    ask.answered(lambda *_: os._exit(9))
    job_id = ask.enqueue(key="k")
    run()
    ask.answer("k", 1)
    for pause in (1, 2):  # it is called again after that
        run()
        assert app.job(job_id).state == "running"
        clock.advance(seconds=pause)
    run()
    assert (app.job(job_id).state, app.job(job_id).code) == ("final", "error")
    assert [one.state for one in app.answers.list()] == ["applied"]


def test_the_order_of_keys_in_a_body_does_not_make_another_of_it(queue: Queue, run: Run) -> None:
    ask = queue.job("ask")(lambda _: Wait())
    ask.enqueue(key="k")
    run()
    words = [ask.answer("k", data) for data in ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, {"a": 1, "b": [3]})]
    assert words == ["matched", "duplicate", "conflict"]


def test_who_waits_for_a_job_that_is_gone_hears_so(app: Hipq, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipq.answers.results.LONG", 0.05)
    job_id = queue.job("ask")(lambda _: Wait()).enqueue()
    _behind_its_back(app, "DELETE FROM shop_orders")
    with pytest.raises(NotFound):
        app.result(job_id, timeout=60)
    other = queue.enqueue("ask")
    threading.Timer(0.2, lambda: _behind_its_back(app, "DELETE FROM shop_orders")).start()
    with pytest.raises(NotFound):
        app.result(other, timeout=60)


def test_who_waits_for_a_result_waits_on_while_the_store_is_away(
    app: Hipq, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of its looks that meets."""
    monkeypatch.setattr("hipq.answers.results.LONG", 0.0)
    ask = queue.job("ask")(lambda _: None)
    job_id = ask.enqueue()
    get, ended, calls = app.store.get, app.store.ended, count()

    def away(*_: Any) -> Any:
        raise StoreUnavailable("away")

    row = app.jobs.row(job_id)
    monkeypatch.setattr(app.store, "get", lambda one_id: away() if next(calls) < 3 else get(one_id))
    monkeypatch.setattr(app.store, "ended", lambda ids: away() if next(calls) == 5 else ended(ids))
    timer = threading.Timer(0.3, lambda: app.run(until_empty=True))
    timer.start()
    assert app.database.results.of(row, 60).result == "null"
    timer.join()
