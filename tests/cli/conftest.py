"""An application in a folder of its own, the command line in this process, and workers in processes of their own."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hipq import Hipq, Progress, Wait
from hipq.cli.main import run
from tests import processes
from tests.databases import fresh, sql

SHOP = '''
"""The application of the command line's tests. Gates open when the file `go` is there."""

import asyncio
import os
import time
from pathlib import Path

from hipq import Failed, Hipq, Job, Wait, fixed

app = Hipq("shop")
orders = app.queue("orders")
mails = app.queue("mails", order="priority")
nothing = 5


@orders.job
def quick(job: Job):
    return os.getpid()


@orders.job
def gate(job: Job):
    Path(f"started-{job.id}").touch()
    while not os.path.exists("go"):
        time.sleep(0.01)
    return os.getpid()


@orders.job
async def gate_on_a_loop(job: Job):
    Path(f"started-{job.id}").touch()
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)


orders.job("gate_in_a_process", process=True)(gate.fn)


@orders.job(run_timeout=0.2)
def stuck(job: Job):
    time.sleep(600)


@orders.job(retry=fixed(3600))
def flaky(job: Job):
    raise ConnectionError("the bank does not answer")


@mails.job
def mail(job: Job):
    return Wait()


@orders.job
def charge(job: Job):
    return Wait()


@charge.answered
def settled(job: Job, answer):
    return {"settled": answer.data}
'''


HURRY = """
import hipq.engine.timetable

hipq.engine.timetable.TIDYING = 500_000  # else a handler that does not end is borne for five seconds more
"""
"""To be written behind SHOP."""


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one sentence of a failure; what else there is on standard error may only name the database."""
        *trace, said = [line for line in self.err.splitlines() if not line.startswith("database: ")]
        if trace:  # where the user's own module raised when it was imported
            assert trace[0] == "Traceback (most recent call last):", self.err
            assert said.startswith("hipq: importing "), self.err
            assert "src/hipq" not in trace[1]  # it begins with the module's own lines
        assert said.startswith("hipq: ")
        assert len(said) < 800
        return said


HipqCommand = Callable[..., Ran]


def eventually(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until this is true, and what it was; fail after so long."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with shop.py in it."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.delenv("HIPQ_APP", raising=False)
    monkeypatch.delenv("HIPQ_DATABASE_URL", raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with fresh("postgres", Path()) as url, shop_on(url):
        yield url


@pytest.fixture(scope="session")
def mariadb() -> Iterator[str]:
    with fresh("mariadb", Path()) as url, shop_on(url):
        yield url


@pytest.fixture
def database(
    store_kind: str, request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], int]:
    """A database for the shop; calling it counts the rows this test has added: jobs, answers, payloads put aside."""
    if store_kind == "sqlite":
        return lambda: _count(f"sqlite:///{folder}/shop.db", "SELECT name FROM sqlite_master")
    url = request.getfixturevalue(store_kind)
    monkeypatch.setenv("HIPQ_DATABASE_URL", url)
    schema = "current_schema()" if store_kind == "postgres" else "database()"
    tables = f"SELECT table_name FROM information_schema.tables WHERE table_schema = {schema}"
    before = _count(url, tables)
    return lambda: _count(url, tables) - before


def _count(url: str, tables: str) -> int:
    wanted = r"shop_(orders|mails|bills)(_final)?|hipq_(payloads|answers)"
    counts = [f"(SELECT count(*) FROM {name})" for (name,) in sql(url, tables) if re.fullmatch(wanted, name)]
    return int(sql(url, f"SELECT {' + '.join(counts)}")[0][0]) if counts else 0


@pytest.fixture
def url(store_kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The database of shop:app, its own."""
    with fresh(store_kind, folder / "shop.db") as found:
        monkeypatch.setenv("HIPQ_DATABASE_URL", found)
        yield found


@pytest.fixture(params=["with the code", "by URL"])
def where(request: pytest.FixtureRequest, url: str) -> list[str]:
    """What says which database: most commands do the same with both."""
    return ["shop:app"] if request.param == "with the code" else ["--db", url]


@pytest.fixture
def hipq(folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> HipqCommand:  # noqa: ARG001
    """A command line, run in this process: an exception it lets through fails the test."""

    def command(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.delitem(sys.modules, "shop", raising=False)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        try:
            status = run(arguments)
        except SystemExit as left:
            status = int(left.code or 0)
        return Ran(status, *capfd.readouterr())

    return command


class Worker:
    """`hipq worker` in a process of its own, its log in memory as JSON lines."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder / f"worker-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "hipq.cli.main", "worker", "shop:app", "--log-format", "json", *arguments]
        with self._log.open("wb") as log:
            self.process = processes.Popen(command, cwd=folder, stdout=log, stderr=log, process_group=0)

    def log(self, event: str = "") -> list[dict[str, Any]]:
        whole = self._log.read_text().rpartition("\n")[0]  # of the last line there may be only a part yet
        lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in lines if not event or line["event"] == event]

    def text(self) -> str:
        return self._log.read_text()

    def wait_for(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        def found() -> list[dict[str, Any]]:
            assert self.process.poll() is None or len(self.log(event)) >= count, self.text()
            return self.log(event) if len(self.log(event)) >= count else []

        lines: list[dict[str, Any]] = eventually(found)
        return lines

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self, seconds: float = 60.0) -> int:
        return self.process.wait(seconds)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie nobody has buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def worker(folder: Path) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(*arguments: str) -> Worker:
        started.append(Worker(folder, *arguments))
        return started[-1]

    yield start
    for one in started:
        pids = [line["worker"] for line in one.log("worker started")]
        for pid in [one.process.pid, *pids]:
            if alive(pid):
                os.kill(pid, 9)
        one.process.wait()


@pytest.fixture
def shop(folder: Path) -> Iterator[Hipq]:
    """The shop as another program has it: its SQLite database, none of its code."""
    with shop_on(f"sqlite:///{folder}/shop.db") as app:
        yield app


@contextmanager
def shop_on(url: str) -> Iterator[Hipq]:
    app = Hipq("shop", url)
    app.migrate()
    app.queue("orders")
    app.queue("mails", order="priority")
    yield app
    app.close()


def started(folder: Path) -> set[int]:
    """The gates whose handlers have begun."""
    return {int(path.name.removeprefix("started-")) for path in folder.glob("started-*")}


@pytest.fixture
def program(url: str) -> Iterator[Hipq]:
    """Another program of the shop, with code; `run` works until nothing is due."""
    app = Hipq("shop", url)
    orders, mails = app.queue("orders"), app.queue("mails", order="priority")
    orders.job("charge")(lambda _: Wait()).answered(lambda _, answer: {"settled": answer.data})
    orders.job("steps")(lambda _: Wait()).answered(lambda _, answer: answer.data or Progress())
    orders.job("quick")(lambda _: None)
    mails.job("mail")(lambda _: Wait())
    app.migrate()
    yield app
    app.close()


def waiting(app: Hipq, queue: str, job_type: str, key: str) -> int:
    (found,) = [one for one in app.queues if one.name == queue]
    job_id = found.enqueue(job_type, key=key)
    app.run(until_empty=True)
    assert app.job(job_id).phase == "waiting"
    return job_id
