"""Real processes, real signals, all databases: nothing acknowledged is ever lost."""

from __future__ import annotations

import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq import Hipq
from hipq.errors import StoreUnavailable
from tests.crash.checks import check_all_done, more_run, pids, ran, unfinished
from tests.crash.program import make_app
from tests.crash.workers import Workers, eventually
from tests.mariadb_server import OwnMariaDB
from tests.servers import OwnPostgres


@pytest.fixture
def app(url: str, tmp_path: Path) -> Iterator[Hipq]:
    app = make_app(url, tmp_path)
    app.migrate()
    yield app
    app.close()


def test_twenty_kills_in_the_middle_of_batches_lose_nothing(app: Hipq, url: str, tmp_path: Path) -> None:
    work, flaky = app.queues[0].job_types[:2]
    chance = random.Random(1)
    ids: list[int] = []
    with Workers(url, tmp_path, 2) as workers:
        for kill in range(20):
            seen = len(ran(tmp_path))
            ids += work.enqueue_many([kill] * 150) + flaky.enqueue_many([kill] * 30)
            more_run(tmp_path, seen, chance.randrange(60))
            workers.kill(chance.randrange(2))
        eventually(lambda: unfinished(app) == 0, 120, "every job is final")
    assert len(ids) == 3600
    check_all_done(app, ids, tmp_path)


def stopped_between_writes(process: subprocess.Popen[str], app: Hipq) -> bool:
    """Stopped; but not in the middle of a write, when it would hold SQLite's lock for as long as it is stopped."""
    process.send_signal(signal.SIGSTOP)
    try:
        app.queues[0].enqueue("work", "others can write")
    except StoreUnavailable:
        process.send_signal(signal.SIGCONT)
        return False
    return True


def test_a_stopped_engine_that_wakes_after_its_lease_commits_nothing(app: Hipq, url: str, tmp_path: Path) -> None:
    job_id = app.queues[0].enqueue("gate", "stop me")
    with Workers(url, tmp_path, 1) as workers:
        eventually((tmp_path / f"first-{job_id}").exists, 60, "the gate job waits at its gate")
        first = workers.processes[0]
        eventually(lambda: stopped_between_writes(first, app), 60, "it is stopped and others can write")
        workers.start()
        eventually(lambda: app.job(job_id).state == "final", 60, "the other engine finishes it")
        before = app.job(job_id)
        assert before.result == "second"
        (tmp_path / "open").touch()
        first.send_signal(signal.SIGCONT)
        more = app.queues[0].enqueue_many("work", ["after"] * 50)
        workers.processes[1].terminate()
        workers.processes[1].wait()
        eventually(lambda: unfinished(app) == 0, 60, "the woken engine works on, under a new lease")
        first.terminate()
        assert first.wait(60) == 0
    after = app.job(job_id)
    assert after._row == before._row
    assert ran(tmp_path)[job_id] == 2
    assert all(app.job(one).code == "ok" for one in more)


def test_a_poison_job_ends_alone(app: Hipq, url: str, tmp_path: Path) -> None:
    queue = app.queues[0]
    before = queue.enqueue_many("work", ["innocent"] * 100)
    poison = queue.enqueue("poison", "poison")
    after = queue.enqueue_many("work", ["innocent"] * 100)
    died = 0
    with Workers(url, tmp_path, 1) as workers:

        def settled() -> bool:
            nonlocal died
            died += workers.replace_dead()
            return unfinished(app) == 0

        eventually(settled, 120, "every job is final")
    assert died <= 3, "it takes its engine along while it is not known; after that it runs apart"
    job = app.job(poison)
    assert job.code == "error"
    assert job.fault is not None
    assert (job.fault.kind, "SIGSEGV" in job.fault.message) == ("crash", True)
    assert job.failures == 3, "its retry handler was asked about each crash of its own, and about no other"
    assert ran(tmp_path)[poison] >= 4  # once among others, three times apart
    assert all(app.job(job_id).code == "ok" for job_id in [*before, *after])


@pytest.mark.parametrize("server_of_its_own", [OwnPostgres, OwnMariaDB])
def test_a_server_that_crashes_under_load_loses_nothing(
    server_of_its_own: type[OwnPostgres | OwnMariaDB], tmp_path: Path
) -> None:
    server = server_of_its_own()
    server.start()
    try:
        app = make_app(server.url, tmp_path)
        app.migrate()
        ids: list[int] = []

        def both_work() -> bool:
            ids.extend(app.queues[0].enqueue_many("work", ["first"] * 10))  # one may be done before the other is up
            return len(pids(tmp_path)) == 2

        with Workers(server.url, tmp_path, 2, lease=10.0) as workers:
            eventually(both_work, 60, "both workers work")
            for wave in range(4):
                seen = len(ran(tmp_path))
                ids += app.queues[0].enqueue_many("work", [wave] * 300)
                more_run(tmp_path, seen, 50)
                server.restart()
            ids += app.queues[0].enqueue_many("work", ["last"] * 100)
            eventually(lambda: unfinished(app) == 0, 60, "work goes on once the server is back")
            assert all(process.poll() is None for process in workers.processes), "a worker gave up"
        check_all_done(app, ids, tmp_path)
        app.close()
    finally:
        server.close()
