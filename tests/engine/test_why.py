"""Why a job does not run: one test a reason, on both stores, and what is said once the reason is gone."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from hipq import (
    Answer,
    Hipq,
    Invalid,
    Job,
    JobType,
    NotFound,
    Progress,
    Queue,
    Wait,
    Why,
    admit,
    defer,
    fixed,
    limit,
    per_lane,
    rate,
    share,
    window,
)
from hipq.engine.loop import Engine
from hipq.engine.why import why
from hipq.engine.why.starting import HOLDERS
from hipq.job.model import Row, queue_of
from hipq.job.when import SECOND
from hipq.limits.rules import AnyLimit, Rules
from hipq.stores.claims import Claim
from hipq.stores.values import EngineSeen, Limits
from hipq.testing.clock import HandClock

START = datetime(2027, 1, 15, 8, tzinfo=UTC)  # a Friday, and where the clock stands at first
Work = Callable[..., Engine]


@pytest.fixture
def work(app: Hipq) -> Iterator[Work]:
    """Engines of the app, alive from their first turn on; `until` drives one."""
    engines: list[Engine] = []

    def start(**options: Any) -> Engine:
        engines.append(app.engine(lease=86_400, **options))
        engines[-1].turn()
        return engines[-1]

    yield start
    for engine in engines:
        engine.executor.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Closed as long as the test runs: a handler that waits for it keeps what it holds."""
    found = threading.Event()
    yield found
    found.set()


