"""A move while a worker works and a program adds jobs and brings answers, killed again and again before it succeeds."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from hipq import Hipq, Queue
from tests import processes
from tests.engine.working import until

SHOP = """
import os, time
from pathlib import Path
from hipq import Hipq, Job, Ok, Wait

app = Hipq("shop", "sqlite:///shop.db")
orders = app.queue("orders", throttle_limit=40)
mails = app.queue("mails")


def ran(word):
    with open("ran", "a") as file:
        file.write(f"{word}\\n")


@orders.job(timeout=600)
def charge(job: Job):
    ran(f"charge-{job.data}")
    time.sleep(0.01)
    return Wait()


@charge.answered
def settled(job: Job, answer):
    ran(f"settled-{job.data}")
    job.enqueue(mail, job.data)
    return Ok(answer.data)


@mails.job
def mail(job: Job):
    ran(f"mail-{job.data}")
"""


class Client(threading.Thread):
    """Adds jobs, and brings their answers a little later, until it is told to stop."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(daemon=True)
        self._queue = queue
        self.added: list[int] = []
        self.answered: list[str] = []
        self.stop = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                n = len(self.added)
                self.added.append(self._queue.enqueue("charge", n, key=f"order-{n}"))
                if n >= 10:
                    self._answer(n - 10)
                time.sleep(0.01)
            for n in range(max(len(self.added) - 10, 0), len(self.added)):
                self._answer(n)
        except BaseException as error:
            self.error = error

    def _answer(self, n: int) -> None:
        outcome = self._queue.app.answer(self._queue.name, "charge", f"order-{n}", n, answer_id=f"answer-{n}")
        self.answered.append(outcome)


@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_killed_while_everything_runs_and_nothing_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    chance = random.Random(seed)
    Path("shop.py").write_text(SHOP)
    worker = processes.Popen([sys.executable, "-m", "hipq.cli.main", "worker", "shop:app", "--lease", "20"])
    app = Hipq("shop", "sqlite:///shop.db")
    orders = app.queue("orders")
    app.queue("mails")
    client = Client(orders)
    command = [sys.executable, "-m", "hipq.cli.main", "move", "sqlite:///shop.db", target, "--quiet"]
    with closing(app):
        try:
            client.start()
            until(lambda: len(client.added) > 20)
            for _ in range(4):
                mover = processes.Popen(command, stderr=subprocess.DEVNULL)
                time.sleep(chance.uniform(0.3, 1.5))
                mover.kill()
                mover.wait()
            assert processes.run(command, check=False, timeout=120, stdout=subprocess.DEVNULL).returncode == 0
            added = len(client.added)
            until(lambda: len(client.added) > added + 20 or client.error)
            client.stop.set()
            client.join(60)
            assert client.error is None
            assert app.store.url == target
            until(lambda: app.jobs.count("orders", live=True) + app.jobs.count("mails", live=True) == 0, 60)
        finally:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0
        ended = [app.job(job_id) for job_id in client.added]
        assert {(job.code, job.attempt) for job in ended} == {("ok", 1)}
        assert [job.result for job in ended] == list(range(len(ended)))
        assert app.jobs.count("orders") == app.jobs.count("mails") == len(ended)
        assert set(client.answered) <= {"matched", "buffered"}
    wanted = [f"{word}-{n}" for n in range(len(ended)) for word in ("charge", "settled", "mail")]
    assert Counter(Path("ran").read_text().split()) == Counter(wanted)
