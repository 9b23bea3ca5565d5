"""PostgreSQL with a role that may not make tables, with settings on the role, and behind a URL of several hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest

from hipq import Hipq
from hipq.errors import SchemaError
from tests.proxy import Proxy
from tests.servers import free_port, fresh_database

SETTINGS = {
    "statement_timeout": "300ms",
    "lock_timeout": "50ms",
    "idle_in_transaction_session_timeout": "200ms",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
}


@pytest.fixture
def owner() -> Iterator[str]:
    with fresh_database() as url:
        yield url


@contextmanager
def role(owner: str) -> Iterator[str]:
    """A new role that may use tables and make none; the URL by which it connects."""
    name = f"hipq_test_{uuid4().hex[:12]}"
    with psycopg.connect(owner, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'".encode())
        conn.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        may = f"TO {name}"
        for what in (
            f"GRANT USAGE ON SCHEMA public {may}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public {may}",
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public {may}",
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES {may}",
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES {may}",
        ):
            conn.execute(what.encode())
        parts = urlsplit(owner)
        try:
            there = parts.netloc.rpartition("@")[2]
            yield urlunsplit(parts._replace(netloc=f"{name}:secret@{there}"))
        finally:
            conn.execute(f"DROP OWNED BY {name}".encode())
            conn.execute(f"DROP ROLE {name}".encode())


def shop(url: str) -> Hipq:
    app = Hipq("shop", url)
    orders = app.queue("orders", throttle_limit=5)
    orders.job("charge")(lambda _: "charged")
    app.queue("mails").job("mail")(lambda _: None)
    return app


def test_a_role_that_may_only_read_and_write_rows(owner: str) -> None:
    with role(owner) as url:
        app = shop(url)
        with pytest.raises(SchemaError, match="run `hipq migrate"):
            app.queues[0].enqueue("charge")
        with pytest.raises(SchemaError, match=r"this user may not make them .permission denied.*as a user who may"):
            app.migrate()
        owning = Hipq("shop", owner)
        owning.migrate()
        with pytest.raises(SchemaError, match=r"queue shop.orders lacks tables, and this user may not make them"):
            app.queues[0].enqueue("charge")
        owning.queue("orders")
        owning.queue("mails")
        owning.migrate()
        works(app)
        owning.close()


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_of_a_role_do_not_reach_hipq(owner: str, setting: str) -> None:
    shop(owner).migrate()
    with role(owner) as url:
        with psycopg.connect(owner, autocommit=True) as conn:
            conn.execute(f"ALTER ROLE {urlsplit(url).username} SET {setting} = '{SETTINGS[setting]}'".encode())
        with psycopg.connect(url) as conn:
            assert conn.execute(f"SHOW {setting}".encode()).fetchone() == (SETTINGS[setting],)
        app = shop(url)
        orders = app.queues[0]
        orders.enqueue("charge")
        with psycopg.connect(owner) as theirs, ThreadPoolExecutor(1) as pool:
            taken = orders.enqueue("charge", key="taken", conn=theirs)
            waits = pool.submit(lambda: orders.enqueue("charge", key="taken", on_duplicate="return"))
            while not waiting(owner):
                assert not waits.done(), waits.exception()
            time.sleep(2 * 0.3)  # longer than any of the settings
            theirs.commit()
            assert waits.result(60) == taken
        works(app)


def waiting(owner: str) -> bool:
    """Whether a session waits for another one's lock."""
    with psycopg.connect(owner) as conn:
        query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool(conn.execute(query).fetchall())


def works(app: Hipq) -> None:
    orders, mails = app.queues
    ids = [orders.enqueue("charge", key=f"order-{n}") for n in range(3)]
    many = mails.job_types[0].enqueue_many([None] * 300)
    app.run(until_empty=True)
    assert {app.job(job_id).code for job_id in [*ids, many[-1]]} == {"ok"}
    app.pause("orders")
    app.resume("orders")
    app.jobs.prune(0)
    app.close()


@pytest.mark.parametrize("first", ["refuses", "is silent"])
def test_a_url_of_several_hosts_whose_first_is_dead(owner: str, first: str) -> None:
    parts = urlsplit(owner)
    user, _, there = parts.netloc.rpartition("@")
    with Proxy(parts.hostname or "", parts.port or 5432) as proxy:
        proxy.silence()
        dead = f"127.0.0.1:{free_port() if first == 'refuses' else proxy.port}"
        netloc = f"{user}@{dead},{there}" if user else f"{dead},{there}"
        app = shop(urlunsplit(parts._replace(netloc=netloc, query="target_session_attrs=read-write")))
        began = time.monotonic()
        app.migrate()
        assert time.monotonic() - began < 30
        works(app)
