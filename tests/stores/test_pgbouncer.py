"""Behind the real PgBouncer, in both of its modes, with fewer sessions of the server than hipq has connections."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from hipq import Hipq, Job, Wait, admit, limit
from hipq.errors import DuplicateKey, Invalid, StoreBroken, StoreBusy
from hipq.job.schedule import Definition, ScheduleChange
from hipq.job.states import SCHEDULED
from hipq.job.ticks import begun
from hipq.stores.postgres import connection
from hipq.stores.postgres.session import LOCK_SECONDS
from tests.brokers.pgbouncer import SESSIONS, OwnPgBouncer
from tests.servers import fresh_database


@pytest.fixture
def direct() -> Iterator[str]:
    with fresh_database() as url:
        yield url


@pytest.fixture(params=["transaction", "session"])
def bouncer(request: pytest.FixtureRequest, direct: str) -> Iterator[OwnPgBouncer]:
    with OwnPgBouncer(request.param, direct) as bouncer:
        yield bouncer


@pytest.fixture
def app(bouncer: OwnPgBouncer) -> Iterator[Hipq]:
    app = Hipq("shop", bouncer.database)
    yield app
    app.close()


def test_a_whole_life(app: Hipq, bouncer: OwnPgBouncer, direct: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPQ_LISTEN_URL", direct)
    runs: Counter[str] = Counter()
    orders = app.queue("orders", limits=[limit(3)])
    asked = app.queue("asked", throttler=lambda due, _running, _now: [admit(job) for job in due])
    plain = app.queue("plain")

    @orders.job(timeout=60)
    def charge(job: Job[Any]) -> Wait:
        runs[job.key] += 1
        job.enqueue(mail, job.data, key=f"mail {job.key}")
        return Wait()

    @charge.answered
    def settled(_: Job[Any], answer: Any) -> Any:
        return answer.data

    mail = plain.job("mail")(lambda job: job.data)
    allowed = asked.job("allowed")(lambda _: "allowed")
    app.migrate()
    report = plain.job("report")(lambda _: None)
    report.cron("* * * * *", name="every-minute")
    declared, ago = plain.schedules["every-minute"], app.store.now() - 120_000_000  # so that one is due
    due = begun(declared.name, declared.job_type, Definition(declared.settings), ago)
    app.store.change_schedules(plain.number, [ScheduleChange(None, due)])
    with app.working(lease=3.0):
        with ThreadPoolExecutor(4 * SESSIONS) as pool:  # more callers than there are sessions
            ids = list(pool.map(lambda n: charge.enqueue({"n": n}, key=f"order-{n}"), range(24)))
            large = mail.enqueue_many([{"text": "x" * 20_000}, *[None] * 300])
            through = allowed.enqueue_many([None] * 5)
            list(pool.map(lambda n: charge.answer(f"order-{n}", {"n": n}), range(24)))
        assert [app.result(job_id, timeout=90) for job_id in ids] == [{"n": n} for n in range(24)]
        assert app.result(large[0], timeout=90) == {"text": "x" * 20_000}
        assert [app.result(job_id, timeout=90) for job_id in through] == ["allowed"] * 5
        with pytest.raises(DuplicateKey):
            charge.enqueue(key="twice"), charge.enqueue(key="twice")
        until(lambda: app.jobs.count("plain", type="mail", code="ok") == 24 + 301)
        until(lambda: app.jobs.count("plain", type="report", code="ok") > 0)
        app.cancel(mail.enqueue(delay=3600))
    app.jobs.prune(0)
    assert app.jobs.count("plain", code="ok") == 0
    assert set(runs.values()) == {1}
    assert bouncer.left_behind() == []


def test_by_a_url_of_its_own_it_listens(
    app: Hipq, direct: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HIPQ_LISTEN_URL", direct)
    app.migrate()
    store = app.store
    until(lambda: store.waker.wait(0.01) or store._listener._conn is not None)  # type: ignore[attr-defined]
    with psycopg.connect(direct, autocommit=True) as other:
        other.execute("SELECT pg_notify('hipq', '1:1:1')")
        until(lambda: store.waker.wait(1))
    assert "cannot LISTEN" not in caplog.text


def test_without_one_it_looks_once_a_second_and_says_so_once(app: Hipq, caplog: pytest.LogCaptureFixture) -> None:
    app.migrate()
    caplog.set_level(logging.WARNING, "hipq")
    plain = app.queue("plain")
    quick = plain.job("quick")(lambda _: "done")
    with app.working(poll=0.2):
        for _ in range(3):
            assert app.result(quick.enqueue(), timeout=60) == "done"
    assert caplog.text.count("cannot LISTEN") == 1
    assert "HIPQ_LISTEN_URL" in caplog.text


def other_database(direct: str, _bouncer: OwnPgBouncer) -> str:
    return urlunsplit(urlsplit(direct)._replace(path="/postgres"))


def other_role(direct: str, _bouncer: OwnPgBouncer) -> str:
    parts = urlsplit(direct)
    return urlunsplit(parts._replace(netloc=f"nobody_here@{parts.netloc.rpartition('@')[2]}"))


WRONG: dict[str, tuple[Callable[[str, OwnPgBouncer], str], str]] = {
    "nobody there": (lambda _direct, _bouncer: "postgresql://hipq@127.0.0.1:1/x", "refused"),
    "another role": (other_role, "nobody_here"),
    "another database": (other_database, "it leads to another database, or to a pool in transaction mode"),
    "the pooler itself": (lambda _direct, bouncer: bouncer.database, "a pool in transaction mode"),
}


@pytest.mark.parametrize("bouncer", ["transaction"], indirect=True)
@pytest.mark.parametrize(("wrong", "why"), WRONG.values(), ids=WRONG)
def test_a_wrong_url_to_listen_at_is_said_once_and_it_looks_instead(
    app: Hipq,
    bouncer: OwnPgBouncer,
    direct: str,
    wrong: Callable[[str, OwnPgBouncer], str],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("HIPQ_LISTEN_URL", wrong(direct, bouncer))
    monkeypatch.setattr(connection, "HEARD_SECONDS", 1.0)
    caplog.set_level(logging.WARNING, "hipq")
    quick = app.queue("plain").job("quick")(lambda _: "done")
    app.migrate()
    with app.working(poll=0.2):
        until(lambda: "HIPQ_LISTEN_URL" in caplog.text)
        for _ in range(3):
            assert app.result(quick.enqueue(), timeout=60) == "done"
        time.sleep(2.5)  # it has tried again
    (told,) = [record.getMessage() for record in caplog.records if "HIPQ_LISTEN_URL" in record.getMessage()]
    assert why in told
    assert "looks for jobs once a second instead" in told


def test_the_error_for_a_url_that_is_none_names_its_variable(direct: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPQ_LISTEN_URL", "garbage")
    with pytest.raises(Invalid, match="HIPQ_LISTEN_URL is not a PostgreSQL URL"):
        Hipq("shop", direct).queue("plain").enqueue("quick")


@pytest.mark.parametrize("bouncer", ["statement"], indirect=True)
def test_statement_mode_is_refused_in_a_sentence(app: Hipq, bouncer: OwnPgBouncer, tmp_path: Path) -> None:
    with pytest.raises(StoreBroken, match="set pool_mode = transaction"):
        app.migrate()
    (tmp_path / "shop.py").write_text('from hipq import Hipq\napp = Hipq("shop")\napp.queue("plain")\n')
    command = [str(Path(sys.executable).with_name("hipq")), "worker", "shop:app"]
    settings = os.environ | {"HIPQ_DATABASE_URL": bouncer.database}
    ended = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "statement mode" in ended.stderr


def test_settings_hold_in_every_transaction(app: Hipq, direct: str) -> None:
    """A lock is not waited for longer than a turn may take; and who comes after us finds nothing of ours."""
    app.migrate()
    plain = app.queue("plain")
    plain.enqueue("quick")
    with psycopg.connect(direct) as theirs:
        theirs.execute("LOCK TABLE shop_plain IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        with pytest.raises(StoreBusy):
            app.store.stage(plain.number, SCHEDULED, 1, 1)
        assert LOCK_SECONDS - 0.1 < time.monotonic() - began < 30


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
