"""PostgreSQL that accepts connections and never answers: a hung balancer, a server whose process is stopped."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from hipq import Hipq, Job, Queue
from hipq.errors import Invalid, StoreUnavailable
from hipq.events import Event
from hipq.stores.open import open_store
from tests.brokers.pgbouncer import OwnPgBouncer
from tests.proxy import Proxy
from tests.servers import OwnPostgres, fresh_database

SILENT = "has not answered"


@pytest.fixture
def url() -> Iterator[str]:
    with fresh_database() as url:
        app = Hipq("shop", url)
        app.queue("orders")
        app.migrate()
        app.close()
        yield url


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    there = urlsplit(url)
    with Proxy(there.hostname or "", there.port or 5432) as proxy:
        yield proxy


@pytest.fixture
def app(url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hipq]:
    monkeypatch.setenv("HIPQ_STORE_TIMEOUT", "4")
    app = Hipq("shop", through(proxy, url))
    app.queue("orders")
    yield app
    app.close()


def through(proxy: Proxy, url: str) -> str:
    parts = urlsplit(url)
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{proxy.port}"))


def test_by_default_a_call_fails_within_15_seconds(url: str, proxy: Proxy) -> None:
    app = Hipq("shop", through(proxy, url))
    orders = app.queue("orders")
    orders.enqueue("quick")
    proxy.silence()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=f"{SILENT} for 15 s"):
        orders.enqueue("quick")
    assert 10 < time.monotonic() - began < 15 + 2  # which this machine may be busy for
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="timeout"):
        orders.enqueue("quick")  # on a new connection, which says so sooner
    assert time.monotonic() - began < 15
    proxy.heal()
    until(lambda: orders.enqueue("quick") > 0)
    app.close()


@pytest.mark.parametrize("programs", [1, 3])
def test_one_that_must_ask_for_time_and_rules_waits_once_for_all(app: Hipq, proxy: Proxy, programs: int) -> None:
    """What a program knows of them is too old after a while: it looks again before it adds a job."""
    (orders,) = app.queues
    orders.enqueue("quick")
    clock = app.store._database_clock  # type: ignore[attr-defined]
    proxy.silence()
    clock._fresh_until = orders._learned = 0
    with ThreadPoolExecutor(programs) as pool:
        for seconds in [pool.submit(failed_after, orders) for _ in range(programs)]:
            assert seconds.result(60) < 4 + 2  # which this machine may be busy for


def failed_after(queue: Queue) -> float:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        queue.enqueue("quick")
    return time.monotonic() - began


def test_a_server_that_is_silent_behind_a_pooler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pooler takes new connections itself, and they hang at their first statement."""
    monkeypatch.setenv("HIPQ_STORE_TIMEOUT", "4")
    with OwnPostgres() as server, OwnPgBouncer("transaction", server.url) as bouncer:
        app = Hipq("shop", bouncer.database)
        orders = app.queue("orders")
        app.migrate()
        orders.enqueue("quick")
        server.freeze()
        for _ in range(2):
            assert failed_after(orders) < 4 + 2
        server.thaw()
        until(lambda: orders.enqueue("quick") > 0)
        app.close()


def test_a_server_that_is_silent_from_the_start(url: str, proxy: Proxy) -> None:
    proxy.silence()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="timeout"):
        Hipq("shop", through(proxy, url)).queue("orders").enqueue("quick")
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(("jobs", "sent"), [(1, b"INSERT"), (3, b"COMMIT")])
def test_a_commit_whose_acknowledgement_does_not_come_made_each_job_once(
    app: Hipq, url: str, proxy: Proxy, jobs: int, sent: bytes
) -> None:
    (orders,) = app.queues
    keys = [f"key-{n}" for n in range(jobs)]
    quick = orders.job("quick")(lambda _: None)
    app.jobs.count("orders")  # it is connected
    proxy.dumb_at = sent
    with pytest.raises(StoreUnavailable, match=SILENT):
        quick.enqueue_many([None] * jobs, keys=keys) if jobs > 1 else quick.enqueue(key=keys[0])
    proxy.heal()
    direct = Hipq("shop", url)
    direct.queue("orders")
    stored = {job.key: job.id for job in direct.jobs("orders")}
    assert sorted(stored) == keys
    until(lambda: app.jobs.count("orders") == jobs)
    assert [quick.enqueue(key=key, on_duplicate="return") for key in keys] == [stored[key] for key in keys]
    assert direct.jobs.count("orders") == jobs
    direct.close()


