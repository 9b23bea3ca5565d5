"""`hipq worker` in one process: signals, what becomes of its jobs, its exit status, its log."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq, Job
from hipq.signals import TOGETHER
from tests.cli.conftest import HURRY, SHOP, HipqCommand, Worker, eventually, shop_on, started

Start = Callable[..., Worker]


@pytest.fixture
def shop(url: str) -> Iterator[Hipq]:
    """The shop as another program has it, on each store."""
    with shop_on(url) as app:
        yield app


def events(job: Job[Any]) -> list[str]:
    return [entry["event"] for entry in job.history]


def test_until_empty_runs_what_is_due_and_ends(shop: Hipq, worker: Start) -> None:
    orders = shop.queues[0]
    due = orders.enqueue_many("quick", range(30))
    later = orders.enqueue("quick", delay=3600)
    assert worker("--until-empty").ended() == 0
    assert [shop.job(job_id).state for job_id in due] == ["final"] * 30
    assert shop.job(later).state == "initial"


def test_only_the_queues_asked_for_are_served(shop: Hipq, worker: Start) -> None:
    orders, mails = (queue.enqueue(name) for queue, name in zip(shop.queues, ("quick", "mail"), strict=True))
    assert worker("--until-empty", "-q", "mails").ended() == 0
    assert (shop.job(orders).state, shop.job(mails).phase) == ("initial", "waiting")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_handlers_finish_and_gives_back_what_was_not_started(
    shop: Hipq, worker: Start, folder: Path, number: signal.Signals
) -> None:
    orders = shop.queues[0]
    orders.enqueue_many("quick", range(200))  # a fast pace, so that the worker claims ahead
    gates = orders.enqueue_many("gate", range(5))
    running = worker("-c", "1")
    (first,) = eventually(lambda: started(folder))
    others = [
        job_id for job_id in gates if job_id != first
    ]  # after a second without a free hand they are given back anyway
    eventually(lambda: any(shop.job(job_id).state == "running" or events(shop.job(job_id)) for job_id in others))
    running.send(number)
    running.wait_for("engine stopping")
    eventually(lambda: all(shop.job(job_id).phase == "ready" for job_id in others))
    assert running.process.poll() is None
    (folder / "go").touch()
    assert running.ended() == 0
    assert (shop.job(first).code, shop.job(first).attempt) == ("ok", 1)
    assert {(job.attempt, job.failures, job.owner) for job in map(shop.job, others)} == {(0, 0, 0)}
    assert any("given back" in events(shop.job(job_id)) for job_id in others)
    assert started(folder) == {first}


def test_a_second_signal_gives_running_jobs_back_at_no_cost(shop: Hipq, worker: Start, folder: Path) -> None:
    kinds = ("gate", "gate_on_a_loop", "gate_in_a_process")
    gates = [shop.queues[0].enqueue(kind) for kind in kinds]
    running = worker("-c", "3")
    eventually(lambda: started(folder) == set(gates))
    running.send(signal.SIGTERM)
    running.wait_for("engine stopping")
    time.sleep(TOGETHER * 2)  # else it is the same one
    running.send(signal.SIGTERM)
    assert running.ended() == 0
    for job in map(shop.job, gates):
        assert (job.state, job.phase, job.failures, job.attempt, job.owner) == ("retry", "ready", 0, 1, 0)
        assert events(job)[-1] == "given back"
    (folder / "go").touch()
    assert worker("--until-empty").ended() == 0
    for job in map(shop.job, gates):
        assert (job.code, job.failures, job.attempt) == ("ok", 0, 2)


def test_signals_at_one_moment_are_one(shop: Hipq, worker: Start, folder: Path) -> None:
    """`timeout` signals a process and then its group."""
    gate = shop.queues[0].enqueue("gate")
    running = worker("-c", "1")
    eventually(lambda: started(folder) == {gate})
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        running.send(number)  # stopped meanwhile: on a busy machine there may be moments between them
    running.wait_for("engine stopping")
    (folder / "go").touch()
    assert running.ended() == 0
    assert (shop.job(gate).code, shop.job(gate).attempt) == ("ok", 1)


def test_a_worker_whose_threads_are_all_stuck_says_so_and_ends(shop: Hipq, worker: Start, folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP + HURRY)
    stuck = shop.queues[0].enqueue_many("stuck", range(2))
    running = worker("-c", "2")
    assert running.ended() == 3
    assert running.log("handler stuck")
    for job in map(shop.job, stuck):
        assert (job.code, job.failures, job.owner) == ("error", 1, 0)


def test_a_database_that_cannot_be_opened_is_exit_1(worker: Start, folder: Path) -> None:
    (folder / "shop.db").mkdir()
    running = worker()
    assert running.ended() == 1
    assert "Traceback" not in running.text()
    assert running.text().splitlines()[-1].startswith("hipq: SQLite")


def test_the_log_has_a_line_for_every_change_and_never_a_payload(shop: Hipq, worker: Start) -> None:
    orders = shop.queues[0]
    ids = [orders.enqueue(kind, {"card": "canary-4711"}) for kind in ("quick", "flaky")]
    running = worker("--until-empty", "--log-level", "debug")
    assert running.ended() == 0
    assert "canary-4711" not in running.text()
    lines = running.log()
    assert [line["event"] for line in lines if line.get("job_id") == ids[0]] == ["claimed", "ok"]
    (again,) = running.log("again")
    assert again["level"] == "ERROR"
    assert again["error"] == "ConnectionError: the bank does not answer"
    assert (again["job_queue"], again["job_type"], again["failures"]) == ("orders", "flaky", 1)
    assert {"engine started", "engine stopped"} <= {line["event"] for line in lines}


def test_without_debug_the_log_is_quiet_about_jobs_that_go_well(shop: Hipq, worker: Start) -> None:
    shop.queues[0].enqueue("quick")
    running = worker("--until-empty")
    assert running.ended() == 0
    assert {line["event"] for line in running.log()} == {"engine started", "engine stopped"}


def test_the_log_is_text_unless_asked_otherwise(hipq: HipqCommand, worker: Start) -> None:
    hipq("enqueue", "shop:app", "orders", "flaky", "--key", "a b")
    running = worker("--until-empty", "--log-format", "text")
    assert running.ended() == 0
    (line,) = [line for line in running.text().splitlines() if " again " in line]
    assert " ERROR " in line
    assert 'key="a b"' in line
    with pytest.raises(json.JSONDecodeError):
        json.loads(line)


def test_engine_started_says_what_it_serves_and_successes_are_logged_if_asked_for(shop: Hipq, worker: Start) -> None:
    done = shop.queues[0].enqueue("quick", key="order-17")
    running = worker("--until-empty", "--log-success", "-q", "orders", "-c", "3")
    assert running.ended() == 0
    (started,) = running.log("engine started")
    assert (started["queues"], started["concurrency"]) == (["orders"], 3)
    assert {"orders.quick", "orders.charge"} <= set(started["types"])
    (ended,) = running.log("ok")
    assert (ended["level"], ended["job_id"], ended["job_key"]) == ("INFO", done, "order-17")
    assert 0 < ended["duration"] < 60


def test_a_failed_run_is_an_error_with_its_traceback(shop: Hipq, worker: Start) -> None:
    shop.queues[0].enqueue("flaky", {"card": "canary-4711"})
    running = worker("--until-empty", "--log-level", "error")
    assert running.ended() == 0
    (failed,) = running.log()
    assert (failed["level"], failed["event"], failed["job_type"]) == ("ERROR", "again", "flaky")
    assert 'raise ConnectionError("the bank does not answer")' in failed["traceback"]
    assert "canary" not in str(failed)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_application_that_cannot_be_imported_shows_where_it_raised(folder: Path, processes: str) -> None:
    (folder / "broken.py").write_text(
        "def connect(url):\n    raise LookupError('no')\n\nconnect('postgresql://ann:kanari@db/shop')\n"
    )
    (folder / "syntax.py").write_text("app = (\n")

    def said(app: str) -> list[str]:
        words = [sys.executable, "-m", "hipq.cli.main", "worker", app, "--processes", processes]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 2
        return done.stderr.splitlines()

    lines = said("broken:app")
    assert lines[0] == "Traceback (most recent call last):"
    assert [line.strip().partition(",")[0] for line in lines if "  File" in line] == [f'File "{folder}/broken.py"'] * 2
    assert "    connect('postgresql://ann:…@db/shop')" in lines
    assert lines[-2] == "LookupError: no"
    assert lines[-1].startswith("hipq: importing broken raised LookupError: no (")
    assert "SyntaxError: '(' was never closed" in said("syntax:app")
