"""Problems made for real, on all databases: doctor names exactly that one, and what it says to do takes it away."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq, admit, limit
from hipq.job import wait_transitions
from hipq.job.fault import Fault
from hipq.job.model import sequence_of
from hipq.job.schedule import Definition, ScheduleChange, Settings
from hipq.job.ticks import begun
from hipq.stores.clock import SystemClock
from hipq.stores.migrations import Migration, migrations
from tests.cli.conftest import HipqCommand, Worker, eventually, started
from tests.databases import schema_of, sql
from tests.doctor.conftest import Doctor, alone, mariadb_copied


@pytest.fixture(autouse=True)
def shop(program: Hipq) -> Hipq:
    """The shop, with its tables and some jobs that are done."""
    for queue in program.queues:
        assert queue.number
    done = [program.queues[0].enqueue("quick") for _ in range(3)]
    program.run(until_empty=True)
    assert [program.job(job_id).state for job_id in done] == ["final"] * 3
    return program


def number_of(app: Hipq, queue: str) -> int:
    return next(one.number for one in app.queues if one.name == queue)


def test_nothing_is_found_where_nothing_is_planted(doctor: Doctor, url: str) -> None:
    assert doctor.news() == []
    assert doctor.news("--db", url, "--patience", "0") == []


# -- copies ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def copy(shop: Hipq, url: str, tmp_path: Path) -> Iterator[str]:
    """A copy of the shop's database, which nobody has open."""
    shop.close()
    if url.startswith("sqlite"):
        shutil.copy(url.removeprefix("sqlite:///"), tmp_path / "copy.db")
        yield f"sqlite:///{tmp_path}/copy.db"
    elif url.startswith("mariadb"):
        with mariadb_copied(url, "copy") as copied:
            yield copied
    else:
        alone(url)
        beside = f"{url.rpartition('/')[0]}/template1"
        sql(beside, "CREATE DATABASE copy TEMPLATE postgres")
        yield f"{url.rpartition('/')[0]}/copy"
        sql(beside, "DROP DATABASE copy WITH (FORCE)")


@pytest.mark.parametrize("more", [["--margin", "0"], ["--yes"]])
def test_a_copy_is_told_until_somebody_says_what_it_is(
    doctor: Doctor, hipq: HipqCommand, url: str, copy: str, more: list[str]
) -> None:
    found = doctor.only("--db", copy)
    assert (found["check"], found["level"]) == ("database", "warning")
    assert "this database is a copy: it was restored from a backup, or moved" in found["sentence"]
    assert f"stop all programs and run `hipq restored --db {copy}`" in found["advice"]
    assert f"run `hipq restored --db {copy} --margin 0`" in found["advice"]
    app = Hipq("shop", copy)
    app.queue("orders").enqueue("quick", delay=3600)  # that it is in use tells nobody anything
    app.migrate()
    app.close()
    assert doctor.only("--db", copy) == found
    assert hipq("restored", "--db", copy, *more).status == 0
    assert doctor.news("--db", copy) == []
    assert doctor.news("--db", url) == []


def test_a_copy_from_which_nothing_is_missing_may_be_in_use_when_somebody_says_so(hipq: HipqCommand, copy: str) -> None:
    app = Hipq("shop", copy)
    queue = app.queue("orders")
    first = queue.enqueue("quick", delay=3600)
    app.store.take_lease(100, "a machine")
    assert hipq("restored", "--db", copy, "--yes").status == 1
    said = hipq("restored", "--db", copy, "--margin", "0")
    assert (said.status, said.out) == (0, "left out no ids of shop.orders, shop.mails\n")
    assert sequence_of(queue.enqueue("quick", delay=3600)) == sequence_of(first) + 1
    assert [engine.label for engine in app.store.engines()] == ["a machine"]
    app.close()


