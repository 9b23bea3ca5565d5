"""Real faults under load, for HIPQ_CAMPAIGN_SECONDS each (30): nothing acknowledged is lost, and nothing is done again
whose outcome was acknowledged. What each came to is printed (`-s`) and in the report (`--junit-xml`)."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pymysql
import pytest

from hipq import Hipq
from hipq.job.units import UNIT
from tests import processes
from tests.crash import audit
from tests.crash.figures import Figures
from tests.crash.load import LIMIT, SHARES, make_load
from tests.crash.workers import ROOT, Workers, eventually
from tests.databases import fresh
from tests.mariadb_server import admin
from tests.proxy import CommitCutter
from tests.servers import OwnPostgres, fresh_database
from tests.small_disk import fill, small_disk

pytestmark = pytest.mark.long

SECONDS = float(os.environ.get("HIPQ_CAMPAIGN_SECONDS", "30"))
KILL_EVERY = 5.0
PATIENCE = 180.0
LEASE = 5.0


class Watched:
    """What a process has had of memory and descriptors, look after look."""

    def __init__(self, pid: int) -> None:
        self._proc = Path(f"/proc/{pid}")
        self.megabytes: list[float] = []
        self.descriptors: list[int] = []

    def look(self) -> None:
        status = dict(line.split(":", 1) for line in (self._proc / "status").read_text().splitlines())
        self.megabytes.append(int(status["RssAnon"].split()[0]) / 1024)
        self.descriptors.append(len(os.listdir(self._proc / "fd")))

    @staticmethod
    def ends(values: list[Any]) -> tuple[float, float]:
        """What is usual in the second tenth, when it has warmed up, and in the last."""
        tenth = max(len(values) // 10, 1)
        return round(median(values[tenth : 2 * tenth]), 1), round(median(values[-tenth:]), 1)


class Campaign:
    """Workers, a client, and what they did. Worker 0 and the client live as long as the campaign."""

    def __init__(self, url: str, folder: Path, workers: int = 2) -> None:
        self.app = make_load(url, folder)
        self.app.migrate()
        self._folder = folder
        self.workers = Workers(url, folder, workers, lease=LEASE, which="load")
        self._command = [sys.executable, "-m", "tests.crash.load", url, str(folder)]
        self.chance = random.Random(1)

    def __enter__(self) -> Campaign:
        self.workers.__enter__()
        self.client = processes.Popen(self._command, cwd=ROOT)
        self._watched = {"worker": Watched(self.workers.processes[0].pid), "client": Watched(self.client.pid)}
        self.more("saved", 100)
        self._until, self._next_look = time.monotonic() + SECONDS, 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self.workers.__exit__(None, None, None)
        self.client.kill()
        self.client.wait()
        self.app.close()

    def more(self, word: str, many: int) -> None:
        """Until so many more lines of this kind are in the log."""
        log = self._folder / "log"
        seen = log.stat().st_size if log.exists() else 0

        def come() -> bool:
            assert self.client.poll() is None, "the client failed"
            with log.open() as file:
                file.seek(seen)
                return sum(line.startswith(f"{word} ") for line in file) >= many

        eventually(lambda: log.exists() and come(), PATIENCE, f"{many} more lines: {word}")

    def goes_on(self, seconds: float) -> bool:
        """Let it work for a while; whether there is time left for another fault."""
        end = min(time.monotonic() + seconds, self._until)
        while time.monotonic() < end:
            if time.monotonic() >= self._next_look:
                self._next_look = time.monotonic() + 0.5
                for watched in self._watched.values():
                    watched.look()
            time.sleep(0.02)
        return time.monotonic() < self._until

    def _is_idle(self) -> bool:
        live = sum(self.app.jobs.count(queue.name, live=True) for queue in self.app.queues)
        return live == 0 and 2 < time.time() % 60 < 58  # no tick is added before the workers are stopped

    def ends(self, record: Callable[[str, object], None], **faults: object) -> None:
        """All that was accepted is done; what it came to is told, and checked."""
        (self._folder / "stop").touch()
        assert self.client.wait(PATIENCE) == 0, "the client failed"
        eventually(self._is_idle, PATIENCE, "every job is final")
        assert all(process.poll() is None for process in self.workers.processes), "a worker gave up"
        for process in self.workers.processes:
            process.kill()
            process.wait()
        figures = Figures(self.app, self._folder)
        told: dict[str, object] = {"seconds": SECONDS, **faults, **figures.told()}
        for name, watched in self._watched.items():
            for what in ("megabytes", "descriptors"):
                first, last = watched.ends(getattr(watched, what))
                told[f"{what} of the {name}"] = f"{first} -> {last}"
        for what, value in told.items():
            record(what, value)
        print("\n  " + "\n  ".join(f"{what}: {value}" for what, value in told.items()))
        assert {what: some[:10] for what, some in figures.wrong.items() if some} == {}
        for watched in self._watched.values():
            first, last = watched.ends(watched.megabytes)
            assert last < first * 1.2 + 8, watched.megabytes
            first, last = watched.ends(watched.descriptors)
            assert last <= first + 10, watched.descriptors  # a pool of ten connections


Record = Callable[[str, object], None]


def test_a_synchronous_standby_is_promoted_under_load(tmp_path: Path, record_property: Record) -> None:
    primary = OwnPostgres()
    primary.start()
    standby = OwnPostgres(standby_of=primary)
    standby.start()
    servers, promoted = (primary, standby), 0
    both = ",".join(server.address for server in servers)
    try:
        with Campaign(f"postgresql://postgres@{both}/postgres?target_session_attrs=read-write", tmp_path) as run:
            while run.goes_on(1) or promoted < 2:
                synchronous(primary, standby)
                run.more("added", 30)
                if promoted % 2:  # what is committed from now on hangs: nobody is told, and it will be gone
                    standby.stop()
                    time.sleep(1 + run.chance.random())
                    primary.kill()
                    standby.start()
                else:
                    primary.kill()
                standby.promote()
                alone(standby)
                promoted += 1
                run.more("added", 50)
                run.more("saved", 50)
                primary.follow(standby)
                primary, standby = standby, primary
            run.ends(record_property, promotions=promoted)
    finally:
        for server in servers:
            server.close()


def synchronous(primary: OwnPostgres, standby: OwnPostgres) -> None:
    """From now on the primary acknowledges a commit when the standby has it on disk."""
    assert standby.running
    with psycopg.connect(primary.url, autocommit=True) as conn:
        conn.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        conn.execute("SELECT pg_reload_conf()")
        query = "SELECT sync_state FROM pg_stat_replication"
        eventually(lambda: conn.execute(query).fetchall() == [("sync",)], PATIENCE, "the standby is synchronous")


def alone(primary: OwnPostgres) -> None:
    """A standby has the settings of its primary: it would wait for a standby of its own."""
    with psycopg.connect(primary.url, autocommit=True) as conn:
        conn.execute("ALTER SYSTEM RESET synchronous_standby_names")
        conn.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize("how", ["before", "after"])
def test_commits_are_cut(tmp_path: Path, how: str, record_property: Record) -> None:
    """Before the server gets them, or after it got them and before anybody hears so."""
    chance, cuts, at_work = random.Random(1), 0, False

    def cut() -> str:
        nonlocal cuts
        if not at_work or chance.random() > 0.03:
            return ""
        cuts += 1
        return how

    with fresh_database() as url:
        parts = urlsplit(url)
        with CommitCutter(parts.hostname or "127.0.0.1", parts.port or 5432, cut) as proxy:
            user = parts.netloc.rpartition("@")[0]
            through = urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{proxy.port}"))
            with psycopg.connect(url, autocommit=True) as conn, Campaign(through, tmp_path) as run:
                engines = "SELECT count(*) FROM hipq_engines"  # app.run() raises if the store breaks while it starts
                eventually(lambda: conn.execute(engines).fetchone() == (2,), PATIENCE, "both workers have started")
                at_work = True
                while run.goes_on(1):
                    pass
                run.ends(record_property, **{f"COMMITs cut {how} delivery": cuts})
    assert cuts > SECONDS


@pytest.mark.parametrize("store", ["postgres", "mariadb"])
def test_sessions_are_ended_in_a_loop(store: str, tmp_path: Path, record_property: Record) -> None:
    end = end_of_postgres if store == "postgres" else end_of_maria
    ended = 0
    with fresh(store, tmp_path) as url, Campaign(url, tmp_path) as run:
        while run.goes_on(run.chance.random() * 0.4):
            ended += end(url, run.chance.choice([1, 1, 2, 100]))
        run.ends(record_property, **{"sessions ended": ended})
    assert ended > SECONDS


def end_of_postgres(url: str, most: int) -> int:
    query = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND application_name = 'hipq' ORDER BY random() LIMIT %s"""
    with psycopg.connect(url, autocommit=True) as conn:
        return len(conn.execute(query, [most]).fetchall())


