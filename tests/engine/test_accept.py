"""Adding jobs: one, many, from async code, by name, in the user's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, TypedDict

import msgspec
import pytest

from hipq import DuplicateKey, Hipq, Invalid, Job, JobType, Queue
from hipq.job.states import SCHEDULED
from hipq.testing.clock import HandClock

Run = Callable[[], None]


@dataclass
class Charge:
    amount: int
    when: datetime


class Item(msgspec.Struct):
    name: str
    count: int = 1


class Plain(TypedDict):
    name: str


def _tick(_: Job[Any]) -> None: ...


def test_a_new_job_has_every_field_of_seed_004(app: Hipq, queue: Queue, clock: HandClock) -> None:
    job_id = queue.job("work", timeout=60, priority=7, throttle_factor=3)(lambda _: None).enqueue({"a": 1}, key="k")
    job = app.job(job_id)
    now = clock.now() / 1e6
    assert (job.job_type, job.job_key, job.job_data, job.state, job.error, job.attempt) == (
        "work", "k", {"a": 1}, "initial", "NONE", 0,
    )  # fmt: skip
    assert (job.timeout, job.priority, job.throttle_factor, job.time_windows) == (60, 7, 3, [])
    assert job.scheduled_run_time.timestamp() == job.create_time.timestamp() == job.update_time.timestamp() == now
    assert None not in msgspec.structs.astuple(job._row)


def test_a_job_without_a_key_has_its_id_as_key(app: Hipq, queue: Queue) -> None:
    job_id = queue.enqueue("work")
    assert app.job(job_id).key == str(job_id)


@pytest.mark.parametrize("data", ["text", "", None, 0, 1.5, True, [], {}, {"a": [1, {"b": None}]}, "ü😀", "x" * 20_000])
def test_any_json_or_string_reaches_the_handler_as_it_was(queue: Queue, run: Run, data: Any) -> None:
    """I3."""
    seen: list[Any] = []
    queue.job("work")(lambda job: seen.append(job.data))
    queue.enqueue("work", data)
    run()
    assert seen == [data]
    assert type(seen[0]) is type(data)


def test_payloads_are_typed_by_annotation_and_checked_when_added(app: Hipq, queue: Queue) -> None:
    seen: list[Any] = []

    @queue.job
    def charge(job: Job[Charge]) -> None:
        seen.append(job.data)

    @queue.job
    def item(job: Job[Item]) -> None:
        seen.append(job.data)

    @queue.job
    def plain(job: Job[Plain]) -> None:
        seen.append(job.data)

    moment = datetime(2030, 1, 1, tzinfo=UTC)
    charge.enqueue(Charge(5, moment))
    charge.enqueue({"amount": 6, "when": "2030-01-01T00:00:00Z"})  # type: ignore[arg-type]
    item.enqueue({"name": "a"})  # type: ignore[arg-type]
    plain.enqueue({"name": "b"})
    bad: list[tuple[JobType, Any]] = [(charge, {"amount": "5"}), (item, None), (plain, {})]
    for kind, data in bad:
        with pytest.raises(Invalid, match="does not fit"):
            kind.enqueue(data)
    app.run(until_empty=True, concurrency=1)
    assert seen == [Charge(5, moment), Charge(6, moment), Item("a"), {"name": "b"}]
    assert len(app.jobs("orders")) == 4


def test_data_that_no_longer_fits_its_type_is_an_error_on_the_job(make_app: Callable[[], Hipq]) -> None:
    old, new = make_app(), make_app()
    job_id = old.queue("orders").enqueue("work", {"name": 5})

    @new.queue("orders").job
    def work(job: Job[Item]) -> None: ...

    new.run(until_empty=True)
    assert new.job(job_id).code == "error"
    assert "Expected `str`" in new.job(job_id).error


def test_a_live_key_is_refused_or_returns_its_job(app: Hipq, queue: Queue, run: Run) -> None:
    """I6."""
    work = queue.job("work")(lambda _: None)
    job_id = work.enqueue(1, key="order-17")
    with pytest.raises(DuplicateKey, match=f"order-17.*{job_id}"):
        work.enqueue(2, key="order-17")
    assert work.enqueue(2, key="order-17", on_duplicate="return") == job_id
    assert app.job(job_id).data == 1
    run()
    assert work.enqueue(3, key="order-17") != job_id, "free again once its job is final"


def test_enqueue_many_stores_all_or_nothing(app: Hipq, queue: Queue) -> None:
    work = queue.job("work")(lambda _: None)
    held = work.enqueue("held", key="b")
    with pytest.raises(DuplicateKey):
        work.enqueue_many([1, 2, 3], keys=["a", "b", "c"])
    assert len(app.jobs("orders")) == 1
    ids = work.enqueue_many([1, 2, 3], keys=["a", "b", "c"], on_duplicate="return")
    assert ids[1] == held
    assert [app.job(job_id).data for job_id in ids] == [1, "held", 3]
    with pytest.raises(Invalid, match="3 jobs and 2 keys"):
        work.enqueue_many([1, 2, 3], keys=["x", "y"])
    assert work.enqueue_many([]) == []


def test_to_add_no_jobs_at_all_returns_at_once(queue: Queue) -> None:
    work = queue.job("work")(lambda _: None)
    assert work.enqueue_many([]) == []
    assert asyncio.run(asyncio.wait_for(work.aenqueue_many([]), 30)) == []


@pytest.mark.parametrize("option", ["dely", "rules", "trace", "lane_by"])
def test_an_option_that_there_is_not_is_refused_with_those_that_there_are(queue: Queue, option: str) -> None:
    work, given = queue.job("work")(lambda _: None), {option: None}
    for add in (
        lambda: work.enqueue(1, **given),  # type: ignore[arg-type]
        lambda: work.enqueue_many([1], **given),  # type: ignore[arg-type]
        lambda: queue.enqueue("work", 1, **given),  # type: ignore[arg-type]
        lambda: queue.enqueue_many("work", [1], **given),  # type: ignore[arg-type]
        lambda: asyncio.run(work.aenqueue(1, **given)),  # type: ignore[arg-type]
        lambda: asyncio.run(work.aenqueue_many([1], **given)),  # type: ignore[arg-type]
    ):
        with pytest.raises(
            TypeError, match=f"(enqueue has no option {option}; there are at, |unexpected keyword argument '{option}')"
        ):
            add()
    for declare in (work.cron, queue.cron):
        with pytest.raises(TypeError, match=f"cron has no option {option}; there are tz, name, missed, overlap, lane"):
            declare("* * * * *", **given)(_tick)  # type: ignore[arg-type, misc]
    assert queue.app.jobs("orders") == []


def test_an_option_that_there_is_not_is_an_error_of_the_handler_that_gave_it(app: Hipq, queue: Queue, run: Run) -> None:
    job_id = queue.job("work")(lambda job: job.enqueue("next", 1, dely=5)).enqueue()  # type: ignore[call-arg, arg-type, return-value]
    run()
    assert "enqueue has no option dely; there are at, delay, key" in app.job(job_id).error
    assert [job.id for job in app.jobs("orders")] == [job_id]


def test_a_bad_one_among_many_stores_none(app: Hipq, queue: Queue) -> None:
    with pytest.raises(Invalid, match=r"NaN|nan"):
        queue.enqueue_many("work", [1, 2, float("nan")])
    assert app.jobs("orders") == []


def test_concurrent_aenqueue_calls_share_transactions(app: Hipq, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    work = queue.job("work")(lambda _: None)
    held = work.enqueue("held", key="k1")
    calls: list[int] = []
    enqueue = app.store.enqueue

    def counted(jobs: Any, **options: Any) -> Any:
        calls.append(len(jobs))
        return enqueue(jobs, **options)

    monkeypatch.setattr(app.store, "enqueue", counted)

    async def main() -> Any:
        one_by_one = [work.aenqueue(n, key=f"k{n}") for n in range(64)]
        more = [
            work.aenqueue_many(["x", "y"], keys=["x", "k1"]),
            work.aenqueue("again", key="k1", on_duplicate="return"),
            work.aenqueue_many(["p", "q"]),
        ]
        return await asyncio.gather(*one_by_one, *more, return_exceptions=True)

    found = asyncio.run(main())
    assert isinstance(found[1], DuplicateKey)
    ids = [job_id for n, job_id in enumerate(found[:64]) if n != 1]
    assert len(set(ids)) == 63
    assert isinstance(found[64], DuplicateKey), "all or nothing, also in company"
    assert found[65] == held
    assert len(found[66]) == 2
    assert sum(calls) == 64 + 2 + 1 + 2
    assert len(calls) < 10
    assert len(app.jobs("orders", limit=1000)) == 1 + 63 + 2


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({}, 0),
        ({"delay": 30}, 30),
        ({"delay": timedelta(minutes=1)}, 60),
        ({"delay": 0.25}, 0.25),
        ({"at": datetime(2027, 1, 15, 9, tzinfo=UTC)}, 3600),
        ({"at": datetime(2027, 1, 15, 9, tzinfo=timezone(timedelta(hours=2)))}, -3600),
    ],
)
def test_when_a_job_is_scheduled(
    app: Hipq, queue: Queue, clock: HandClock, options: dict[str, Any], start: float
) -> None:
    job = app.job(queue.enqueue("work", **options))
    assert job.scheduled_run_time.timestamp() == clock.now() / 1e6 + start
    assert job.phase == ("scheduled" if start > 0 else "ready")


def test_no_job_starts_before_its_time(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    """I10."""
    seen: list[float] = []
    queue.job("work")(lambda _: seen.append(clock.now()))
    job_id = queue.enqueue("work", delay=10)
    for _ in range(9):
        clock.advance(seconds=1)
        run()
    clock.advance(seconds=0.999999)
    run()
    assert seen == []
    clock.advance(seconds=0.000001)
    run()
    assert seen == [app.job(job_id)._row.scheduled_run_time]


def test_a_clock_set_back_starts_nothing_early(app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    """I10, F9."""
    seen: list[int] = []
    queue.job("work")(lambda _: seen.append(1))
    queue.enqueue("work", delay=10)
    clock.step(10)
    assert app.store.stage(queue.number, SCHEDULED, clock.now(), 10) == 1
    clock.step(-10)
    run_briefly(app)
    assert seen == []
    clock.step(10)
    run()
    assert seen == [1]


def run_briefly(app: Hipq) -> None:
    engine = app.engine()
    try:
        for _ in range(5):
            engine.turn()
    finally:
        engine.executor.close()


def test_a_type_unknown_here_is_registered_by_its_first_job(make_app: Callable[[], Hipq]) -> None:
    one, two = make_app(), make_app()
    queue = one.queue("orders")
    job_id = queue.enqueue("mystery", {"a": 1})
    assert [kind.name for kind in queue.job_types] == ["mystery"]
    one.run(until_empty=True)
    assert one.job(job_id).state == "initial", "no code for it here: left alone"
    two.queue("orders").job("mystery")(lambda job: job.data)
    two.run(until_empty=True)
    assert one.job(job_id).result == {"a": 1}


def test_a_million_jobs_of_a_type_without_code_do_not_stop_the_others(app: Hipq, queue: Queue, run: Run) -> None:
    queue.enqueue_many("unknown", range(2_000))
    known = queue.job("known")(lambda _: None).enqueue()
    run()
    assert app.job(known).code == "ok"


def test_a_job_type_is_still_a_function(queue: Queue) -> None:
    @queue.job
    def double(job: Any) -> Any:
        return job * 2

    plain: Any = double.fn
    assert double(4) == plain(4) == 8
    with pytest.raises(Invalid, match="already"):
        queue.job("double")(lambda _: None)
    queue.enqueue("nameless")
    with pytest.raises(Invalid, match="no handler"):
        _ = queue.job_types[1].fn