def until(engine: Engine, condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "did not happen"
        engine.wake()
        engine.turn()
        time.sleep(0.002)


def idle(_: Job[Any]) -> None: ...


def holder(queue: Queue, gate: threading.Event, name: str = "hold", **options: Any) -> JobType:
    return queue.job(name, **options)(lambda _: gate.wait(20))


def running(app: Hipq, engine: Engine, ids: Sequence[int]) -> None:
    until(engine, lambda: all(app.job(job_id).phase == "executing" for job_id in ids))


def label(engine: Engine) -> str:
    (found,) = [one.label for one in engine.setup.store.engines() if one.engine_id == engine.engine_id]
    return found


# -- it has started --------------------------------------------------------------------------------------------------
def test_final_says_how_it_ended(app: Hipq, queue: Queue) -> None:
    good = queue.job("good")(idle)

    @queue.job
    def bad(_: Job[Any]) -> None:
        raise ValueError("two\nlines")

    first, second = good.enqueue(), bad.enqueue()
    app.run(until_empty=True)
    found = app.why(first)
    assert (found.reason, found.sentence) == ("final", "it ended with ok at 2027-01-15 08:00:00 UTC")
    assert found.details == {"code": "ok", "exitcode": 200, "error": "NONE", "attempt": 1, "ended": START}
    found = app.why(second)
    assert found.sentence == "it ended with error at 2027-01-15 08:00:00 UTC: ValueError: two lines"
    assert found.details["error"] == "ValueError: two lines"


def test_executing_names_the_engine_and_since_when(
    app: Hipq, queue: Queue, work: Work, gate: threading.Event, clock: HandClock
) -> None:
    hold = holder(queue, gate)
    engine = work()
    job_id = hold.enqueue()
    running(app, engine, [job_id])
    clock.advance(seconds=5)
    found = app.why(job_id)
    assert found.reason == "executing"
    assert found.sentence == (
        f"it is executing: engine {engine.engine_id} ({label(engine)}) has had it since 2027-01-15 08:00:00 UTC"
    )
    assert found.details == {
        "engine": engine.engine_id, "label": label(engine), "alive": True, "since": START, "attempt": 1
    }  # fmt: skip


def test_executing_in_an_engine_that_died_says_so(app: Hipq, queue: Queue, work: Work, gate: threading.Event) -> None:
    hold = holder(queue, gate)
    engine = work()
    job_id = hold.enqueue()
    running(app, engine, [job_id])
    app.store.renew_lease(engine.engine_id, 0)
    found = app.why(job_id)
    assert found.reason == "executing"
    assert f"engine {engine.engine_id} had it since" in found.sentence
    assert "not alive any more: no engine of its queue is there to notice" in found.sentence
    assert (found.details["alive"], found.details["label"]) == (False, None)
    other = app.store.take_lease(60, "other", f'{{"{queue.number}": []}}')
    assert "an engine will notice that soon" in app.why(job_id).sentence
    app.store.renew_lease(other, 0)


def test_waiting_says_until_when(app: Hipq, queue: Queue, clock: HandClock) -> None:
    ask = queue.job("ask", timeout=3600)(lambda _: Wait())
    job_id = ask.enqueue()
    app.run(until_empty=True)
    found = app.why(job_id)
    assert (found.reason, found.sentence) == (
        "waiting", "it waits for its answer, until 2027-01-15 09:00:00 UTC at the latest"
    )  # fmt: skip
    assert found.details == {"since": START, "deadline": START + timedelta(hours=1), "attempt": 1}
    clock.advance(hours=2)
    late = app.why(job_id)
    assert late.reason == "waiting"
    assert late.sentence.startswith("no answer came before its time-out at 2027-01-15 09:00:00 UTC: no engine")


def test_deciding_names_who_could_ask_its_retry_handler(
    app: Hipq, make_app: Callable[[], Hipq], queue: Queue, clock: HandClock
) -> None:
    ask = queue.job("ask", timeout=60, retry=fixed(10))(lambda _: Wait())
    job_id = ask.enqueue()
    app.run(until_empty=True)
    clock.advance(seconds=61)
    other = make_app()
    other.queue("orders").job("another")(idle)
    other.run(until_empty=True)
    found = app.why(job_id)
    assert found.reason == "deciding"
    assert found.sentence == (
        "it failed, and its retry handler has not been asked: no engine is alive "
        "(its error: TimeoutError: no answer came before its time-out)"
    )
    assert found.details["engines"] == []
    stranger = app.store.take_lease(60, "stranger", f'{{"{queue.number}": ["another"]}}')
    assert f"no engine that has the code of ask is alive, only engine {stranger} (stranger)" in app.why(job_id).sentence
    friend = app.store.take_lease(60, "friend", f'{{"{queue.number}": ["ask"]}}')
    found = app.why(job_id)
    assert f"that is for engine {friend} (friend) to do" in found.sentence
    assert found.details["engines"] == [{"engine_id": friend, "label": "friend"}]


# -- it waits for its answer, or has it ------------------------------------------------------------------------------
def asking(queue: Queue, **wait: Any) -> JobType:
    return queue.job("ask", timeout=3600)(lambda _: Wait(**wait))


def asked(app: Hipq, ask: JobType, key: str = "k") -> int:
    job_id = ask.enqueue(key=key)
    app.run(until_empty=True)
    return job_id


def test_a_heartbeat_says_until_when_a_sign_of_life_must_come(app: Hipq, queue: Queue, clock: HandClock) -> None:
    ask = asking(queue, heartbeat=90)
    ask.answered(lambda _, answer: answer.data or Progress())
    job_id = asked(app, ask)
    found = app.why(job_id)
    assert (found.reason, found.sentence) == (
        "waiting",
        "it waits for its answer: a sign of life must come by 2027-01-15 08:01:30 UTC, "
        "and the last answer by 2027-01-15 09:00:00 UTC",
    )
    assert found.details == {
        "since": START, "deadline": START + timedelta(seconds=90), "attempt": 1, "heartbeat": 90.0,
        "until": START + timedelta(hours=1),
    }  # fmt: skip
    clock.advance(seconds=60)
    ask.answer("k")
    app.run(until_empty=True)
    assert "must come by 2027-01-15 08:02:30 UTC" in app.why(job_id).sentence


def test_a_heartbeat_that_was_missed(app: Hipq, queue: Queue, clock: HandClock) -> None:
    job_id = asked(app, asking(queue, heartbeat=90))
    clock.advance(seconds=91)
    found = app.why(job_id)
    assert (found.reason, found.sentence) == (
        "waiting",
        "no sign of life came for 90 s, until 2027-01-15 08:01:30 UTC: no engine of its queue is there to notice",
    )
    app.store.take_lease(60, "other", f'{{"{queue.number}": []}}')
    assert app.why(job_id).sentence.endswith("an engine will notice that soon")


def test_a_heartbeat_longer_than_the_time_that_is_left_does_not_matter(
    app: Hipq, queue: Queue, clock: HandClock
) -> None:
    job_id = asked(app, asking(queue, heartbeat=7200))
    found = app.why(job_id)
    assert found.sentence == "it waits for its answer, until 2027-01-15 09:00:00 UTC at the latest"
    assert found.details["heartbeat"] == 7200.0
    clock.advance(hours=1)
    assert app.why(job_id).sentence.startswith("no answer came before its time-out at 2027-01-15 09:00:00 UTC: ")


def broken(_job: Job[Any], _answer: Answer) -> None:
    raise ValueError("two\nlines")


def test_an_answer_handler_that_failed_says_how_often_and_when_it_is_called_again(
    app: Hipq, queue: Queue, clock: HandClock
) -> None:
    ask = asking(queue)
    ask.answered(broken)
    job_id = asked(app, ask)
    ask.answer("k", 1)
    app.run(until_empty=True)
    found = app.why(job_id)
    assert (found.reason, found.sentence) == (
        "answer failed",
        "its answer handler has failed once, the last time with ValueError: two lines, "
        "and is called again at 2027-01-15 08:00:01 UTC",
    )
    assert found.details == {"tries": 1, "error": "ValueError: two lines", "again": START + timedelta(seconds=1)}
    clock.advance(seconds=1)
    assert app.why(job_id).sentence.endswith(
        "and was to be called again at 2027-01-15 08:00:01 UTC: no engine of its queue is there to notice"
    )
    for times in ("twice", "3 times"):
        app.run(until_empty=True)
        assert f"has failed {times}, the last time with" in app.why(job_id).sentence
        clock.advance(seconds=10)


def test_answered_names_who_could_look_at_it(app: Hipq, queue: Queue) -> None:
    ask = asking(queue)
    ask.answered(lambda _, answer: answer.data)
    job_id = asked(app, ask)
    ask.answer("k", 1)
    found = app.why(job_id)
    assert (found.reason, found.sentence) == (
        "answered", "its answer has come, and has not been looked at: no engine is alive"
    )  # fmt: skip
    assert found.details == {"error": None, "engines": []}
    stranger = app.store.take_lease(60, "stranger", f'{{"{queue.number}": ["another"]}}')
    assert app.why(job_id).sentence.endswith(
        f"no engine that has the code of ask is alive, only engine {stranger} (stranger)"
    )
    friend = app.store.take_lease(60, "friend", f'{{"{queue.number}": ["ask"]}}')
    assert app.why(job_id).sentence.endswith(f"that is for engine {friend} (friend) to do")
    app.pause("orders")
    app.rules.set_limit("orders", 1)
    assert app.why(job_id).reason == "answered"  # neither holds an answer up


def test_an_answer_to_be_looked_at_again_by_nobody(
    app: Hipq, make_app: Callable[[], Hipq], queue: Queue, clock: HandClock
) -> None:
    ask = asking(queue)
    ask.answered(broken)
    job_id = asked(app, ask)
    ask.answer("k", 1)
    app.run(until_empty=True)
    clock.advance(seconds=2)
    other = make_app()
    other.queue("orders").job("another")(idle)
    other.run(until_empty=True)
    found = app.why(job_id)
    assert (found.reason, found.sentence) == (
        "answered",
        "its answer is to be looked at again: no engine is alive "
        "(its answer handler has failed once, the last time with ValueError: two lines)",
    )
    assert found.details == {"error": "ValueError: two lines", "engines": [], "tries": 1}


def test_an_answer_that_is_being_looked_at_names_the_engine(
    app: Hipq, queue: Queue, work: Work, gate: threading.Event, clock: HandClock
) -> None:
    tries: list[int] = []
    ask = asking(queue)

    @ask.answered
    def settled(job: Job[Any], answer: Answer) -> None:
        tries.append(job.id)
        if len(tries) == 2:
            broken(job, answer)
        gate.wait(20)

    engine = work()
    first, second = ask.enqueue(key="a"), ask.enqueue(key="b")
    until(engine, lambda: all(app.job(job_id).phase == "waiting" for job_id in (first, second)))
    clock.advance(seconds=5)
    ask.answer("a", 1)
    until(engine, lambda: len(tries) == 1)
    found = app.why(first)
    assert (found.reason, found.sentence) == (
        "answered",
        f"its answer is being looked at: engine {engine.engine_id} ({label(engine)}) has had it since "
        "2027-01-15 08:00:05 UTC",
    )
    assert found.details == {
        "engine": engine.engine_id, "label": label(engine), "alive": True, "since": START + timedelta(seconds=5),
        "attempt": 1,
    }  # fmt: skip
    ask.answer("b", 1)
    until(engine, lambda: app.why(second).reason == "answer failed")
    clock.advance(seconds=1)
    until(engine, lambda: len(tries) == 3)
    again = app.why(second)
    assert again.sentence.endswith(
        "since 2027-01-15 08:00:06 UTC (its answer handler has failed once, the last time with ValueError: two lines)"
    )
    assert again.details["tries"] == 1
    app.store.renew_lease(engine.engine_id, 0)
    assert f"engine {engine.engine_id} had it since" in app.why(first).sentence


def test_cancelling_says_why_and_names_who_could_run_its_code(app: Hipq, queue: Queue) -> None:
    ask = asking(queue)
    ask.cancelled(idle)
    job_id = asked(app, ask)
    app.cancel(job_id, "not wanted any more")
    found = app.why(job_id)
    assert (found.reason, found.sentence) == (
        "cancelling",
        "it is given up, and its cancel handler has not run: no engine is alive (why: not wanted any more)",
    )
    assert found.details == {"error": None, "engines": [], "cause": "not wanted any more"}
    friend = app.store.take_lease(60, "friend", f'{{"{queue.number}": ["ask"]}}')
    assert f"that is for engine {friend} (friend) to do (why: " in app.why(job_id).sentence


def test_cancelling_after_a_time_out_that_nobody_has_the_code_for(
    app: Hipq, make_app: Callable[[], Hipq], queue: Queue, clock: HandClock
) -> None:
    ask = asking(queue)
    ask.cancelled(idle)
    job_id = asked(app, ask)
    clock.advance(hours=1)
    other = make_app()
    other.queue("orders").job("another")(idle)
    other.run(until_empty=True)
    stranger = app.store.take_lease(60, "stranger", f'{{"{queue.number}": ["another"]}}')
    assert app.why(job_id).sentence == (
        "it is given up, and its cancel handler has not run: no engine that has the code of ask is alive, "
        f"only engine {stranger} (stranger) (why: TimeoutError: no answer came before its time-out)"
    )


def test_cancelling_in_hands_names_the_engine(app: Hipq, queue: Queue, work: Work, gate: threading.Event) -> None:
    ask = asking(queue)
    called = threading.Event()

    @ask.cancelled
    def call_off(_: Job[Any]) -> None:
        called.set()
        gate.wait(20)

    engine = work()
    job_id = ask.enqueue()
    until(engine, lambda: app.job(job_id).phase == "waiting")
    app.cancel(job_id, "not wanted")
    until(engine, called.is_set)
    found = app.why(job_id)
    assert (found.reason, found.sentence) == (
        "cancelling",
        f"its cancel handler is running: engine {engine.engine_id} ({label(engine)}) has had it since "
        "2027-01-15 08:00:00 UTC (why: not wanted)",
    )
    assert (found.details["cause"], found.details["alive"]) == ("not wanted", True)


# -- its time has not come -------------------------------------------------------------------------------------------
def test_retry_pending_has_the_fault_and_the_time(app: Hipq, queue: Queue) -> None:
    @queue.job(retry=fixed(90))
    def flaky(_: Job[Any]) -> None:
        raise ConnectionError("the bank does not answer")

    job_id = flaky.enqueue()
    app.run(until_empty=True)
    found = app.why(job_id)
    assert found.reason == "retry pending"
    assert found.sentence == (
        "it is tried again at 2027-01-15 08:01:30 UTC, after ConnectionError: the bank does not answer"
    )
    assert found.details == {
        "scheduled_run_time": START + timedelta(seconds=90), "error": "ConnectionError: the bank does not answer",
        "attempt": 1, "failures": 1,
    }  # fmt: skip


def test_a_retry_that_waits_for_its_window_says_both(app: Hipq, queue: Queue, clock: HandClock) -> None:
    @queue.job(retry=fixed(60), windows=[window("08:00", "08:01")])
    def flaky(_: Job[Any]) -> None:
        clock.advance(minutes=2)
        raise ConnectionError("no")

    job_id = flaky.enqueue()
    app.run(until_empty=True, lease=3600)
    found = app.why(job_id)
    assert found.reason == "retry pending"
    assert "tried again at 2027-01-16 08:00:00 UTC, when its window opens, after ConnectionError: no" in found.sentence


def test_scheduled_for_its_own_time(app: Hipq, queue: Queue, clock: HandClock) -> None:
    job_id = queue.job("later")(idle).enqueue(delay=30.5)
    found = app.why(job_id)
    assert (found.reason, found.sentence) == ("scheduled", "it is scheduled for 2027-01-15 08:00:30.500 UTC")
    assert found.details == {"scheduled_run_time": START + timedelta(seconds=30.5)}
    clock.advance(seconds=31)
    assert app.why(job_id).reason == "no engine"  # nobody is there to make it ready
    app.run(until_empty=True)
    assert app.why(job_id).reason == "final"


def test_a_closed_window_says_when_it_opens(app: Hipq, queue: Queue) -> None:
    night = queue.job("night", windows=[window("22:00", "05:00", tz="Europe/Rome")])(idle)
    job_id = night.enqueue()
    found = app.why(job_id)
    assert (found.reason, found.sentence) == (
        "window closed",
        "its window is closed and opens at 2027-01-15 21:00:00 UTC (22:00-05:00 Europe/Rome)",
    )
    opens = START.replace(hour=21)
    assert found.details == {"windows": "22:00-05:00 Europe/Rome", "opens": opens}


def test_a_job_wanted_after_the_next_opening_is_scheduled_not_shut_out(app: Hipq, queue: Queue) -> None:
    night = queue.job("night", windows=[window("22:00", "05:00")])(idle)
    assert app.why(night.enqueue(delay=timedelta(days=1, hours=14, minutes=10))).reason == "scheduled"
    assert app.why(night.enqueue(delay=timedelta(days=1))).reason == "scheduled"  # rolled to the opening after that
    assert app.why(night.enqueue(delay=timedelta(hours=10))).reason == "window closed"


def test_a_ready_job_whose_window_closed_says_so_before_and_after_it_is_rolled(
    app: Hipq, queue: Queue, work: Work, gate: threading.Event, clock: HandClock
) -> None:
    morning = queue.job("morning", windows=[window("07:00", "09:00")])(idle)
    hold = holder(queue, gate)
    engine = work(concurrency=1)
    first = hold.enqueue()
    running(app, engine, [first])
    job_id = morning.enqueue()
    assert app.why(job_id).reason == "next"
    clock.advance(hours=1)
    found = app.why(job_id)
    assert app.job(job_id).phase == "ready"
    assert (found.reason, found.details["opens"]) == ("window closed", START.replace(day=16, hour=7))
    gate.set()
    until(engine, lambda: app.job(job_id).phase == "scheduled")
    assert app.why(job_id) == found


def test_a_job_that_was_put_off_by_the_throttler_is_scheduled(app: Hipq, work: Work) -> None:
    queue = app.queue(
        "orders", throttler=lambda due, _running, now: [defer(job, now + timedelta(hours=1)) for job in due]
    )
    job_id = queue.job("a")(idle).enqueue()
    engine = work()
    until(engine, lambda: app.job(job_id).phase == "scheduled")
    found = app.why(job_id)
    assert (found.reason, found.sentence) == (
        "scheduled", "its queue's throttler has put it off until 2027-01-15 09:00:00 UTC"
    )  # fmt: skip
    assert found.details["deferred"] is True


def test_a_ready_job_is_scheduled_when_the_clock_was_set_back(
    app: Hipq, queue: Queue, work: Work, clock: HandClock
) -> None:
    job_type = queue.job("a")(idle)
    engine = work()
    job_id = job_type.enqueue()
    clock.step(-3600)
    engine.wake()
    engine.turn()
    assert app.job(job_id).phase == "ready"
    assert app.why(job_id).reason == "scheduled"


# -- its time has come -----------------------------------------------------------------------------------------------
def test_due_until_an_engine_makes_it_ready(app: Hipq, queue: Queue, work: Work, clock: HandClock) -> None:
    soon = queue.job("soon")(idle)
    engine = work()
    job_id = soon.enqueue(delay=30)
    clock.advance(seconds=31)
    found = app.why(job_id)
    assert (found.reason, found.sentence) == (
        "due", "it is due since 2027-01-15 08:00:30 UTC: an engine makes it ready at its next turn"
    )  # fmt: skip
    assert found.details == {"scheduled_run_time": START + timedelta(seconds=30)}
    app.pause("orders")
    assert app.why(job_id).reason == "paused"  # to be ready would not help it
    app.resume("orders")
    until(engine, lambda: app.job(job_id).phase == "done")


def test_no_engine(app: Hipq, queue: Queue, work: Work) -> None:
    job_id = queue.job("a")(idle).enqueue()
    found = app.why(job_id)
    assert (found.reason, found.sentence) == ("no engine", "no engine is alive")
    assert found.details == {"job_type": "a", "engines": []}
    until(work(), lambda: app.why(job_id).reason == "final")


def test_no_code_names_the_engines_that_are_there(app: Hipq, queue: Queue) -> None:
    job_id = queue.enqueue("unheard_of")
    elsewhere = app.store.take_lease(60, "elsewhere:1", "{}")
    found = app.why(job_id)
    assert found.reason == "no code"
    assert found.sentence == f"no engine that works on its queue is alive, only engine {elsewhere} (elsewhere:1)"
    here = app.store.take_lease(60, "here:2", f'{{"{queue.number}": ["other"]}}')
    found = app.why(job_id)
    assert found.sentence == (
        f"no engine that has the code of unheard_of is alive, only engines {elsewhere} (elsewhere:1), {here} (here:2)"
    )
    assert found.details["engines"][1] == {"engine_id": here, "label": "here:2"}
    able = app.store.take_lease(60, "able:3", f'{{"{queue.number}": ["other", "unheard_of"]}}')
    assert app.why(job_id).reason == "next"
    app.store.renew_lease(able, 0)
    assert app.why(job_id).reason == "no code"


def test_paused_says_what_is(app: Hipq, queue: Queue, work: Work) -> None:
    job_type = queue.job("a")(idle)
    engine = work()
    app.pause("orders")
    app.pause("orders", lane="east")
    app.pause("orders", type="a")
    job_id = job_type.enqueue(lane="east")
    for pause, sentence, details in (
        ({}, "its queue is paused", {"paused": "queue"}),
        ({"lane": "east"}, "lane east is paused", {"paused": "lane", "lane": "east"}),
        ({"type": "a"}, "job type a is paused", {"paused": "type", "job_type": "a"}),
    ):
        found = app.why(job_id)
        assert (found.reason, found.sentence, found.details) == ("paused", sentence, details)
        for _ in range(3):
            engine.wake()
            engine.turn()
        assert app.why(job_id) == found  # and so it is: no turn starts it
        app.resume("orders", **pause)
    assert app.why(job_id).reason == "next"
    until(engine, lambda: app.why(job_id).reason == "final")


def test_critical_jobs_are_paused_too(app: Hipq, work: Work) -> None:
    queue = app.queue("orders", throttle_limit=1)
    urgent = queue.job("urgent", critical=True)(idle)
    engine = work()
    app.pause("orders")
    job_id = urgent.enqueue()
    assert app.why(job_id).reason == "paused"
    app.resume("orders")
    until(engine, lambda: app.why(job_id).reason == "final")


def test_parked_until_the_throttler_admits_it(app: Hipq, work: Work, clock: HandClock) -> None:
    room: list[int] = []
    queue = app.queue("orders", throttler=lambda due, _running, _now: [admit(job) for job in due if job.id in room])
    job_id = queue.job("a")(idle).enqueue()
    engine = work()
    until(engine, lambda: app.job(job_id).phase == "parked")
    found = app.why(job_id)
    assert (found.reason, found.sentence) == (
        "parked", "its queue's throttler has not admitted it, and is asked about it again"
    )  # fmt: skip
    assert found.details == {"since": START}
    app.pause("orders")
    assert app.why(job_id).reason == "paused"
    app.resume("orders")
    app.store.change_rules(queue.number, lambda rules: replace(rules, throttled=False))
    assert "is gone: an engine makes it ready" in app.why(job_id).sentence
    app.store.change_rules(queue.number, lambda rules: replace(rules, throttled=True))
    room.append(job_id)
    clock.advance(seconds=1)
    until(engine, lambda: app.why(job_id).reason == "final")


def test_a_throttler_that_failed_is_the_reason_for_ready_jobs_and_parked_ones(
    app: Hipq, work: Work, clock: HandClock
) -> None:
    broken = [KeyError("server")]

    def throttler(due: list[Job[Any]], _running: list[Job[Any]], _now: datetime) -> list[Any]:
        if broken:
            raise broken[0]
        return [admit(job) for job in due]

    queue = app.queue("orders", throttler=throttler)
    job_id = queue.job("a")(idle).enqueue()
    assert app.why(job_id).reason == "no engine"
    engine = work()
    until(engine, lambda: app.store.limits(queue.number).note)
    found = app.why(job_id)
    assert (found.reason, app.job(job_id).phase) == ("throttler failed", "ready")
    assert found.sentence == "its queue's throttler could not be asked: KeyError: 'server'"
    assert found.details == {"note": "KeyError: 'server'"}
    parked = app.store.get(job_id)
    assert parked is not None
    limits, engines = app.store.limits(queue.number), app.store.engines()
    assert why(replace(parked, phase="parked"), limits, engines, clock.now()).reason == "throttler failed"
    broken.clear()
    clock.advance(seconds=2)
    until(engine, lambda: app.why(job_id).reason == "final")


def test_next_when_nothing_stands_in_its_way(app: Hipq, queue: Queue, work: Work, gate: threading.Event) -> None:
    hold = holder(queue, gate)
    engine = work(concurrency=1)
    ids = [hold.enqueue() for _ in range(2)]
    running(app, engine, ids[:1])
    found = app.why(ids[1])
    assert (found.reason, found.details) == ("next", {})
    assert found.sentence == "nothing holds it up: it starts when its turn comes and an engine has a free slot"


# -- limits ----------------------------------------------------------------------------------------------------------
def test_limit_full_says_who_holds_it(app: Hipq, work: Work, gate: threading.Event) -> None:
    queue = app.queue("orders", throttle_limit=5)
    hold = holder(queue, gate)
    engine = work()
    held = [hold.enqueue(throttle_factor=factor) for factor in (3, 1, 1)]
    running(app, engine, held)
    job_id = hold.enqueue()
    found = app.why(job_id)
    assert found.reason == "limit full"
    named = ", ".join(map(str, held))
    assert found.sentence == f"its queue's limit 5 is full: 5 of 5 units taken by jobs {named}"
    assert found.details == {
        "limit": "limit 5", "cap": 5, "used": 5, "needs": 1, "lane": "",
        "holders": [{"id": held[0], "units": 3}, {"id": held[1], "units": 1}, {"id": held[2], "units": 1}],
    }  # fmt: skip
    app.rules.set_limit("orders", 6)
    assert app.why(job_id).reason == "next"
    app.rules.set_limit("orders", 2)
    assert app.why(job_id).sentence.startswith("its queue's limit 2 is full: 5 of 2 units taken")
    gate.set()
    until(engine, lambda: app.why(job_id).reason == "final")


def test_a_limit_names_ten_holders_at_most(app: Hipq, work: Work, gate: threading.Event) -> None:
    queue = app.queue("orders", throttle_limit=12)
    hold = holder(queue, gate)
    engine = work(concurrency=20)
    held = hold.enqueue_many(range(12))
    running(app, engine, held)
    found = app.why(hold.enqueue())
    assert [one["id"] for one in found.details["holders"]] == held[:HOLDERS]
    assert found.sentence.endswith(f"by jobs {held[0]}, {held[1]}, {held[2]} and others")


def test_a_heavy_job_says_what_it_needs_and_what_is_left(app: Hipq, work: Work, gate: threading.Event) -> None:
    queue = app.queue("orders", throttle_limit=5)
    hold = holder(queue, gate)
    engine = work()
    held = hold.enqueue(throttle_factor=2)
    running(app, engine, [held])
    heavy = hold.enqueue(throttle_factor=4)
    found = app.why(heavy)
    assert (found.reason, found.details["used"], found.details["needs"]) == ("limit full", 2, 4)
    assert found.sentence == (f"it needs 4 units of its queue's limit 5, and 3 are left: 2 taken by job {held}")
    app.rules.set_limit("orders", 3)
    assert app.why(heavy).sentence == (
        f"it needs 4 units and its queue's limit 3 has 3, so it runs alone: 2 taken by job {held}"
    )
    gate.set()
    until(engine, lambda: app.why(heavy).reason == "final")


def test_limits_do_not_hold_critical_jobs(app: Hipq, work: Work, gate: threading.Event) -> None:
    queue = app.queue("orders", throttle_limit=1)
    hold, urgent = holder(queue, gate), holder(queue, gate, "urgent", critical=True)
    engine = work(concurrency=2)
    held = [hold.enqueue(), urgent.enqueue()]
    running(app, engine, held)
    assert app.why(hold.enqueue()).reason == "limit full"
    assert app.why(urgent.enqueue()).reason == "next"


def test_lane_full_names_those_of_the_lane_only(app: Hipq, work: Work, gate: threading.Event) -> None:
    queue = app.queue("orders", limits=[per_lane(2)])
    hold = holder(queue, gate)
    engine = work()
    east = hold.enqueue(lane="east", throttle_factor=2)
    bare = [hold.enqueue() for _ in range(2)]
    running(app, engine, [east, *bare])
    found = app.why(hold.enqueue(lane="east"))
    assert (found.reason, found.sentence) == (
        "lane full", f"lane east is full: 2 of 2 units taken by job {east}"
    )  # fmt: skip
    assert found.details == {
        "limit": "2 a lane", "cap": 2, "used": 2, "needs": 1, "lane": "east", "holders": [{"id": east, "units": 2}]
    }  # fmt: skip
    assert app.why(hold.enqueue()).sentence.startswith("the lane of jobs without one is full")
    assert app.why(hold.enqueue(lane="west")).reason == "next"


def test_a_share_that_is_full_is_a_full_lane(app: Hipq, work: Work, gate: threading.Event) -> None:
    queue = app.queue("orders", limits=[limit(10), share({"east": 20}, other=10)])
    hold = holder(queue, gate)
    engine = work()
    east = [hold.enqueue(lane="east") for _ in range(2)]
    other = hold.enqueue(lane="mars")
    running(app, engine, [*east, other])
    found = app.why(hold.enqueue(lane="east"))
    assert (found.reason, found.details["cap"], found.details["used"]) == ("lane full", 2, 2)
    assert found.sentence == f"the share of lane east is full: 2 of 2 units taken by jobs {east[0]}, {east[1]}"
    assert found.details["limit"] == "shares east 20 %, others 10 %"
    found = app.why(hold.enqueue(lane="venus"))
    assert found.sentence == f"the share of other lanes is full: 1 of 1 unit taken by job {other}"
    assert found.details["holders"] == [{"id": other, "units": 1}]


def test_a_rate_says_when_it_fits_again(app: Hipq, work: Work, clock: HandClock) -> None:
    queue = app.queue("orders", limits=[rate(2, per=10)])
    quick = queue.job("quick")(idle)
    engine = work()
    ids = [quick.enqueue() for _ in range(3)]
    until(engine, lambda: sum(app.job(job_id).state == "final" for job_id in ids) == 2)
    clock.advance(seconds=4)
    found = app.why(ids[2])
    assert (found.reason, found.sentence) == (
        "rate", "its queue's rate 2 in 10 s is used up: there is room for it at 2027-01-15 08:00:10 UTC"
    )  # fmt: skip
    assert found.details == {
        "limit": "rate 2 in 10 s", "cap": 2, "used": 2, "needs": 1, "lane": "", "holders": [],
        "again": START + timedelta(seconds=10),
    }  # fmt: skip
    clock.advance(seconds=6)
    assert app.why(ids[2]).reason == "next"
    until(engine, lambda: app.why(ids[2]).reason == "final")


@pytest.mark.parametrize("lanes", ["ordered", "fair"])
def test_behind_a_heavy_job_that_enough_others_have_passed(
    app: Hipq, work: Work, gate: threading.Event, lanes: str
) -> None:
    queue = app.queue("orders", throttle_limit=4, lanes=lanes)
    hold, quick = holder(queue, gate), queue.job("quick")(idle)
    engine = work()
    held = hold.enqueue()
    running(app, engine, [held])
    heavy = hold.enqueue(throttle_factor=4)
    light = [quick.enqueue() for _ in range(4)]
    until(engine, lambda: all(app.job(job_id).state == "final" for job_id in light))
    job_id = quick.enqueue()
    found = app.why(job_id)
    assert found.reason == "behind"
    assert found.sentence == (
        f"it may not pass job {heavy} any more: enough others have, and that one needs 4 units of its queue's limit 4"
    )
    assert (found.details["behind"], found.details["limit"], found.details["used"]) == (heavy, "limit 4", 1)
    assert found.details["holders"] == [{"id": held, "units": 1}]
    assert app.why(heavy).reason == "limit full"
    for _ in range(5):
        engine.wake()
        engine.turn()
    assert app.why(job_id) == found  # and so it is: no turn starts it
    app.pause("orders", type="hold")
    assert app.why(job_id).reason == "next"  # claims do not come to what is paused
    app.resume("orders", type="hold")
    app.cancel(heavy)
    assert app.why(job_id).reason == "next"
    until(engine, lambda: app.why(job_id).reason == "final")


# -- all the rest ----------------------------------------------------------------------------------------------------
def test_ids_that_are_not_there(app: Hipq, make_app: Callable[[], Hipq], queue: Queue) -> None:
    job_id = queue.enqueue("a")
    for unknown in (job_id + (1 << 16), job_id + 1, (1 << 63) - 1):
        with pytest.raises(NotFound):
            app.why(unknown)
    with pytest.raises(NotFound):
        make_app().why(job_id)  # a program that does not have its queue
    for bad in (0, -1, 1 << 63, True, "1"):
        with pytest.raises(Invalid):
            app.why(bad)  # type: ignore[arg-type]


def test_asking_changes_nothing(app: Hipq, queue: Queue, work: Work) -> None:
    work()
    job_id = queue.enqueue("a", lane="b")
    before = app.store.get(job_id), app.store.limits(queue.number)
    assert isinstance(app.why(job_id), Why)
    assert (app.store.get(job_id), app.store.limits(queue.number)) == before


def a_row(app: Hipq, queue: Queue, **changes: Any) -> Row:
    row = app.store.get(queue.enqueue("a"))
    assert row is not None
    return replace(row, **changes)


def test_a_window_this_machine_cannot_read(app: Hipq, queue: Queue, clock: HandClock) -> None:
    row = a_row(app, queue, time_windows='[{"start":"01:00","end":"02:00","tz":"Mars/Olympus"}]')
    engines = [EngineSeen(1, "here", {str(queue_of(row.id)): ["a"]})]
    found = why(row, Limits(Rules(), "{}", {}, [], ""), engines, clock.now())
    assert (found.reason, found.details) == ("window unknown", {"windows": "01:00-02:00 Mars/Olympus"})
    assert "Mars/Olympus" in found.sentence
    later = replace(row, phase="scheduled", scheduled_run_time=clock.now() + SECOND)
    assert why(later, Limits(Rules(), "{}", {}, [], ""), engines, clock.now()).reason == "scheduled"


@pytest.mark.parametrize("lanes", ["ordered", "fair"])
@pytest.mark.parametrize("seed", range(2))
def test_a_claim_takes_the_first_job_in_whose_way_nothing_is_said_to_stand(
    app: Hipq, clock: HandClock, seed: int, lanes: str
) -> None:
    chance = random.Random(seed)
    some: list[AnyLimit] = [per_lane(7), share({"a": 80}, other=20), rate(8, per=2), rate(25, per=10)]
    queue = app.queue("orders", limits=[limit(9), *chance.sample(some, chance.randint(0, 2))], lanes=lanes)
    queue.for_engine()
    engine_id = app.store.take_lease(86_400, "test", f'{{"{queue.number}": ["a"]}}')
    ready: list[Row] = []
    started: list[Row] = []
    for _ in range(40):
        for _ in range(chance.randint(0, 2)):
            with suppress(Invalid):  # heavier than its lane allows
                job_id = queue.enqueue("a", lane=chance.choice("abcd"), throttle_factor=chance.choice([1, 1, 1, 2, 7]))
                ready.append(app.store.get(job_id) or pytest.fail("it is gone"))
        ready.sort(key=lambda row: (row.rank, row.id))
        said = {row.id: app.why(row.id).reason for row in ready}
        assert set(said.values()) <= {"next", "limit full", "lane full", "rate", "behind"}
        won = app.store.turn(engine_id, [], [Claim(queue.number, ("a",), 1)], clock.now()).won
        free = [row.id for row in ready if said[row.id] == "next"]
        if lanes == "ordered":
            assert [row.id for row in won] == free[:1]
        else:  # each engine has its own turn of the lanes
            assert {said[row.id] for row in won} <= {"next", "behind"}
            assert won or not free
        taken = {row.id for row in won}
        ready, started = [row for row in ready if row.id not in taken], started + won
        for row in [row for row in started if chance.random() < 0.2]:
            app.cancel(row.id)
            started.remove(row)
        clock.advance(seconds=chance.choice([0, 0.1, 0.5]))
