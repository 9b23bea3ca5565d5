"""F16: a SQLite file is deleted, renamed or replaced while programs add jobs to it and workers run them."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hipq import Hipq
from tests import processes
from tests.crash.adding import BROKEN
from tests.crash.program import make_app
from tests.crash.workers import ROOT, Workers, eventually

ROUNDS = int(os.environ.get("HIPQ_ROUNDS", "2"))
SAID = "was deleted, renamed or replaced while this program had it open"


def rename(file: Path) -> Path:
    """The database alone: its log stays behind."""
    there = file.with_name("renamed.db")
    file.rename(there)
    return there


def rename_folder(file: Path) -> Path:
    there = file.parent.with_name("renamed")
    file.parent.rename(there)
    return there / file.name


def kept(file: Path) -> Path:
    """Other names for the same files, by which a test can look at them after they were deleted."""
    there = file.with_name("kept.db")
    os.link(file, there)
    os.link(f"{file}-wal", f"{there}-wal")
    return there


def delete(file: Path) -> Path:
    there = kept(file)
    file.unlink()
    return there


def replace(file: Path) -> Path:
    """By a database that has the same queue."""
    there, other = kept(file), file.with_name("other.db")
    app = make_app(f"sqlite:///{other}", file.parent)
    app.migrate()
    app.close()
    other.rename(file)
    return there


def acknowledged(file: Path) -> list[tuple[int, int]]:
    """When each call began, and the id it was told."""
    lines = file.read_text().split("\n")[:-1] if file.exists() else []  # the last is empty, or of a killed program
    return [(int(began), int(job_id)) for began, job_id in map(str.split, lines)]


def stored(file: Path) -> set[int]:
    conn = sqlite3.connect(file)
    try:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        query = "SELECT id FROM crash_jobs UNION ALL SELECT id FROM crash_jobs_final"
        return {job_id for (job_id,) in conn.execute(query).fetchall()}
    finally:
        conn.close()


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("done", [rename, rename_folder, delete, replace])
def test_no_job_is_acknowledged_into_nowhere(tmp_path: Path, done: Callable[[Path], Path], seed: int) -> None:
    chance = random.Random(seed)
    folder = tmp_path / "data"
    folder.mkdir()
    file, url = folder / "crash.db", f"sqlite:///{folder}/crash.db"
    app = make_app(url, tmp_path)
    app.migrate()
    app.close()
    notes = [tmp_path / f"told-{number}" for number in range(3)]
    adders = [
        processes.Popen(
            [sys.executable, "-m", "tests.crash.adding", url, str(note)], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        for note in notes
    ]
    try:
        with Workers(url, tmp_path, 1) as workers:
            many = chance.randrange(5, 40)
            eventually(lambda: all(len(acknowledged(note)) > many for note in notes), 300, "all three add jobs")
            eventually((tmp_path / "ran").exists, 300, "the worker has the file open, too")
            adders[0].kill()
            there = done(file)
            over = time.monotonic_ns()
            for adder in adders[1:]:
                _, said = adder.communicate(timeout=300)
                assert (adder.returncode, SAID in said) == (BROKEN, True), said
            assert workers.processes[0].wait(300) == 1, "a worker does not run on"
    finally:
        for adder in adders:
            adder.kill()
            adder.wait()
            if adder.stderr:
                adder.stderr.close()
    told = [one for note in notes for one in acknowledged(note)]
    assert [job_id for began, job_id in told if began > over] == []
    if done is rename:
        there = Path(shutil.copy(there, tmp_path / "alone.db"))
    assert {job_id for _, job_id in told} - stored(there) == set()
    if done is replace:
        assert stored(file) == set(), "a log was left that belongs to the file before"


def test_hipq_worker_says_so_and_exits(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from hipq import Hipq\napp = Hipq('shop')\nq = app.queue('orders')\n\n@q.job\ndef work(job): ...\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    worker = processes.Popen(
        [sys.executable, "-m", "hipq.cli.main", "worker", "shop:app"],
        cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        file = tmp_path / "shop.db"
        looking = Hipq("shop", f"sqlite:///{file}")
        eventually(lambda: looking.store.engines(), 300, "the worker has its lease")
        looking.close()
        file.unlink()
        _, said = worker.communicate(timeout=300)
        assert worker.returncode == 1
        assert f"hipq: {file} {SAID}" in said
        assert "Traceback" not in said
    finally:
        worker.kill()
        worker.wait()


class Adder:
    """A program that adds a job each time it is asked to."""

    CODE = (
        "import sys\nfrom hipq import Hipq\nfrom hipq.errors import StoreBroken\n"
        "queue = Hipq('crash', sys.argv[1]).queue('jobs')\n"
        "for _ in sys.stdin:\n"
        "    try:\n        print(queue.enqueue('work', 'added'), flush=True)\n"
        "    except StoreBroken:\n        print('broken', flush=True)\n"
    )

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-c", self.CODE, url]
        self.process = processes.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self) -> str:
        assert self.process.stdin
        assert self.process.stdout
        print(file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def __enter__(self) -> Adder:
        assert self() != "broken"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("done", [delete, replace])
def test_who_notices_late_leaves_the_next_database_alone(tmp_path: Path, done: Callable[[Path], Path]) -> None:
    """It has the log of the file that was deleted or replaced open, which is also that of the file there now."""
    file, url = tmp_path / "crash.db", f"sqlite:///{tmp_path}/crash.db"
    app = make_app(url, tmp_path)
    app.migrate()
    app.close()
    backup = Path(shutil.copy(file, tmp_path / "backup.db"))
    with Adder(url) as idle:
        with Adder(url) as first:
            done(file)
            assert first() == "broken"
        if not file.exists():
            backup.rename(file)
        with Adder(url) as fresh:
            told = [int(fresh()) for _ in range(20)]
            assert idle() == "broken"
            told += [int(fresh()) for _ in range(20)]
    assert len(told) == len(set(told))
    assert set(told) - stored(file) == set()


def test_who_did_not_notice_that_the_file_was_away_does_it_no_harm(tmp_path: Path) -> None:
    file, url = tmp_path / "crash.db", f"sqlite:///{tmp_path}/crash.db"
    with Adder(url) as idle:
        with Adder(url) as first:
            there = rename(file)
            assert first() == "broken"
            there.rename(file)
            told = [int(first()) for _ in range(20)]
            assert idle() == "broken"  # its log is not the one that is there now
            told += [int(first()) for _ in range(20)]
        with Adder(url) as fresh:
            told += [int(fresh()) for _ in range(20)]
    assert len(told) == len(set(told))
    assert set(told) - stored(file) == set()
