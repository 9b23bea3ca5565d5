"""`hipq worker --processes N`: workers are replaced when they die, and end with their supervisor."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from hipq import Hipq
from hipq.signals import TOGETHER
from hipq.supervisor import HEALTHY, LONGEST_PAUSE, WorkerSlot
from tests.cli.conftest import HURRY, SHOP, Worker, alive, eventually, started

Start = Callable[..., Worker]


def pids(running: Worker) -> list[int]:
    return [line["worker"] for line in running.log("worker started")]


def supervised(worker: Start, *arguments: str) -> tuple[Worker, list[int]]:
    """A supervisor of two, once both work."""
    running = worker("--processes", "2", *arguments)
    running.wait_for("engine started", 2)
    return running, pids(running)


def test_a_worker_that_was_killed_is_replaced_and_its_job_runs_again(shop: Hipq, worker: Start, folder: Path) -> None:
    gates = shop.queues[0].enqueue_many("gate", range(2))  # one hand each: it takes both
    running, (first, second) = supervised(worker, "-c", "1", "--lease", "3")  # shorter, and a busy one loses its own
    eventually(lambda: started(folder) == set(gates))
    os.kill(first, signal.SIGKILL)
    (line,) = running.wait_for("worker replaced")
    assert (line["worker"], line["ended"]) == (first, "killed by SIGKILL")
    third = running.wait_for("worker started", 3)[2]["worker"]
    (rescued,) = running.wait_for("rescued")
    (folder / "go").touch()
    eventually(lambda: all(shop.job(job_id).state == "final" for job_id in gates))
    assert sorted((job.code, job.failures, job.attempt) for job in map(shop.job, gates)) == [("ok", 0, 1), ("ok", 0, 2)]
    assert shop.job(rescued["job_id"]).attempt == 2
    running.send(signal.SIGTERM)
    assert running.ended() == 0
    assert not any(map(alive, (first, second, third)))


def test_a_worker_whose_threads_are_all_stuck_is_replaced(shop: Hipq, worker: Start, folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP + HURRY)
    job_id = shop.queues[0].enqueue("stuck")
    running, _ = supervised(worker, "-c", "1")
    (line,) = running.wait_for("worker replaced")
    assert line["ended"] == "exit status 3"
    running.wait_for("worker started", 3)
    eventually(lambda: shop.job(job_id).state == "final")
    assert (shop.job(job_id).code, shop.job(job_id).failures) == ("error", 1)
    running.send(signal.SIGTERM)
    assert running.ended() == 0


def test_a_signal_is_passed_on_once_and_twice(shop: Hipq, worker: Start, folder: Path) -> None:
    gates = shop.queues[0].enqueue_many("gate", range(2))
    running, workers = supervised(worker, "-c", "2")
    eventually(lambda: started(folder) == set(gates))
    running.send(signal.SIGINT)
    running.wait_for("engine stopping", 2)
    time.sleep(TOGETHER * 2)  # else it is the same one
    running.send(signal.SIGINT)
    assert running.ended() == 0
    for job in map(shop.job, gates):
        assert (job.state, job.failures, job.history[-1]["event"]) == ("retry", 0, "given back")
    assert not any(map(alive, workers))


def test_after_the_first_signal_handlers_finish(shop: Hipq, worker: Start, folder: Path) -> None:
    gates = shop.queues[0].enqueue_many("gate", range(2))
    running, workers = supervised(worker, "-c", "2")
    eventually(lambda: started(folder) == set(gates))
    running.send(signal.SIGTERM)
    running.wait_for("engine stopping", 2)
    (folder / "go").touch()
    assert running.ended() == 0
    assert [(job.code, job.attempt) for job in map(shop.job, gates)] == [("ok", 1)] * 2
    assert not running.log("worker replaced")
    assert not any(map(alive, workers))


def test_workers_end_when_their_supervisor_was_killed(shop: Hipq, worker: Start) -> None:
    running, workers = supervised(worker)
    os.kill(running.process.pid, signal.SIGKILL)
    running.ended()
    eventually(lambda: not any(map(alive, workers)))
    assert {line["pid"] for line in running.log("engine stopped")} == set(workers)
    assert shop.store.owned([queue.number for queue in shop.queues], None, 10) == []


def test_a_terminal_reaches_workers_through_their_supervisor_only(worker: Start) -> None:
    running, workers = supervised(worker)
    assert [os.getpgid(pid) for pid in workers] == workers
    assert os.getpgid(running.process.pid) not in workers
    running.send(signal.SIGTERM)
    assert running.ended() == 0


def test_until_empty_ends_when_every_worker_found_nothing(shop: Hipq, worker: Start) -> None:
    ids = shop.queues[0].enqueue_many("quick", range(50))
    running = worker("--processes", "3", "--until-empty")
    assert running.ended() == 0
    assert {shop.job(job_id).code for job_id in ids} == {"ok"}
    assert len(running.log("worker started")) == 3


def test_a_worker_that_dies_at_once_is_started_again_ever_more_slowly(worker: Start, folder: Path) -> None:
    """It dies in `app.engine`, after the check of the command line has passed."""
    (folder / "shop.db").mkdir()
    running = worker("--processes", "2")

    def pauses() -> list[float]:
        """Those after a short life: on a busy machine it may take long to die at once."""
        return [line["again_in"] for line in running.log("worker replaced") if line["again_in"]]

    eventually(lambda: max(pauses(), default=0.0) >= 0.8, 120)
    assert pauses()[0] == 0.2
    running.send(signal.SIGTERM)
    assert running.ended() in (0, 1)


def test_the_pauses_grow_to_a_limit_and_a_long_life_resets_them() -> None:
    place = WorkerSlot([])
    pauses = [place.ended(place.started + 1) for _ in range(20)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
    assert place.ended(place.started + HEALTHY) == 0.0
    assert place.ended(place.started + 1) == pauses[0]
