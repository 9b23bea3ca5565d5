"""`hipq bench`: figures that are checked, on both stores, and nothing left behind however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hipq import Hipq
from hipq.benchmark import workbench
from hipq.benchmark.picture import histogram
from hipq.benchmark.rates import RATES
from hipq.benchmark.workbench import APP, Workbench
from hipq.errors import HipqError
from hipq.stores.values import QueueTables
from hipq.terminal import Ink
from tests import processes
from tests.cli.conftest import HipqCommand, alive, eventually
from tests.contract.test_mariadb import MariaDatabase
from tests.servers import fresh_database

NAMES = [one.name for one in RATES]
Everything = dict[str, list[tuple[Any, ...]]]


@pytest.fixture
def theirs(url: str) -> Iterator[Hipq]:
    """Somebody's own application in the database, with a job and an answer: they must be there afterwards."""
    app = Hipq("shop", url)
    orders = app.queue("orders")
    orders.job("charge")(lambda _: None)
    app.migrate()
    orders.enqueue("charge", {"amount": 5}, key="order-17")
    app.answer("orders", "charge", "order-18", {"early": True})
    yield app
    app.close()


def everything(url: str) -> Everything:
    """Every row of every table; of what remembers numbers only that it is there. No lease of a run is left."""
    if url.startswith("sqlite"):
        connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"))
        tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
    elif url.startswith("mariadb"):
        connection = MariaDatabase(url).connect()
        tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
    else:
        connection = psycopg.connect(url)
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    with closing(connection) as conn:
        names = sorted(name for (name,) in conn.execute(tables).fetchall())
        changing = ("sqlite_sequence", "hipq_dropped", "hipq_news", "hipq_locks")
        return {
            name: [] if name in changing else sorted(conn.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for name in names
        }


def start(*arguments: str, lease: float = workbench.LEASE) -> subprocess.Popen[str]:
    """It in a process of its own, with pipes instead of a terminal. Whoever comes after one that was killed waits for
    its lease."""
    code = f"from hipq.benchmark import workbench; workbench.LEASE = {lease}; from hipq.cli.main import main; main()"
    command = [sys.executable, "-c", code, "bench", *arguments]
    return processes.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)


def read_until(process: subprocess.Popen[str], words: str) -> None:
    """What it tells about its progress, up to a line with these words."""
    assert process.stderr
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"it never said {words!r}")


