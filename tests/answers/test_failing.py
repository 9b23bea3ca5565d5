"""A job that fails with its answer in the inbox already: the answer counts, and nothing else follows from that."""

from __future__ import annotations

from typing import Any

import pytest

from hipq import Answer, Hipq, Job, JobType, Progress, Queue, Retry, Wait, fixed
from hipq.engine import rescue
from hipq.engine.settle import settle
from hipq.executors.execution import Execution
from hipq.job.fault import Fault
from hipq.job.model import Row
from hipq.job.run_result import Crashed, Decided, Rerun, RunResult
from hipq.stores.claims import Claim
from hipq.stores.inbox_transaction import KEYS_AT_ONCE
from hipq.testing.clock import HandClock
from tests.answers.helping import Bank, Run, kept, told

FAULT = Fault("error", "it broke")
CRASH = Crashed(Fault("crash", "killed by SIGSEGV"))


@pytest.fixture
def bank() -> Bank:
    return Bank()


class ByHand:
    """An engine whose steps the test makes."""

    def __init__(self, app: Hipq, charge: JobType) -> None:
        self._store = app.store
        self._app = app
        self._charge = charge
        self._engine_id = app.store.take_lease(60, "by hand")

    def claim(self) -> Row:
        claims = [Claim(self._charge.queue.number, ("charge",), 1)]
        (row,) = self._store.turn(self._engine_id, [], claims, self._store.now()).won
        return row

    def look_again(self) -> None:
        """Waiting jobs whose moment has come."""
        queue, now = self._charge.queue, self._store.now()
        changes = rescue.overdue(self._store, queue.number, queue.order, now)
        assert not self._store.turn(self._engine_id, changes, [], now).lost

    def die(self) -> None:
        self._store.renew_lease(self._engine_id, 0)

    def end(self, row: Row, ending: RunResult) -> None:
        answer = next((one._row for one in self._app.answers.list(state="matched")), None)
        running = Execution(row, self._charge.spec, 0, answer).ended(ending)
        change = settle(running, self._charge.queue.order, self._store.now())
        assert not self._store.turn(self._engine_id, [change], [], self._store.now()).lost


def names(app: Hipq) -> list[str]:
    """What is announced from now on."""
    found: list[str] = []
    app.events.subscribe(lambda event: found.append(event.name))
    return found


@pytest.mark.parametrize("answers", [[("paid", 1)], [("paid", 1), ("again", None)]], ids=["alone", "before another"])
@pytest.mark.parametrize("attempts", [2, 3], ids=["on its last attempt", "to be tried again"])
def test_one_to_an_earlier_attempt_counts(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock, answers: list[tuple[str, Any]], attempts: int
) -> None:
    @queue.job(retry=fixed(60, attempts=attempts))
    def charge(job: Job[Any]) -> None:
        bank.sent.append(job.attempt)
        for data, attempt in answers if job.attempt == 2 else ():
            assert app.answer("orders", "charge", job.key, data, attempt=attempt) == "buffered"
        raise OSError("it broke")

    job_id = charge.enqueue(key="k")
    for _ in range(4):
        run()
        clock.advance(seconds=60)
    job = app.job(job_id)
    assert (job.code, job.result, bank.sent) == ("ok", "paid", [1, 2])


def test_where_there_is_a_fence_the_one_to_its_last_attempt_counts(app: Hipq, queue: Queue, bank: Bank) -> None:
    """Both were brought by a program that does not know the type."""
    charge = bank.charge(queue, fence="attempt")
    job_id = charge.enqueue(key="k")
    engine = ByHand(app, charge)
    engine.end(engine.claim(), Rerun(FAULT))
    row = engine.claim()
    for attempt in (1, 2):
        assert app.answer("orders", "charge", "k", f"to {attempt}", attempt=attempt) in ("buffered", "late")
    engine.end(row, Decided(FAULT))
    assert app.job(job_id).phase == "answered"
    assert kept(app) == [("to 1", "late"), ("to 2", "matched")]


@pytest.mark.parametrize("again", [None, Rerun(FAULT, delay=60)], ids=["on its last attempt", "to be tried again"])
def test_cancelled_then_it_is_called_off(app: Hipq, queue: Queue, run: Run, bank: Bank, again: Rerun | None) -> None:
    charge = bank.charge(queue)
    bank.answered(charge)
    bank.cancelled(charge)
    job_id = charge.enqueue(key="k")
    engine = ByHand(app, charge)
    row = engine.claim()
    assert charge.answer("k", "paid") == "buffered"
    engine.end(row, Decided(FAULT, again=again))
    assert app.job(job_id).phase == "answered"
    app.cancel(job_id)
    run()
    assert (app.job(job_id).code, bank.called_off) == ("cancelled", ["k"])


@pytest.mark.parametrize("last", [True, False])
def test_only_the_failure_is_told(app: Hipq, queue: Queue, run: Run, last: bool) -> None:
    heard = names(app)

    @queue.job(retry=None if last else fixed(60))
    def charge(job: Job[Any]) -> None:
        app.answer("orders", "charge", job.key, "paid")
        raise OSError("it broke")

    job_id = charge.enqueue(key="k")
    run()
    assert told(app.job(job_id)) == ["claimed", "error", "answered", "ok"]
    assert [name for name in heard if not name.startswith(("added", "engine"))] == [
        "claimed", "buffered", "error", "matched", "claimed", "ok",
    ]  # fmt: skip


