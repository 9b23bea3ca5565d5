"""MariaDB that is silent, gone, or cuts sessions; and connections that belong to somebody else."""

from __future__ import annotations

import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import cache
from pathlib import Path

import msgspec
import pymysql
import pytest

from hipq import Hipq, Job
from hipq.errors import Invalid, SchemaError, StoreRefused, StoreUnavailable
from hipq.stores.mariadb.address import options_of
from hipq.stores.mariadb.connection import Session
from hipq.stores.mariadb.store import MariaStore
from hipq.stores.open import open_guest, open_store, url_of
from tests.contract.jobs import add, everything, new
from tests.contract.test_mariadb import MariaDatabase
from tests.crash.workers import eventually
from tests.mariadb_server import OwnMariaDB, admin, fresh_maria


@pytest.fixture(scope="module")
def server() -> Iterator[OwnMariaDB]:
    with OwnMariaDB(in_memory=True) as server:
        yield server


Servers = Callable[[str], OwnMariaDB]
"""A server that takes packets of so many bytes."""


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield cache(lambda packet: stack.enter_context(OwnMariaDB(in_memory=True, max_allowed_packet=packet)))


@pytest.fixture
def store(server: OwnMariaDB) -> Iterator[MariaStore]:
    store = MariaStore(server.url, answer_seconds=4)
    store.migrate()
    yield store
    server.thaw()
    store.close()


def test_a_call_to_a_silent_server_fails_in_time_and_the_next_works(server: OwnMariaDB, store: MariaStore) -> None:
    queue = store.queue("shop", "silent", "shop_silent").number
    add(store, [new(queue)])
    server.freeze()
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.enqueue([new(queue)])
        assert time.monotonic() - began < 15
    server.thaw()
    add(store, [new(queue, "after")])
    assert "after" in {row.job_key for row in everything(store, queue)}


def test_sessions_that_the_server_has_cut_are_not_used(server: OwnMariaDB, store: MariaStore) -> None:
    queue = store.queue("shop", "cut", "shop_cut").number
    add(store, [new(queue)])
    with admin(server.url) as conn:
        cursor = conn.cursor()
        for process in sessions(cursor):
            cursor.execute(f"KILL {process}")
    add(store, [new(queue)])
    assert len(everything(store, queue)) == 2


def test_after_a_crash_of_the_server_the_first_call_works(server: OwnMariaDB, store: MariaStore) -> None:
    queue = store.queue("shop", "crash", "shop_crash").number
    add(store, [new(queue)])
    server.restart()
    add(store, [new(queue)])
    assert len(everything(store, queue)) == 2


def test_what_the_server_has_no_room_for_in_one_statement_is_refused_and_says_so(store: MariaStore) -> None:
    queue = store.queue("shop", "large", "shop_large").number
    with pytest.raises(StoreRefused, match="set max_allowed_packet"):
        store.enqueue([new(queue, job_data='"' + "x" * (17 << 20) + '"')])
    assert everything(store, queue) == []


def test_jobs_through_their_connection_are_part_of_their_transaction() -> None:
    with fresh_maria() as url, closing(open_store(url)) as own, closing(MariaDatabase(url).connect()) as conn:
        guest = open_guest("mysql", lambda: conn, "their database")
        with pytest.raises(SchemaError, match="their database has no hipq tables yet"):
            guest.queue("app", "jobs", "app_jobs")
        own.migrate()
        number = own.queue("app", "jobs", "app_jobs").number
        conn.rollback()
        with pytest.raises(SchemaError, match=r"no tables yet for the queue app\.mails"):
            guest.queue("app", "mails", "app_mails")
        mode = conn.execute("SELECT @@sql_mode").fetchone()
        for keep in (False, True):
            assert guest.queue("app", "jobs", "app_jobs").number == number
            (stored,) = guest.enqueue([new(number, "a")])
            assert guest.get(stored.id)
            assert own.get(stored.id) is None
            with pytest.raises(Invalid, match="has the key 'a' already"):
                guest.enqueue([new(number, "b"), new(number, "a")], all_or_nothing=True)
            conn.commit() if keep else conn.rollback()
            assert [row.job_key for row in everything(own, number)] == (["a"] if keep else [])
        assert conn.execute("SELECT @@sql_mode").fetchone() == mode


