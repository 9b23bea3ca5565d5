"""Problems that only a SQLite file has, made for real."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hipq import Hipq
from hipq.cli.main import run
from hipq.stores.sqlite import health, health_file, place
from tests import processes
from tests.cli.conftest import HipqCommand
from tests.databases import sql
from tests.doctor.conftest import Doctor


@pytest.fixture(autouse=True)
def shop(sqlite: str) -> Hipq:
    """The shop with a job that waits for its time; nobody has its file open."""
    app = Hipq("shop", sqlite)
    app.queue("mails")
    app.queue("orders").enqueue("quick", delay=3600)
    app.migrate()
    app.close()
    return app


def state(folder: Path) -> dict[str, bytes]:
    """What is in the folder: all that SQLite may change, but its shared memory."""
    return {path.name: path.read_bytes() for path in folder.glob("shop.db*") if not path.name.endswith("-shm")}


# -- copies ----------------------------------------------------------------------------------------------------------
def test_a_file_that_was_renamed_is_no_copy_and_one_in_its_place_is(
    doctor: Doctor, folder: Path, tmp_path: Path
) -> None:
    file, backup = folder / "shop.db", tmp_path / "backup.db"
    file.rename(folder / "other.db")
    assert doctor.news("--db", f"sqlite:///{folder}/other.db") == []
    shutil.copy(folder / "other.db", backup)
    (folder / "other.db").unlink()
    shutil.copy2(backup, file)  # which may get the inode of the one that was deleted
    assert doctor.only()["facts"] == {"changed": ["born"]}


def test_a_file_system_that_knows_no_birth_tells_by_the_inode(
    doctor: Doctor, sqlite: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_born", lambda _path: 0)
    assert doctor.news() == []  # it was made where births are known: nothing to compare
    again = Hipq("shop", sqlite)
    again.store.restored(0)
    again.close()
    assert doctor.news() == []
    shutil.copy(folder / "shop.db", folder / "copy.db")
    os.replace(folder / "copy.db", folder / "shop.db")
    assert doctor.only()["facts"] == {"changed": ["inode"]}


# -- looking changes nothing -----------------------------------------------------------------------------------------
def test_looking_at_a_file_that_nobody_uses_leaves_no_trace(doctor: Doctor, folder: Path) -> None:
    before = state(folder)
    assert set(before) - {"shop.db-hipq"} == {"shop.db"}
    assert doctor.news("shop:app", "--deep") == []
    assert state(folder) == before
    assert not (folder / "shop.db-shm").exists()


def test_looking_at_a_file_in_use_changes_neither_it_nor_its_log(doctor: Doctor, sqlite: str, folder: Path) -> None:
    using = Hipq("shop", sqlite)
    using.queue("orders").enqueue("quick", delay=3600)
    before = state(folder)
    assert len(before["shop.db-wal"]) > 0
    assert doctor.news("shop:app", "--deep") == []
    assert state(folder) == before
    using.close()


def test_looking_at_what_a_crash_left_does_not_write_its_log_back(doctor: Doctor, folder: Path) -> None:
    code = "import os, shop; shop.orders.enqueue('quick', delay=3600); os._exit(1)"
    assert processes.run([sys.executable, "-c", code], cwd=folder, check=False).returncode == 1
    before = state(folder)
    assert len(before["shop.db-wal"]) > 0
    assert doctor.news() == []
    assert state(folder) == before


# -- planted ---------------------------------------------------------------------------------------------------------
def test_what_cannot_be_read_without_an_index_is_said_and_the_rest_is_checked(doctor: Doctor, sqlite: str) -> None:
    sql(sqlite, "DROP INDEX shop_orders_ready")
    found = doctor.news()
    assert [(one["check"], one["level"]) for one in found] == [("indexes", "problem"), ("jobs", "warning")]
    assert found[1]["sentence"] == "this could not be checked: no such index: shop_orders_ready"
    sql(sqlite, *found[0]["facts"]["sql"])
    assert doctor.news() == []


def test_a_check_that_is_gone_is_noticed(doctor: Doctor, sqlite: str) -> None:
    gone = "replace(sql, 'CONSTRAINT shop_orders_states', 'CONSTRAINT another')"
    sql(sqlite, "PRAGMA writable_schema = ON", f"UPDATE sqlite_master SET sql = {gone} WHERE name = 'shop_orders'")
    found = doctor.only()
    assert (found["check"], found["level"], found["queue"]) == ("indexes", "warning", "shop.orders")
    assert "the check shop_orders_states of table shop_orders is missing" in found["sentence"]


def test_another_journal_mode_is_noticed_and_a_hipq_program_sets_it_back(
    doctor: Doctor, sqlite: str, hipq: HipqCommand
) -> None:
    assert sql(sqlite, "PRAGMA journal_mode = DELETE") == [("delete",)]
    found = doctor.only()
    assert (found["check"], found["level"]) == ("storage", "warning")
    assert found["sentence"].startswith("the journal mode is delete, not wal")
    assert hipq("queue", "list", "shop:app").status == 0
    assert doctor.news() == []


def test_a_file_that_is_mostly_free_pages_is_a_note(doctor: Doctor, sqlite: str) -> None:
    row = "(WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) SELECT i FROM n)"
    fill = f"INSERT INTO filler SELECT zeroblob(1000000) FROM {row}"
    sql(sqlite, "CREATE TABLE filler (data BLOB)", fill, "DROP TABLE filler")
    found = doctor.only()
    assert (found["check"], found["level"]) == ("storage", "note")
    assert "in the file are free pages" in found["sentence"]
    sql(sqlite, *found["facts"]["sql"])
    assert doctor.news() == []


def test_damage_is_found_by_a_deep_look(doctor: Doctor, sqlite: str, folder: Path) -> None:
    ((root, size),) = sql(
        sqlite,
        "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master WHERE name = 'shop_mails_key'",
    )
    with (folder / "shop.db").open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\x7f" * size)
    assert doctor.news() == []  # nothing that is looked at lies on that page
    found = doctor.only("shop:app", "--deep")
    assert (found["check"], found["level"]) == ("storage", "problem")
    assert found["sentence"].startswith("the file is damaged: ")
    assert found["facts"]["damage"]


def test_who_holds_the_lock_file_for_long_is_named(
    doctor: Doctor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sqlite3.sqlite_version_info >= (3, 51, 3):
        pytest.skip("this SQLite needs no lock file")
    monkeypatch.setattr(health_file, "BUSY_SECONDS", 0.1)
    code = "import fcntl, sys; fcntl.flock(open('shop.db-hipq'), fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    holder = processes.Popen(
        [sys.executable, "-c", code.replace("flock(open('shop.db-hipq')", "flock((held := open('shop.db-hipq'))")],
        cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdin
    assert holder.stdout
    holder.stdout.readline()
    found = doctor.only()
    assert (found["check"], found["level"]) == ("storage", "warning")
    assert f"shop.db-hipq is held by process {holder.pid}: every other writer waits" in found["sentence"]
    holder.stdin.close()
    holder.wait()
    holder.stdout.close()
    assert doctor.news() == []


def test_the_lock_file_is_free_while_the_doctor_reads(doctor: Doctor, folder: Path) -> None:
    """A look that takes long must not keep workers from writing."""
    assert doctor.news() == []
    if (folder / "shop.db-hipq").exists():
        with (folder / "shop.db-hipq").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_folder_this_user_may_not_write_is_a_problem(capfd: pytest.CaptureFixture[str]) -> None:
    """Not below the folder of all tests: each run of pytest, also one that a test starts, shuts that to strangers."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with TemporaryDirectory() as name:
        folder, url = Path(name), f"sqlite:///{name}/shop.db"
        folder.chmod(0o755)
        with closing(Hipq("shop", url)) as app:
            app.queue("orders").enqueue("quick", delay=3600)
        assert run(["doctor", "--db", url]) == 0  # all that is needed is loaded
        capfd.readouterr()
        pid = os.fork()
        if pid == 0:
            os.setgid(65534)
            os.setuid(65534)
            os._exit(run(["doctor", "--db", url]))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
        text = capfd.readouterr().out
        beside = f", {folder}/shop.db-hipq" if (folder / "shop.db-hipq").exists() else ""
        assert f"problem  this user may not write {folder}/shop.db{beside}, {folder}\n" in text