def test_one_that_was_cancelled_meanwhile_has_no_error(app: Hipq, queue: Queue, run: Run) -> None:
    heard = names(app)

    @queue.job
    def charge(job: Job[Any]) -> None:
        app.answer("orders", "charge", job.key, "paid")
        app.cancel(job.id)
        raise OSError("it broke")

    job_id = charge.enqueue(key="k")
    run()
    assert app.job(job_id).code == "cancelled"
    assert "lost" in heard
    assert "error" not in heard


def test_a_copy_that_is_put_aside_is_announced(app: Hipq, queue: Queue, run: Run, bank: Bank) -> None:
    charge = bank.charge(queue, retry=fixed(60))
    charge.enqueue(key="k")
    run()
    heard = names(app)
    assert [charge.answer("k", "busy", error=True) for _ in range(2)] == ["matched", "buffered"]
    run()
    assert heard.count("duplicate") == 1


def test_crashes_of_its_handler_are_not_those_of_its_answer_handler(
    app: Hipq, queue: Queue, bank: Bank, clock: HandClock
) -> None:
    charge = bank.charge(queue)
    bank.answered(charge)
    job_id = charge.enqueue(key="k")
    engine = ByHand(app, charge)
    for count in range(3):
        row = engine.claim()
        if count == 2:
            assert charge.answer("k", "paid") == "buffered"
        engine.end(row, CRASH)
        if count < 2:
            engine.end(engine.claim(), Decided(CRASH.fault, again=Rerun(CRASH.fault)))
    for pause in (1, 2):
        assert app.job(job_id).phase == "answered"
        engine.end(engine.claim(), CRASH)
        assert (app.job(job_id).phase, kept(app)) == ("waiting", [("paid", "matched")])
        clock.advance(seconds=pause)
        engine.look_again()
    engine.end(engine.claim(), CRASH)
    job = app.job(job_id)
    assert (job.phase, job.failures) == ("deciding", 4), "an error, for its retry handler"
    assert kept(app) == [("paid", "applied")]


def test_no_answer_outlives_the_lifetime(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    @queue.job(lifetime=10)
    def charge(job: Job[Any]) -> Retry:
        app.answer("orders", "charge", job.key, "40 %")
        clock.advance(seconds=20)
        return Retry(5)

    @charge.answered
    def looked_at(_: Job[Any], __: Answer) -> Progress:
        return Progress()

    job_id = charge.enqueue(key="k")
    run()
    assert (app.job(job_id).state, app.job(job_id).code) == ("final", "retry")


def test_very_many_that_fail_together_are_saved_in_parts(
    app: Hipq, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each looks under its key's lock, and PostgreSQL has room for so many only."""
    turns: list[int] = []
    turn = app.store.turn

    def counted(engine_id: int, changes: Any, claims: Any, now: int) -> Any:
        turns.append(len(changes))
        return turn(engine_id, changes, claims, now)

    @queue.job
    async def charge(_: Job[Any]) -> Wait:
        raise OSError("it broke")

    charge.enqueue_many([None] * (KEYS_AT_ONCE + 500))
    monkeypatch.setattr(app.store, "turn", counted)
    app.run(until_empty=True, concurrency=KEYS_AT_ONCE + 500)
    assert max(turns) <= KEYS_AT_ONCE
    assert {job.code for job in app.jobs("orders")} == {"error"}


def test_one_to_an_earlier_attempt_counts_when_its_engine_is_dead(app: Hipq, queue: Queue, bank: Bank) -> None:
    charge = bank.charge(queue)
    bank.answered(charge)
    job_id = charge.enqueue(key="k")
    engine = ByHand(app, charge)
    engine.end(engine.claim(), Rerun(FAULT))
    engine.claim()
    words = [app.answer("orders", "charge", "k", data, attempt=attempt) for data, attempt in (("1", 1), ("2", None))]
    assert words == ["buffered", "buffered"]
    engine.die()
    (change,) = rescue.orphans(app.store, {queue.number: queue.for_engine()}, app.store.now())
    assert not app.store.turn(0, [change], [], app.store.now()).lost
    assert (app.job(job_id).phase, kept(app)) == ("answered", [("1", "matched"), ("2", "buffered")])


def test_one_to_an_earlier_attempt_counts_when_the_key_is_taken(
    app: Hipq, queue: Queue, run: Run, bank: Bank, clock: HandClock
) -> None:
    @queue.job(retry=fixed(60))
    def charge(job: Job[Any]) -> Wait:
        if job.key == "taken":
            return Wait()
        bank.sent.append(job.attempt)
        if job.attempt == 1:
            raise OSError("it broke")
        app.answer("orders", "charge", job.key, "paid", attempt=1)
        return Wait(key="taken")

    charge.enqueue(key="taken")
    job_id = charge.enqueue(key="k")
    for _ in range(3):
        run()
        clock.advance(seconds=60)
    assert (app.job(job_id).code, app.job(job_id).result, bank.sent) == ("ok", "paid", [1, 2])
