"""Everything arrives; killed at any point nothing is lost and nothing is there twice; and what a move refuses."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq, HipqError, Invalid, Job
from hipq.errors import Conflict, StoreUnavailable
from hipq.job.model import queue_of
from hipq.job.progress import Report, Reported
from hipq.move.copy import Rows, TableCopy
from hipq.move.moving import STEPS, MoveProgress, move
from hipq.move.target import Target
from hipq.move.to_mariadb import MariaTarget
from hipq.move.to_postgres import PostgresTarget
from hipq.stores.audit import entry
from hipq.stores.open import open_store
from hipq.stores.protocols import Store
from hipq.stores.sqlite.connection import SAFE_VERSION
from hipq.stores.sqlite.moving import only_mover
from hipq.testing.clock import HandClock
from tests.contract.jobs import NOW, add_one, answer, new
from tests.databases import sql
from tests.engine.working import until, working
from tests.move.conftest import contents, killed
from tests.move.mover import POINTS


@pytest.fixture
def before(source: str) -> Any:
    with closing(open_store(source)) as store:
        return contents(store)


def opened(url: str) -> closing[Store]:
    return closing(open_store(url))


def test_everything_arrives(source: str, target: str, before: Any) -> None:
    report = move(source, target)
    with opened(target) as store:
        assert contents(store) == before
    assert [table.name for table in report.tables if table.rows] == [
        "hipq_crons", "hipq_payloads", "hipq_activity", "hipq_answers", "shop_orders_final", "shop_mails_final",
        "shop_orders", "shop_mails",
    ]  # fmt: skip
    assert sum(table.rows for table in report.tables if "shop" in table.name) == len(before.jobs)
    assert list(report.seconds) == list(STEPS)


def test_how_far_jobs_have_come_goes_along(source: str, target: str, before: Any) -> None:
    row = next(row for row in before.jobs if row.phase == "waiting")
    with opened(source) as store:
        assert store.report([Report(row.id, row.token, row.attempt, 0.5, "sent")], NOW) == {row.id}
    move(source, target)
    with opened(target) as store:
        assert store.progress(row.id, row.attempt) == Reported(0.5, "sent", NOW)


def test_the_audit_log_goes_along(source: str, target: str) -> None:
    done = [entry(NOW, "ann", "operate", "::1", action, "/jobs/7") for action in ("cancel", "retry")]
    with closing(open_store(source)) as store:
        store.record(entry(1, "ann", "operate", "::1", "old", ""))
        for one in done:
            store.record(one)  # the old one goes
    move(source, target)
    with closing(open_store(target)) as store:
        store.record(entry(NOW, "ann", "operate", "::1", "pause", "orders"))
        newest, *moved = store.audit_log(0, 10)
    assert (newest.action, [one._replace(id=0) for one in moved]) == ("pause", done[::-1])


def test_numbers_go_on_where_they_were(source: str, target: str, before: Any) -> None:
    with opened(source) as store:
        engine_id = store.take_lease(0.1, "the last of this house")
    time.sleep(0.2)
    move(source, target)
    with opened(target) as store:
        orders, mails, empty = (queue.number for queue in store.queues())
        for queue in (orders, mails, empty):
            job_id = add_one(store, new(queue))
            assert job_id > max([row.id for row in before.jobs if queue_of(row.id) == queue], default=0)
        assert job_id >> 16 == 1  # the empty one begins at the beginning
        (delivered,) = store.answer([answer(orders, "another")], NOW)
        assert delivered.id > max(kept.id for kept in before.answers)
        assert store.take_lease(60, "the first of this one") > engine_id
        store.queue("shop", "more", "shop_more")
        assert store.queues()[-1].number == empty + 2  # one was dropped, and its number is not given again


def test_jobs_of_a_dead_engine_are_rescued_over_there(source: str, target: str) -> None:
    move(source, target)
    with closing(Hipq("shop", target, clock=HandClock())) as app:
        orders = app.known("orders")
        (row,) = [job for job in app.jobs("orders", type="executing") if job.phase == "executing"]

        @orders.job
        def executing(job: Job[Any]) -> str:
            return f"attempt {job.attempt}"

        app.run(until_empty=True)
        assert app.job(row.id).result == "attempt 2"
        assert "rescued" in [entry["event"] for entry in app.job(row.id).history]


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_nothing_is_lost_and_nothing_is_there_twice(
    source: str, target: str, before: Any, point: str
) -> None:
    assert killed(source, target, point) == -signal.SIGKILL
    with opened(source) as store:  # whichever house that leads to by now
        assert contents(store) == before
        moved = store.url != source
        job_id = add_one(store, new(before.queues[0].number, "added between"))
    assert moved == (point == "open")
    if point == "leave":  # it has arrived, and nobody may use it
        with opened(target) as store, pytest.raises(StoreUnavailable, match="run `hipq move` to its end"):
            store.queues()
    report = move(source, target)
    assert bool(report.tables) == (not moved)
    with opened(target) as store:
        after = contents(store)
        assert [row for row in after.jobs if row.id != job_id] == before.jobs
        assert len(after.jobs) == len(before.jobs) + 1
        assert after._replace(jobs=[]) == before._replace(jobs=[])
    with opened(source) as store:
        assert contents(store) == after


def test_killed_again_and_again(source: str, target: str, before: Any) -> None:
    for point in ("leave", "copying", "leave", "arrive", "verifying", "leave"):
        assert killed(source, target, point) == -signal.SIGKILL
    move(source, target)
    with opened(target) as store:
        assert contents(store) == before


def test_once_moved_it_is_moved(source: str, target: str, before: Any) -> None:
    move(source, target)
    assert move(source, target).tables == []
    with pytest.raises(Conflict, match=r"has moved to \w+://.* already"):
        move(source, target.replace("127.0.0.1", "localhost"))
    with opened(target) as store:
        assert contents(store) == before


# -- programs --------------------------------------------------------------------------------------------------------
@pytest.fixture
def app(path: Path) -> Iterator[Hipq]:
    app = Hipq("shop", f"sqlite:///{path}")
    yield app
    app.close()


def test_a_program_that_was_there_before_goes_on_over_there(
    app: Hipq, target: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = app.queue("orders")
    ran: list[int] = []

    @queue.job
    def note(job: Job[Any]) -> None:
        ran.append(job.data)

    with working(app, lease=1.5):
        first = queue.enqueue("note", 1)
        until(lambda: app.job(first).state == "final")
        move(app.url, target)
        second = queue.enqueue("note", 2)
        assert app.job(first).code == "ok"
        until(lambda: app.job(second).state == "final")
    assert ran == [1, 2]
    assert f"have moved to {target.partition('@')[0]}" in caplog.text
    with opened(target) as store:
        assert store.get(second) is not None
    with (
        closing(sqlite3.connect(path)) as conn,
        pytest.raises(Invalid, match=r"(?i)conn is open on .*sqlite.*, and this app is on (PostgreSQL|MariaDB)"),
    ):
        queue.enqueue("note", 3, conn=conn)


def test_one_that_only_looks_or_only_has_a_transaction_of_its_own(app: Hipq, target: str, path: Path) -> None:
    queue = app.queue("orders")
    job_id = queue.enqueue("note", 1)
    other = Hipq("shop", app.url)
    other.queue("orders")
    assert other.job(job_id).state == "initial"
    with closing(other), closing(sqlite3.connect(path)) as conn:
        move(app.url, target)
        with pytest.raises(Invalid, match=r"have moved to .*: conn= must be a connection to that"):
            queue.enqueue("note", 2, conn=conn)
        conn.rollback()
        there = Hipq("shop", target)
        there.queue("orders")
        there.cancel(job_id)
        there.close()
        assert other.job(job_id).state == "final"  # and not what the file had


def test_running_handlers_are_waited_for(app: Hipq, target: str) -> None:
    queue = app.queue("orders")
    go_on: list[bool] = []

    @queue.job
    def slow(_job: Job[Any]) -> str:
        until(lambda: go_on)
        return "done"

    class Watching(MoveProgress):
        def running(self, ids: list[int]) -> None:
            assert ids == [first]
            assert app.job(second).phase == "ready"
            go_on.append(True)

    with working(app, concurrency=1, lease=1.5):
        first = queue.enqueue("slow")
        until(lambda: app.job(first).phase == "executing")
        second = queue.enqueue("slow")
        move(app.url, target, progress=Watching())
        until(lambda: app.job(second).state == "final")
    assert (app.job(first).attempt, app.job(second).attempt) == (1, 1)
    assert app.job(first).result == "done"


def test_and_if_they_take_too_long_nothing_is_moved_and_work_goes_on(app: Hipq, target: str) -> None:
    queue = app.queue("orders")
    go_on: list[bool] = []

    @queue.job
    def slow(_job: Job[Any]) -> None:
        until(lambda: go_on)

    with working(app, lease=60.0, poll=0.05):
        first, second = queue.enqueue_many("slow", [1, 2])
        until(lambda: app.job(first).phase == app.job(second).phase == "executing")
        with pytest.raises(Conflict, match=rf"handlers of 2 jobs are still running after 0\.3 s \({first}, {second}\)"):
            move(app.url, target, wait=0.3)
        third = queue.enqueue("slow")
        assert until(lambda: app.job(third).phase == "executing") < 40  # at once, not when a lease runs out
        go_on.append(True)
    with opened(target) as store:
        store.migrate()
        assert store.queues() == []


def test_what_is_added_while_the_file_is_locked_waits(app: Hipq, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a writer waits for SQLite's lock."""
    monkeypatch.setattr("hipq.stores.sqlite.connection.BUSY_SECONDS", 0.2)
    queue = app.queue("orders")
    queue.enqueue("note", 1)
    ids: list[int] = []
    adding = threading.Thread(target=lambda: ids.append(queue.enqueue("note", 2)))

    class Slow(MoveProgress):
        def step(self, name: str) -> None:
            if name == "copy":
                adding.start()
                time.sleep(1)
                assert not ids

    move(app.url, target, progress=Slow())
    adding.join(20)
    with opened(target) as store:
        assert [row.job_data for row in contents(store).jobs] == ["1", "2"]
        assert store.get(ids[0]) is not None