# -- the schema ------------------------------------------------------------------------------------------------------
@pytest.fixture
def next_release(url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Calling it makes this program one that knows a further migration."""
    package = {"sqlite": "sqlite", "mariadb": "mariadb"}.get(url.partition(":")[0], "postgres")
    known = migrations(f"hipq.stores.{package}")
    more = "CREATE INDEX {live}_next ON {live} (tenant, id);\n"
    future = [*known, Migration(known[-1].number + 1, "next.sql", 1, "-- nothing\n", more)]
    return lambda: monkeypatch.setattr("hipq.stores.migrations.migrations", lambda _: future)


def test_an_old_schema_is_to_be_migrated(doctor: Doctor, url: str, next_release: Callable[[], None]) -> None:
    next_release()
    schema = schema_of(url)
    found = doctor.news()
    assert [(one["check"], one["level"]) for one in found] == [("schema", "problem")]
    assert found[0]["sentence"] == f"the database is at schema {schema}, and this program needs {schema + 1}"
    assert "hipq migrate shop:app" in found[0]["advice"]
    doctor.follow(found[0])
    assert doctor.news() == []


def test_a_queue_that_an_older_program_added_lags_behind(
    doctor: Doctor, shop: Hipq, url: str, next_release: Callable[[], None]
) -> None:
    next_release()
    newer = Hipq("shop", url)
    newer.migrate()
    newer.close()
    shop.queue("late")
    assert number_of(shop, "late")  # by a program that does not know the new migration
    found = doctor.only()
    assert (found["check"], found["level"], found["queue"]) == ("schema", "warning", "shop.late")
    schema = schema_of(url)
    assert found["sentence"] == f"the tables of this queue are at schema {schema}, and this program needs {schema + 1}"
    doctor.follow(found)
    assert doctor.news() == []


def test_a_schema_that_is_too_new_wants_another_program(doctor: Doctor, url: str) -> None:
    if url.startswith("sqlite"):
        sql(url, f"PRAGMA user_version = {9 << 8 | 8}")
    else:
        sql(url, "UPDATE hipq_meta SET version = 9, accepts = 8")
    found = doctor.only()
    assert (found["check"], found["level"], found["advice"]) == ("schema", "problem", "upgrade hipq here")
    assert f"schema 9 and takes programs of schema 8 or later; this one is {schema_of(url)}" in found["sentence"]


# -- indexes ---------------------------------------------------------------------------------------------------------
INDEXES = {
    "shop_orders_key": "shop.orders",
    "shop_orders_stage": "shop.orders",
    "shop_mails_final_time": "shop.mails",
    "hipq_answers_time": "",
}


def drop_index(url: str, index: str) -> str:
    """SQL that drops an index, and its name: MariaDB has one for what is due, and an index belongs to its table."""
    table = "hipq_answers" if index.startswith("hipq") else index.rpartition("_")[0]
    return f"DROP INDEX {named(url, index)}" + (f" ON {table}" if url.startswith("mariadb") else "")


def named(url: str, index: str) -> str:
    return index.replace("_stage", "_due") if url.startswith("mariadb") else index


@pytest.mark.parametrize("index", INDEXES)
def test_an_index_that_is_gone_is_made_again(doctor: Doctor, url: str, index: str) -> None:
    sql(url, drop_index(url, index))
    found = [one for one in doctor.news() if "could not be checked" not in one["sentence"]]
    assert [(one["check"], one["level"]) for one in found] == [("indexes", "problem")]
    assert f"index {named(url, index)} of table" in found[0]["sentence"]
    assert "is missing" in found[0]["sentence"]
    assert found[0]["facts"]["index"] == named(url, index)
    assert found[0]["queue"] == INDEXES[index]
    sql(url, *found[0]["facts"]["sql"])
    assert doctor.news() == []


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        (
            "INDEX shop_orders_stage ON shop_mails (scheduled_run_time) WHERE phase = 'scheduled'",
            "is on table shop_mails",
        ),
        ("INDEX shop_orders_stage ON shop_orders (deadline) WHERE phase = 'scheduled'", "is not what hipq makes"),
        ("INDEX shop_orders_stage ON shop_orders (scheduled_run_time)", "is not what hipq makes"),
        ("UNIQUE INDEX shop_orders_stage ON shop_orders (scheduled_run_time) WHERE phase = 'scheduled'", "is not what"),
    ],
)
def test_an_index_that_is_another_one_is_made_anew(doctor: Doctor, url: str, instead: str, said: str) -> None:
    if url.startswith("mariadb"):  # it has no partial indexes, and in another table it is another index
        instead, said = named(url, instead).partition(" WHERE")[0], "is not what hipq makes"
        instead = instead.replace("shop_mails", "shop_orders")
    sql(url, drop_index(url, "shop_orders_stage"), f"CREATE {instead}")
    (found,) = [one for one in doctor.news() if "could not be checked" not in one["sentence"]]
    assert (found["check"], found["level"], found["queue"]) == ("indexes", "problem", "shop.orders")
    assert said in found["sentence"]
    sql(url, *found["facts"]["sql"])
    assert doctor.news() == []


def test_a_table_that_is_gone_is_named(doctor: Doctor, url: str) -> None:
    sql(url, "DROP TABLE hipq_payloads")
    found = doctor.only()
    assert (found["check"], found["level"]) == ("indexes", "problem")
    assert found["sentence"] == "table hipq_payloads is missing"
    assert "backup" in found["advice"]


# -- the clock -------------------------------------------------------------------------------------------------------
class Ahead(SystemClock):
    def now(self) -> int:
        return super().now() + 3_600_000_000


def test_a_row_from_the_future_is_noticed(doctor: Doctor, url: str) -> None:
    ahead = Hipq("shop", url, clock=Ahead())
    job_id = ahead.queue("orders").enqueue("quick", delay=7200)  # not ready: only its row says when it was added
    found = doctor.only()
    assert (found["check"], found["level"], found["queue"]) == ("clock", "warning", "shop.orders")
    assert "the calendar was set back since" in found["sentence"]
    assert 3500 < found["facts"]["ahead_seconds"] < 3700
    ahead.cancel(job_id)
    ahead.close()
    assert doctor.only()["check"] == "clock"  # its final row is from the future, too
    sql(url, f"DELETE FROM shop_orders_final WHERE id = {job_id}")
    assert doctor.news() == []


def test_a_ready_job_that_is_due_only_later_is_noticed(doctor: Doctor, url: str) -> None:
    ahead = Hipq("shop", url, clock=Ahead())
    job_id = ahead.queue("orders").enqueue("quick")
    ahead.close()
    found = doctor.news()
    assert {(one["check"], one["level"]) for one in found} == {("clock", "warning")}
    assert any(f"job {job_id} is ready and due only in" in one["sentence"] for one in found)


def test_a_schedule_whose_last_tick_is_in_the_future_is_silent(doctor: Doctor, shop: Hipq, url: str) -> None:
    number = number_of(shop, "orders")
    ahead = begun("report", "quick", Definition(Settings("* * * * *")), shop.store.now() + 5_000_000_000)
    shop.store.change_schedules(number, [ScheduleChange(None, ahead)])
    found = doctor.only()
    assert (found["check"], found["level"], found["queue"]) == ("clock", "problem", "shop.orders")
    assert "the schedule report had its last tick, or began, at" in found["sentence"]
    sql(url, "DELETE FROM hipq_crons")
    assert doctor.news() == []


# -- engines ---------------------------------------------------------------------------------------------------------
def test_jobs_of_a_dead_engine_are_taken_over_by_a_worker(
    doctor: Doctor, shop: Hipq, folder: Path, worker: Callable[..., Worker]
) -> None:
    job_id = shop.queues[0].enqueue("gate")
    working = worker("--lease", "1")
    eventually(lambda: job_id in started(folder))
    working.send(signal.SIGKILL)
    working.ended()
    found = eventually(doctor.news)  # when its lease is over
    assert [(one["check"], one["level"], one["queue"]) for one in found] == [("engines", "problem", "shop.orders")]
    assert "1 job is in the hands of engine" in found[0]["sentence"]
    assert found[0]["facts"]["first"] == job_id
    assert found[0]["advice"] == "start one: `hipq worker shop:app -q orders`"
    (folder / "go").touch()
    doctor.follow(found[0])
    assert shop.job(job_id).code == "ok"
    assert doctor.news() == []


def test_an_engine_that_is_alive_is_told_with_what_it_serves(
    doctor: Doctor, shop: Hipq, hipq: HipqCommand, worker: Callable[..., Worker]
) -> None:
    worker("-q", "orders")
    eventually(shop.store.engines)
    (alive,) = [one for one in hipq("doctor", "shop:app", "--json").json if one["check"] == "engines"]
    assert alive["level"] == "ok"
    assert alive["facts"]["lease_left"] > 0
    assert set(alive["facts"]["serves"]) == {"shop.orders"}
    assert "quick" in alive["facts"]["serves"]["shop.orders"]
    assert doctor.news() == []


def test_an_engine_that_ended_without_a_word_is_a_note(doctor: Doctor, shop: Hipq) -> None:
    engine_id = shop.store.take_lease(0.05, "a worker", "{}")
    found = eventually(doctor.news)
    assert [(one["check"], one["level"]) for one in found] == [("engines", "note")]
    assert f"engine {engine_id} (a worker) ended without a word" in found[0]["sentence"]
    shop.store.renew_lease(shop.store.take_lease(10, "the next", "{}"), 0)
    assert doctor.news() == []


# -- jobs ------------------------------------------------------------------------------------------------------------
def test_due_jobs_and_no_engine_is_a_problem_once_they_are_late(doctor: Doctor, shop: Hipq) -> None:
    shop.queues[0].enqueue_many("quick", [{}, {}, {}])
    found = doctor.only()
    assert (found["check"], found["level"]) == ("jobs", "warning")
    found = doctor.only("shop:app", "--patience", "0")
    assert (found["check"], found["level"], found["queue"]) == ("jobs", "problem", "shop.orders")
    assert found["facts"]["reason"] == "no engine"
    assert found["facts"]["jobs"] == 3
    assert "3 jobs of type quick have been due for" in found["sentence"]
    doctor.follow(found)
    assert doctor.news() == []


def test_a_scheduled_job_that_nobody_made_ready_is_due_too(doctor: Doctor, shop: Hipq) -> None:
    shop.queues[0].enqueue("quick", delay=0.1)
    found = eventually(lambda: doctor.news("shop:app", "--patience", "0"))
    assert [(one["check"], one["level"]) for one in found] == [("jobs", "problem")]
    assert found[0]["facts"]["phase"] == "scheduled"
    doctor.follow(found[0])
    assert doctor.news() == []


def test_each_type_is_counted_by_itself(doctor: Doctor, shop: Hipq) -> None:
    """Also of what waits for its time: jobs of two types, neither of which is meant by "3 jobs of type"."""
    shop.queues[0].enqueue("quick", delay=0.1)
    shop.queues[0].enqueue_many("slow", [{}, {}], delay=0.1)
    eventually(  # the last of them is due a moment after the first
        lambda: (
            [one["sentence"].partition(" have been")[0] for one in doctor.news("shop:app", "--patience", "0")]
            == ["3 jobs"]
        )
    )


def test_a_queue_that_nobody_serves_is_named_at_once(doctor: Doctor, shop: Hipq, worker: Callable[..., Worker]) -> None:
    worker("-q", "orders")
    eventually(shop.store.engines)
    shop.known("mails").enqueue("letter")
    found = doctor.only("--db", shop.url)
    assert (found["check"], found["level"], found["queue"]) == ("jobs", "warning", "shop.mails")
    assert "no engine that works on its queue is alive" in found["sentence"]
    assert "hipq worker MODULE:APP -q mails" in found["advice"]


def test_a_job_type_that_nobody_serves_is_named(
    doctor: Doctor, shop: Hipq, hipq: HipqCommand, worker: Callable[..., Worker]
) -> None:
    worker()
    eventually(shop.store.engines)
    job_id = shop.queues[0].enqueue("refund")
    found = doctor.only()  # late or not: no engine will come to it
    assert (found["check"], found["level"], found["queue"]) == ("jobs", "problem", "shop.orders")
    assert "no engine that has the code of refund is alive" in found["sentence"]
    assert "shop:app has no code for it" in found["advice"]
    assert hipq("job", "cancel", "shop:app", str(job_id)).status == 0
    assert doctor.news("shop:app", "--patience", "0") == []


def test_a_retry_strategy_that_no_worker_has_is_named(
    doctor: Doctor, shop: Hipq, url: str, worker: Callable[..., Worker]
) -> None:
    job_id = shop.queues[0].enqueue("quick", delay=3600)
    deciding = "state = 'error', phase = 'deciding', error = 'no', update_time = 1"
    stored = """'{"retry": {"registered": "patient"}}'"""
    sql(url, f"UPDATE shop_{shop.queues[0].name} SET {deciding}, meta = {stored} WHERE id = {job_id}")
    worker("-q", shop.queues[0].name)
    eventually(lambda: shop.store.engines())
    found = doctor.only()
    assert (found["check"], found["level"], found["facts"]["first"]) == ("jobs", "problem", job_id)
    assert "no engine in which the retry strategy patient is registered is alive" in found["sentence"]
    assert found["advice"].startswith("start a worker of a program that has @app.retry_strategy('patient')")


def test_a_worker_of_another_queue_is_no_help(doctor: Doctor, shop: Hipq, worker: Callable[..., Worker]) -> None:
    worker("-q", "mails")
    eventually(shop.store.engines)
    shop.queues[0].enqueue("quick")
    found = doctor.only("shop:app", "--patience", "0")
    assert found["facts"]["reason"] == "no code"
    assert found["advice"] == "shop:app has that code: `hipq worker shop:app -q orders`"
    doctor.follow(found)
    assert doctor.news("shop:app", "--patience", "0") == []


def test_a_waiting_job_past_its_deadline_is_noticed(doctor: Doctor, shop: Hipq) -> None:
    job_id = shop.queues[0].enqueue("charge", timeout=1)
    shop.run(until_empty=True)
    assert shop.job(job_id).phase == "waiting"
    found = eventually(lambda: [one for one in doctor.news("shop:app", "--patience", "0") if one["check"] == "jobs"])
    assert [(one["level"], one["queue"]) for one in found] == [("problem", "shop.orders")]
    assert "1 job of type charge has been past its deadline for" in found[0]["sentence"]
    assert "no engine of its queue is there to notice" in found[0]["sentence"]
    doctor.follow(found[0])
    assert doctor.news("shop:app", "--patience", "0") == []
    assert shop.job(job_id).state == "final"


def test_an_answer_that_no_engine_looks_at_is_noticed(doctor: Doctor, shop: Hipq) -> None:
    job_id = shop.queues[0].enqueue("charge", key="17")
    shop.run(until_empty=True)
    assert shop.answer("orders", "charge", "17", "paid") == "matched"
    found = doctor.only("shop:app", "--patience", "0")
    assert (found["check"], found["level"], found["facts"]["reason"]) == ("jobs", "problem", "answered")
    assert "its answer has come, and has not been looked at: no engine is alive" in found["sentence"]
    doctor.follow(found)
    assert doctor.news("shop:app", "--patience", "0") == []
    assert shop.job(job_id).code == "ok"


def test_an_answer_that_its_handler_cannot_read_is_noticed(doctor: Doctor, shop: Hipq, url: str) -> None:
    job_id = shop.queues[0].enqueue("charge", key="17")
    shop.run(until_empty=True)
    row = shop.store.get(job_id)
    assert row
    (table,) = [one.table for one in shop.store.queues("shop") if one.number == shop.queues[0].number]
    for tries in (1, 2, 3):
        row = wait_transitions.unread(row, Fault("error", "no receipt"), shop.store.now() + 60_000_000)
        sql(url, f"UPDATE {table} SET wait = '{row.wait}', deadline = {row.deadline} WHERE id = {job_id}")
        if tries < 3:
            assert doctor.news("shop:app") == []
    found = doctor.only("shop:app")
    assert (found["check"], found["level"], found["facts"]["job_type"]) == ("answers", "warning", "charge")
    assert "the answer handler of charge fails with the answers of 1 job; the first is job" in found["sentence"]
    assert "it has failed 3 times" in found["sentence"].replace("its answer handler", "it")


@pytest.mark.parametrize("what", [{}, {"lane": "east"}, {"type": "quick"}])
def test_a_pause_is_a_note_and_with_due_jobs_a_warning(doctor: Doctor, shop: Hipq, what: dict[str, str]) -> None:
    shop.pause("orders", **what)
    found = doctor.only()
    assert (found["check"], found["level"], found["queue"]) == ("jobs", "note", "shop.orders")
    job_id = shop.queues[0].enqueue("quick", lane="east")
    lease = shop.store.take_lease(100, "test", f'{{"{number_of(shop, "orders")}": ["quick"]}}')
    found = doctor.only("shop:app", "--patience", "0")
    assert (found["check"], found["level"], found["queue"]) == ("jobs", "warning", "shop.orders")
    assert "is paused, and 1 due job waits" in found["sentence"]
    doctor.follow(found)
    rules = shop.store.rules(number_of(shop, "orders"))
    assert (rules.paused, rules.paused_lanes, rules.paused_types) == (False, (), ())
    shop.store.renew_lease(lease, 0)
    shop.cancel(job_id)
    assert doctor.news() == []


def test_a_throttler_that_cannot_be_asked_is_quoted(doctor: Doctor, url: str) -> None:
    mended = threading.Event()

    def throttler(due: Any, *_: Any) -> Any:
        if not mended.is_set():
            raise ConnectionError("the meter does not answer")
        return [admit(job) for job in due]

    app = Hipq("shop", url)
    orders = app.queue("orders", throttler=throttler)
    orders.job("quick")(lambda _: None)
    job_id = orders.enqueue("quick")
    engine = app.engine()
    running = threading.Thread(target=engine.run)
    running.start()
    try:
        found = eventually(lambda: [one for one in doctor.news() if one["facts"].get("note")])
        assert [(one["check"], one["level"], one["queue"]) for one in found] == [("jobs", "warning", "shop.orders")]
        assert "the throttler could not be asked: ConnectionError: the meter does not answer" in found[0]["sentence"]
        assert doctor.only()["facts"] == found[0]["facts"]
        mended.set()
        eventually(lambda: app.job(job_id).code == "ok")
    finally:
        engine.stop()
        running.join()
        engine.executor.close()
        app.close()
    assert doctor.news() == []


def test_a_job_that_is_heavier_than_its_limit_is_named(doctor: Doctor, shop: Hipq) -> None:
    shop.rules.set_limit("orders", [limit(10)])
    job_id = shop.queues[0].enqueue("quick", throttle_factor=8)
    shop.rules.set_limit("orders", [limit(5)])
    (found,) = [one for one in doctor.news() if one["facts"].get("throttle_factor")]
    assert (found["check"], found["level"], found["queue"]) == ("jobs", "warning", "shop.orders")
    assert f"job {job_id} (quick) does not fit the limits, so it runs alone" in found["sentence"]
    doctor.follow(found | {"advice": found["advice"].replace(" N`", " 8`")})
    assert not [one for one in doctor.news() if one["facts"].get("throttle_factor")]


def test_a_limit_that_has_been_full_for_long_is_a_note_that_names_who_holds_it(doctor: Doctor, shop: Hipq) -> None:
    shop.rules.set_limit("orders", 1)
    first = shop.queues[0].enqueue("charge")
    shop.run(until_empty=True)
    shop.queues[0].enqueue("charge")
    lease = shop.store.take_lease(100, "test", f'{{"{number_of(shop, "orders")}": ["charge"]}}')
    found = doctor.only("shop:app", "--patience", "0")
    assert (found["level"], found["facts"]["reason"]) == ("note", "limit full")
    assert f"taken by job {first}" in found["sentence"]
    doctor.follow(found)  # which only shows it
    shop.store.renew_lease(lease, 0)


# -- answers ---------------------------------------------------------------------------------------------------------
def test_answers_that_no_job_can_take_any_more_are_told(doctor: Doctor, url: str, hipq: HipqCommand) -> None:
    hasty = Hipq("shop", url)
    hasty.queue("orders", early_window=0)
    assert hasty.answer("orders", "charge", "nobody's", 1) == "buffered"
    (kept,) = hasty.answers.list("orders")
    hasty.close()
    found = doctor.only()
    assert (found["check"], found["level"], found["queue"]) == ("answers", "note", "shop.orders")
    assert "1 answer came for jobs that are not there" in found["sentence"]
    doctor.follow(found)  # which lists it
    assert hipq("answers", "drop", "shop:app", str(kept.id), "--yes").status == 0
    assert doctor.news() == []


def test_many_answers_that_no_job_can_take_are_a_warning(doctor: Doctor, url: str) -> None:
    hasty = Hipq("shop", url)
    hasty.queue("orders", early_window=0)
    many = [{"queue": "orders", "type": "charge", "key": str(n), "answer_id": str(n)} for n in range(120)]
    assert set(hasty.answer_many(many)) == {"buffered"}
    hasty.close()
    found = doctor.only()
    assert (found["level"], found["facts"]["answers"]) == ("warning", 120)
