"""run_until_idle: handlers called inline, in order, and what they raise."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from hipq import Answer, Failed, Hipq, Invalid, Job, JobFailed, Ok, Progress, Retry, StoreUnavailable, Wait, fixed
from hipq.testing import Harness, harness
from tests.servers import clean_database

SETTING: contextvars.ContextVar[str] = contextvars.ContextVar("SETTING", default="unset")


def names(ran: list[Any]) -> list[str]:
    return [run.name for run in ran]


def test_everything_due_runs_in_the_order_of_the_queue(app: Hipq, db: str) -> None:
    queue = app.queue("orders")
    pack = queue.job("pack")(lambda job: job.data)
    with harness(app, db=db) as shop:
        for number, priority in ((1, 200), (2, 50), (3, 100)):
            pack.enqueue(number, key=str(number), priority=priority)
        pack.enqueue(4, key="4", delay=1)
        ran = shop.run_until_idle()
        assert [run.key for run in ran] == ["2", "3", "1"]
        assert {run.at for run in ran} == {shop.now}
        assert [shop.assert_ok(pack, key).result for key in "123"] == [1, 2, 3]
        assert shop.run_until_idle() == []


def test_a_jobs_own_retry_strategy_is_what_judges_it(app: Hipq, db: str) -> None:
    @app.queue("orders").job(retry=fixed(1, attempts=9))
    def pack(_job: Job[Any]) -> None:
        raise ValueError("no")

    @app.retry_strategy("patient")
    def patient(job: Job[Any], _fault: Any) -> Retry | None:
        return Retry(3600) if job.failures < 3 else None

    with harness(app, db=db) as shop:
        pack.enqueue(key="a", retry=fixed(60, attempts=2))
        pack.enqueue(key="b", retry="patient")
        pack.enqueue(key="c", retry=None)
        with pytest.raises(Invalid, match="there are: patient"):
            pack.enqueue(retry="hasty")
        ran = shop.advance(hours=5)
        assert sorted(run.key for run in ran) == ["a", "a", "b", "b", "b", "c"]
        assert {shop.assert_failed(pack, key).failures for key in "abc"} == {1, 2, 3}


def test_each_outcome_is_saved_before_the_next_handler_begins(app: Hipq, shop: Harness) -> None:
    queue = app.queue("orders")
    seen: list[list[str]] = []

    @queue.job
    def look(_job: Job[Any]) -> None:
        seen.append([one.key for one in app.jobs("orders", oldest=True, state="final")])

    for key in "abc":
        look.enqueue(key=key)
    for _ in range(20):
        look.enqueue()
    shop.run_until_idle()
    assert seen[:3] == [[], ["a"], ["a", "b"]]
    assert [len(some) for some in seen] == list(range(23))


def test_what_a_job_adds_runs_too_in_other_queues_as_well(app: Hipq, db: str) -> None:
    orders, mails = app.queue("orders"), app.queue("mails")
    mail = mails.job("mail")(lambda job: job.data)

    @orders.job
    def order(job: Job[Any]) -> None:
        job.enqueue(mail, "chained")
        mail.enqueue("added")

    with harness(app, db=db) as shop:
        order.enqueue()
        assert names(shop.run_until_idle()) == ["order", "mail", "mail"]
        shop.assert_enqueued(mail, "chained", count=1)
        shop.assert_enqueued(mail, "added", count=1)


def test_more_queues_than_an_engine_asks_directly(app: Hipq, shop: Harness) -> None:
    types = [app.queue(f"queue_{letter}").job("work")(lambda _job: None) for letter in "abcdefghijklm"]
    for one in types:
        one.enqueue()
        one.enqueue(delay=60)
    assert len(shop.run_until_idle()) == 13
    assert len(shop.advance(minutes=1)) == 13
    shop.assert_empty()


@pytest.mark.parametrize("process", [False, True])
def test_handlers_run_in_this_thread_and_context(app: Hipq, shop: Harness, process: bool) -> None:
    queue = app.queue("orders")
    where: list[Any] = []

    @queue.job(process=process)
    def plain(_job: Job[Any]) -> None:
        where.append((threading.current_thread(), os.getpid(), SETTING.get()))

    token = SETTING.set("the test's")
    plain.enqueue()
    shop.run_until_idle()
    SETTING.reset(token)
    assert where == [(threading.current_thread(), os.getpid(), "the test's")]


def test_async_handlers_share_one_loop_in_this_thread(app: Hipq, shop: Harness) -> None:
    queue = app.queue("orders")
    where: list[Any] = []

    def note(*_: object) -> None:
        where.append((threading.current_thread(), SETTING.get()))

    @queue.job(retry=note)
    async def fetch(job: Job[Any]) -> str:
        await asyncio.sleep(0)
        note()
        where.append(asyncio.get_running_loop())
        await inner.aenqueue("from inside")
        if job.data == "bad":
            raise ValueError("bad data")
        return str(job.data)

    @queue.job
    async def inner(_job: Job[Any]) -> Wait:
        return Wait()

    @inner.answered
    async def came(_job: Job[Any], answer: Answer) -> Ok:
        await asyncio.sleep(0)
        return Ok(answer.data)

    token = SETTING.set("the test's")
    fetch.enqueue("good", key="good")
    fetch.enqueue("bad", key="bad")
    shop.replies(inner, "hello")
    ran = shop.run_until_idle()
    SETTING.reset(token)
    here = (threading.current_thread(), "the test's")
    assert [one for one in where if isinstance(one, tuple)] == [here] * 3  # the third is the retry handler
    assert len({id(one) for one in where if not isinstance(one, tuple)}) == 1
    assert sorted(names(ran)) == ["fetch", "fetch", "inner", "inner", "inner.answered", "inner.answered"]
    shop.assert_ok(fetch, "good", result="good")
    shop.assert_failed(fetch, "bad", error="bad data")
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_the_event_loop_is_closed_with_its_tasks_at_the_end(app: Hipq) -> None:
    queue = app.queue("orders")
    ends: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")

    @queue.job
    async def leaves_a_task(_job: Job[Any]) -> None:
        loops.append(asyncio.get_running_loop())
        loops[0].kept = asyncio.create_task(linger())  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    with harness(app) as shop:
        leaves_a_task.enqueue()
        shop.run_until_idle()
        assert not ends
    assert ends == ["cancelled"]
    assert loops[0].is_closed()


def test_answer_cancel_and_retry_handlers(app: Hipq, db: str) -> None:
    queue = app.queue("orders")
    told: list[str] = []

    @queue.job(timeout=3600)
    def charge(_job: Job[Any]) -> Wait:
        return Wait()

    @charge.answered
    def came(_job: Job[Any], answer: Answer) -> Any:
        if answer.data == "pending":
            return Progress()
        if answer.data == "broken" and len(told) < 3:
            told.append("answer handler")
            raise RuntimeError("cannot read this yet")
        return Ok(answer.data)

    @charge.cancelled
    def off(job: Job[Any]) -> None:
        told.append(f"called off {job.key}")

    @charge.retry
    def judge(_job: Job[Any], fault: Any) -> Retry | None:
        told.append(f"retry: {fault.kind}")
        return None

    with harness(app, db=db) as shop:
        charge.enqueue(key="late")
        shop.run_until_idle()
        assert names(shop.advance(hours=1)) == ["charge.cancelled", "charge.retry"]
        assert told == ["called off late", "retry: timeout"]
        shop.assert_failed(charge, "late", error="answer", attempts=1)

        told[:] = []
        charge.enqueue(key="broken")
        shop.run_until_idle()
        charge.answer("broken", "pending")
        assert names(shop.run_until_idle()) == ["charge.answered"]
        charge.answer("broken", "broken")
        ran = shop.run_until_idle() + shop.advance(minutes=1)
        assert names(ran) == ["charge.answered"] * 4  # after 0, 1, 2 and 4 seconds
        assert [str(run.error) for run in ran] == ["cannot read this yet"] * 3 + ["None"]
        assert (ran[-1].at - ran[0].at) == timedelta(seconds=7)
        shop.assert_ok(charge, "broken", result="broken", attempts=1)

        charge.enqueue(key="no")
        shop.run_until_idle()
        charge.answer("no", "we do not like you", error=True)
        assert names(shop.run_until_idle()) == ["charge.retry"]
        shop.assert_failed(charge, "no", error="we do not like you")

        told[:] = []
        job_id = charge.enqueue(key="stop")
        shop.run_until_idle()
        app.cancel(job_id)
        assert names(shop.run_until_idle()) == ["charge.cancelled"]
        shop.assert_failed(job_id, error="cancelled")
        shop.assert_empty()


def test_what_a_handler_raises_is_the_jobs_error(app: Hipq, shop: Harness) -> None:
    queue = app.queue("orders")

    @queue.job(retry=fixed(60, attempts=2))
    def work(job: Job[Any]) -> None:
        raise (SystemExit(3) if job.data == "exit" else ValueError(job.data))

    work.enqueue("first", key="1")
    work.enqueue("exit", key="2")
    ran = shop.run_until_idle()
    assert [type(run.error) for run in ran] == [ValueError, SystemExit]
    shop.assert_scheduled(work, "1", at=timedelta(seconds=60), error="ValueError: first", attempts=1)
    shop.advance(minutes=1)
    shop.assert_failed(work, "1", error="first", attempts=2)


def test_raise_errors_raises_the_first_with_its_traceback_and_saves_it(app: Hipq, db: str) -> None:
    queue = app.queue("orders")
    ran: list[str] = []

    @queue.job
    def work(job: Job[Any]) -> None:
        ran.append(job.key)
        if job.key == "refused":
            raise Failed("expected")
        if job.key == "again":
            raise Retry(3600)
        deep_inside(job.key)

    def deep_inside(key: str) -> None:
        if key == "bad":
            raise ZeroDivisionError("no good")

    with harness(app, db=db) as shop:
        for key in ("refused", "again", "good", "bad", "never reached"):
            work.enqueue(key=key)
        with pytest.raises(ZeroDivisionError, match="no good") as raised:
            shop.run_until_idle(raise_errors=True)
        assert "deep_inside" in [entry.name for entry in raised.traceback]
        assert ran == ["refused", "again", "good", "bad"]
        shop.assert_failed(work, "bad", error="no good")
        assert shop.job(work, "never reached").phase == "ready"
        assert names(shop.run_until_idle(raise_errors=True)) == ["work"]
        work.enqueue(key="bad", delay=30)
        with pytest.raises(ZeroDivisionError):
            shop.advance(hours=2, raise_errors=True)
        shop.assert_scheduled(work, "again", at=timedelta(seconds=3570))


def test_raise_errors_is_about_retry_handlers_throttlers_and_async_ones_too(app: Hipq, shop: Harness) -> None:
    def picky(_due: list[Job[Any]], _running: list[Job[Any]], _now: Any) -> Any:
        raise LookupError("who is that")

    def bad_judge(_job: Job[Any], _fault: Any) -> None:
        raise KeyError("policy")

    orders, throttled = app.queue("orders"), app.queue("throttled", throttler=picky)
    plain = orders.job("plain", retry=bad_judge)(lambda _job: 1 / 0)
    never = throttled.job("never")(lambda _job: None)

    @orders.job
    async def waits(_job: Job[Any]) -> None:
        await asyncio.sleep(0)
        raise EOFError("end")

    for job_type, error in ((plain, KeyError), (waits, EOFError), (never, LookupError)):
        job_type.enqueue()
        with pytest.raises(error):
            shop.run_until_idle(raise_errors=True)
    shop.run_until_idle()
    assert [job.phase for job in app.jobs("throttled")] == ["ready"]


class Stop(BaseException):
    """As pytest.fail and Ctrl-C are."""


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_what_is_meant_for_the_test_ends_the_run_at_once(app: Hipq, shop: Harness, kind: str) -> None:
    queue = app.queue("orders")
    ran: list[str] = []

    def plain(job: Job[Any]) -> None:
        ran.append(job.key)
        if job.key == "1":
            raise Stop("the test is over")

    async def slow(job: Job[Any]) -> None:
        plain(job)

    work = queue.job("work")(plain if kind == "plain" else slow)
    for key in "12":
        work.enqueue(key=key)
    with pytest.raises(Stop):
        shop.run_until_idle()
    assert ran == ["1"]
    assert names(shop.run_until_idle()) == ["work"]
    shop.assert_failed(work, "1", error="the test is over")
    shop.assert_ok(work, "2")


def test_pytests_own_outcomes_and_a_debuggers_quit_are_meant_for_the_test(app: Hipq, shop: Harness) -> None:
    import bdb

    queue = app.queue("orders")
    raising: list[BaseException] = [bdb.BdbQuit(), KeyboardInterrupt()]

    @queue.job
    def work(job: Job[Any]) -> None:
        if job.data == "fail":
            pytest.fail("a fake was called wrongly")
        raise raising.pop()

    work.enqueue()
    with pytest.raises(KeyboardInterrupt):
        shop.run_until_idle()
    work.enqueue()
    with pytest.raises(bdb.BdbQuit):
        shop.run_until_idle()
    work.enqueue("fail")
    with pytest.raises(pytest.fail.Exception, match="called wrongly"):
        shop.run_until_idle()


def test_a_job_that_adds_itself_is_stopped(app: Hipq) -> None:
    queue = app.queue("orders")

    @queue.job
    def again(job: Job[Any]) -> None:
        job.enqueue(again, job.data + 1)

    with harness(app, max_jobs=50) as shop:
        again.enqueue(0)
        with pytest.raises(
            RuntimeError, match=r"51 jobs have run at 2027-01-15T08:00:00.* does one add itself"
        ) as raised:
            shop.run_until_idle()
        assert "max_jobs=" in str(raised.value)
        assert "again '" in str(raised.value)
        assert len(app.jobs("orders", state="final")) == 51
        assert app.jobs.count("orders", live=True) == 1


def test_many_jobs_over_time_are_no_endless_loop(app: Hipq) -> None:
    queue = app.queue("orders")

    @queue.job
    def again(job: Job[Any]) -> None:
        job.enqueue(again, delay=60)

    with harness(app, max_jobs=5) as shop:
        again.enqueue()
        assert len(shop.advance(hours=1)) == 61


def test_a_handler_cannot_turn_the_clock_or_wait_for_others(app: Hipq, shop: Harness) -> None:
    queue = app.queue("orders")

    @queue.job
    def work(job: Job[Any]) -> None:
        if job.data == "advance":
            shop.advance(hours=1)
        else:
            app.result(other)

    other = queue.job("other")(lambda _job: None).enqueue(delay=60)
    for data in ("advance", "result"):
        work.enqueue(data, key=data)
    assert [type(run.error) for run in shop.run_until_idle()] == [Invalid, Invalid]
    shop.assert_failed(work, "advance", error="a handler cannot let time pass")


def test_a_result_is_waited_for_by_running_what_is_due(app: Hipq, db: str) -> None:
    queue = app.queue("orders")
    work = queue.job("work")(lambda job: job.data * 2)
    with harness(app, db=db) as shop:
        assert app.result(work.enqueue(21)) == 42
        later = work.enqueue(1, delay=60)
        with pytest.raises(TimeoutError, match=r"waiting for it lets no time pass: advance"):
            app.result(later, timeout=5)
        shop.advance(minutes=1)
        assert app.result(later) == 2
        with pytest.raises(JobFailed):
            app.result(work.enqueue(None))

        async def from_async_code() -> Any:
            return await app.aresult(await work.aenqueue(4))

        assert asyncio.run(from_async_code()) == 8


def test_code_and_queues_may_be_declared_in_the_test(app: Hipq, shop: Harness) -> None:
    assert shop.run_until_idle() == []  # an app without queues
    first = app.queue("first")
    first.enqueue("later_known", key="1")
    assert shop.run_until_idle() == []
    known = first.job("later_known")(lambda _job: "known")
    second = app.queue("second").job("other")(lambda _job: "other")
    second.enqueue(key="2")
    assert sorted(names(shop.run_until_idle())) == ["later_known", "other"]
    shop.assert_ok(known, "1", result="known")
    shop.assert_ok(second, "2", result="other")


def test_an_open_transaction_is_one_sentence_and_no_endless_wait(app: Hipq) -> None:
    queue = app.queue("orders")
    hold = "SELECT 1 FROM shop_orders WHERE id = %s FOR UPDATE"
    with clean_database() as url, harness(app, db=url) as shop, psycopg.connect(url) as mine:

        @queue.job
        def work(job: Job[Any]) -> None:
            if job.data == "hold":
                mine.execute(hold, (job.id,))

        work.enqueue("hold", key="held")
        with pytest.raises(StoreUnavailable, match="a transaction that is still open holds a job"):
            shop.run_until_idle()
        mine.rollback()
        shop.run_until_idle()
        shop.assert_ok(work, "held", attempts=1)

        later = work.enqueue(key="later", delay=60)
        mine.execute(hold, (later,))
        with pytest.raises(StoreUnavailable, match="a transaction that is still open holds a job"):
            shop.advance(minutes=5)
        mine.rollback()
        shop.run_until_idle()
        shop.assert_ok(later)
