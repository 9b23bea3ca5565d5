"""Thousands of requests out, as many answers back in another order: some twice, some early, some late, some that say
the work failed, some that nobody can read. What listens is killed three times, and the server restarted where it can.

Then every job is final exactly as its answer says: nothing lost, nothing settled twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hipq import Answered, Hipq, Job
from hipq.answers.reports import streams
from hipq.stores.filters import Filter
from tests import processes
from tests.acceptance.rigs import RIGS, Rig
from tests.acceptance.service import answer_to
from tests.servers import free_port, fresh_database

ROOT = Path(__file__).parents[2]
JOBS = int(os.environ.get("HIPQ_ACCEPTANCE_JOBS", "150"))
"""`make test-long` takes a thousand, `make acceptance` ten thousand."""
KINDS = {"twice": JOBS // 20, "early": JOBS // 20, "late": JOBS // 50, "error": JOBS // 50}
PATIENCE = 120.0
ON = {"http_and_kafka": "both", "kafka": "postgres", "sqs": "sqlite", "kinesis": "postgres", "nats": "sqlite",
      "amqp": "postgres", "redis": "sqlite", "mqtt": "postgres", "http": "sqlite"}  # fmt: skip
CASES = [(rig, store) for rig, on in ON.items() for store in ("sqlite", "postgres") if on in (store, "both")]


class Processes:
    """The programs of one test, each ended with it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = {**os.environ, **environment, "PYTHONPATH": str(ROOT)}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = processes.Popen(
                [sys.executable, "-m", *command], cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait()

    def end(self, name: str) -> None:
        """As an operator would: it ends by itself, and well."""
        self._running[name].send_signal(signal.SIGTERM)
        assert self._running[name].wait(60) == 0, self.log(name)

    def log(self, name: str) -> str:
        file = self._folder / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def check(self) -> None:
        """None of them has ended by itself."""
        for name, one in self._running.items():
            assert one.poll() is None, f"{name} has ended\n{self.log(name)[-3000:]}"

    def close(self) -> None:
        for one in self._running.values():
            one.kill()
            one.wait()


@contextmanager
def database(store: str, folder: Path) -> Iterator[str]:
    if store == "sqlite":
        yield f"sqlite:///{folder}/bank.db"
    else:
        with fresh_database() as url:
            yield url


def until(what: str, is_so: Callable[[], bool], told: Callable[[], str] = lambda: "") -> None:
    limit = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < limit, f"waited in vain for {what}\n{told()}"
        time.sleep(0.1)


def count(app: Hipq, **which: Any) -> int:
    return app.jobs.count("orders", **which)


@pytest.mark.parametrize(("rig", "store"), CASES)
def test_every_job_ends_as_its_answer_says(rig: str, store: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        ways = stack.enter_context(RIGS[rig]())
        db = stack.enter_context(database(store, tmp_path))
        Play(ways, db, tmp_path, stack).through()


class Play:
    def __init__(self, ways: Rig, db: str, folder: Path, stack: ExitStack) -> None:
        self._ways = ways
        self._folder = folder
        self._listener = ["hipq", "listen", "tests.acceptance.program:app"]
        environment = {"ACCEPTANCE_DB": db, "ACCEPTANCE_TO": ways.to, **ways.environment}
        if ways.answers:
            environment["ACCEPTANCE_ANSWERS"] = ways.answers
        else:
            port = free_port()
            environment["ACCEPTANCE_CALLBACK_URL"] = f"http://127.0.0.1:{port}"
            self._listener = ["hipq", "callbacks", "tests.acceptance.program:app", "--port", str(port), "--rate", "0"]
        self._processes = Processes(folder, environment)
        stack.callback(self._processes.close)
        self._app = Hipq("bank", db)
        self._app.queue("orders")
        self._app.migrate()
        stack.callback(self._app.close)

    def through(self) -> None:
        processes, app = self._processes, self._app
        processes.start("listener", *self._listener)
        if self._ways.answers:
            self._until("somebody to listen", lambda: bool(streams(app.store, "bank")))
        processes.start("service", "tests.acceptance.service", str(self._folder), self._ways.come, self._ways.go,
                        str(KINDS["early"]))  # fmt: skip
        self._until("the early answers", (self._folder / "early").exists)
        keys = [f"{kind}-{n}" for kind, many in KINDS.items() for n in range(many)]
        keys += [f"plain-{n}" for n in range(JOBS - len(keys))]
        app.queues[0].enqueue_many("charge", [{"n": n} for n in range(JOBS)], keys=keys, timeout=600)
        processes.start("worker", "hipq", "worker", "tests.acceptance.program:app", "--no-listen", "-c", "16")
        for part in (0.2, 0.4, 0.6):
            self._until_done(part)
            processes.kill("listener")
            processes.start("listener", *self._listener)
        if self._ways.restart:
            self._until_done(0.7)
            self._ways.restart()
        self._late()
        self._until("the end of all jobs", lambda: count(app, state="final") == JOBS)
        self._until("the late answers", lambda: len(app.answers.list(state="late", limit=10_000)) >= KINDS["late"])
        if self._ways.go:
            bad = int((self._folder / "bad").read_text())
            self._until("the unreadable ones", lambda: self._counts()["unreadable"] >= bad)
        processes.end("listener")
        processes.end("worker")
        self._check()

    def _until_done(self, part: float) -> None:
        self._until(f"{part:.0%} of the jobs", lambda: count(self._app, state="final") >= JOBS * part)

    def _late(self) -> None:
        """Some jobs are cancelled while they wait; their answers come after that."""
        app, wanted = self._app, KINDS["late"]
        late = [job_id for job_id, key in self._ids().items() if key.startswith("late")]
        assert len(late) == wanted
        self._until("the late ones to wait", lambda: all(app.job(job_id).phase == "waiting" for job_id in late))
        for job_id in late:
            app.cancel(job_id)
        (self._folder / "late").touch()

    def _ids(self) -> dict[int, str]:
        found: dict[int, str] = {}
        number, after = self._app.queues[0].number, 0
        while page := self._app.store.find(Filter(number, after=after, limit=10_000)):
            found |= {row.id: row.job_key for row in page}
            after = page[-1].id
        return found

    def _counts(self) -> dict[str, int]:
        counts = self._app.answers.counts()
        return {state: counts[state].answers if state in counts else 0 for state in (*counts, "unreadable")}

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        def so() -> bool:
            self._processes.check()
            return is_so()

        until(what, so, self._told)

    def _told(self) -> str:
        phases = Counter(job.phase for job in self._app.jobs(queue="orders", limit=10_000))
        logs = "".join(f"--- {name}\n{self._processes.log(name)[-3000:]}" for name in ("listener", "service", "worker"))
        seen = (self._folder / "seen").read_text() if (self._folder / "seen").exists() else "0"
        return f"{phases} {self._counts()}, {seen} requests came to the service\n{logs}"

    # -- what must be so --------------------------------------------------------------------------------------------
    def _check(self) -> None:
        number, app = self._app.queues[0].number, self._app
        rows: list[Job[Any]] = [Job(row) for row in app.store.find(Filter(number, table="final", limit=20_000))]
        assert len(rows) == JOBS
        for job in rows:
            kind = job.key.partition("-")[0]
            if kind == "late":
                assert (job.code, job.fault.kind if job.fault else "") == ("cancelled", "cancelled"), job
            elif kind == "error":
                assert job.code == "error", (job, job.error)
                assert json.loads(job.fault.message if job.fault else "") == answer_to(job.key)
            else:
                assert (job.code, job.result) == ("ok", answer_to(job.key)), (job, job.error, job.result)
            if self._ways.restart is None:
                assert job.attempt == 1, (job, job.history)
        counts = self._counts()
        assert counts.get("buffered", 0) == counts.get("matched", 0) == 0, counts
        assert counts["settled"] == JOBS - KINDS["late"], "each was settled by one answer, and once"
        assert counts["late"] == KINDS["late"] or self._ways.restart, counts
        self._check_listeners()

    def _check_listeners(self) -> None:
        if not self._ways.answers:
            return
        environment = {**os.environ, "COLUMNS": "200"}
        command = [sys.executable, "-m", "hipq", "answers", "listeners", "--db", self._app.url, "--json"]
        done = processes.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
        (row,) = json.loads(done.stdout)
        assert row["listener"] == "orders.charge"
        assert row["listening"] <= 3, "those that were killed are forgotten after a while"
        assert sum(row[outcome] for outcome in Answered) > 0
        assert row["matched"] <= JOBS