@pytest.mark.skipif(sqlite3.sqlite_version_info >= SAFE_VERSION, reason="this SQLite needs no lock file")
def test_a_fork_while_the_lock_file_is_held(app: Hipq, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child must not touch the connection it inherits, and its parent goes on with it."""
    monkeypatch.setattr("hipq.stores.sqlite.connection.BUSY_SECONDS", 0.2)
    job_id = app.queue("orders").enqueue("note", 1)
    with open(f"{path}-hipq", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if app.store._db._conn is None else 1)  # type: ignore[attr-defined]
        assert os.waitpid(pid, 0)[1] == 0
        assert app.job(job_id).state == "initial"
    app.cancel(job_id)
    assert app.job(job_id).state == "final"


def test_opening_and_closing_while_the_file_is_locked(app: Hipq, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipq.stores.sqlite.connection.BUSY_SECONDS", 0.2)
    job_id = app.queue("orders").enqueue("note", 1)
    late = Hipq("shop", app.url)
    late.queue("orders")
    states: list[str] = []
    opening = threading.Thread(target=lambda: states.append(late.job(job_id).state))

    class Slow(MoveProgress):
        def step(self, name: str) -> None:
            if name == "copy":
                app.close()
                opening.start()
                time.sleep(1)

    move(app.url, target, progress=Slow())
    opening.join(20)
    late.close()
    assert states == ["initial"]


def test_patience_has_an_end(app: Hipq, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipq.stores.sqlite.connection.BUSY_SECONDS", 0.1)
    monkeypatch.setattr("hipq.stores.relocated.LONGEST_MOVE", 0.5)
    queue = app.queue("orders")
    queue.enqueue("note", 1)
    took: list[float] = []

    class Slow(MoveProgress):
        def step(self, name: str) -> None:
            if name == "copy":
                began = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    queue.enqueue("note", 2)
                took.append(time.monotonic() - began)

    move(app.url, target, progress=Slow())
    assert 0.4 < took[0] < 20


def test_a_program_that_is_started_over_there_too_early_waits_or_says_so(source: str, target: str) -> None:
    """It finds the database as it was, waits for the lock that makes tables, and must not take the copy for jobs."""
    with opened(target) as store:
        store.migrate()
    early = open_store(target)
    assert early.queues() == []
    refused: list[BaseException] = []

    def register() -> None:
        try:
            early.queue("shop", "orders", "shop_orders")
        except BaseException as error:
            refused.append(error)

    registering = threading.Thread(target=register)

    class Racing(MoveProgress):
        def step(self, name: str) -> None:
            if name == "verify":
                registering.start()
                time.sleep(0.3)
            if name == "leave":
                registering.join(20)
                raise Invalid("stopped here")

    with pytest.raises(Invalid, match="stopped here"):
        move(source, target, progress=Racing())
    early.close()
    assert [type(error) for error in refused] == [StoreUnavailable]
    assert "run `hipq move` to its end" in str(refused[0])


def test_the_file_of_an_application_keeps_what_is_not_ours(source: str, target: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE customers (name TEXT)")
        conn.execute("CREATE VIEW report AS SELECT * FROM dropped_long_ago")
        conn.execute("CREATE VIEW busy AS SELECT count(*) FROM shop_orders")
        conn.commit()
    assert move(source, target).others == ["customers"]
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT count(*) FROM customers").fetchone() == (0,)
        ((view,),) = conn.execute("SELECT sql FROM sqlite_master WHERE name = 'busy'").fetchall()
        assert view.endswith("FROM shop_orders")


# -- what is refused ---------------------------------------------------------------------------------------------------
def test_a_target_that_is_in_use(source: str, target: str, before: Any) -> None:
    with opened(target) as store:
        store.migrate()
        store.queue("other", "things", "other_things")
    with pytest.raises(Conflict, match=r"has queues of its own \(other\.things\): move into a database"):
        move(source, target)
    with opened(source) as store:
        assert contents(store) == before
    with opened(target) as store:
        assert [queue.app for queue in store.queues()] == ["other"]


def test_a_target_to_which_another_files_jobs_are_on_their_way(
    source: str, target: str, before: Any, tmp_path: Path
) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    with opened(other) as store:
        add_one(store, new(store.queue("other", "jobs", "other_jobs").number))
    for point in ("leave", "open"):  # before the file says so, and after
        assert killed(source, target, point) == -signal.SIGKILL
        with pytest.raises(Conflict, match="jobs of another file are on their way to"):
            move(other, target)
    move(source, target)
    with opened(source) as store:
        assert contents(store) == before
    with pytest.raises(Conflict, match="has queues of its own"):
        move(other, target)


def test_a_target_that_lost_what_had_arrived(source: str, target: str) -> None:
    move(source, target)
    sql(target, "UPDATE hipq_meta SET identity = 'a backup of the day before'")
    with pytest.raises(StoreUnavailable, match="restored from an older backup, perhaps"):
        open_store(source)
    with pytest.raises(StoreUnavailable, match="restored from an older backup, perhaps"):
        move(source, target)


def test_numbers_of_the_target_do_not_go_back(source: str, target: str) -> None:
    with opened(target) as store:
        store.migrate()
        for name in ("a", "b", "c", "d", "e", "f"):
            store.drop_queue(store.queue("old", name, f"old_{name}").number)
        for _ in range(50):
            engine_id = store.take_lease(60, "old")
    move(source, target)
    with opened(target) as store:
        assert store.take_lease(60, "new") > engine_id
        assert store.queue("shop", "more", "shop_more").number == 7


def test_a_target_that_will_not_do_is_refused_before_anybody_waits(source: str, target: str) -> None:
    with opened(target) as store:
        store.migrate()
        store.queue("other", "things", "other_things")
    steps: list[str] = []

    class Watching(MoveProgress):
        def step(self, name: str) -> None:
            steps.append(name)

    for url in (target, "postgresql://postgres@127.0.0.1:1/nothing"):
        with pytest.raises(HipqError):
            move(source, url, progress=Watching())
    assert steps == []


def test_tables_of_somebody_else_in_the_way(source: str, target: str, before: Any) -> None:
    sql(target, "CREATE TABLE shop_orders (theirs int)", "INSERT INTO shop_orders VALUES (17)")
    for _ in range(2):
        with pytest.raises(HipqError, match="shop_orders"):
            move(source, target)
    with opened(source) as store:
        assert contents(store) == before
    assert sql(target, "SELECT theirs FROM shop_orders") == [(17,)]
    sql(target, "DROP TABLE shop_orders")
    with opened(target) as store:  # it is as it was: for anybody to use
        store.migrate()
        assert store.queues() == []


def test_what_did_not_arrive_as_it_was_sent_is_not_moved(
    source: str, target: str, before: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: Any = PostgresTarget if target.startswith("postgres") else MariaTarget
    whole = kind.rows

    def damaged(self: Target, table: TableCopy) -> Iterator[Rows]:
        for page in whole(self, table):
            yield [page[0][:-1] + (f"{page[0][-1]} ",), *page[1:]] if table.table == "shop_mails" else page

    monkeypatch.setattr(kind, "rows", damaged)
    with pytest.raises(HipqError, match=r"shop_mails has arrived with 2512 rows .* were sent: nothing was moved"):
        move(source, target)
    with opened(source) as store:
        assert contents(store) == before
    monkeypatch.undo()
    move(source, target)
    with opened(target) as store:
        assert contents(store) == before


def test_two_at_once(source: str, target: str, path: Path) -> None:
    with only_mover(str(path)), pytest.raises(Conflict, match="is being moved already"):
        move(source, target)
    move(source, target)


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("postgresql://x/y", "postgresql://x/y", "from a SQLite file"),
        ("sqlite://", "postgresql://x/y", "from a SQLite file"),
        ("sqlite:///nowhere.db", "postgresql://x/y", "there is no database file"),
        ("sqlite:///{path}", "sqlite:///other.db", "jobs move to a server"),
        ("sqlite:///{path}", "postgresql://%%%", "not a PostgreSQL URL"),
        ("sqlite:///{path}", "mariadb://%%%", "a MariaDB URL must name one database"),
    ],
)
def test_addresses_that_are_none(path: Path, source: str, target: str, words: str) -> None:
    open_store(f"sqlite:///{path}").close()
    with pytest.raises(Invalid, match=words):
        move(source.replace("{path}", str(path)), target)


def test_a_file_of_somebody_else_is_left_as_it_is(path: Path, target: str) -> None:
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE theirs (x)")
        conn.commit()
    before = path.read_bytes()
    with pytest.raises(Invalid, match="has no hipq tables: there is nothing to move"):
        move(f"sqlite:///{path}", target)
    assert path.read_bytes() == before
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(Invalid, match="cannot be read"):
        move(f"sqlite:///{path}", target)


@pytest.mark.parametrize("kind", ["PostgreSQL", "MariaDB"])
def test_a_target_that_is_away(source: str, before: Any, kind: str) -> None:
    with pytest.raises(StoreUnavailable, match=kind):
        move(source, f"{kind.lower()}://postgres@127.0.0.1:1/nothing")
    with opened(source) as store:
        assert contents(store) == before
