"""A SQLite file that is deleted, renamed or replaced while it is open: nothing is acknowledged into nowhere."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq, Job
from hipq.errors import StoreBroken
from hipq.queue import Queue
from hipq.stores.sqlite import open_files
from hipq.stores.sqlite.store import SqliteStore
from tests.contract.jobs import new


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "a.db"


@pytest.fixture
def queue(file: Path) -> Iterator[Queue]:
    app = Hipq("shop", f"sqlite:///{file}")
    queue = app.queue("orders")
    queue.enqueue("work", "before")
    yield queue
    app.close()


def another(file: Path) -> Path:
    """A database of hipq's that is not this one, with the same queue."""
    path = file.with_name("other.db")
    app = Hipq("shop", f"sqlite:///{path}")
    app.queue("orders").enqueue("work", "another")
    app.close()
    return path


def delete(file: Path) -> None:
    file.unlink()


def rename(file: Path) -> None:
    file.rename(file.with_name("renamed.db"))


def rename_folder(file: Path) -> None:
    file.parent.rename(file.parent.with_name("renamed"))


def replace(file: Path) -> None:
    another(file).rename(file)


def replace_folder(file: Path) -> None:
    path = another(file)
    other = file.parent.with_name("other")
    other.mkdir()
    path.rename(other / file.name)
    rename_folder(file)
    other.rename(file.parent)


def delete_log(file: Path) -> None:
    Path(f"{file}-wal").unlink()


def delete_index(file: Path) -> None:
    Path(f"{file}-shm").unlink()


def delete_lock(file: Path) -> None:
    Path(f"{file}-hipq").unlink(missing_ok=True)


def restore(file: Path) -> None:
    """As from a backup: a copy in the place of the file, and its log away."""
    shutil.copy(file, file.with_name("backup.db"))
    for name in (file, f"{file}-wal", f"{file}-shm"):
        os.unlink(name)
    file.with_name("backup.db").rename(file)


def rename_and_link(file: Path) -> None:
    """Who opens the link from now on keeps the log beside the file, not beside the link."""
    rename(file)
    file.symlink_to("renamed.db")


WHOLE = [delete, rename, rename_folder, rename_and_link, replace, replace_folder, restore]
"""What is done to the database itself."""


@pytest.mark.parametrize("done", WHOLE)
def test_nothing_is_acknowledged_or_read_after_the_file_is_gone(
    file: Path, queue: Queue, done: Callable[[Path], None]
) -> None:
    done(file)
    for _ in range(2):
        with pytest.raises(StoreBroken, match=r"a\.db was deleted, renamed or replaced"):
            queue.enqueue("work")
        with pytest.raises(StoreBroken, match="deleted, renamed or replaced"):
            queue.app.jobs("orders")


