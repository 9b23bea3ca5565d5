"""What docs/tables.md promises to programs in other languages, which know nothing but the tables."""

from __future__ import annotations

import fcntl
import logging
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pymysql
import pytest

from hipq import Answer, Hipq, Job, JobType, Ok, Wait, fixed
from hipq.job.model import queue_of
from hipq.job.when import to_datetime
from hipq.observe import logs
from hipq.stores import claim_groups
from tests.databases import STORES, clean, sql
from tests.engine.working import until_empty


class Stranger(Protocol):
    """Another program: statements, and what they return. Each is a transaction of its own."""

    def __call__(self, statement: str) -> list[Any]: ...


ADD = {
    "sqlite": "INSERT INTO shop_orders (id, {names}) SELECT last_id << 16 | number, {values} FROM hipq_queues"
    " WHERE app = 'shop' AND name = 'orders' RETURNING id",
    "postgresql": "INSERT INTO shop_orders (id, {names}) SELECT nextval('shop_orders_ids') << 16 | number, {values}"
    " FROM hipq_queues WHERE app = 'shop' AND name = 'orders' RETURNING id",
    "mariadb": "INSERT INTO shop_orders (id, {names}) SELECT nextval(shop_orders_ids) << 16 | number, {values}"
    " FROM hipq_queues WHERE app = 'shop' AND name = 'orders' RETURNING id",
}
REFUSED = (sqlite3.IntegrityError, psycopg.IntegrityError, pymysql.err.IntegrityError, pymysql.err.OperationalError)
"""What the drivers raise where a value or a key is refused: PyMySQL calls a failed CHECK operational."""
BRING = (
    "INSERT INTO hipq_answers (queue, {names}) SELECT number, {values} FROM hipq_queues"
    " WHERE app = 'shop' AND name = 'orders'"
)


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with clean(request.param, tmp_path / "shop.db") as found:
        yield found


