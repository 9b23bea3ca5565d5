"""advance: everything runs at its own moment, and a year takes no time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hipq import Failed, Hipq, Invalid, Job, Ok, Wait, admit, defer, fixed, limit, per_lane, rate, reject, share, window
from hipq.testing import Harness, Ran, harness

START = datetime(2027, 1, 15, 8, tzinfo=UTC)  # a Friday


def when(ran: list[Ran]) -> list[tuple[str, float]]:
    """What ran, and how many seconds after the start."""
    return [(run.key, (run.at - START).total_seconds()) for run in ran]


def test_what_becomes_due_runs_at_its_own_moment_and_in_order(app: Hipq, db: str) -> None:
    queue = app.queue("orders")
    seen: list[datetime] = []

    @queue.job
    def work(job: Job[Any]) -> None:
        seen.append(shop.now)
        if job.data:
            job.enqueue(work, key=f"after-{job.key}", delay=job.data)

    with harness(app, db=db) as shop:
        assert shop.now == START
        work.enqueue(key="in an hour", delay=3600)
        work.enqueue(90, key="in ten minutes", delay=600)
        work.enqueue(key="at", at=START + timedelta(minutes=30))
        work.enqueue(key="tomorrow", delay=86_400)
        ran = shop.advance(hours=1)
        assert when(ran) == [
            ("in ten minutes", 600),
            ("after-in ten minutes", 690),
            ("at", 1800),
            ("in an hour", 3600),  # what is due at the end runs too
        ]
        assert seen == [run.at for run in ran]
        assert shop.now == START + timedelta(hours=1)
        assert shop.advance(days=0.5, hours=1, minutes=1, seconds=1) == []
        assert shop.now == START + timedelta(hours=14, minutes=1, seconds=1)
        assert when(shop.advance(timedelta(days=1))) == [("tomorrow", 86_400)]
        assert shop.job(work, "tomorrow").update_time == START + timedelta(days=1)
        shop.assert_empty()


def test_advance_to_and_what_time_does_not_do(app: Hipq) -> None:
    rome = datetime(2030, 6, 1, 12, tzinfo=UTC)
    with harness(app, start=rome) as shop:
        assert shop.now == rome
        shop.advance_to(rome + timedelta(days=2))
        assert shop.now == rome + timedelta(days=2)
        with pytest.raises(Invalid, match="backwards: it is 2030-06-03T12:00:00"):
            shop.advance_to(rome)
        with pytest.raises(Invalid, match="backwards"):
            shop.advance(hours=-1)
        with pytest.raises(Invalid, match="time zone"):
            shop.advance_to(datetime(2031, 1, 1))
        with pytest.raises(Invalid, match=r"advance\(hours=3\)"):
            shop.advance(3)  # type: ignore[arg-type]
        assert shop.now == rome + timedelta(days=2)


def test_a_microsecond_counts(app: Hipq, shop: Harness) -> None:
    work = app.queue("orders").job("work")(lambda _job: None)
    at = START + timedelta(days=3650, microseconds=1)
    work.enqueue(key="one", at=at)
    assert shop.advance_to(at - timedelta(microseconds=1)) == []
    (ran,) = shop.advance(timedelta(microseconds=1))
    assert ran.at == shop.now == at


def test_retries_and_time_outs(app: Hipq, db: str) -> None:
    queue = app.queue("orders")

    @queue.job(timeout=7200, retry=fixed(300, attempts=3))
    def charge(job: Job[Any]) -> Wait:
        if job.attempt == 1:
            raise ConnectionError("the bank is closed")
        return Wait()

    with harness(app, db=db) as shop:
        job_id = charge.enqueue(key="17")
        shop.run_until_idle()
        shop.assert_scheduled(job_id, at=timedelta(minutes=5), error="the bank is closed")
        shop.advance(minutes=5)
        shop.assert_waiting(job_id, until=timedelta(hours=2), attempts=2)
        shop.advance(hours=2)
        shop.assert_scheduled(job_id, at=START + timedelta(hours=2, minutes=10))
        ran = shop.advance(days=1)
        assert [(run.name, (run.at - START).total_seconds()) for run in ran] == [
            ("charge", 7800.0),
            ("charge.retry", 15_000.0),
        ]
        shop.assert_failed(charge, "17", error="TimeoutError", attempts=3)


def test_heartbeats_on_timeout_and_lifetime(app: Hipq, shop: Harness) -> None:
    queue = app.queue("orders")
    quiet = queue.job("quiet")(lambda _job: Wait(timeout=3600, heartbeat=60, on_timeout=Ok("silence")))
    quiet.enqueue(key="1")
    shop.advance(seconds=59)
    shop.assert_waiting(quiet, "1")
    shop.advance(seconds=1)
    shop.assert_ok(quiet, "1", result="silence")

    mortal = queue.job("mortal", lifetime=1000, retry=fixed(300, attempts=100))(lambda _job: 1 / 0)
    mortal.enqueue(key="2")
    shop.advance(days=1)
    shop.assert_failed(mortal, "2", attempts=5)


def test_windows_open_and_close(app: Hipq, db: str) -> None:
    queue = app.queue("orders", throttle_limit=1)
    night = window("22:00", "05:00", tz="Europe/Rome")

    @queue.job(windows=[night])
    def reindex(_job: Job[Any]) -> Wait:
        return Wait()

    with harness(app, db=db) as shop:
        reindex.enqueue(key="first")
        reindex.enqueue(key="second")
        assert shop.run_until_idle() == []
        shop.assert_scheduled(reindex, "first", at=datetime(2027, 1, 15, 21, tzinfo=UTC))
        (ran,) = shop.advance(hours=15)
        assert (ran.key, ran.at.hour) == ("first", 21)
        assert shop.advance_to(datetime(2027, 1, 16, 4, tzinfo=UTC)) == []  # the limit is full until the window closes
        reindex.answer("first")
        assert shop.run_until_idle() == []
        (ran,) = shop.advance(days=1)
        assert (ran.key, ran.at) == ("second", datetime(2027, 1, 16, 21, tzinfo=UTC))


def test_cron_ticks_for_a_year_in_no_time(app: Hipq, shop: Harness) -> None:
    queue = app.queue("chores")
    daily = queue.cron("0 6 * * *", {"deep": False}, tz="Europe/Rome")(_nothing)
    daily.cron("0 3 1 * *", {"deep": True}, name="monthly")
    began = time.perf_counter()
    ran = shop.advance(days=365)
    took = time.perf_counter() - began
    assert took < 120, f"{took:.1f} s"
    assert len(ran) == 365 + 12
    summer = datetime(2027, 7, 1, 4, tzinfo=UTC)
    assert summer in [run.at for run in ran]  # six in Rome
    assert ran[0].at == datetime(2027, 1, 16, 5, tzinfo=UTC)
    shop.assert_enqueued(daily, {"deep": True}, count=12)


def _nothing(_job: Job[Any]) -> None: ...


def test_a_year_of_silence_is_one_jump(app: Hipq, db: str) -> None:
    work = app.queue("orders").job("work")(_nothing)
    with harness(app, db=db) as shop:
        work.enqueue(key="far", at=START + timedelta(days=36_500))
        events: list[str] = []
        app.events.subscribe(lambda event: events.append(event.name))
        began = time.perf_counter()
        assert len(shop.advance(days=36_500)) == 1
        assert time.perf_counter() - began < 60
        assert "lease lost" not in events


def test_a_tick_is_skipped_while_the_job_before_is_not_final(app: Hipq, db: str) -> None:
    queue = app.queue("chores")

    @queue.cron("*/10 * * * *", tz="UTC")
    def slow(_job: Job[Any]) -> Wait:
        return Wait(timeout=1500, on_timeout=Ok("done"))

    with harness(app, db=db) as shop:
        ran = shop.advance(hours=1)
        assert [run.at.minute for run in ran] == [10, 40]
        shop.assert_enqueued(slow, count=2)


def test_limits_and_lanes_hold_while_jobs_wait(app: Hipq, db: str) -> None:
    queue = app.queue(
        "meters",
        limits=[limit(4), share({"east": 50, "west": 50}), per_lane(3)],
        lane_by=lambda job: job.data["region"],
    )

    @queue.job
    def read(_job: Job[Any]) -> Wait:
        return Wait()

    with harness(app, db=db) as shop:
        for number in range(4):
            read.enqueue({"region": "east"}, key=f"east-{number}")
        read.enqueue({"region": "west"}, key="west-0")
        assert [run.key for run in shop.run_until_idle()] == ["east-0", "east-1", "west-0"]
        read.answer("east-1")
        assert [run.key for run in shop.run_until_idle()] == ["east-2"]
        app.rules.set_limit("meters", 100)
        assert [run.key for run in shop.run_until_idle()] == ["east-3"]
        app.pause("meters")
        read.enqueue({"region": "west"}, key="west-1")
        assert shop.advance(days=1) == []  # they time out later than that
        app.resume("meters")
        assert [run.key for run in shop.run_until_idle()] == ["west-1"]


def test_rates_let_jobs_start_as_time_passes(app: Hipq, db: str) -> None:
    queue = app.queue("orders", limits=[rate(2, per=10)])
    work = queue.job("work")(_nothing)
    with harness(app, db=db) as shop:
        for number in range(5):
            work.enqueue(key=str(number))
        assert when(shop.run_until_idle()) == [("0", 0), ("1", 0)]
        assert when(shop.advance(minutes=1)) == [("2", 10), ("3", 10), ("4", 20)]


def test_throttlers_decide_and_are_asked_again(app: Hipq, db: str) -> None:
    asked: list[datetime] = []

    def by_day(due: list[Job[Any]], running: list[Job[Any]], now: datetime) -> Iterator[Any]:
        asked.append(now)
        for job in due:
            if job.key == "gone":
                yield reject(job, "it is gone")
            elif job.key == "later":
                if now < START + timedelta(hours=1):
                    yield defer(job, START + timedelta(hours=1))
                else:
                    yield admit(job)
            elif job.key == "after ten":
                if now.hour >= 10:
                    yield admit(job)
            elif len(running) < 1:
                yield admit(job)
                running = [job]

    queue = app.queue("orders", throttler=by_day)

    @queue.job
    def work(job: Job[Any]) -> Wait | None:
        return Wait() if job.key.startswith("waits") else None

    with harness(app, db=db) as shop:
        for key in ("gone", "later", "after ten", "waits 1", "waits 2"):
            work.enqueue(key=key)
        assert [run.key for run in shop.run_until_idle()] == ["waits 1"]
        shop.assert_failed(work, "gone", error="it is gone", attempts=0)
        shop.assert_scheduled(work, "later", at=timedelta(hours=1))
        work.answer("waits 1")
        assert [run.key for run in shop.run_until_idle()] == ["waits 2"]
        before = len(asked)
        assert when(shop.advance(hours=3)) == [("later", 3600), ("after ten", 2 * 3600)]
        assert len(asked) - before < 200  # once a minute while one is parked, and no more
        work.answer("waits 2")
        shop.run_until_idle()
        shop.assert_empty()


def test_a_throttler_that_changed_its_mind_is_asked_at_once(app: Hipq, shop: Harness) -> None:
    open_for = set[str]()
    queue = app.queue("orders", throttler=lambda due, *_: [admit(job) for job in due if job.key in open_for])
    work = queue.job("work")(_nothing)
    for key in "ab":
        work.enqueue(key=key)
    assert shop.run_until_idle() == []
    open_for.add("b")
    assert [run.key for run in shop.run_until_idle()] == ["b"]
    open_for.add("a")
    assert [run.key for run in shop.run_until_idle()] == ["a"]


def test_a_throttler_is_asked_about_more_than_a_page(app: Hipq, shop: Harness) -> None:
    queue = app.queue("orders", throttler=lambda due, _running, _now: [admit(job) for job in due if job.data == "last"])
    work = queue.job("work")(_nothing)
    work.enqueue_many(["other"] * 1300)
    work.enqueue("last", key="last")
    assert [run.key for run in shop.run_until_idle()] == ["last"]
    assert shop.now == START


def test_a_throttler_with_nothing_to_say_costs_no_time(app: Hipq, shop: Harness) -> None:
    queue = app.queue("orders", throttler=lambda due, *_: [admit(job) for job in due])
    waits = queue.job("waits", timeout=timedelta(days=1000))(lambda _job: Wait())
    daily = queue.cron("0 6 * * *")(_nothing)
    waits.enqueue(key="1")
    began = time.perf_counter()
    assert len(shop.advance(days=100)) == 101
    assert time.perf_counter() - began < 60
    shop.assert_enqueued(daily, count=100)
    shop.assert_waiting(waits, "1")


def test_a_throttler_with_a_rate_goes_by_the_calendar(app: Hipq, shop: Harness) -> None:
    queue = app.queue(
        "orders", throttler=lambda due, _running, _now: [admit(job) for job in due], limits=[rate(1, per=0.02)]
    )
    work = queue.job("work")(_nothing)
    for number in range(3):
        work.enqueue(key=str(number))
    assert [run.key for run in shop.run_until_idle()] == ["0"]
    ran = shop.advance(minutes=1)
    assert [run.key for run in ran] == ["1", "2"]
    assert START < ran[0].at < ran[1].at < START + timedelta(seconds=1)


def test_the_same_each_time(app: Hipq) -> None:
    from hipq import backoff

    queue, mails = app.queue("orders", throttle_limit=2), app.queue("mails")

    @queue.job(retry=backoff(attempts=4))
    def work(job: Job[Any]) -> Wait:
        job.enqueue(mail, job.key, delay=5)
        if job.attempt < 3:
            raise ConnectionError
        return Wait()

    @mails.job(retry=backoff(attempts=2))
    async def mail(job: Job[Any]) -> None:
        if job.data == "3":
            raise Failed("no such address")

    def story() -> list[Any]:
        with harness(app) as shop:
            shop.replies(work, lambda job: {"for": job.key}, after=0)
            for number in range(6):
                work.enqueue(key=str(number), delay=number % 3)
            return [(run.name, run.key, run.at, run.attempt) for run in shop.advance(hours=1)]

    first = story()
    assert len(first) > 20
    assert story() == first
    assert story() == first
