"""Jobs through somebody else's connection: part of their transaction, whatever they have set on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from hipq.errors import Invalid, SchemaError, StoreUnavailable
from hipq.job.model import New
from hipq.job.states import READY
from hipq.stores.open import open_guest, open_store
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests.servers import clean_database


def new(queue: int, key: str = "", data: str = "1") -> New:
    return New(queue, "task", key, data, READY, "", 0, 0)


class Place:
    """A database with one queue, and connections as programs of all kinds have them."""

    def __init__(self, kind: str, url: str, connect: Callable[[], Any]) -> None:
        self.kind, self.url, self.connect = kind, url, connect
        self.own = open_store(url)
        self.own.migrate()
        self.queue = self.own.queue("app", "jobs", "app_jobs")

    def guest(self, conn: Any) -> Store:
        return open_guest(self.kind, lambda: conn, "their database")

    def ids(self) -> list[int]:
        """What is committed."""
        return [job_id for job_id in range(1 << 16, 40 << 16, 1 << 16) if self.own.get(job_id + self.queue.number)]


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        file = tmp_path / "their.db"
        place = Place("sqlite", f"sqlite:///{file}", lambda: sqlite3.connect(file))
        yield place
        place.own.close()
    else:
        with clean_database() as url:
            place = Place("postgresql", url, lambda: psycopg.connect(url))
            yield place
            place.own.close()


def prepared(conn: Any) -> Any:
    """A table of theirs."""
    conn.execute("CREATE TABLE theirs (word text)")
    conn.commit()
    return conn


def test_a_rollback_takes_jobs_along_and_a_commit_keeps_them(place: Place) -> None:
    with closing(prepared(place.connect())) as conn:
        guest = place.guest(conn)
        queue = guest.queue("app", "jobs", "app_jobs")
        assert queue == place.queue
        for keep in (False, True):
            conn.execute("INSERT INTO theirs VALUES ('x')")
            (stored,) = guest.enqueue([new(queue.number)])
            assert guest.get(stored.id) is not None
            assert place.own.get(stored.id) is None
            conn.commit() if keep else conn.rollback()
            assert (place.own.get(stored.id) is not None) == keep
        assert conn.execute("SELECT count(*) FROM theirs").fetchone() == (1,)
        guest.close()
        conn.execute("SELECT 1")  # it is theirs, and open


def test_the_first_thing_in_their_transaction_is_part_of_it(place: Place) -> None:
    """Drivers begin a transaction before the first statement that writes: before ours, too."""
    with closing(place.connect()) as conn:
        guest = place.guest(conn)
        queue = guest.queue("app", "jobs", "app_jobs")
        conn.rollback()
        guest.enqueue([new(queue.number)])
        conn.rollback()
        assert place.ids() == []


def test_without_a_transaction_of_theirs_it_is_there_at_once(place: Place) -> None:
    with closing(place.connect()) as conn:
        if place.kind == "sqlite":
            conn.isolation_level = None
        else:
            conn.autocommit = True
        guest = place.guest(conn)
        queue = guest.queue("app", "mails", "app_mails")  # whose tables are made here
        (stored,) = guest.enqueue([new(queue.number)])
        assert place.own.get(stored.id) is not None


def test_no_tables_are_made_in_their_transaction(place: Place) -> None:
    with closing(place.connect()) as conn:
        conn.execute("BEGIN" if place.kind == "sqlite" else "SELECT 1")
        with pytest.raises(SchemaError, match=r"their database has no tables yet for the queue app\.mails"):
            place.guest(conn).queue("app", "mails", "app_mails")
        conn.rollback()
    assert [queue.name for queue in place.own.queues()] == ["jobs"]


def test_an_error_of_ours_does_not_end_their_transaction(place: Place) -> None:
    with closing(prepared(place.connect())) as conn:
        guest = place.guest(conn)
        queue = guest.queue("app", "jobs", "app_jobs")
        conn.execute("INSERT INTO theirs VALUES ('x')")
        guest.enqueue([new(queue.number, "key")])
        with pytest.raises(Invalid, match="has the key 'key' already"):
            guest.enqueue([new(queue.number, "other"), new(queue.number, "key")], all_or_nothing=True)
        conn.execute("DROP TABLE app_jobs" if place.kind == "sqlite" else "ALTER TABLE app_jobs RENAME TO away")
        with pytest.raises(StoreUnavailable):
            guest.enqueue([new(queue.number)])
        with pytest.raises(StoreUnavailable):
            guest.get(1 << 16 | queue.number)
        assert conn.execute("SELECT word FROM theirs").fetchone() == ("x",)
        conn.rollback()
        assert conn.execute("SELECT count(*) FROM theirs").fetchone() == (0,)


def test_whatever_rows_they_like(place: Place) -> None:
    with closing(place.connect()) as conn:
        if place.kind == "sqlite":
            conn.row_factory = sqlite3.Row
            before: Any = conn.row_factory
        else:
            conn.row_factory, conn.cursor_factory = dict_row, psycopg.ClientCursor
            before = conn.row_factory, conn.cursor_factory
        guest = place.guest(conn)
        queue = guest.queue("app", "jobs", "app_jobs")
        text = '"' + "x" * 20_000 + '"'
        (stored,) = guest.enqueue([new(queue.number, data=text)])
        row = guest.get(stored.id)
        assert row is not None
        assert row.job_data == text
        assert guest.now() > 0
        assert guest.rules(queue.number) == place.own.rules(queue.number)
        after = conn.row_factory if place.kind == "sqlite" else (conn.row_factory, conn.cursor_factory)
        assert after == before
        conn.commit()
        assert place.own.get(stored.id) == row


def test_without_hipqs_tables_it_says_so(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "empty.db")) as conn:
        guest = open_guest("sqlite", lambda: conn, "their database")
        with pytest.raises(SchemaError, match="their database has no hipq tables yet"):
            guest.queue("app", "jobs", "app_jobs")
    with clean_database() as url, closing(psycopg.connect(url)) as other:
        guest = open_guest("postgresql", lambda: other, "their database")
        with pytest.raises(SchemaError, match="their database has no hipq tables yet"):
            guest.queue("app", "jobs", "app_jobs")


def test_a_database_in_memory() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        guest = open_guest("sqlite", lambda: conn, "theirs")
        assert guest.migrate()
        queue: QueueTables = guest.queue("app", "jobs", "app_jobs")
        conn.execute("BEGIN")
        (stored,) = guest.enqueue([new(queue.number)])
        assert guest.get(stored.id)
        conn.execute("ROLLBACK")
        assert guest.get(stored.id) is None


def test_strange_connections_are_refused(place: Place) -> None:
    with pytest.raises(Invalid, match="no tables in oracle"):
        open_guest("oracle", lambda: None, "theirs")
    if place.kind == "postgresql":
        with pytest.raises(Invalid, match=r"must be a connection of psycopg 3"):
            place.guest(object()).queue("app", "jobs", "app_jobs")
        with closing(place.connect()) as conn:
            with pytest.raises(psycopg.Error):
                conn.execute("SELECT 1 / 0")
            with pytest.raises(Invalid, match="has failed"):
                place.guest(conn).queues()
    else:
        with pytest.raises(Invalid, match="Python's own sqlite3"):
            place.guest(object()).queue("app", "jobs", "app_jobs")