def test_a_lease_of_an_earlier_boot_is_nothing_to_talk_about(doctor: Doctor, sqlite: str) -> None:
    far = "9000000000000000"
    sql(sqlite, f"INSERT INTO hipq_engines VALUES (7, {far}, 'another boot', 'a worker', '{{}}', '', 0)")
    assert doctor.news() == []
    with closing(sqlite3.connect(sqlite.removeprefix("sqlite:///"))) as conn:
        conn.execute("UPDATE shop_orders SET owner = 7, state = 'running', phase = 'executing'")
        conn.commit()
    found = doctor.only()  # but what it had is nobody's
    assert (found["check"], found["level"], found["facts"]["engine_id"]) == ("engines", "problem", 7)


def test_a_file_that_somebody_has_to_himself_is_said_to_be_locked(
    doctor: Doctor, sqlite: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(folder / "shop.db", isolation_level=None)) as conn:
        conn.execute("PRAGMA locking_mode = EXCLUSIVE")
        conn.execute("BEGIN EXCLUSIVE")
        (found,) = doctor.news("--db", sqlite)
    assert (found["check"], found["level"]) == ("database", "problem")
    assert found["sentence"].endswith("database is locked")
    assert doctor.news() == []


def test_a_damaged_file_never_makes_the_doctor_faint(doctor: Doctor, shop: Hipq, sqlite: str, folder: Path) -> None:
    """Whatever is in it: findings, and no traceback."""
    orders = next(queue for queue in shop.queues if queue.name == "orders")
    orders.enqueue_many("quick", [{"n": n} for n in range(200)])
    shop.pause("orders", lane="east")
    shop.close()
    whole = (folder / "shop.db").read_bytes()
    chance = random.Random(7)
    found = set()
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(chance.choice([5, 50, 500])):
            damaged[chance.randrange(100, len(damaged))] = chance.randrange(256)
        (folder / "shop.db").write_bytes(damaged)
        found |= {one["check"] for one in doctor.news("--db", sqlite, "--deep") if one["level"] == "problem"}
    assert {"database", "storage"} <= found


# -- who may read it -------------------------------------------------------------------------------------------------
def test_files_that_other_users_may_open_are_a_warning_with_the_command_that_ends_it(
    doctor: Doctor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, lock = folder / "shop.db", folder / "shop.db-hipq"
    assert doctor.news() == []
    file.chmod(0o644)
    lock.touch()
    lock.chmod(0o666)
    found = doctor.only()
    assert (found["check"], found["level"]) == ("storage", "warning")
    assert found["facts"] == {"exposed": {str(file): "0644", str(lock): "0666"}}
    assert f"`chmod 600 {file} {lock}`" in found["advice"]
    file.chmod(0o660)
    lock.chmod(0o660)
    assert doctor.only()["facts"] == {"exposed": {str(file): "0660", str(lock): "0660"}}
    monkeypatch.setenv("HIPQ_GROUP", str(os.getgid()))
    assert doctor.news() == []