@pytest.mark.parametrize("fault", ["silence", "strike_dumb"])
def test_an_engine_says_so_and_goes_on_by_itself(app: Hipq, url: str, proxy: Proxy, fault: str) -> None:
    (orders,) = app.queues
    runs: Counter[int] = Counter()

    @orders.job
    def count(job: Job[Any]) -> None:
        runs[job.id] += 1

    outside = Hipq("shop", url)
    beside = outside.queue("orders")
    with working(app) as seen:
        first = beside.enqueue("count")
        until(lambda: outside.job(first).code == "ok")
        getattr(proxy, fault)()
        ids = [beside.enqueue("count") for _ in range(20)]
        until(lambda: any(event.name == "store down" for event in seen))
        proxy.heal()
        until(lambda: all(outside.job(one).code == "ok" for one in ids))
    assert SILENT in next(event.details["error"] for event in seen if event.name == "store down")
    assert "store back" in [event.name for event in seen]
    assert runs == Counter([first, *ids]), "each once"
    assert {outside.job(one).attempt for one in ids} == {1}
    outside.close()


def test_a_server_whose_processes_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPQ_STORE_TIMEOUT", "4")
    with OwnPostgres() as server:
        app = Hipq("shop", server.url)
        orders = app.queue("orders")
        app.migrate()
        orders.job("quick")(lambda _: None)
        with working(app) as seen:
            job_id = orders.enqueue("quick")
            until(lambda: app.job(job_id).code == "ok")
            server.freeze()
            with pytest.raises(StoreUnavailable):
                orders.enqueue("quick", key="while it is stopped")
            until(lambda: any(event.name == "store down" for event in seen))
            server.thaw()
            until(lambda: any(event.name == "store back" for event in seen))
            again = orders.enqueue("quick", key="after")
            until(lambda: app.job(again).code == "ok")
            assert app.jobs.count("orders") <= 3  # one of them nobody was told of, and perhaps it is there
        app.close()


def test_what_takes_long_is_waited_for(app: Hipq) -> None:
    """Lists, counts and pruning may read many rows; a call that may not is cut."""
    store = app.store
    with pytest.raises(StoreUnavailable, match=SILENT), store._using() as conn:  # type: ignore[attr-defined]
        conn.execute("SELECT pg_sleep(6)")
    with store._using(60) as conn:  # type: ignore[attr-defined]
        conn.execute("SELECT pg_sleep(6)")


@pytest.mark.parametrize("bad", ["", "soon", "1", "1e9", "-5"])
def test_a_wrong_setting_is_refused(url: str, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    monkeypatch.setenv("HIPQ_STORE_TIMEOUT", bad)
    with pytest.raises(Invalid, match="HIPQ_STORE_TIMEOUT must be seconds from 4 to 3600"):
        open_store(url)


class working:  # noqa: N801 - read as a verb
    """An engine in a thread; the events about its store."""

    def __init__(self, app: Hipq) -> None:
        self._seen: list[Event] = []
        app.events.subscribe(self._seen.append, "store down", "store back")
        self._engine = app.engine(lease=60.0)
        self._thread = threading.Thread(target=self._engine.run)

    def __enter__(self) -> list[Event]:
        self._thread.start()
        return self._seen

    def __exit__(self, *_: object) -> None:
        self._engine.stop()
        self._thread.join(60)
        self._engine.executor.close()
        assert not self._thread.is_alive()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 90
    while True:
        try:
            if condition():
                return
        except StoreUnavailable:
            pass  # it may be a while until it is back
        assert time.monotonic() < end
        time.sleep(0.02)