def children(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


# -- whose is it -----------------------------------------------------------------------------------------------------
def test_folders_with_such_a_name_are_left_alone_if_anything_else_is_in_them(
    hipq: HipqCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HIPQ_DATABASE_URL", raising=False)
    for name, files in {"results": ["data.csv"], "empty": [], "mixed": ["bench.db", "data.csv"], "old": OLD}.items():
        (tmp_path / f"hipq-bench-{name}").mkdir()
        for file in files:
            (tmp_path / f"hipq-bench-{name}" / file).write_text("precious")
    assert hipq("bench", "--seconds", "1").status == 0
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.name != "shop.py")
    assert left == [
        "hipq-bench-empty", "hipq-bench-mixed", "hipq-bench-mixed/bench.db", "hipq-bench-mixed/data.csv",
        "hipq-bench-results", "hipq-bench-results/data.csv",
    ]  # fmt: skip


OLD = ["bench.db", "bench.db-wal", "bench.db-shm", "bench.db-hipq"]


def test_a_queue_that_its_own_run_has_just_removed_is_no_trouble(
    hipq: HipqCommand, url: str, theirs: Hipq, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert theirs.queues
    gone = QueueTables(60_000, APP, "gone", "bench_0123456789abcdef_gone")
    found, looks = Workbench._found, list[int]()

    def finding(self: Workbench) -> list[QueueTables]:
        looks.append(1)
        return [*found(self), *([gone] if len(looks) == 1 else [])]

    monkeypatch.setattr(Workbench, "_found", finding)
    ran = hipq("bench", "--db", url, "--seconds", "1")
    assert (ran.status, looks[:1]) == (0, [1]), ran.err


def test_figures_are_printed_even_if_something_cannot_be_removed(
    hipq: HipqCommand, url: str, theirs: Hipq, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert theirs.queues

    def failing(_: Workbench) -> None:
        raise HipqError("somebody holds a lock")

    with monkeypatch.context() as patch:
        patch.setattr(Workbench, "_remove", failing)
        patch.setattr(workbench, "LEASE", 2.0)  # so long the next run waits for it
        ran = hipq("bench", "--db", url, "--seconds", "1", "--json")
    assert ran.status == 1
    assert "somebody holds a lock" in ran.err
    assert [line["name"] for line in json.loads(ran.out)["rates"]] == NAMES
    assert hipq("bench", "--db", url, "--seconds", "1").status == 0  # it removes that


@pytest.mark.parametrize("name", ["x" * 300 + ".db", "no/such/folder.db"])
def test_a_file_that_cannot_be_there_is_said_so_in_one_sentence(hipq: HipqCommand, name: str) -> None:
    ran = hipq("bench", "--db", f"sqlite:///{name}")
    assert ran.status == 2
    assert ran.err.count("\n") == 1, ran.err


# -- figures ---------------------------------------------------------------------------------------------------------
def test_it_measures_draws_and_removes_what_it_made(hipq: HipqCommand, url: str, theirs: Hipq) -> None:
    assert theirs.queues
    before = everything(url)
    ran = hipq("bench", "--db", url, "--seconds", "2")
    assert ran.status == 0, ran.err
    for one in RATES:
        drawn = re.findall(rf"^  {re.escape(one.text)} +[1-9][\d,]*  [█▏▎▍▌▋▊▉#]+$", ran.out, re.MULTILINE)
        assert len(drawn) == 1, ran.out
    for words in ("p50", "p95", "p99", "max", "A commit takes", "median of rounds", "Python 3."):
        assert words in ran.out
    assert "not over the network" in ran.out
    assert "\x1b" not in ran.out + ran.err
    assert ran.err.count("measuring ") == len(RATES) + 2
    assert everything(url) == before


def test_json_has_every_figure(hipq: HipqCommand, url: str, theirs: Hipq) -> None:
    assert theirs.queues
    found = hipq("bench", "--seconds", "2", "--json").json  # $HIPQ_DATABASE_URL says where
    assert [line["name"] for line in found["rates"]] == NAMES
    for line in found["rates"]:
        assert min(line["rounds"]) <= line["per_second"] <= max(line["rounds"])
        assert line["per_second"] > 0
    waits = found["pick_up"]
    assert 0 < waits["p50"] <= waits["p95"] <= waits["p99"] <= waits["max"]
    assert sum(bucket["jobs"] for bucket in waits["histogram"]) == waits["jobs"] > 0
    assert found["surroundings"]["commit_ms"] > 0
    bound = "sync_ms" if url.startswith("sqlite") else "round_trip_ms"
    assert found["surroundings"][bound] > 0
    assert found["temporary"] is False
    assert found["statistic"] == "median of rounds"


def test_without_a_database_it_measures_a_file_here_and_removes_it(hipq: HipqCommand, folder: Path) -> None:
    before = set(folder.iterdir())
    ran = hipq("bench", "--seconds", "1")
    assert ran.status == 0, ran.err
    assert f"sqlite:///{folder}/hipq-bench-" in ran.err
    assert "the disk it was on is what was measured" in ran.out
    assert set(folder.iterdir()) == before


def test_an_output_without_unicode_gets_bars_it_can_show(folder: Path) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "hipq.cli.main", "bench", "--seconds", "1"]
    done = processes.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "#" in done.stdout
    assert "?" not in done.stdout


def test_a_count_that_is_wrong_is_exit_1(hipq: HipqCommand, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that leaves a job behind, however fast it is."""
    from hipq.engine.loop import Engine

    real = Engine.run

    def lazy(self: Engine, until_empty: bool = False) -> None:
        real(self, until_empty)
        (served,), store = self.setup.queues, self.setup.store
        queue = next(queue for queue in store.queues() if queue.number == served.number)
        app = Hipq(queue.app, store.url, table_naming=lambda *_: queue.table)
        app.queue(queue.name).enqueue("work")
        app.close()

    monkeypatch.setattr(Engine, "run", lazy)
    before = set(folder.iterdir())
    ran = hipq("bench", "--seconds", "1")
    assert ran.status == 1
    assert ran.out == ""
    assert "some are not final" in ran.err.splitlines()[-1]
    assert set(folder.iterdir()) == before


# -- however it ends -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("store_kind", "during", "number"),
    [
        ("sqlite", "adding: enqueue, one", signal.SIGINT),
        ("postgres", "running: plain", signal.SIGINT),
        ("postgres", "answering: answer, one", signal.SIGTERM),
        ("mariadb", "answering: answer, one", signal.SIGINT),
        ("sqlite", "pick-up", signal.SIGINT),
        pytest.param("postgres", "adding: enqueue, one", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("sqlite", "running: plain", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("sqlite", "answering: answer, one", signal.SIGTERM, marks=pytest.mark.long),
        pytest.param("postgres", "pick-up", signal.SIGINT, marks=pytest.mark.long),
    ],
    indirect=["store_kind"],
)
def test_a_signal_leaves_nothing(url: str, theirs: Hipq, during: str, number: int) -> None:
    assert theirs.queues
    before = everything(url)
    process = start("--db", url, "--seconds", "5")  # of which the last, pick-up, is a second: else it may be over
    try:
        read_until(process, during)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert out == ""
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("hipq: interrupted by SIG")
    assert everything(url) == before


@pytest.mark.parametrize(
    ("store_kind", "during"),
    [
        ("sqlite", "pick-up"),
        ("postgres", "running: plain"),
        ("mariadb", "running: plain"),
        pytest.param("sqlite", "running: plain", marks=pytest.mark.long),
        pytest.param("postgres", "pick-up", marks=pytest.mark.long),
    ],
    indirect=["store_kind"],
)
def test_what_a_killed_run_left_is_removed_by_the_next(hipq: HipqCommand, url: str, theirs: Hipq, during: str) -> None:
    assert theirs.queues
    before = everything(url)
    process = start("--db", url, "--seconds", "2", lease=2.0)
    try:
        read_until(process, during)
        worker: set[int] = eventually(lambda: children(process.pid)) if during == "pick-up" else set()
    finally:
        process.kill()
        process.communicate()
    eventually(lambda: not any(map(alive, worker)))
    assert len(everything(url)) > len(before)
    ran = hipq("bench", "--db", url, "--seconds", "1")
    assert ran.status == 0, ran.err
    assert everything(url) == before


def test_the_folder_of_a_killed_run_is_removed_by_the_next_and_that_of_a_live_one_is_not(
    hipq: HipqCommand, folder: Path
) -> None:
    before = set(folder.iterdir())
    killed = start("--seconds", "2", lease=2.0)
    read_until(killed, "running: plain")
    killed.kill()
    killed.communicate()
    (left,) = set(folder.iterdir()) - before
    living = start("--seconds", "120")
    try:
        read_until(living, "adding: enqueue, one")
        assert not left.exists()
        (used,) = set(folder.iterdir()) - before
        assert hipq("bench", "--seconds", "1").status == 0
        assert used.exists()
        living.send_signal(signal.SIGINT)  # it removes what it made
        assert living.wait(60) == 130
    finally:
        living.kill()
        living.communicate()
    assert set(folder.iterdir()) == before


def test_a_second_run_on_the_same_database_is_refused_and_disturbs_nothing(
    hipq: HipqCommand, url: str, theirs: Hipq, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert theirs.queues
    before = everything(url)
    monkeypatch.setattr(workbench, "LEASE", 0.5)  # of the second: when it gives up
    first = start("--db", url, "--seconds", "5", "--json")
    try:
        read_until(first, "adding: enqueue, one")
        second = hipq("bench", "--db", url, "--seconds", "1")
        out, err = first.communicate(timeout=120)
    finally:
        first.kill()
    assert second.status == 1
    assert "another `hipq bench` is at work" in second.complaint
    assert first.returncode == 0, err
    assert [line["name"] for line in json.loads(out)["rates"]] == NAMES
    assert everything(url) == before


@pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)
def test_queues_of_somebody_elses_hipq_bench_are_not_taken_for_leftovers(hipq: HipqCommand, url: str) -> None:
    app = Hipq("hipq_bench", url, table_naming=lambda _, queue: f"our_{queue}")
    app.migrate()
    job_id = app.queue("results").enqueue("work", {"run": 1})
    assert hipq("bench", "--db", url, "--seconds", "1").status == 0
    assert app.job(job_id).data == {"run": 1}
    app.close()


# -- bad input -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "arguments",
    [
        ("--seconds", "-5"),
        ("--seconds", "0"),
        ("--seconds", "soon"),
        ("--db", "mongodb://x:s3cret@y"),
        ("--db", "sqlite://"),
        ("--db", "sqlite:///nowhere.db"),
        ("more",),
    ],
    ids=" ".join,
)
def test_bad_usage_is_exit_2_and_makes_nothing(hipq: HipqCommand, folder: Path, arguments: tuple[str, ...]) -> None:
    before = set(folder.iterdir())
    ran = hipq("bench", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert ran.complaint
    assert "s3cret" not in ran.err
    assert set(folder.iterdir()) == before


def test_a_database_nobody_migrated_says_what_to_do(hipq: HipqCommand) -> None:
    with fresh_database() as url:
        ran = hipq("bench", "--db", url)
        assert ran.status == 1
        assert "run `hipq migrate" in ran.complaint
        assert everything(url) == {}


def test_a_server_that_is_not_there_is_one_sentence_without_its_password(hipq: HipqCommand) -> None:
    ran = hipq("bench", "--db", "postgresql://ann:s3cret@127.0.0.1:1/shop")
    assert ran.status == 1
    assert ran.complaint
    assert "s3cret" not in ran.err


def test_a_removal_that_fails_is_said(hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    from hipq.stores.sqlite.store import SqliteStore

    def stuck(*_: object) -> None:
        raise HipqError("the disk is full")

    monkeypatch.setattr(SqliteStore, "drop_queue", stuck)
    ran = hipq("bench", "--seconds", "1")
    assert ran.status == 1
    assert "the disk is full; the next `hipq bench` removes it" in ran.err.splitlines()[-1]


# -- pictures --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("encoding", "bars"),
    [("utf-8", ["", "▏", "█▌", "███"]), ("ascii", ["", "#", "##", "###"]), (None, ["", "#", "##", "###"])],
)
def test_a_bar_is_as_long_as_its_figure_is_large(encoding: str | None, bars: list[str]) -> None:
    ink = Ink.of(encoding)
    assert [ink.bar(value, 100.0, 3) for value in (0, 0.1, 50, 100)] == bars


def test_every_figure_is_in_one_bucket_and_none_at_the_ends_is_empty() -> None:
    values = [0.9, 1.0, 1.9, 2.0, 4.9, 70.0]
    assert histogram(values) == [
        (0.5, 1, 1), (1, 2, 2), (2, 5, 2), (5, 10, 0), (10, 20, 0), (20, 50, 0), (50, 100, 1),
    ]  # fmt: skip
    assert histogram([5.0]) == [(5, 10, 1)]


# -- what loading it costs -------------------------------------------------------------------------------------------
def test_other_commands_do_not_load_it() -> None:
    code = "import sys, hipq.cli.main; print(*(name for name in sys.modules if name.startswith('hipq.benchmark')))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "\n"
