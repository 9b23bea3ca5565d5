"""Ready-made middleware: structlog's context and Django's connections. (Sentry: test_failures.py)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from hipq import Answer, Failed, Fault, Hipq, Invalid, Job, Retry, Wait
from hipq.middleware import StructlogContext


def test_what_code_of_a_job_logs_says_which_job_it_is(tmp_path: Path) -> None:
    app = Hipq("shop", f"sqlite:///{tmp_path}/jobs.db")
    queue = app.queue("orders")
    lines: list[tuple[str, Any, Any]] = []

    def log(word: str) -> None:
        found = structlog.contextvars.merge_contextvars(None, "info", {"event": word})
        lines.append((word, found.get("job_key"), found.get("job_attempt")))

    @queue.job
    async def ask(job: Job[Any]) -> Wait:
        log("ask")
        if job.attempt == 1:
            raise OSError
        return Wait()

    @ask.answered
    def told(_job: Job[Any], _answer: Answer) -> Failed:
        log("told")
        return Failed("no")

    @ask.retry
    def again(_job: Job[Any], _fault: Fault) -> Retry:
        log("again")
        return Retry(0)

    app.use(StructlogContext())
    ask.enqueue(key="k")
    app.run(until_empty=True)
    ask.answer("k")
    app.run(until_empty=True)
    app.close()
    log("outside")
    assert lines == [("ask", "k", 1), ("again", "k", 1), ("ask", "k", 2), ("told", "k", 2), ("outside", None, None)]


PROGRAM = """
import sys

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db", "CONN_MAX_AGE": 0}}
)
django.setup()
from django.db import connection

from hipq import Hipq
from hipq.middleware import DjangoConnections

app = Hipq("shop")
if "with" in sys.argv:
    app.use(DjangoConnections())


@app.queue("orders").job
def work(job):
    print("open" if connection.connection else "closed", end=" ")
    connection.ensure_connection()


for _ in range(2):
    work.enqueue()
app.run(until_empty=True, concurrency=1)
"""


@pytest.mark.parametrize(("how", "found"), [("with", "closed closed "), ("without", "closed open ")])
def test_djangos_connections_are_closed_between_jobs(tmp_path: Path, how: str, found: str) -> None:
    command = [sys.executable, "-c", PROGRAM, how]
    assert subprocess.check_output(command, cwd=tmp_path, text=True) == found


IN_A_TEST = """
import django
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}}, DEBUG=True)
django.setup()
from django.db import connection, transaction

from hipq import Hipq
from hipq.middleware import DjangoConnections
from hipq.testing import harness

app = Hipq("shop")
app.use(DjangoConnections())


def rows():
    with connection.cursor() as cursor:
        return cursor.execute("SELECT n FROM rows").fetchall()


@app.queue("orders").job
def work(job):
    return len(rows())


with transaction.atomic(), harness(app) as world, connection.cursor() as cursor:
    cursor.execute("CREATE TABLE rows (n)")
    cursor.execute("INSERT INTO rows VALUES (1)")
    work.enqueue(key="a")
    world.run_until_idle()
    world.assert_ok(work, "a", result=1)
    print(rows(), [query["sql"].split()[0] for query in connection.queries])
"""


def test_a_connection_in_a_transaction_stays_open(tmp_path: Path) -> None:
    """As those of a TestCase, whose thread calls the handlers."""
    said = subprocess.check_output([sys.executable, "-c", IN_A_TEST], cwd=tmp_path, text=True)
    assert said == "[(1,)] ['BEGIN', 'CREATE', 'INSERT', 'SELECT', 'SELECT']\n"


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "structlog", None)
    monkeypatch.setitem(sys.modules, "structlog.contextvars", None)
    with pytest.raises(Invalid, match="StructlogContext needs structlog: pip install structlog"):
        StructlogContext()
