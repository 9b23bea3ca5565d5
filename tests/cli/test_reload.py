"""`hipq worker --reload`: the worker starts again when its code changes, and no job runs twice for that."""

from __future__ import annotations

import builtins
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq
from hipq.reload import code_of
from tests.cli.conftest import SHOP, HipqCommand, Worker, alive, eventually, started

Start = Callable[..., Worker]
VERSION = '\n\n@orders.job\ndef version(job: Job):\n    return "{}"\n'


def changed(folder: Path, version: str) -> None:
    (folder / "shop.py").write_text(SHOP + VERSION.format(version))


@pytest.mark.parametrize("processes", ["1", "2"])
def test_new_code_is_run_and_what_runs_may_finish(shop: Hipq, worker: Start, folder: Path, processes: str) -> None:
    changed(folder, "old")
    running = worker("--reload", "--processes", processes, "-c", "2")
    running.wait_for("engine started", int(processes))
    first = shop.queues[0].enqueue("version")
    eventually(lambda: shop.job(first).state == "final")
    gate = shop.queues[0].enqueue("gate")
    eventually(lambda: started(folder) == {gate})
    changed(folder, "new")
    running.wait_for("engine stopping", int(processes))
    eventually(lambda: running.text().count("database: ") == 2)  # the new code was looked at
    changed(folder, "newer")  # once more while it waits for the handler: that is no second signal
    eventually(lambda: running.text().count("database: ") == 3)
    (folder / "go").touch()
    last = shop.queues[0].enqueue("version")
    eventually(lambda: shop.job(last).state == "final")
    assert [shop.job(one).result for one in (first, last)] == ["old", "newer"]
    assert (shop.job(gate).code, shop.job(gate).attempt) == ("ok", 1)
    running.send(signal.SIGINT)
    assert running.ended() == 0
    assert not running.log("worker replaced")
    assert not any(alive(line["worker"]) for line in running.log("worker started"))


@pytest.mark.parametrize("processes", ["1", "2"])
def test_code_that_cannot_be_imported_is_shown_once_and_mended(
    shop: Hipq, worker: Start, folder: Path, processes: str
) -> None:
    running = worker("--reload", "--processes", processes)
    running.wait_for("engine started", int(processes))
    (folder / "shop.py").write_text(SHOP + "\n1 / 0\n")
    running.wait_for("not started")
    assert running.text().count("ZeroDivisionError: division by zero (") == 1
    assert running.text().count("Traceback") == 1
    changed(folder, "mended")
    running.wait_for("engine started", 2 * int(processes))
    job_id = shop.queues[0].enqueue("version")
    eventually(lambda: shop.job(job_id).state == "final")
    assert shop.job(job_id).result == "mended"
    running.send(signal.SIGTERM)
    assert running.ended() == 0


def test_it_waits_for_code_that_is_wrong_when_it_begins(worker: Start, folder: Path) -> None:
    (folder / "shop.py").write_text("1 / 0")
    running = worker("--reload")
    running.wait_for("not started")
    changed(folder, "right")
    running.wait_for("engine started")
    (folder / "shop.py").write_text("1 / 0")
    running.wait_for("not started", 2)
    running.send(signal.SIGINT)
    assert running.ended() == 0


def test_a_worker_that_was_killed_is_replaced_all_the_same(worker: Start) -> None:
    running = worker("--reload")
    running.wait_for("engine started")
    os.kill(running.log("worker started")[0]["worker"], signal.SIGKILL)
    running.wait_for("worker replaced")
    running.wait_for("engine started", 2)
    running.send(signal.SIGTERM)
    assert running.ended() == 0


def test_databases_caches_and_environments_are_no_code(shop: Hipq, worker: Start, folder: Path) -> None:
    for name in (".venv", "__pycache__", "deep/down"):
        (folder / name).mkdir(parents=True)
    running = worker("--reload")
    running.wait_for("engine started")
    for name in ("notes.txt", "other.db", ".venv/module.py", "__pycache__/module.py"):
        (folder / name).write_text("x = 1")
    job_id = shop.queues[0].enqueue("quick")
    eventually(lambda: shop.job(job_id).state == "final")
    (folder / "deep/down/module.py").write_text("x = 1")  # which comes after all of them
    running.wait_for("reloading")
    running.wait_for("engine started", 2)
    running.send(signal.SIGTERM)
    assert running.ended() == 0
    assert len(running.log("reloading")) == 1


def test_what_is_watched(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "bakery").mkdir()
    (elsewhere / "bakery" / "__init__.py").touch()
    (elsewhere / "single.py").touch()
    monkeypatch.setattr(sys, "path", [str(elsewhere), str(folder), *sys.path])
    assert code_of("shop:app") == [folder]
    assert code_of("bakery.tasks:app") == [folder, elsewhere / "bakery"]
    assert code_of("single:app") == [folder, elsewhere / "single.py"]
    assert code_of("nowhere:app") == [folder]
    assert "bakery" not in sys.modules


def test_it_says_what_it_needs(hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name == "watchfiles":
            raise ModuleNotFoundError(name)
        return imported(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    ran = hipq("worker", "shop:app", "--reload")
    assert ran.status == 2
    assert ran.complaint == "hipq: a restart when code changes needs watchfiles: pip install 'hipq[reload]'"


def test_it_does_not_go_with_until_empty(hipq: HipqCommand) -> None:
    ran = hipq("worker", "shop:app", "--reload", "--until-empty")
    assert ran.status == 2
    assert "leave --until-empty out" in ran.complaint