@pytest.mark.parametrize("is_quiet", [False, True])
@pytest.mark.parametrize(
    "done", [*WHOLE, delete_log, delete_index, *([delete_lock] if sqlite3.sqlite_version_info < (3, 51, 3) else [])]
)
def test_what_is_gone_before_the_commit_is_over_is_not_acknowledged(
    file: Path, done: Callable[[Path], None], is_quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment between the first look and the commit. In a folder that has been quiet for a while, or has not."""
    if not is_quiet:
        monkeypatch.setattr(open_files, "settles_in", lambda _: 1 << 62)
    store = SqliteStore(str(file))
    number = store.queue("shop", "orders", "shop_orders").number
    assert store._db._files
    while is_quiet and not store._db._files._quiet:
        store.enqueue([new(number)])

    def meanwhile(statement: str) -> None:
        if statement.startswith("INSERT INTO shop_orders"):
            done(file)

    with store._db.reading() as conn:
        conn.set_trace_callback(meanwhile)
    with pytest.raises(StoreBroken, match="deleted, renamed or replaced"):
        store.enqueue([new(number)])
    store.close()


@pytest.mark.parametrize(
    ("changed", "seconds"),
    [
        (1_800_000_000_000_000_000, 3),  # FAT: two seconds
        (1_800_000_001_000_000_000, 3),  # ext3: one
        (1_800_000_001_230_000_000, 3),  # exFAT: hundredths
        (1_800_000_001_234_567_800, 0.05),  # NTFS: tenths of a microsecond
        (1_800_000_001_234_567_891, 0.05),  # ext4: the kernel's ticks
    ],
)
def test_a_folder_is_quiet_after_what_its_file_system_may_not_tell_apart(changed: int, seconds: float) -> None:
    assert open_files.settles_in(changed) == seconds * 1e9


def test_a_renamed_file_has_all_that_was_acknowledged_though_its_log_stayed_behind(file: Path, queue: Queue) -> None:
    ids = [queue.enqueue("work", number) for number in range(100)]
    rename(file)
    with pytest.raises(StoreBroken):
        queue.enqueue("work")
    copy = file.with_name("copy.db")
    shutil.copy(file.with_name("renamed.db"), copy)
    found = sqlite3.connect(copy).execute("SELECT id FROM shop_orders").fetchall()
    assert {job_id for (job_id,) in found} >= set(ids)


def test_a_file_that_is_put_back_is_used_again(file: Path, queue: Queue) -> None:
    rename(file)
    with pytest.raises(StoreBroken):
        queue.enqueue("work")
    file.with_name("renamed.db").rename(file)
    queue.enqueue("work", "after")
    assert [job.data for job in queue.app.jobs("orders", oldest=True)] == ["before", "after"]


def test_a_link_that_points_to_another_database_is_noticed(file: Path, tmp_path: Path) -> None:
    other = another(file)
    link = tmp_path / "link.db"
    link.symlink_to(file)
    app = Hipq("shop", f"sqlite:///{link}")
    queue = app.queue("orders")
    queue.enqueue("work")
    link.unlink()
    link.symlink_to(other)
    with pytest.raises(StoreBroken, match=r"link\.db was deleted, renamed or replaced"):
        queue.enqueue("work")
    app.close()


def test_a_file_that_is_mounted_is_looked_at_itself(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever deletes it does so in another folder, and its name here stays: it has one link less."""
    assert open_files._is_mounted("/proc")
    assert not open_files._is_mounted(str(file))
    monkeypatch.setattr(open_files, "_is_mounted", lambda _path: True)
    monkeypatch.setattr(open_files, "settles_in", lambda _: -1)
    app = Hipq("shop", f"sqlite:///{file}")
    queue = app.queue("orders")
    queue.enqueue("work")
    real = os.stat

    def without_links(path: Any, **more: Any) -> os.stat_result:
        found = real(path, **more)
        return os.stat_result([*found[:3], 0, *found[4:]]) if path == str(file) else found

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", without_links)
        with pytest.raises(StoreBroken, match=r"a\.db was deleted"):
            queue.enqueue("work")
    app.close()


def test_a_fork_does_not_hide_that_the_file_is_gone(file: Path, queue: Queue) -> None:
    """A fork closes the connection; opened again, it would make a new file."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    rename(file)
    with pytest.raises(StoreBroken, match="deleted, renamed or replaced"):
        queue.enqueue("work")
    assert not file.exists()


def test_a_users_connection_adds_nothing_to_a_file_that_is_gone(file: Path, queue: Queue) -> None:
    conn = sqlite3.connect(file)
    conn.execute("PRAGMA user_version").fetchone()
    rename(file)
    with pytest.raises(StoreBroken, match="deleted, renamed or replaced"):
        queue.enqueue("work", conn=conn)
    conn.close()


def test_a_relative_path_means_the_same_file_wherever_the_program_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    app = Hipq("shop", "sqlite:///a.db")
    queue = app.queue("orders")
    queue.enqueue("work")
    app.close()
    monkeypatch.chdir(tmp_path / "elsewhere")
    queue.enqueue("work")
    conn = sqlite3.connect(tmp_path / "a.db")
    with conn:
        queue.enqueue("work", conn=conn)
    conn.close()
    assert len(app.jobs("orders")) == 3
    app.close()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_engine_ends_with_the_error_and_runs_nothing_more(file: Path, queue: Queue) -> None:
    ran: list[Any] = []

    @queue.job
    def work(job: Job[Any]) -> None:
        ran.append(job.data)
        if job.data == "before":
            rename(file)

    work.enqueue_many(range(20))
    with pytest.raises(StoreBroken, match="deleted, renamed or replaced"):
        queue.app.run(until_empty=True, concurrency=1)
    assert ran == ["before"]


def test_the_log_that_is_left_behind_does_not_harm_the_file_that_comes_next(file: Path, queue: Queue) -> None:
    """SQLite would write the log of the old database over the new one."""
    replace(file)
    with pytest.raises(StoreBroken):
        queue.app.jobs("orders")
    next_one = sqlite3.connect(file)
    assert next_one.execute("SELECT job_data FROM shop_orders").fetchall() == [('"another"',)]
    assert next_one.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    next_one.close()


def test_what_was_acknowledged_outlives_a_log_that_was_deleted(file: Path, queue: Queue) -> None:
    ids = {queue.enqueue("work", number) for number in range(10)}
    delete_log(file)
    with pytest.raises(StoreBroken, match=r"a\.db-wal was deleted, renamed or replaced"):
        queue.enqueue("work")
    again = Hipq("shop", f"sqlite:///{file}")
    again.queue("orders")
    assert {job.id for job in again.jobs("orders")} >= ids
    again.close()
