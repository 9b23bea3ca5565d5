"""Handlers that are rough with the worker they run in: each costs its own job at most, or the process is replaced."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hipq import Hipq
from tests.cli.conftest import SHOP, Worker, eventually, shop_on, started

Start = Callable[..., Worker]

ROUGH = """
import sys


@orders.job
def closes(job: Job):
    os.closerange(3, 60)


@orders.job
async def closes_on_a_loop(job: Job):
    os.closerange(3, 60)


def _fork(job):
    child = os.fork()
    if child == 0:
        Path(f"child-{job.id}").write_text(str(os.getpid()))
    return child


@orders.job
def forks(job: Job):
    return "parent" if _fork(job) else "child"


@orders.job(retry=lambda job, fault: Path("asked").touch())
def forks_and_raises(job: Job):
    if _fork(job):
        return "parent"
    raise ValueError("in the child")


@orders.job
async def forks_on_a_loop(job: Job):
    if _fork(job):
        return "parent"
    await asyncio.sleep(600)


@orders.job(retry=lambda job, fault: _fork(job) and None)
def retry_forks(job: Job):
    raise ValueError("in the handler")


@orders.job
def forks_and_stays(job: Job):
    if _fork(job):
        return "parent"
    time.sleep(600)


@orders.job
async def stops_the_loop(job: Job):
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    return "went on"


@orders.job
async def exits_in_a_task(job: Job):
    async def leave():
        sys.exit(5)

    asyncio.get_running_loop().create_task(leave())
    await asyncio.sleep(0.01)
    return "went on"
"""
"""To be written behind SHOP."""


@pytest.fixture
def shop(url: str, folder: Path) -> Iterator[Hipq]:
    """The shop with these handlers, on each store."""
    (folder / "shop.py").write_text(SHOP + ROUGH)
    with shop_on(url) as app:
        yield app


def child_of(folder: Path, job_id: int) -> int:
    file = folder / f"child-{job_id}"
    return int(eventually(lambda: file.exists() and file.read_text()))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("kind", ["closes", "closes_on_a_loop"])
def test_one_that_closes_the_workers_descriptors_ends_it_and_nobody_elses_job_fails(
    shop: Hipq,
    worker: Start,
    folder: Path,
    kind: str,
) -> None:
    orders = shop.queues[0]
    gates = orders.enqueue_many("gate", range(2))
    running = worker("--lease", "2")
    eventually(lambda: started(folder) == set(gates))
    rude = orders.enqueue(kind)
    assert running.ended() == 3, running.text()
    assert "a handler has closed file descriptors that are not its own" in running.text()
    assert "standard output" not in running.text()
    (folder / "go").touch()
    again = worker("--lease", "2")
    eventually(lambda: shop.job(rude).failures)
    again.send(signal.SIGTERM)
    assert again.ended() == 0
    for job in map(shop.job, gates):
        assert (job.code, job.attempt, job.failures) == ("ok", 2, 0)
    job = shop.job(rude)
    assert (job.failures, job.fault and job.fault.kind) == (1, "crash"), "apart, it is its own doing"


def test_a_supervisor_replaces_a_worker_whose_descriptors_were_closed(
    shop: Hipq,
    worker: Start,
) -> None:
    orders = shop.queues[0]
    running = worker("--processes", "2", "--lease", "2")
    running.wait_for("engine started", 2)
    orders.enqueue("closes")
    replaced = running.wait_for("worker replaced")
    assert replaced[0]["ended"] == "exit status 3"
    other = orders.enqueue("quick")
    eventually(lambda: shop.job(other).code == "ok")
    running.send(signal.SIGTERM)
    running.ended()


@pytest.mark.parametrize("kind", ["forks", "forks_and_raises", "forks_on_a_loop", "retry_forks"])
def test_a_child_that_a_handler_forks_ends_where_the_handler_does(
    shop: Hipq,
    worker: Start,
    folder: Path,
    kind: str,
) -> None:
    job_id = shop.queues[0].enqueue(kind)
    running = worker("-c", "1")
    child = child_of(folder, job_id)
    eventually(lambda: not alive(child))
    eventually(lambda: shop.job(job_id).state == "final")
    other = shop.queues[0].enqueue("quick")
    eventually(lambda: shop.job(other).code == "ok")
    running.send(signal.SIGTERM)
    assert running.ended() == 0
    job = shop.job(job_id)
    assert (job.code, job.attempt) == ("error" if kind == "retry_forks" else "ok", 1)
    assert job.result == (None if kind == "retry_forks" else "parent")
    assert not (folder / "asked").exists(), "the retry handler is not asked about what happens in the child"


def test_one_that_goes_on_in_the_child_can_be_ended_by_a_signal(
    shop: Hipq,
    worker: Start,
    folder: Path,
) -> None:
    """It has the worker's signal handlers, and no engine that they could stop."""
    job_id = shop.queues[0].enqueue("forks_and_stays")
    running = worker()
    child = child_of(folder, job_id)
    eventually(lambda: shop.job(job_id).result == "parent")
    os.kill(child, signal.SIGTERM)
    eventually(lambda: not alive(child))
    assert running.process.poll() is None
    running.send(signal.SIGTERM)
    assert running.ended() == 0


@pytest.mark.parametrize("kind", ["stops_the_loop", "exits_in_a_task"])
def test_one_that_stops_the_event_loop_stops_nobody_else(
    shop: Hipq,
    worker: Start,
    folder: Path,
    kind: str,
) -> None:
    orders = shop.queues[0]
    beside = orders.enqueue("gate_on_a_loop")
    running = worker()
    eventually(lambda: started(folder) == {beside})
    rude = orders.enqueue(kind)
    eventually(lambda: shop.job(rude).state == "final")
    after = orders.enqueue("gate_on_a_loop")
    eventually(lambda: started(folder) == {beside, after})
    (folder / "go").touch()
    eventually(lambda: [shop.job(job_id).code for job_id in (beside, after)] == ["ok", "ok"])
    assert shop.job(rude).result == "went on"
    running.send(signal.SIGTERM)
    assert running.ended() == 0