def test_words_say_the_same_as_a_url() -> None:
    words = {"driver": "mysql", "host": "db", "port": 3307, "user": "a@b", "password": "p/w", "database": "shop"}
    assert options_of(url_of(words)) == {
        "host": "db", "port": 3307, "user": "a@b", "password": "p/w", "database": "shop",
    }  # fmt: skip


@pytest.mark.parametrize(
    "url", ["mysql://", "mariadb://localhost", "mysql://a:b@c@localhost/x", "mysql://h:port/x", "mysql://h/x?ssl=1"]
)
def test_urls_that_say_no_database_are_refused(url: str) -> None:
    with pytest.raises(Invalid):
        url_of(url)


def test_a_session_that_was_idle_for_too_long_is_not_used(server: OwnMariaDB) -> None:
    with admin(server.url) as conn:
        cursor = conn.cursor()
        cursor.execute("SET GLOBAL wait_timeout = 1")
        try:
            with closing(MariaStore(server.url)) as store:
                store.migrate()
                queue = store.queue("shop", "idle", "shop_idle").number
                add(store, [new(queue)])
                eventually(lambda: sessions(cursor) == [], 20, "the server cuts what is idle")
                add(store, [new(queue)])
                assert len(everything(store, queue)) == 2
        finally:
            cursor.execute("SET GLOBAL wait_timeout = 28800")


def test_an_engine_whose_sessions_are_cut_again_and_again_runs_each_job_once(server: OwnMariaDB) -> None:
    app = Hipq("cut", server.url)
    ran: list[int] = []
    over = threading.Event()

    @app.queue("jobs").job
    def work(job: Job[None]) -> None:
        ran.append(job.id)
        over.wait(0.01)

    app.migrate()
    ids = [int(job_id) for job_id in work.enqueue_many([None] * 300)]
    engine = threading.Thread(target=lambda: app.run(until_empty=True))
    engine.start()
    eventually(lambda: ran, 60, "the engine has begun")
    cuts = 0
    with admin(server.url) as conn:
        cursor = conn.cursor()
        while engine.is_alive() and cuts < 40:
            for process in sessions(cursor):
                with suppress(pymysql.Error):  # it ended by itself
                    cursor.execute(f"KILL {process}")
                    cuts += 1
            engine.join(0.02)
    engine.join(60)
    assert not engine.is_alive()
    assert cuts == pytest.approx(40, abs=20)
    assert sorted(ran) == ids
    assert {(app.job(job_id).code, app.job(job_id).state) for job_id in ids} == {("ok", "final")}
    app.close()


@pytest.mark.parametrize("character", ["x", "'", '"', "\\", "é"])
@pytest.mark.parametrize("packet", ["64M", "16M"])
def test_a_result_of_16_mb_is_kept_or_refused_in_a_sentence(packet: str, character: str, servers: Servers) -> None:
    """Quotes take twice their room in a statement. A job whose result the server does not take has failed, and says
    what to set; the others of its batch are saved."""
    app = Hipq("large", servers(packet).url)
    size = len(msgspec.json.encode(character)) - 2
    text = character * ((16 << 20) // size - 10)

    @app.queue("jobs").job
    def work(job: Job[bool]) -> str:
        return text if job.data else "small"

    app.migrate()
    small, large = work.enqueue(False), work.enqueue(True)
    app.run(until_empty=True)
    assert app.job(small).result == "small"
    job = app.job(large)
    if packet == "64M":
        assert (job.code, job.result == text) == ("ok", True)
    else:
        assert job.code == "error"
        assert job.fault
        assert "max_allowed_packet" in job.fault.message
    app.close()


def sessions(cursor: pymysql.cursors.Cursor) -> list[int]:
    """Those of others."""
    cursor.execute("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'")
    return [process for (process,) in cursor.fetchall()]


def test_tls_is_used_where_the_server_has_it_and_nobody_reads_certificates_that_nothing_is_checked_by(
    open_to_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = str(open_to_all / "key"), str(open_to_all / "certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", key, "-out",
         certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    Path(key).chmod(0o644)
    monkeypatch.setattr(ssl.SSLContext, "set_default_verify_paths", lambda _: 1 / 0)
    with OwnMariaDB(in_memory=True, ssl_key=key, ssl_cert=certificate) as server:
        conn = Session(**options_of(server.url))
        assert conn.run("SHOW STATUS LIKE 'Ssl_cipher'").fetchall()[0][1]
        conn.close()
