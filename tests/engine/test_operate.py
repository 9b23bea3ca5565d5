"""What an operator does to jobs, one and many, on both stores."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from hipq import Answer, Conflict, Failed, Hipq, Invalid, Job, Queue, Wait, fixed, window
from hipq.job.when import to_datetime
from hipq.operate import PAGE, Changed
from hipq.testing.clock import HandClock
from tests.their_connection import committed

pytestmark = pytest.mark.every_store

Run = Callable[[], None]


@pytest.fixture
def done(queue: Queue) -> list[int]:
    """Numbers in the order their jobs ran."""
    ran: list[int] = []

    @queue.job
    def note(job: Job[Any]) -> None:
        ran.append(job.data)

    return ran


# -- time and priority -------------------------------------------------------------------------------------------------
def test_another_priority_is_another_place(app: Hipq, queue: Queue, done: list[int], run: Run) -> None:
    ids = queue.enqueue_many("note", [1, 2, 3])
    app.jobs.change(ids[2], priority=1)
    run()
    assert done == [3, 1, 2]
    assert app.job(ids[2]).history[0]["event"] == "changed"
    assert app.job(ids[2]).history[0]["priority"] == 1


def test_another_time_later_and_sooner(app: Hipq, queue: Queue, done: list[int], run: Run, clock: HandClock) -> None:
    now, later = queue.enqueue("note", 1), queue.enqueue("note", 2, delay=3600)
    app.jobs.change(now, delay=timedelta(minutes=30))
    app.jobs.change(later, at=to_datetime(clock.now()))
    assert (app.job(now).phase, app.job(later).phase) == ("scheduled", "ready")
    run()
    assert done == [2]
    clock.advance(minutes=31)
    run()
    assert done == [2, 1]


def test_a_window_holds_for_a_changed_time_too(app: Hipq, queue: Queue, done: list[int], clock: HandClock) -> None:
    job_id = queue.enqueue("note", 1, windows=[window("10:00", "11:00", tz="UTC")])  # it is eight o'clock
    app.jobs.change(job_id, at=to_datetime(clock.now()))
    assert app.job(job_id).phase == "scheduled"
    assert app.job(job_id).scheduled_run_time.hour == 10
    assert done == []


def test_by_priority_a_queue_nobody_declared_here_keeps_its_order(make_app: Callable[[], Hipq]) -> None:
    mine, other = make_app(), make_app()
    queue = mine.queue("mails", order="priority")
    ran: list[int] = []

    @queue.job
    def note(job: Job[Any]) -> None:
        ran.append(job.data)

    mine.run(until_empty=True)  # which writes down what the code says
    ids = queue.enqueue_many("note", [1, 2, 3], priority=50)
    other.known("mails")
    other.jobs.change(ids[2], priority=3)
    other.jobs.change(ids[1], priority=70)
    mine.run(until_empty=True)
    assert ran == [3, 1, 2]


def test_what_has_started_is_not_changed(app: Hipq, queue: Queue, run: Run) -> None:
    @queue.job
    def ask(_job: Job[Any]) -> Wait:
        return Wait()

    job_id = queue.enqueue("ask")
    run()
    with pytest.raises(Conflict, match=r"is running \(waiting\); time and priority are changed before a job starts"):
        app.jobs.change(job_id, priority=1)
    with pytest.raises(Conflict, match="waits for its answer until 2027-01-16T08:00:00"):
        app.retry_now(job_id)
    app.cancel(job_id)
    with pytest.raises(Conflict, match=r"is final \(cancelled\)"):
        app.jobs.change(job_id, priority=1)


def test_a_change_says_what(app: Hipq, queue: Queue) -> None:
    job_id = queue.enqueue("note", 1)
    with pytest.raises(Invalid, match="say what to change"):
        app.jobs.change(job_id)
    with pytest.raises(Invalid, match="not both"):
        app.jobs.change(job_id, at=to_datetime(0), delay=1)
    with pytest.raises(Invalid, match="priority"):
        app.jobs.change(job_id, priority=1 << 31)


# -- again -------------------------------------------------------------------------------------------------------------
def test_a_job_like_one_that_has_ended(app: Hipq, queue: Queue, run: Run) -> None:
    ran: list[tuple[int, Any, str, int]] = []

    @queue.job(timeout=7, priority=33, throttle_factor=2)
    def refused(job: Job[Any]) -> None:
        ran.append((job.id, job.data, job.key, job.priority))
        raise Failed("no")

    first = queue.enqueue("refused", {"large": "x" * 20_000}, key="order-1", lane="east")
    run()
    second = app.jobs.requeue(first)
    with pytest.raises(Conflict, match="has not ended"):
        app.jobs.requeue(second)
    run()
    assert ran == [(job_id, {"large": "x" * 20_000}, "order-1", 33) for job_id in (first, second)]
    assert (app.job(second).timeout, app.job(second).throttle_factor) == (7, 2)
    keyless = queue.enqueue("refused", 1)
    run()
    assert app.job(app.jobs.requeue(keyless)).key != str(keyless)


# -- many --------------------------------------------------------------------------------------------------------------
@pytest.fixture
def some(queue: Queue, run: Run, clock: HandClock) -> dict[str, list[int]]:
    """Jobs at many points, added an hour apart."""

    @queue.job
    def fine(_job: Job[Any]) -> None: ...

    @queue.job
    def bad(_job: Job[Any]) -> None:
        raise ConnectionError("the bank is away")

    @queue.job(retry=fixed(600, attempts=5))
    def stubborn(_job: Job[Any]) -> None:
        raise TimeoutError("too slow")

    @queue.job
    def asks(_job: Job[Any]) -> Wait:
        return Wait()

    found: dict[str, list[int]] = {}
    found["fine"] = [queue.enqueue("fine", n, lane="east") for n in range(2)]
    found["bad"] = [queue.enqueue("bad", n, lane="west") for n in range(3)]
    found["stubborn"] = [queue.enqueue("stubborn", n) for n in range(3)]
    found["asks"] = [queue.enqueue("asks", n) for n in range(2)]
    run()
    clock.advance(hours=1)
    found["later"] = [queue.enqueue("fine", n, delay=9999, lane="east") for n in range(4)]
    return found


def test_filters(app: Hipq, some: dict[str, list[int]], clock: HandClock) -> None:
    def ids(**wanted: Any) -> list[int]:
        found = [job.id for job in app.jobs("orders", oldest=True, **wanted)]
        assert app.jobs.count("orders", **wanted) == len(found)
        return found

    assert len(ids()) == 14
    assert ids(lane="west") == some["bad"]
    assert ids(lane="east", state="final") == some["fine"]
    assert ids(code="error", state="final") == some["bad"]
    assert ids(error="the bank") == some["bad"]
    assert ids(error="ConnectionError") == some["bad"]
    assert ids(error="100%") == []
    assert ids(phase="scheduled") == [*some["stubborn"], *some["later"]]
    assert ids(older_than=1800) == sorted(set(ids()) - set(some["later"]))
    assert ids(newer_than=timedelta(minutes=30)) == some["later"]
    assert ids(since=to_datetime(clock.now())) == some["later"]
    assert ids(before=to_datetime(clock.now()), type="fine") == some["fine"]
    assert app.jobs.count("orders", live=True) == 9
    assert app.jobs.count("orders", live=False) == 5
    assert app.jobs.count("orders", most=3) == 3
    with pytest.raises(Invalid, match="jobs have no colour to filter by"):
        app.jobs("orders", colour="red")  # type: ignore[call-arg]
    with pytest.raises(Invalid, match="no code 'good'"):
        app.jobs("orders", code="good")


def test_many_are_cancelled(app: Hipq, some: dict[str, list[int]]) -> None:
    assert app.jobs.cancel_all("orders", "enough", type="asks") == Changed(2, 0)
    assert app.jobs.cancel_all("orders", "enough", type="asks") == Changed(0, 0)
    steps: list[Changed] = []
    assert app.jobs.cancel_all("orders", progress=steps.append) == Changed(7, 0)
    assert steps == [Changed(7, 0)]
    jobs = {job.id: job for job in app.jobs("orders", code="cancelled")}
    assert set(jobs) == {*some["asks"], *some["stubborn"], *some["later"]}
    assert {str(jobs[job_id].fault) for job_id in some["asks"]} == {"enough"}
    assert app.jobs.count("orders", live=True) == 0


def test_many_are_hurried(app: Hipq, some: dict[str, list[int]], run: Run) -> None:
    assert app.jobs.retry_all("orders", type="stubborn") == Changed(3, 0)
    assert app.jobs.retry_all("orders") == Changed(4, 5)  # three are ready by now, and two wait for their answers
    run()
    assert {app.job(job_id).code for job_id in some["later"]} == {"ok"}
    assert {app.job(job_id).attempt for job_id in some["stubborn"]} == {2}


def test_many_are_changed(app: Hipq, some: dict[str, list[int]]) -> None:
    assert app.jobs.change_all("orders", priority=7, lane="east") == Changed(4, 0)
    assert {app.job(job_id).priority for job_id in some["later"]} == {7}
    assert app.jobs.change_all("orders", delay=5, type="asks") == Changed(0, 2)


def test_many_are_added_again_once(app: Hipq, some: dict[str, list[int]], run: Run) -> None:
    assert app.jobs.requeue_all("orders", error="the bank") == Changed(3, 0)
    run()
    assert len(app.jobs("orders", type="bad")) == 2 * len(some["bad"])


def test_one_that_has_a_live_twin_is_not_added_again(app: Hipq, queue: Queue, run: Run) -> None:
    @queue.job
    def bad(_job: Job[Any]) -> None:
        raise Failed("no")

    queue.enqueue("bad", key="a")
    run()
    queue.enqueue("bad", key="a")
    assert app.jobs.requeue_all("orders", code="failed") == Changed(0, 1)


def test_more_than_a_page(app: Hipq, queue: Queue, done: list[int], run: Run) -> None:
    queue.enqueue_many("note", range(2 * PAGE + 7), delay=60)
    steps: list[Changed] = []
    assert app.jobs.retry_all("orders", progress=steps.append) == Changed(2 * PAGE + 7, 0)
    sizes = [step.changed for step in steps]
    assert sizes[0] < max(sizes) <= PAGE
    assert len(sizes) > 3
    run()
    assert sorted(done) == list(range(2 * PAGE + 7))


def test_what_is_added_meanwhile_is_not_meant(app: Hipq, queue: Queue, clock: HandClock) -> None:
    queue.enqueue_many("note", range(PAGE), delay=600)
    clock.advance(seconds=1)

    def more(_step: Changed) -> None:
        clock.advance(seconds=1)
        queue.enqueue_many("note", range(50), delay=600)

    assert app.jobs.cancel_all("orders", progress=more) == Changed(PAGE, 0)
    assert app.jobs.count("orders", live=True) >= 50


def test_pages_of_large_jobs_are_small(app: Hipq, queue: Queue) -> None:
    queue.enqueue_many("note", ["x" * 200_000] * 120)
    steps: list[Changed] = []
    assert app.jobs.cancel_all("orders", progress=steps.append) == Changed(120, 0)
    assert [step.changed for step in steps][:2] == [50, 12]


def test_a_filter_that_is_empty_is_not_everything(app: Hipq, queue: Queue) -> None:
    queue.enqueue("note", 1)
    for name in ("key", "type", "state", "phase", "lane", "code", "error"):
        with pytest.raises(Invalid, match=f"{name} must be a text that is not empty"):
            app.jobs.cancel_all("orders", **{name: ""})  # type: ignore[arg-type]
    assert app.jobs.cancel_all("orders", before=to_datetime(0)) == Changed(0, 0)
    assert app.jobs.count("orders", live=True) == 1


def test_what_is_added_again_is_told(app: Hipq, queue: Queue) -> None:
    ids = queue.enqueue_many("note", [1, 2, 3])
    app.jobs.cancel_all("orders")
    told: list[int] = []
    app.events.subscribe(lambda event: told.append(event.job.id if event.job else 0), "added")
    new = app.jobs.requeue(ids[0])
    assert app.jobs.requeue_all("orders", code="cancelled") == Changed(3, 0)
    assert len(told) == 4
    assert told[0] == new


def test_a_job_that_somebody_holds_does_not_hold_up_the_others(app: Hipq, queue: Queue, url: str) -> None:
    if url.startswith("sqlite"):
        return  # it has one lock for all
    ids = queue.enqueue_many("note", range(5))
    with committed(url) as conn:
        conn.execute(f"SELECT 1 FROM shop_orders WHERE id = {ids[2]} FOR UPDATE")
        assert app.jobs.cancel_all("orders") == Changed(4, 1)
    assert app.jobs.cancel_all("orders") == Changed(1, 0)


def test_an_answer_handler_that_failed_is_called_again_now(app: Hipq, queue: Queue, run: Run) -> None:
    broken = [True]

    @queue.job
    def ask(_job: Job[Any]) -> Wait:
        return Wait()

    @ask.answered
    def look(_job: Job[Any], answer: Answer) -> Any:
        if broken:
            raise OSError("a bug")
        return answer.data

    job_id = ask.enqueue(key="a")
    run()
    ask.answer("a", 5)
    run()
    assert app.job(job_id).phase == "waiting"
    broken.clear()
    app.retry_now(job_id)
    run()
    assert (app.job(job_id).code, app.job(job_id).result) == ("ok", 5)


def test_jobs_that_move_on_meanwhile_are_done_one_by_one(
    app: Hipq, queue: Queue, make_app: Callable[[], Hipq], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the page that is read and the transaction that changes it another program is faster."""
    other = make_app()
    other.known("orders")
    ids = queue.enqueue_many("note", range(5), delay=60)
    turn, faster = app.store.turn, iter([ids[1], ids[3]])

    def late(*given: Any, **more: Any) -> Any:
        if given[1] and (job_id := next(faster, None)):
            other.jobs.change(job_id, priority=5)
            other.cancel(next(faster))
        return turn(*given, **more)

    monkeypatch.setattr(app.store, "turn", late)
    assert app.jobs.change_all("orders", priority=9) == Changed(4, 1)
    assert [app.job(job_id).priority for job_id in ids] == [9, 9, 9, 100, 9]
    assert app.job(ids[3]).state == "final"


