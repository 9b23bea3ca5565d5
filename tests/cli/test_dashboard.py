"""`hipq dashboard`: one line with a URL, pages behind it, and an end at once."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from hipq import Hipq
from tests import processes
from tests.brokers.aws import CREDENTIALS, REGION, aws_endpoint
from tests.cli.conftest import HipqCommand, eventually
from tests.dashboard.serving import logged_in

PROGRAM = [sys.executable, "-m", "hipq.cli.main"]


class Running:
    def __init__(self, folder: Path, *arguments: str, of: str = "dashboard", **environment: str) -> None:
        self.file = folder / f"dashboard-{time.monotonic_ns()}.log"
        words = [*PROGRAM, *of.split(), *arguments, *([] if "--port" in arguments else ["--port", "0"])]
        with self.file.open("wb") as log:
            self.process = processes.Popen(
                words, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **environment}
            )
        assert self.process.stdout
        self.line = self.process.stdout.readline()
        assert self.line, self.file.read_text()

    @property
    def url(self) -> str:
        return self.line.removeprefix("dashboard: ").strip()

    def get(self, path: str, port: int = 0) -> HTTPResponse:
        """As a program that has the token of the URL."""
        connection = HTTPConnection("127.0.0.1", port or urlsplit(self.url).port, timeout=30)
        headers = {"authorization": f"Bearer {self.url.partition('token=')[2]}"}
        connection.request("GET", path, headers=headers)
        return connection.getresponse()

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


Start = Callable[..., Running]


@pytest.fixture
def start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.delenv("HIPQ_DASHBOARD_TOKENS", raising=False)
    running: list[Running] = []

    def begin(*arguments: str, **environment: str) -> Running:
        running.append(Running(folder, *arguments, **environment))
        return running[-1]

    yield begin
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


def test_it_prints_a_url_that_logs_in(start: Start, program: Hipq, where: list[str]) -> None:
    program.queues[0].enqueue("quick", key="the-key")
    running = start(*where, "--mask", "card, cvv")
    assert re.fullmatch(r"dashboard: http://127\.0\.0\.1:\d+/login\?token=[\w-]{32}\n", running.line)
    assert 'href="/jobs"' in logged_in(running.url)
    with pytest.raises(HTTPError, match="403"):
        logged_in(running.url[:-1])
    assert running.stop() == 0
    with pytest.raises(ConnectionRefusedError):
        running.get("/")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_once_though_somebody_looks(start: Start, number: int) -> None:
    running = start("shop:app")
    stream = running.get("/live?page=/")
    assert stream.readline() == b"retry: 1000\n"
    began = time.monotonic()
    assert running.stop(number) == 0
    assert time.monotonic() - began < 5
    assert stream.read().endswith(b"\n"), "it ended as a reply ends"
    assert "Traceback" not in running.file.read_text()


def test_it_is_told_to_programs_and_opened_in_a_browser(start: Start, folder: Path) -> None:
    browser = folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {folder}/opened\n')
    browser.chmod(0o755)
    running = start("shop:app", "--json", "--open", BROWSER=str(browser))
    told = json.loads(running.line)
    assert set(told) == {"url", "database"}
    assert eventually(lambda: (folder / "opened").exists() and (folder / "opened").read_text()) == told["url"] + "\n"


def test_the_role_is_that_of_the_option(start: Start) -> None:
    statuses = {role: start("shop:app", "--role", role).get("/audit").status for role in ("view", "admin")}
    assert statuses == {"view": 403, "admin": 200}


@pytest.mark.parametrize("how", ["alone", "beside", "hipq.toml"])
def test_a_waiter_is_shown_alone_or_beside_a_database(
    start: Start, folder: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**CREDENTIALS, "AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL": aws_endpoint()}.items():
        monkeypatch.setenv(name, value)
    (folder / "post.py").write_text('from hipq.waiter import Waiter\n\nwaiter = Waiter(["no-such-queue"])\n')
    if how == "hipq.toml":
        (folder / "hipq.toml").write_text('[waiter]\nqueues = ["no-such-queue"]\n')
    words = {"alone": ["post:waiter"], "beside": ["shop:app", "--waiter", "post:waiter"], "hipq.toml": ["shop:app"]}
    running = start(*words[how], of="waiter dashboard" if how == "alone" else "dashboard")
    eventually(lambda: b"hipq waiter create-table no-such-queue" in running.get("/waiter").read())
    assert running.get("/jobs").status == (404 if how == "alone" else 200)
    assert running.stop() == 0


def test_tokens_of_the_environment_are_not_printed(start: Start) -> None:
    running = start("shop:app", "--host", "0.0.0.0", HIPQ_DASHBOARD_TOKENS="ann=admin:a-secret-of-ann-here")
    assert re.fullmatch(r"dashboard: http://0\.0\.0\.0:\d+/\n", running.line)


def test_a_proxy_may_leave_its_path_or_take_it_away(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running = start("shop:app", "--port", str(port), "--public-url", "https://ops.example/tools/hipq/")
    assert running.url.startswith("https://ops.example/tools/hipq/login?token=")
    for path in ("/tools/hipq/", "/"):
        page = running.get(path, port)
        assert page.status == 200
        assert 'href="/tools/hipq/jobs"' in page.read().decode()


@pytest.mark.parametrize(("words", "environment", "said"), [
    (["--host", "0.0.0.0"], "", "on '0.0.0.0' others can read what is sent, so the URL with its token is not enough: "
     "say who may log in with $HIPQ_DASHBOARD_TOKENS, or with --public-url which proxy speaks HTTPS"),
    (["--public-url", "http://ops.example"], "",
     "--public-url must be like https://ops.example/hipq, not 'http://ops.example'"),
    (["--role", "view"], "ann=admin:a-secret-of-ann-here",
     "$HIPQ_DASHBOARD_TOKENS says who has which role: leave out --role"),
])  # fmt: skip
def test_what_would_let_strangers_in_is_refused(
    hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch, words: list[str], environment: str, said: str
) -> None:
    monkeypatch.setenv("HIPQ_DASHBOARD_TOKENS", environment)
    ran = hipq("dashboard", "shop:app", *words)
    assert (ran.status, ran.complaint) == (2, f"hipq: {said}")


def test_a_port_that_is_in_use_is_one_sentence(hipq: HipqCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = hipq("dashboard", "shop:app", "--port", str(port))
    assert (ran.status, ran.complaint) == (
        1, f"hipq: cannot listen on 127.0.0.1 port {port}: address already in use"
    )  # fmt: skip


def test_a_database_without_queues_is_one_sentence(hipq: HipqCommand, folder: Path) -> None:
    assert hipq("migrate", "--db", f"sqlite:///{folder}/empty.db").status == 0
    ran = hipq("dashboard", "--db", f"sqlite:///{folder}/empty.db")
    assert (ran.status, ran.complaint) == (2, "hipq: there are no queues in this database yet")


@pytest.mark.parametrize(("module", "called"), [("uvicorn", "uvicorn"), ("jinja2", "Jinja2")])
def test_what_is_not_installed_is_said_with_what_brings_it(
    hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch, module: str, called: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    ran = hipq("dashboard", "shop:app")
    assert (ran.status, ran.complaint) == (
        2, f"hipq: hipq dashboard needs {called}: pip install 'hipq[dashboard]'"
    )  # fmt: skip