def end_of_maria(url: str, most: int) -> int:
    query = "SELECT id FROM information_schema.processlist WHERE db = %s ORDER BY rand() LIMIT %s"
    with admin() as conn:
        cursor = conn.cursor()
        cursor.execute(query, (urlsplit(url).path[1:], most))
        ended = 0
        for (process,) in cursor.fetchall():
            with suppress(pymysql.Error):  # it has ended by itself
                cursor.execute(f"KILL {process}")
                ended += 1
    return ended


def test_the_disk_of_sqlite_is_full(tmp_path: Path, record_property: Record) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    times = 0
    with small_disk(disk, 200), Campaign(f"sqlite:///{disk}/crash.db", tmp_path) as run:
        while run.goes_on(2) or times < 2:
            fill(disk)
            run.more("unanswered", 5)
            (disk / "ballast").unlink()
            times += 1
            run.more("saved", 50)
        run.ends(record_property, **{"times the disk was full": times})


def test_the_disk_of_postgresql_is_full(tmp_path: Path, record_property: Record) -> None:
    """It refuses what needs room; or, if that is room for its log, it ends, and starts again when there is some."""
    times = panics = 0
    with TemporaryDirectory(prefix="hipq-disk-") as folder, small_disk(disk := Path(folder), 400):
        (data := disk / "data").mkdir()
        server = OwnPostgres(data=data, segment=1, max_wal_size="16MB", min_wal_size="2MB", wal_recycle="off")
        server.start()
        try:
            with Campaign(server.url, tmp_path) as run:
                while run.goes_on(2) or times < 2:
                    fill(disk)
                    if times % 2:
                        no_room_for_its_log(server)
                        panics += 1
                    run.more("unanswered", 5)
                    (disk / "ballast").unlink()
                    times += 1
                    if not comes_back(server):
                        server.start()
                    run.more("saved", 50)
                run.ends(record_property, **{"times the disk was full": times, "of which the server crashed": panics})
        finally:
            server.close()


