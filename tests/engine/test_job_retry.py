"""A job's own retry strategy: stored with it, and used by whichever program comes to judge it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hipq import Fault, Hipq, Invalid, Job, Queue, Retry, Wait, backoff, fixed, schedule
from hipq.job.retries import Strategy
from hipq.testing.clock import HandClock
from tests.their_connection import committed

Run = Callable[[], None]
MakeApp = Callable[[], Hipq]


def fail(_job: Job[Any]) -> None:
    raise ValueError("no")


def patient(job: Job[Any], fault: Fault) -> Retry | None:
    assert fault.is_a(ValueError, TimeoutError)
    return Retry(60) if job.failures < 2 else None


def execute(url: str, statement: str) -> None:
    """As another program would, in plain SQL."""
    with committed(url) as conn:
        conn.execute(statement)


def ended_after(app: Hipq, job_id: int, clock: HandClock, run: Run) -> int:
    """How often it has failed in the end."""
    for _ in range(10):
        run()
        if app.job(job_id).state == "final":
            return app.job(job_id).failures
        clock.advance(hours=1)
    raise AssertionError(app.job(job_id))


# -- ready-made ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("strategy", "times", "stored"),
    [
        (fixed(60, attempts=2), 2, {"strategy": "fixed", "delay": 60.0, "attempts": 2}),
        (schedule([1, 2, 3]), 4, {"strategy": "schedule", "delays": [1.0, 2.0, 3.0]}),
        (
            backoff(attempts=3, jitter=0, on=ValueError, never=KeyError),
            3,
            {"strategy": "backoff", "attempts": 3, "base": 1.0, "factor": 2.0, "cap": 3600.0, "jitter": 0,
             "on": ["ValueError"], "never": ["KeyError"]},
        ),
        (fixed(60, never=ValueError), 1, {"strategy": "fixed", "delay": 60.0, "attempts": 5, "never": ["ValueError"]}),
        (None, 1, {"strategy": "none"}),
        ("none", 1, {"strategy": "none"}),
    ],
)  # fmt: skip
def test_a_jobs_own_strategy_goes_before_its_types(
    app: Hipq, queue: Queue, run: Run, clock: HandClock, strategy: Any, times: int, stored: dict[str, Any]
) -> None:
    work = queue.job("work", retry=fixed(1, attempts=7))(fail)
    own, plain = work.enqueue(retry=strategy), work.enqueue()
    assert (app.job(own).retry, app.job(plain).retry) == (stored, None)
    assert ended_after(app, own, clock, run) == times
    assert ended_after(app, plain, clock, run) == 7
    assert app.job(own).retry == stored  # the final row has it, too


def test_its_pause_is_kept_where_the_type_has_no_retry_handler(app: Hipq, queue: Queue, run: Run) -> None:
    job_id = queue.job("work")(fail).enqueue(retry=fixed(60))
    run()
    job = app.job(job_id)
    assert (job.state, job.failures) == ("retry", 1)
    assert (job.scheduled_run_time - job.update_time).total_seconds() == 60


def test_every_way_of_adding_a_job_takes_it(app: Hipq, queue: Queue, url: str, run: Run, clock: HandClock) -> None:
    own = {"strategy": "fixed", "delay": 60.0, "attempts": 2}
    retry = fixed(60, attempts=2)
    work = queue.job("work")(lambda job: job.enqueue("child", retry=retry) if job.data == "parent" else None)
    queue.job("child")(fail)
    ids: list[int] = [work.enqueue("parent", retry=retry), *work.enqueue_many([1, 2], retry=retry)]
    ids += [*work.enqueue_many(range(300), retry=retry), queue.enqueue("work", 1, retry=retry)]
    ids += queue.enqueue_many("work", [1, 2], retry=retry)
    ids += [asyncio.run(work.aenqueue(1, retry=retry)), *asyncio.run(work.aenqueue_many([1, 2], retry=retry))]
    with committed(url) as conn:
        ids.append(work.enqueue(1, retry=retry, conn=conn))
    work.cron("* * * * *", name="tick", retry=retry)
    run()
    clock.advance(minutes=1)
    run()
    ids += [job.id for job in app.jobs("orders", oldest=True, type="child")]
    ids += [job.id for job in app.jobs("orders", oldest=True, key="cron:tick")]
    assert len(ids) == 312
    assert [app.job(job_id).retry for job_id in ids] == [own] * 312


def test_an_async_handler_and_one_in_a_process_have_theirs(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    app.retry_strategy("patient")(patient)

    @queue.job
    async def slow(_job: Job[Any]) -> None:
        raise ValueError("no")

    ids = [slow.enqueue(retry="patient"), queue.job("apart", process=True)(fail).enqueue(retry="patient")]
    assert [ended_after(app, job_id, clock, run) for job_id in ids] == [2, 2]


# -- code, by its name -----------------------------------------------------------------------------------------------
def test_an_engine_without_the_named_code_leaves_the_job_to_one_that_has_it(
    app: Hipq, queue: Queue, make_app: MakeApp, run: Run, clock: HandClock
) -> None:
    queue.job("work", retry=fixed(1))(fail)
    producer, other = make_app(), make_app()
    job_id = producer.queue("orders").enqueue("work", retry="patient")
    assert producer.job(job_id).retry == {"registered": "patient"}
    run()  # comes back: for this program there is nothing more to do
    assert (app.job(job_id).state, app.job(job_id).phase, app.job(job_id).failures) == ("error", "deciding", 1)
    why = app.why(job_id)
    assert why.reason == "deciding"
    assert "no engine is alive" in why.sentence
    other.queue("orders").job("work", retry=fixed(1))(fail)
    other.retry_strategy("patient")(patient)
    other.run(until_empty=True)
    job = app.job(job_id)
    assert (job.state, job.phase, job.attempt) == ("retry", "scheduled", 1)
    assert (job.scheduled_run_time - job.update_time).total_seconds() == 60
    clock.advance(minutes=1)
    run()
    other.run(until_empty=True)
    assert (app.job(job_id).state, app.job(job_id).failures) == ("final", 2)


def test_what_is_left_for_others_holds_nobody_up_and_is_explained(
    app: Hipq, queue: Queue, make_app: MakeApp, run: Run
) -> None:
    queue.job("work")(fail)
    strangers = make_app().queue("orders").enqueue_many("work", [None] * 20, retry="patient")
    run()
    mine = queue.enqueue("work", retry=fixed(60))
    engine = app.engine()
    try:
        while app.job(mine).state != "retry":
            engine.turn()
        assert {app.job(job_id).phase for job_id in strangers} == {"deciding"}
        sentence = app.why(strangers[0]).sentence
        assert "no engine in which the retry strategy patient is registered is alive" in sentence
    finally:
        engine.stop()
        engine.run()
        engine.executor.close()


def test_a_wait_that_timed_out_is_judged_by_the_named_code(
    app: Hipq, queue: Queue, make_app: MakeApp, run: Run, clock: HandClock
) -> None:
    queue.job("work", timeout=10)(lambda _: Wait())
    job_id = make_app().queue("orders").enqueue("work", timeout=10, retry="patient")
    run()
    clock.advance(seconds=11)
    run()
    assert (app.job(job_id).state, app.job(job_id).phase) == ("error", "deciding")
    app.retry_strategy("patient")(patient)
    run()
    assert (app.job(job_id).state, app.job(job_id).phase) == ("retry", "scheduled")


@pytest.mark.parametrize(
    ("retry", "sentence"),
    [
        ("pateint", r"no retry strategy is registered under the name 'pateint' \(there are: patient\): register it"),
        (patient, r"register this function with @app.retry_strategy\(name\) and give its name"),
        (3, r"a job's retry is backoff\(...\), fixed\(...\), schedule\(...\), a registered name, or None: not 3"),
        ("backoff", r"write retry=backoff\(...\)"),
    ],
)
def test_what_is_no_strategy_is_refused_where_it_is_written(app: Hipq, queue: Queue, retry: Any, sentence: str) -> None:
    app.retry_strategy("patient")(patient)
    work = queue.job("work")(fail)
    for add in (lambda: work.enqueue(retry=retry), lambda: work.cron("* * * * *", retry=retry)):
        with pytest.raises(Invalid, match=sentence):
            add()
    assert app.jobs.count("orders") == 0


def test_a_name_is_registered_once_and_is_not_that_of_a_ready_made_one(app: Hipq) -> None:
    app.retry_strategy("patient")(patient)
    with pytest.raises(Invalid, match="registered under the name patient already"):
        app.retry_strategy("patient")(patient)
    with pytest.raises(Invalid, match="backoff is the name of a ready-made retry strategy"):
        app.retry_strategy("backoff")
    with pytest.raises(Invalid, match=r"a function \(job, fault\); not 3"):
        app.retry_strategy("three")(3)  # type: ignore[arg-type]


def test_a_program_with_the_handler_and_no_strategies_knows_that_it_has_none(queue: Queue) -> None:
    with pytest.raises(Invalid, match=r"\(there are: none\)"):
        queue.job("work")(fail).enqueue(retry="patient")


def test_what_no_program_could_have_stored_ends_the_job_with_a_sentence(
    app: Hipq, queue: Queue, url: str, run: Run
) -> None:
    job_id = queue.job("work")(fail).enqueue(delay=0)
    execute(url, """UPDATE shop_orders SET meta = '{"retry":{"strategy":"of tomorrow"}}'""")
    run()
    job = app.job(job_id)
    assert job.state == "final"
    assert "its retry handler raised" in job.error


# -- what becomes of it ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("strategy", [fixed(60, attempts=2), "patient"])
def test_it_outlives_a_history_that_is_lost_and_comes_along_when_the_job_is_run_again(
    app: Hipq, queue: Queue, url: str, run: Run, clock: HandClock, strategy: Strategy | str
) -> None:
    app.retry_strategy("patient")(patient)
    job_id = queue.job("work", retry=fixed(1, attempts=9))(fail).enqueue(key="a", retry=strategy)
    run()
    execute(url, "UPDATE shop_orders SET history = '[]'")
    assert ended_after(app, job_id, clock, run) == 2
    again = app.jobs.requeue(job_id)
    assert app.job(again).retry == app.job(job_id).retry
    assert ended_after(app, again, clock, run) == 2
    assert app.jobs.requeue_all("orders", key="a").changed == 1
    (third,) = app.jobs("orders", key="a", state="initial")
    assert ended_after(app, third.id, clock, run) == 2
