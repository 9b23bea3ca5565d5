"""deploy/rolling-restart with real workers under load. systemctl is a stand-in that stops and starts processes; the
script decides by what is real: which engines are alive in the database."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from hipq import Hipq
from hipq.stores.open import open_store
from tests.daemon.api_serving import eventually
from tests.servers import fresh_database
from tests.upgrade.programs import HIPQ, ROOT, Ledger, Version, Worker

SCRIPT: Final = ROOT / "deploy" / "rolling-restart"
SYSTEMCTL: Final = """#!/usr/bin/env -S python3 -I
import os, sys, urllib.request
urllib.request.urlopen(os.environ["UNITS"] + "/".join(sys.argv[1:]), data=b"", timeout=120)
"""


class Units:
    """Units of workers, which a stand-in for systemctl restarts by asking this process."""

    def __init__(self, version: Version, names: list[str], breaks: str = "") -> None:
        self.version, self.breaks, self.restarted = version, breaks, list[str]()
        self.workers = {name: self.start() for name in names}
        units = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                units.restart(self.path.removeprefix("/restart/"))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """A test's output is for what fails."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def start(self) -> Worker:
        return self.version.worker("-c", "4")

    def restart(self, name: str) -> None:
        assert self.workers[name].stop() == 0
        self.restarted.append(name)
        if name != self.breaks:
            self.workers[name] = self.start()

    def roll(self, url: str, patience: int = 60) -> subprocess.CompletedProcess[str]:
        systemctl = self.version.folder / "systemctl"
        systemctl.write_text(SYSTEMCTL)
        systemctl.chmod(0o755)
        environment = {
            "PATH": f"{self.version.folder}:{os.environ['PATH']}", "HIPQ_DATABASE_URL": url,
            "UNITS": f"http://127.0.0.1:{self.server.server_port}/", "HIPQ_COMMAND": " ".join(HIPQ),
            "HIPQ_PATIENCE": str(patience),
        }  # fmt: skip
        return subprocess.run(
            [SCRIPT, *self.workers], env=os.environ | environment, capture_output=True, text=True, check=False
        )

    def close(self) -> None:
        self.server.shutdown()
        for worker in self.workers.values():
            worker.kill()


@pytest.fixture
def url() -> Iterator[str]:
    with fresh_database() as found:
        app = Hipq("shop", found)
        app.migrate()
        app.queue("orders").enqueue("other")  # the queue is there before any worker is
        app.close()
        yield found


@pytest.mark.parametrize(
    ("workers", "rounds", "jobs"),
    [(2, 1, 80), pytest.param(3, 2, 1000, marks=[pytest.mark.long, pytest.mark.timeout(1200)])],
)
def test_workers_are_restarted_under_load_and_every_job_runs_once(
    url: str, tmp_path: Path, workers: int, rounds: int, jobs: int
) -> None:
    version = Version("now", ROOT / "src", tmp_path, url)
    ledger = Ledger(url)
    units = Units(version, [f"hipq-worker@{number}" for number in range(workers)])
    try:
        adding = version.adding("a", jobs, 0.05)
        eventually(lambda: len(ledger.runs()) > 10)
        for _ in range(rounds):
            rolled = units.roll(url)
            assert rolled.returncode == 0, rolled.stderr
        assert units.restarted == list(units.workers) * rounds
        assert adding.wait(300) == 0
        eventually(lambda: ledger.ended() == jobs, 300)
        assert set(ledger.runs().values()) == {1}, "nothing is lost, and nothing runs twice"
        assert len(ledger.runs()) == jobs
    finally:
        units.close()
        ledger.close()


def test_a_worker_that_does_not_come_back_ends_it(url: str, tmp_path: Path) -> None:
    version = Version("now", ROOT / "src", tmp_path, url)
    units = Units(version, ["one", "two"], breaks="one")
    try:
        store = open_store(url)
        eventually(lambda: len(store.engines()) == 2)
        store.close()
        rolled = units.roll(url, patience=2)
        assert rolled.returncode == 1
        assert rolled.stderr == "one does not work again after 2 s: the units behind it were not restarted\n"
        assert units.restarted == ["one"]
    finally:
        units.close()


def test_without_units_it_says_how_it_is_used() -> None:
    done = subprocess.run(
        [SCRIPT], env=os.environ | {"HIPQ_DATABASE_URL": "x"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, f"usage: {SCRIPT} UNIT...\n")


def test_a_database_that_cannot_be_asked_is_said_before_anything_is_restarted(tmp_path: Path) -> None:
    environment = {"HIPQ_DATABASE_URL": "postgresql://127.0.0.1:1/nowhere", "HIPQ_COMMAND": " ".join(HIPQ)}
    (tmp_path / "systemctl").write_text("#!/bin/sh\ntouch restarted\n")
    (tmp_path / "systemctl").chmod(0o755)
    environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [SCRIPT, "one"], cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("one was not restarted: hipq: ")
    assert not (tmp_path / "restarted").exists()