# -- prune -------------------------------------------------------------------------------------------------------------
def test_all_but_the_last_go(app: Hipq, queue: Queue, done: list[int], run: Run, clock: HandClock) -> None:
    ids = []
    for n in range(4):
        ids += queue.enqueue_many("note", [n] * 3)
        run()  # three at a time end at the same moment
        clock.advance(minutes=1)
    assert app.jobs.prune(keep=12) == 0
    assert app.jobs.prune(keep=5) == 7
    assert [job.id for job in app.jobs("orders", oldest=True)] == ids[7:]
    assert app.jobs.prune(keep=0) == 5
    assert len(done) == 12


def test_age_or_number_whichever_comes_first(
    app: Hipq, queue: Queue, done: list[int], run: Run, clock: HandClock
) -> None:
    ids = []
    for n in range(4):
        ids.append(queue.enqueue("note", n))
        run()
        clock.advance(hours=1)
    assert app.jobs.prune(timedelta(hours=3, minutes=30), keep=3) == 1
    assert app.jobs.prune(timedelta(hours=2, minutes=30), keep=3) == 1
    assert [job.id for job in app.jobs("orders", oldest=True)] == ids[2:]
    with pytest.raises(Invalid, match="say what to delete"):
        app.jobs.prune()
    assert done == [0, 1, 2, 3]


def test_only_of_one_type_or_code(
    app: Hipq, some: dict[str, list[int]], clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hipq.engine.prune.STEP", 2)  # what stays is passed, step by step
    clock.advance(hours=1)
    assert app.jobs.prune(0, code="ok") == 2
    assert app.jobs.prune(0, type="fine") == 0
    assert app.jobs.prune(0, type="bad", code="error") == 3
    assert app.jobs.count("orders", live=False) == 0
    assert len(some["bad"]) == 3
    with pytest.raises(Invalid, match="no code 'NONE'"):
        app.jobs.prune(0, code="NONE")
