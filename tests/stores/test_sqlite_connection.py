"""What only SQLite needs: the lock file, forks, and no trust after a failed sync."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hipq import Hipq, Invalid, Job
from hipq.errors import StoreBroken, StoreRefused, StoreUnavailable
from hipq.stores.filters import Filter
from hipq.stores.sqlite import connection
from hipq.stores.sqlite.connection import Connection, translated
from hipq.stores.sqlite.store import SqliteStore
from hipq.testing.clock import HandClock
from tests.contract.jobs import new
from tests.small_disk import fill, small_disk


def test_an_old_sqlite_writes_only_under_the_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SAFE_VERSION", (99, 0, 0))
    app = Hipq("shop", f"sqlite:///{tmp_path}/a.db")
    queue = app.queue("orders")
    queue.enqueue("work")
    other = os.open(tmp_path / "a.db-hipq", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    done = threading.Event()

    def write() -> None:
        queue.enqueue("work")
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert not done.wait(0.2), "it wrote while another held the lock file"
    assert len(app.jobs("orders")) == 1, "reading needs no lock file"
    fcntl.flock(other, fcntl.LOCK_UN)
    assert done.wait(30)
    thread.join()
    os.close(other)
    app.close()


def test_a_lock_file_that_stays_held_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SAFE_VERSION", (99, 0, 0))
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.1)
    app = Hipq("shop", f"sqlite:///{tmp_path}/a.db")
    queue = app.queue("orders")
    queue.enqueue("work")
    other = os.open(tmp_path / "a.db-hipq", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(StoreUnavailable, match="another process has held"):
        queue.enqueue("work")
    os.close(other)
    queue.enqueue("work")
    app.close()


def test_a_new_sqlite_needs_no_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SAFE_VERSION", (3, 0, 0))
    Connection(f"{tmp_path}/a.db").close()
    assert [file.name for file in tmp_path.iterdir()] == ["a.db"]


def test_a_forked_child_opens_a_connection_of_its_own(tmp_path: Path) -> None:
    app = Hipq("shop", f"sqlite:///{tmp_path}/a.db")
    queue = app.queue("orders")
    first = queue.enqueue("work", "parent")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for number in range(50):
                queue.enqueue("work", number)
            status = 0
        finally:
            os._exit(status)
    for number in range(50):
        queue.enqueue("work", number)
    assert os.waitpid(pid, 0)[1] == 0
    ids = [job.id for job in app.jobs("orders", oldest=True, limit=1000)]
    assert ids[0] == first
    assert len(ids) == len(set(ids)) == 101
    check = sqlite3.connect(tmp_path / "a.db")
    assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()
    app.close()


def test_a_forked_child_has_a_bell_and_a_watch_of_its_own(tmp_path: Path) -> None:
    store = SqliteStore(f"{tmp_path}/a.db")
    store.waker.wait(0)
    waker, watch = store.waker, store.waker._watch
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            store.waker.wait(0)
            if store.waker is not waker and store.waker._watch is not watch and not store.waker.wait(0):
                status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert (store.waker, store.waker._watch) == (waker, watch)
    store.close()


def test_a_fork_while_a_thread_uses_the_store_does_not_stop_the_child(tmp_path: Path) -> None:
    store = SqliteStore(f"{tmp_path}/a.db")
    with store._db.reading():
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                signal.alarm(5)
                thread = threading.Thread(target=store.queues)  # not the thread that holds the lock
                thread.start()
                thread.join()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
    store.close()


def test_what_a_forked_child_was_told_is_stored_stays_stored(tmp_path: Path) -> None:
    """A child must not believe in locks it only inherited: the last one to close would take the WAL away under it."""
    url = f"sqlite:///{tmp_path}/a.db"
    app = Hipq("shop", url)
    queue = app.queue("orders")
    ids = [queue.enqueue("work", "before")]
    told, tell = os.pipe()
    go, went = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            mine = [queue.enqueue("work", "child")]
            os.write(tell, b"1")
            os.read(go, 1)
            mine += [queue.enqueue("work", number) for number in range(5)]
            os.write(tell, msgspec.json.encode([int(job_id) for job_id in mine]))
        finally:
            os._exit(0)
    os.read(told, 1)
    app.close()  # the parent is done with it, and thinks it is the last
    other = Hipq("shop", url)
    ids.append(other.queue("orders").enqueue("work", "another process"))
    other.close()
    os.write(went, b"1")
    ids += msgspec.json.decode(os.read(told, 9999))
    os.waitpid(pid, 0)
    again = Hipq("shop", url)
    again.queue("orders")
    assert len(set(ids)) == len(ids) == 8, "no id is given out twice"
    assert [again.job(job_id).state for job_id in ids] == ["initial"] * 8
    again.close()


def test_a_fork_waits_for_a_write_in_another_thread(tmp_path: Path) -> None:
    store = SqliteStore(f"{tmp_path}/a.db")
    inside, leave = threading.Event(), threading.Event()

    def write() -> None:
        with store._db.writing():
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=write)
    thread.start()
    inside.wait(30)
    threading.Timer(0.2, leave.set).start()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if leave.is_set() and store.queue("shop", "orders", "shop_orders") else 1)
    assert os.waitpid(pid, 0)[1] == 0
    thread.join()
    assert [queue.name for queue in store.queues()] == ["orders"]
    store.close()


def test_rules_are_not_looked_at_again_while_another_thread_waits_to_write(tmp_path: Path) -> None:
    """An engine of this program may wait for the very transaction in which a job is being added with `conn=`."""
    clock = HandClock()
    app = Hipq("shop", f"sqlite:///{tmp_path}/a.db", clock=clock)
    queue = app.queue("orders")
    job_id = queue.enqueue("work")
    with sqlite3.connect(tmp_path / "a.db", isolation_level=None) as mine:
        mine.execute("BEGIN IMMEDIATE")

        def write() -> None:
            with pytest.raises(StoreUnavailable):
                app.cancel(job_id)

        waiting = threading.Thread(target=write)
        waiting.start()
        lock = app.store._db._lock  # type: ignore[attr-defined]
        while lock.acquire(blocking=False):
            lock.release()
            time.sleep(0.01)
        clock.advance(seconds=60)
        began = time.monotonic()
        queue.enqueue("work", conn=mine)
        assert time.monotonic() - began < connection.BUSY_SECONDS / 2
        waiting.join()
        mine.execute("COMMIT")
    mine.close()
    assert app.jobs.count("orders") == 2
    app.close()


def test_many_queues_are_looked_at_in_one_statement(tmp_path: Path) -> None:
    store = SqliteStore(f"{tmp_path}/a.db")
    queues = [store.queue("shop", f"q{n}", f"shop_q{n}").number for n in range(20)]
    statements: list[str] = []
    with store._db.reading() as conn:
        conn.set_trace_callback(statements.append)
    store.owned(queues, None, 10)
    store.owned(queues, 1)
    assert len(statements) == 2
    store.close()


def test_each_look_has_its_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(f"{tmp_path}/a.db")
    queue = store.queue("shop", "orders", "shop_orders").number
    plans: list[str] = []

    def explained(conn: sqlite3.Connection, query: str, values: Any, _kind: Any) -> list[Any]:
        steps = conn.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()
        plans.append(" ".join([*(row[3] for row in steps), query]))
        return []

    monkeypatch.setattr("hipq.stores.sqlite.dialect.read", explained)
    store.find(Filter(queue, job_key="a"))
    store.find(Filter(queue, job_key="a", job_type="b", after=5))
    for plan in plans:
        assert "USING INDEX shop_orders_key (job_key=?" in plan
        assert "USING INDEX shop_orders_final_key (job_key=?" in plan
    plans.clear()
    for wanted in (Filter(queue, state="final"), Filter(queue, phase="done", job_key="a")):
        store.find(wanted)
        assert "FROM shop_orders_final" in plans[-1]
        assert "FROM shop_orders " not in plans[-1]
    store.find(Filter(queue, state="retry"))
    assert "_final" not in plans[-1]
    assert store.find(Filter(queue, state="final", phase="ready")) == []
    plans.clear()
    store.owned([queue], None, 10)
    store.owned([queue], 1)
    assert all("shop_orders_owner" in plan for plan in plans)
    store.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no autocommit attribute there")
@pytest.mark.parametrize("autocommit", [True, False])
def test_a_connection_with_the_autocommit_attribute_commits_as_it_says(tmp_path: Path, autocommit: bool) -> None:
    store = SqliteStore(f"{tmp_path}/a.db")
    queue = store.queue("shop", "orders", "shop_orders").number
    options: dict[str, Any] = {"autocommit": autocommit}
    conn = sqlite3.connect(tmp_path / "a.db", **options)
    store.enqueue([new(queue)], conn=conn)
    assert len(store.find(Filter(queue))) == autocommit
    if not autocommit:
        conn.commit()
        assert len(store.find(Filter(queue))) == 1
    conn.close()
    store.close()


def test_a_process_handler_cannot_share_an_in_memory_database() -> None:
    app = Hipq("shop", "sqlite://")
    queue = app.queue("orders")

    @queue.job(process=True)
    def work(_: Job[Any]) -> None:
        queue.enqueue("other")

    job_id = work.enqueue()
    app.run(until_empty=True)
    assert "give the app a file" in app.job(job_id).error


class FailingDisk:
    """A connection whose COMMIT fails as SQLite reports a failed fsync, once."""

    def __init__(self, conn: sqlite3.Connection, name: str) -> None:
        self._conn = conn
        self._name: str | None = name

    def execute(self, statement: str, *values: Any) -> Any:
        if statement == "COMMIT" and self._name:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname, self._name = self._name, None
            raise error
        return self._conn.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)


def test_after_a_failed_sync_nothing_is_acknowledged_any_more(tmp_path: Path) -> None:
    """F6."""
    app = Hipq("shop", f"sqlite:///{tmp_path}/a.db")
    queue = app.queue("orders")
    queue.enqueue("work")
    database = app.store._db  # type: ignore[attr-defined]
    database._conn = FailingDisk(database._conn, "SQLITE_IOERR_FSYNC")
    with pytest.raises(StoreBroken, match="cannot be trusted"):
        queue.enqueue("work")
    for _ in range(3):
        with pytest.raises(StoreBroken):
            queue.enqueue("work")
    with pytest.raises(StoreBroken):
        app.run(until_empty=True)


def test_a_full_disk_is_not_the_end(tmp_path: Path) -> None:
    """F7."""
    app = Hipq("shop", f"sqlite:///{tmp_path}/a.db")
    queue = app.queue("orders")
    queue.enqueue("work")
    database = app.store._db  # type: ignore[attr-defined]
    database._conn = FailingDisk(database._conn, "SQLITE_FULL")
    with pytest.raises(StoreUnavailable):
        queue.enqueue("work")
    queue.enqueue("work")
    assert len(app.jobs("orders")) == 2
    app.close()


def test_a_database_opened_on_a_full_disk_is_used_once_there_is_room(tmp_path: Path) -> None:
    """Whoever opens a database that nobody has open needs room for two more files."""
    with small_disk(tmp_path, 4):
        app = Hipq("shop", f"sqlite:///{tmp_path}/a.db")
        app.queue("orders").enqueue("work")
        app.close()
        fill(tmp_path)
        app = Hipq("shop", f"sqlite:///{tmp_path}/a.db")
        queue = app.queue("orders")
        with pytest.raises(StoreUnavailable, match="full"):
            queue.enqueue("work")
        (tmp_path / "ballast").unlink()
        queue.enqueue("work")
        assert len(app.jobs("orders")) == 2
        app.close()


def test_a_writer_that_holds_the_database_is_waited_for_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.1)
    app = Hipq("shop", f"sqlite:///{tmp_path}/a.db")
    queue = app.queue("orders")
    queue.enqueue("work")
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        queue.enqueue("work")
    other.execute("COMMIT")
    other.close()
    queue.enqueue("work")
    app.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mongodb://x", "hipq keeps no jobs in mongodb databases"),
        ("", "not a database URL"),
        ("sqlite:relative.db", "not a database URL"),
    ],
)
def test_a_bad_url_says_what_a_good_one_is(url: str, said: str) -> None:
    with pytest.raises(Invalid, match=f"{said}.*sqlite:///file.db"):
        _ = Hipq("shop", url).store


def test_a_folder_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"No such file|unable to open"):
        _ = Hipq("shop", f"sqlite:///{tmp_path}/none/a.db").store


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"this is no database, however long it may be" * 100)
    with pytest.raises(StoreBroken, match="not a database"):
        _ = Hipq("shop", f"sqlite:///{tmp_path}/a.db").store


@pytest.mark.parametrize(
    ("db", "url"),
    [
        ({"driver": "sqlite", "file": "x.db"}, "sqlite:///x.db"),
        ({"driver": "sqlite", "database": ":memory:"}, "sqlite://"),
        ({"url": "sqlite:///y.db"}, "sqlite:///y.db"),
        (
            {"driver": "postgresql", "host": "h", "port": 5, "user": "u@", "password": "p/", "database": "d"},
            "postgresql://u%40:p%2F@h:5/d",
        ),
    ],
)
def test_a_database_may_be_given_as_json(db: dict[str, Any], url: str) -> None:
    assert Hipq("shop", db).url == url


@pytest.mark.parametrize("db", [{"driver": "oracle"}, {"host": "h"}, {"driver": "sqlite", "wrong": 1}, 5])
def test_bad_json_configuration_is_refused(db: Any) -> None:
    with pytest.raises(Invalid, match="db"):
        Hipq("shop", db)


def test_the_environment_names_the_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HIPQ_DATABASE_URL", "sqlite:///elsewhere.db")
    assert Hipq("shop").url == "sqlite:///elsewhere.db"
    monkeypatch.delenv("HIPQ_DATABASE_URL")
    monkeypatch.chdir(tmp_path)
    assert Hipq("shop").url == "sqlite:///shop.db"


def test_errors_are_told_apart() -> None:
    assert isinstance(translated(sqlite3.IntegrityError("x")), StoreRefused)
    assert isinstance(translated(OverflowError("x")), StoreRefused)
    assert isinstance(translated(sqlite3.OperationalError("x")), StoreUnavailable)


def test_a_naming_strategy_is_code_and_the_registry_owns_the_names(tmp_path: Path) -> None:
    from hipq import NameClash

    url = f"sqlite:///{tmp_path}/a.db"
    app = Hipq("shop", url, table_naming=lambda hipq, queue: f"{queue}_of_{hipq}")
    app.queue("orders").enqueue("work")
    tables = {row[0] for row in sqlite3.connect(tmp_path / "a.db").execute("SELECT name FROM sqlite_master")}
    assert {"orders_of_shop", "orders_of_shop_final"} <= tables
    with pytest.raises(NameClash, match="lives in the table orders_of_shop"):
        Hipq("shop", url).queue("orders").enqueue("work")
    with pytest.raises(NameClash, match="queue shop"):
        Hipq("other", url, table_naming=lambda *_: "orders_of_shop").queue("mine").enqueue("work")
    with pytest.raises(Invalid, match="a table name must"):
        Hipq("other", url, table_naming=lambda *_: "no table").queue("mine").enqueue("work")
    Hipq("a_b", url).queue("c").enqueue("work")
    with pytest.raises(NameClash):
        Hipq("a", url).queue("b_c").enqueue("work")


def test_a_lock_that_may_be_the_program_s_own_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who forgets `conn=` waits for their own transaction; so does who has no tables yet, `conn=` or not."""
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.1)
    mine = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    mine.execute("CREATE TABLE orders (n)")
    app = Hipq("shop", f"sqlite:///{tmp_path}/a.db")
    queue = app.queue("orders")
    for there, kept, sentence in [
        (False, mine, "lacks tables of hipq's: if this program has a transaction open on the file, make them before"),
        (True, None, "if this program has a transaction open on the file, pass conn=, or do this after its commit"),
    ]:
        if there:
            app.migrate()
            app.queue("mails")  # and one whose tables are not there
        mine.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable) as raised:
            queue.enqueue("work", conn=kept)
        assert sentence in str(raised.value)
        if there:
            with pytest.raises(StoreUnavailable, match="lacks tables of hipq's"):
                app.queues[1].enqueue("work", conn=mine)
            queue.enqueue("work", conn=mine)
        mine.execute("COMMIT")
    mine.close()
    app.close()