@pytest.fixture
def stranger(url: str) -> Stranger:
    def run(statement: str) -> list[Any]:
        if not url.startswith("sqlite"):
            return sql(url, statement)
        with open(f"{url.removeprefix('sqlite:///')}-hipq", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # as the page says: this Python's SQLite may be an old one
            return sql(url, statement)

    return run


def add(stranger: Stranger, url: str, **values: str) -> int:
    """A job, with these columns as SQL."""
    if url.startswith("sqlite"):
        stranger("UPDATE hipq_queues SET last_id = last_id + 1 WHERE app = 'shop' AND name = 'orders'")
    query = ADD[url.partition(":")[0]].format(names=", ".join(values), values=", ".join(values.values()))
    ((job_id,),) = stranger(query)
    return int(job_id)


def bring(stranger: Stranger, **values: str) -> None:
    stranger(BRING.format(names=", ".join(values), values=", ".join(values.values())))


class Shop:
    def __init__(self, app: Hipq) -> None:
        self.app = app
        self.orders = app.queue("orders")
        self.ran: list[Any] = []

        @self.orders.job
        def pack(job: Job[Any]) -> Any:
            self.ran.append(job.data)
            return {"packed": job.data}

        @self.orders.job
        def charge(_job: Job[Any]) -> Wait:
            return Wait()

        @charge.answered
        def settled(_job: Job[Any], answer: Answer) -> Ok:
            return Ok(answer.data)

        self.pack: JobType = pack
        self.charge: JobType = charge
        app.migrate()


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    app = Hipq("shop", url)
    yield Shop(app)
    app.close()


def work(shop: Shop) -> None:
    shop.app.run(until_empty=True)


def test_a_job_added_in_plain_sql_runs_and_its_result_is_read(shop: Shop, stranger: Stranger, url: str) -> None:
    job_id = add(stranger, url, job_type="'pack'", job_key="'order-17'", job_data="""'{"n": 5}'""")
    assert queue_of(job_id) == shop.orders.number
    assert (job := shop.app.job(job_id)).phase == "scheduled"
    assert (job.timeout, job.priority, job.throttle_factor) == (86_400.0, 100, 1)
    work(shop)
    assert shop.app.result(job_id) == {"packed": {"n": 5}}
    assert stranger(f"SELECT code, result FROM shop_orders_final WHERE id = {job_id}") == [("ok", '{"packed":{"n":5}}')]
    assert shop.pack.enqueue({"n": 6}) > job_id  # ids go on, and none is given twice
    work(shop)


def test_it_takes_its_place_by_time_and_priority(shop: Shop, stranger: Stranger, url: str) -> None:
    shop.app.pause("orders")
    now = shop.app.store.now()
    for seconds, priority in ((-9, 70), (-6, 80), (-6, 20), (-3, 10)):
        at, data = to_datetime(now + seconds * 1_000_000), [seconds, priority]
        if priority in (70, 20):
            shop.pack.enqueue(data, at=at, priority=priority)
        else:
            add(stranger, url, job_type="'pack'", job_key=f"'{priority}'", job_data=f"'{data}'",
                scheduled_run_time=str(now + seconds * 1_000_000), priority=str(priority))  # fmt: skip
    work(shop)
    assert [job.phase for job in shop.app.jobs("orders")] == ["ready"] * 4
    shop.app.resume("orders")
    shop.app.run(until_empty=True, concurrency=1)
    assert shop.ran == [[-9, 70], [-6, 20], [-6, 80], [-3, 10]]


def test_one_live_job_has_a_key_whoever_adds_it(shop: Shop, stranger: Stranger, url: str) -> None:
    add(stranger, url, job_type="'pack'", job_key="'order-17'")
    with pytest.raises(REFUSED):
        add(stranger, url, job_type="'pack'", job_key="'order-17'")
    assert shop.pack.enqueue(key="order-17", on_duplicate="return")
    work(shop)
    assert shop.ran == [None]


def test_one_for_later_waits_for_its_time(shop: Shop, stranger: Stranger, url: str) -> None:
    later = shop.app.store.now() + 3600 * 1_000_000
    job_id = add(stranger, url, job_type="'pack'", job_key="'a'", scheduled_run_time=str(later))
    work(shop)
    assert shop.app.job(job_id).phase == "scheduled"
    assert shop.ran == []


def test_data_that_is_no_json_ends_its_own_job(shop: Shop, stranger: Stranger, url: str) -> None:
    bad = add(stranger, url, job_type="'pack'", job_key="'bad'", job_data="'{'")
    good = add(stranger, url, job_type="'pack'", job_key="'good'", job_data="'1'")
    work(shop)
    assert shop.app.job(bad).code == "error"
    assert "its data is not JSON" in shop.app.job(bad).error
    assert shop.app.job(good).code == "ok"


@pytest.mark.parametrize("size", [8_193, 100_000])
def test_a_large_payload_comes_to_its_handler_whole(shop: Shop, stranger: Stranger, url: str, size: int) -> None:
    add(stranger, url, job_type="'pack'", job_key="'large'", job_data=f"""'"{"x" * size}"'""")
    work(shop)
    assert shop.ran == ["x" * size]


def test_an_empty_payload_ends_its_own_job(shop: Shop, stranger: Stranger, url: str) -> None:
    bad = add(stranger, url, job_type="'pack'", job_key="'bad'", job_data="''")
    good = add(stranger, url, job_type="'pack'", job_key="'good'", job_data="'1'")
    work(shop)
    assert (shop.app.job(bad).code, shop.app.job(good).code) == ("error", "ok")


@pytest.mark.parametrize(
    ("column", "value"),
    [("scheduled_run_time", "0"), ("scheduled_run_time", "-1"), ("timeout", "0"), ("timeout", "1e18"),
     ("throttle_factor", "0"), ("throttle_factor", "-1"), ("throttle_factor", "1000000001"), ("create_time", "-1"),
     ("create_time", str(1 << 62)), ("owner", "77"), ("held", "1000")],
)  # fmt: skip
def test_values_that_no_engine_could_work_with_are_refused(
    shop: Shop, stranger: Stranger, url: str, column: str, value: str
) -> None:
    with pytest.raises(REFUSED):
        add(stranger, url, **{"job_type": "'pack'", "job_key": "'bad'", column: value})
    assert shop.app.jobs("orders") == []


@pytest.mark.parametrize(
    ("column", "value"),
    [("time_windows", "rubbish"), ("time_windows", ""), ("time_windows", '[{"start": "25:00", "end": "01:00"}]'),
     ("meta", "[]"), ("meta", '{"retry": {"x": 1}}'), ("meta", '{"retry": {"registered": []}}')],
)  # fmt: skip
def test_what_no_engine_can_read_ends_its_own_job_and_says_so(
    shop: Shop, stranger: Stranger, url: str, column: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "hipq")
    logs.subscribe(shop.app.events)
    bad = add(stranger, url, **{"job_type": "'pack'", "job_key": "'bad'", column: f"'{value}'"})
    good = add(stranger, url, job_type="'pack'", job_key="'good'", job_data="1")
    until_empty(shop.app)
    assert (shop.app.job(bad).code, shop.app.job(good).code) == ("error", "ok")
    assert f"{column}, {value!r}, cannot be used" in str(shop.app.job(bad).fault)
    assert caplog.text.count(f"job={bad}") == 1
    assert shop.ran == [1]
    shown = shop.app.job(bad)
    assert (shown.attempt, shown.time_windows, shown.then) == (0, [], "")
    assert [entry["event"] for entry in shown.history] == ["error"]


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_meta_that_is_no_json_ends_its_own_job(shop: Shop, stranger: Stranger, url: str) -> None:
    """SQLite refuses it."""
    bad = add(stranger, url, job_type="'pack'", job_key="'bad'", meta="'rubbish'")
    until_empty(shop.app)
    assert "meta, 'rubbish', cannot be used" in str(shop.app.job(bad).fault)


@pytest.mark.parametrize("columns", [{}, {"phase": "'ready'", "rank": "'1'"}])
def test_a_time_zone_that_nobody_here_knows_holds_up_nobody(
    shop: Shop, stranger: Stranger, url: str, columns: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    window = '[{"start": "00:00", "end": "24:00", "tz": "No/Such"}]'
    bad = add(stranger, url, job_type="'pack'", job_key="'bad'", time_windows=f"'{window}'", **columns)
    add(stranger, url, job_type="'pack'", job_key="'good'", job_data="1")
    claim_groups._warn.cache_clear()
    until_empty(shop.app)
    assert shop.ran == [1]
    assert shop.app.job(bad).phase == "ready"
    assert caplog.text.count("has no No/Such") == 1


@pytest.mark.parametrize("column", ["wait", "history", "wait_key", "result"])
def test_columns_that_only_engines_write_become_those_of_a_new_job(
    shop: Shop, stranger: Stranger, url: str, column: str
) -> None:
    @shop.orders.job(retry=fixed(0.001, attempts=2))
    def fails(_: Job[Any]) -> None:
        raise ValueError

    fails.cancelled(lambda _: None)
    bad = add(stranger, url, **{"job_type": "'fails'", "job_key": "'bad'", column: "'rubbish'"})
    add(stranger, url, job_type="'pack'", job_key="'good'", job_data="1")
    while shop.app.job(bad).state != "final":
        until_empty(shop.app)
    assert shop.ran == [1]
    assert (shop.app.job(bad).failures, shop.app.job(bad).result) == (2, None)
    assert [entry["event"] for entry in shop.app.job(bad).history] == ["claimed", "error", "again"] + [
        "claimed",
        "error",
        "gave up",
    ]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_sqlite_refuses_values_of_another_kind(shop: Shop, stranger: Stranger, url: str) -> None:
    kinds = {
        "priority": "1.5",
        "scheduled_run_time": "'now'",
        "throttle_factor": "0.5",
        "job_data": "x'00'",
        "lane": "x'00'",
    }
    for column, value in kinds.items():
        with pytest.raises(sqlite3.IntegrityError):
            add(stranger, url, **{"job_type": "'pack'", "job_key": "'bad'", column: value})
    for column, value in {"error": "'yes'", "attempt": "1.5", "data": "x'00'", "arrived": "'now'"}.items():
        with pytest.raises(sqlite3.IntegrityError):
            bring(stranger, **{"job_type": "'charge'", "job_key": "'k'", "data": "'1'"} | {column: value})
    assert [*shop.app.jobs("orders"), *shop.app.answers.list("orders")] == []


def test_jobs_in_plain_sql_start_beside_a_stream_of_scheduled_ones(shop: Shop, stranger: Stranger, url: str) -> None:
    with shop.app.working():
        job_id = add(stranger, url, job_type="'pack'", job_key="'plain'", job_data="'\"plain\"'")
        until = time.monotonic() + 120
        while shop.app.job(job_id).state != "final":  # each of these is staged, and the next is there by then
            shop.pack.enqueue_many([None] * 5, delay=0.02)
            assert time.monotonic() < until


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_an_answer_whose_job_is_locked_holds_up_nobody(shop: Shop, stranger: Stranger, url: str) -> None:
    waiting = shop.charge.enqueue(key="locked")
    work(shop)
    seen: list[str] = []
    shop.app.events.subscribe(lambda event: seen.append(event.name))
    with psycopg.connect(url) as other, shop.app.working(lease=3):
        other.execute(f"SELECT 1 FROM shop_orders WHERE id = {waiting} FOR UPDATE")
        bring(stranger, job_type="'charge'", job_key="'locked'", data="'1'")
        for _ in range(3):
            assert shop.app.result(shop.pack.enqueue(), timeout=60)
            time.sleep(1)
        other.rollback()
        assert shop.app.result(waiting, timeout=60) == 1
    assert "lease lost" not in seen


def test_an_answer_is_for_its_own_tenant(shop: Shop, stranger: Stranger) -> None:
    job_id = shop.charge.enqueue(key="k")
    work(shop)
    bring(stranger, job_type="'charge'", job_key="'k'", data="1", tenant="'acme'")
    work(shop)
    assert shop.app.job(job_id).phase == "waiting"


def test_all_answers_are_matched_before_a_run_until_empty_ends(shop: Shop, stranger: Stranger) -> None:
    jobs = shop.charge.enqueue_many([None] * 120)
    work(shop)
    rows = ", ".join(f"({shop.orders.number}, 'charge', '{job}', '1')" for job in jobs)
    stranger(f"INSERT INTO hipq_answers (queue, job_type, job_key, data) VALUES {rows}")
    work(shop)
    assert {shop.app.job(job).state for job in jobs} == {"final"}


def test_an_answer_in_plain_sql_finds_its_job(shop: Shop, stranger: Stranger) -> None:
    job_id = shop.charge.enqueue(key="order-17")
    bring(stranger, job_type="'charge'", job_key="'early'", data="'\"early\"'")
    work(shop)
    bring(stranger, job_type="'charge'", job_key="'order-17'", data="""'{"status": "paid"}'""", answer_id="'evt-1'")
    bring(stranger, job_type="'charge'", job_key="'order-17'", data="""'{"status": "paid"}'""", answer_id="'evt-1'")
    work(shop)
    assert shop.app.result(job_id) == {"status": "paid"}
    counts = {state: tuple(count) for state, count in shop.app.answers.counts("orders").items()}
    assert counts == {"settled": (1, 2), "buffered": (1, 1)}  # the second was a duplicate
    early = shop.charge.enqueue(key="early")
    work(shop)
    assert shop.app.result(early) == "early"
    bring(stranger, job_type="'charge'", job_key="'early'", data="'\"other\"'")
    work(shop)
    assert shop.app.answers.counts("orders")["conflict"].answers == 1


def test_an_answer_that_says_the_work_failed(shop: Shop, stranger: Stranger) -> None:
    job_id = shop.charge.enqueue(key="order-17")
    work(shop)
    bring(stranger, job_type="'charge'", job_key="'order-17'", data="'\"no such account\"'", error="1")
    work(shop)
    assert "no such account" in shop.app.job(job_id).error


@pytest.mark.parametrize(
    ("job_type", "key", "data"), [("'charge'", "'a'", "'{'"), ("'no type!'", "'a'", "'1'"), ("'charge'", "''", "'1'")]
)
def test_an_answer_that_cannot_be_read_is_kept_and_hurts_nobody(
    shop: Shop, stranger: Stranger, job_type: str, key: str, data: str
) -> None:
    job_id = shop.charge.enqueue(key="order-17")
    work(shop)
    bring(stranger, job_type=job_type, job_key=key, data=data)
    bring(stranger, job_type="'charge'", job_key="'order-17'", data="1")
    work(shop)
    assert shop.app.result(job_id) == 1
    (answer,) = shop.app.answers.list("orders", state="unreadable")
    assert answer.note


def test_a_running_worker_finds_both_by_itself(shop: Shop, stranger: Stranger, url: str) -> None:
    with shop.app.working():
        job_id = add(stranger, url, job_type="'charge'", job_key="'order-17'")
        bring(stranger, job_type="'charge'", job_key="'order-17'", data="'\"paid\"'")
        assert shop.app.result(job_id, timeout=60) == "paid"


def test_two_workers_use_each_answer_once(shop: Shop, stranger: Stranger, url: str) -> None:
    other = Shop(Hipq("shop", url))
    jobs = shop.charge.enqueue_many([None] * 40)
    queue = shop.orders.number
    rows = [f"({queue}, 'charge', '{job}', '{number}', '{{\"n\": {number}}}')" for number, job in enumerate(jobs)]
    with shop.app.working(poll=0.01), other.app.working(poll=0.01):
        for _ in range(2):
            stranger(f"INSERT INTO hipq_answers (queue, job_type, job_key, answer_id, data) VALUES {', '.join(rows)}")
        assert [shop.app.result(job, timeout=120) for job in jobs] == [{"n": number} for number in range(40)]
        while stranger("SELECT 1 FROM hipq_answers WHERE state = 'new'"):
            time.sleep(0.02)
    other.app.close()
    assert {state: tuple(count) for state, count in shop.app.answers.counts("orders").items()} == {"settled": (40, 80)}