def no_room_for_its_log(server: OwnPostgres) -> None:
    """It needs the next file of its log now. It panics: it must not go on without."""

    def panicked() -> bool:
        try:
            with psycopg.connect(server.url, connect_timeout=3) as conn:
                conn.execute("SELECT pg_logical_emit_message(false, '', ''), pg_switch_wal()")
        except psycopg.OperationalError:
            return True
        return False

    eventually(panicked, PATIENCE, "the server has no room for its log")


def comes_back(server: OwnPostgres) -> bool:
    """Whether it does so by itself."""

    def answers() -> bool:
        try:
            psycopg.connect(server.url, connect_timeout=3).close()
        except psycopg.OperationalError:
            return False
        return True

    eventually(lambda: not server.running or answers(), PATIENCE, "the server has ended, or answers")
    return server.running


def test_mixed_load_with_a_kill_every_five_seconds(url: str, tmp_path: Path, record_property: Record) -> None:
    kills = 0
    run = Campaign(url, tmp_path, workers=3)
    audit.begin(run.app)
    with run:
        while run.goes_on(KILL_EVERY):
            run.workers.kill(run.chance.choice([1, 2]))
            kills += 1
        run.ends(record_property, kills=kills)
        within_limits(run.app)
    assert kills >= SECONDS / KILL_EVERY - 1


def within_limits(app: Hipq) -> None:
    commits, most = audit.log(app), LIMIT * UNIT
    print(f"  commits at which a limit could be exceeded: {len(commits)}")
    assert commits
    assert [held for held in commits if held.all > most] == []
    for lane, percent in SHARES.items():
        assert [held for held in commits if getattr(held, lane) > most * percent // 100] == []
