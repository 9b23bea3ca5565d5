"""`hipq worker` while its database is away, silent, or locked: it waits, says so, and can be stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import HipqCommand, Worker, shop_on, started
from tests.proxy import Proxy
from tests.servers import fresh_database
from tests.stores.test_silent_server import through


@pytest.fixture
def direct() -> Iterator[str]:
    with fresh_database() as url:
        with shop_on(url) as app:
            _ = [queue.number for queue in app.queues]
        yield url


@pytest.fixture
def proxy(direct: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    there = psycopg.conninfo.conninfo_to_dict(direct)
    with Proxy(str(there["host"]), int(there.get("port") or 5432)) as proxy:
        monkeypatch.setenv("HIPQ_DATABASE_URL", through(proxy, direct))
        monkeypatch.setenv("HIPQ_STORE_TIMEOUT", "4")
        yield proxy


@pytest.mark.usefixtures("folder")
def test_one_that_starts_while_the_database_is_silent_waits_and_says_so(
    worker: Callable[..., Worker], proxy: Proxy, direct: str
) -> None:
    proxy.silence()
    one = worker()
    (said,) = one.wait_for("store down")
    assert "timeout" in said["error"]
    proxy.heal()
    one.wait_for("engine started")
    with shop_on(direct) as app:
        job_id = app.queues[0].enqueue("quick")
        assert app.result(job_id, timeout=60)
    one.send(signal.SIGTERM)
    assert one.ended() == 0


@pytest.mark.usefixtures("folder")
def test_one_that_starts_while_a_table_is_locked_waits_and_says_so(
    worker: Callable[..., Worker], direct: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPQ_DATABASE_URL", direct)
    with psycopg.connect(direct) as theirs:
        theirs.execute("LOCK TABLE shop_orders IN ACCESS EXCLUSIVE MODE")
        one = worker()
        one.wait_for("store down")
        theirs.rollback()
        one.wait_for("engine started")


def test_with_wait_0_it_fails_at_once(hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPQ_DATABASE_URL", "postgresql://ann@127.0.0.1:1/shop")
    ran = hipq("worker", "shop:app", "--wait", "0")
    assert ran.status == 1
    assert "Connection refused" in ran.complaint


@pytest.mark.usefixtures("folder")
def test_one_with_nothing_to_do_ends_at_a_signal_while_the_database_is_silent(
    worker: Callable[..., Worker], proxy: Proxy
) -> None:
    one = worker()
    one.wait_for("engine started")
    proxy.silence()
    one.send(signal.SIGTERM)
    assert one.ended(30) == 0


def test_a_stop_while_the_database_is_silent_ends_when_drain_is_over(
    worker: Callable[..., Worker], proxy: Proxy, direct: str, folder: Path
) -> None:
    one = worker("--drain", "1", "--lease", "2")
    one.wait_for("engine started")
    with shop_on(direct) as app:
        job_id = app.queues[0].enqueue("gate")
        while job_id not in started(folder):
            time.sleep(0.01)
        proxy.silence()
        one.wait_for("store down")
        (folder / "go").touch()  # it ends, and cannot be saved
        one.send(signal.SIGTERM)
        assert one.ended(60) == 1
        proxy.heal()
        assert worker("--until-empty").ended() == 0
        assert app.job(job_id).code == "ok"


def test_drain_gives_back_what_still_runs(
    worker: Callable[..., Worker], folder: Path, direct: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPQ_DATABASE_URL", direct)
    one = worker("--drain", "1")
    with shop_on(direct) as app:
        job_id = app.queues[0].enqueue("gate")
        while job_id not in started(folder):
            time.sleep(0.01)
        one.send(signal.SIGTERM)
        assert one.ended() == 0
        found = app.job(job_id)
        assert (found.phase, found.failures) == ("ready", 0)
