"""`hipq dev`: worker, listeners and callbacks of one application in one terminal, and new code when it changes."""

from __future__ import annotations

import re
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq import Hipq
from tests import processes
from tests.cli.conftest import SHOP, HipqCommand, alive, eventually
from tests.dashboard.serving import logged_in

ASKS = """

@orders.job
def ask(job: Job):
    print("the URL is", job.callback_url())
    return Wait()
"""


class Dev:
    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
            self.port, self.dashboard = free.getsockname()[1], other.getsockname()[1]
        self.file = folder / "dev.log"
        command = [sys.executable, "-m", "hipq.cli.main", "dev", "shop:app", "--port", str(self.port)]
        command += ["--dashboard-port", str(self.dashboard)]
        with self.file.open("wb") as log:
            self.process = processes.Popen(command, cwd=folder, stdout=log, stderr=log, process_group=0)

    def text(self) -> str:
        return self.file.read_text()

    def says(self, pattern: str, count: int = 1) -> str:
        def found() -> list[str]:
            assert self.process.poll() is None, self.text()
            there = re.findall(pattern, self.text(), re.MULTILINE)
            return there if len(there) >= count else []

        return str(eventually(found)[-1])


@pytest.fixture
def dev(folder: Path) -> Iterator[Dev]:
    (folder / "shop.py").write_text(SHOP + ASKS)
    running = Dev(folder)
    yield running
    if running.process.poll() is None:
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(60)


def test_jobs_run_callbacks_arrive_and_new_code_is_taken(dev: Dev, shop: Hipq, folder: Path) -> None:
    dev.says("^worker    .* engine started")
    dev.says(f"^callbacks . listening on http://127.0.0.1:{dev.port}$")
    dev.says(r"worker started worker=\d+ of=callbacks$")
    assert f"code      | database: sqlite:///{folder}/shop.db" in dev.text()
    dashboard = dev.says(rf"^dashboard: (http://127.0.0.1:{dev.dashboard}/login\?token=\S+)$")
    dev.says(f"^dashboard . dashboard: http://127.0.0.1:{dev.dashboard}/$")
    assert 'href="/jobs"' in logged_in(dashboard)
    job_id = shop.queues[0].enqueue("ask")
    url = dev.says(r"^worker    . the URL is (http://127\.0\.0\.1:\d+/\S+)$")
    assert f":{dev.port}/" in url
    with urllib.request.urlopen(urllib.request.Request(url, b'{"paid": true}', method="POST"), timeout=30) as reply:
        assert reply.status in (200, 202)
    eventually(lambda: shop.job(job_id).state == "final")
    assert shop.job(job_id).result == {"paid": True}
    (folder / "shop.py").write_text(SHOP + ASKS.replace("the URL is", "and now it is"))
    dev.says("^worker    .* engine started", 2)
    dev.says("^callbacks . listening", 2)
    dev.says(f"^dashboard . dashboard: http://127.0.0.1:{dev.dashboard}/$", 2)
    assert 'href="/jobs"' in logged_in(dashboard), "the same token is good"
    shop.queues[0].enqueue("ask")
    dev.says("^worker    . and now it is")
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(60) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", dev.port))


def test_what_is_wrong_with_the_code_is_said_once(dev: Dev, folder: Path) -> None:
    dev.says("^worker    .* engine started")
    dev.says("^dashboard . dashboard")  # it has read the code in, too
    (folder / "shop.py").write_text("1 / 0\n")
    dev.says("not started until")
    assert dev.text().count("Traceback") == 1
    assert "code      |   File " in dev.text()
    (folder / "shop.py").write_text(SHOP)
    dev.says("^worker    .* engine started", 2)


def test_callbacks_end_when_what_started_them_was_killed(dev: Dev) -> None:
    dev.says("^callbacks . listening")
    dev.says("^dashboard . dashboard")
    pids = [int(pid) for pid in re.findall(r"worker started worker=(\d+)", dev.text())]
    dev.process.kill()
    dev.process.wait(60)

    assert len(pids) == 3
    eventually(lambda: not any(map(alive, pids)))


def test_a_port_that_is_in_use_is_one_sentence(hipq: HipqCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = hipq("dev", "shop:app", "--port", str(port))
    assert ran.status == 1
    assert ran.complaint == f"hipq: cannot listen on 127.0.0.1 port {port}: address already in use"


@pytest.mark.parametrize("words", [["dev"], ["worker", "--reload"], ["worker", "shop:", "--reload"]])
def test_what_is_no_application_is_said_at_once(hipq: HipqCommand, words: list[str]) -> None:
    ran = hipq(*words)
    assert ran.status == 2
    assert "MODULE:APP" in ran.complaint


def test_a_webhook_without_its_secret_leaves_the_other_callbacks(dev: Dev, folder: Path) -> None:
    listens = '\napp.listen("webhook://bank", to=ask, secret="NO_SUCH_SECRET")\n'
    dev.says("^callbacks . listening")
    (folder / "shop.py").write_text(SHOP + ASKS + listens)
    dev.says(r"^callbacks . webhooks for orders.ask are refused with 503: \$NO_SUCH_SECRET is not set")
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(
            urllib.request.Request(
                f"http://127.0.0.1:{dev.port}/bank",
                b"{}",
                {"webhook-id": "1", "webhook-timestamp": str(int(time.time())), "webhook-signature": "v1,x"},
                method="POST",
            ),
            timeout=30,
        )
