"""Crowds: many jobs put into a queue at once, as rows that are in every column what `enqueue` would have written.

A million of them through `enqueue_many` takes half a minute; INSERT ... SELECT takes a few seconds. What a crowd is
made of and where its rank comes from is hipq's own (`New`, `blank`, the queue's order), so only the way in differs.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from bench.lines import TEXT
from hipq import Hipq, Queue, window
from hipq.job.model import COLUMNS, QUEUE_BITS, New, blank
from hipq.job.states import READY, SCHEDULED
from hipq.job.when import SECOND, to_datetime
from hipq.job.windows import ALWAYS, dump

CHUNK = 10_000
"""Jobs that came together, in the same second: a crowd came in the course of some minutes."""
HOUR = 3600 * SECOND
FEW_PAGES = 100
"""Pages that a MariaDB at rest has not written yet, at most."""
BUSY = "busy"
"""The lane in which a crowd is blocked."""


class Kind(NamedTuple):
    """Why the jobs of a crowd do not start."""

    name: str
    phase: str = READY
    lane: str = ""
    shut: bool = False
    """Their window is closed for hours to come."""
    away: int = -HOUR
    """Microseconds from now to the time of the first: an hour ago, so they come before everything that is added."""


DUE = Kind("due")
FUTURE = Kind("future", SCHEDULED, away=24 * HOUR)
BLOCKED = Kind("blocked lane", lane=BUSY)
CLOSED = Kind("closed window", shut=True)
KINDS = (FUTURE, BLOCKED, CLOSED, DUE)


class Plain(Protocol):
    """A connection of one's own, for what hipq has no verb for."""

    def fill(self, queue: Queue, like: New, count: int) -> None:
        """So many jobs like this one, in the transaction that `settled` ends."""

    def settled(self) -> None:
        """Commit, and have the database write down what it would write down later, in the midst of a measurement."""

    def vacuum(self, queue: Queue) -> bool:
        """What the database does by itself after a while; False if it never does."""

    def count(self, queue: Queue, where: str = "TRUE", *, final: bool = False) -> int: ...


@contextmanager
def plain(app: Hipq) -> Iterator[Plain]:
    kinds: dict[str, Callable[[str], PlainSqlite | PlainPostgres | PlainMaria]]
    kinds = {"sqlite": PlainSqlite, "mariadb": PlainMaria}
    found = kinds.get(app.url.partition(":")[0], PlainPostgres)(app.url)
    try:
        yield found
    finally:
        found.close()


def crowd(app: Hipq, queue: Queue, kind: Kind, count: int) -> None:
    """Add so many jobs of this kind to a queue."""
    if not count:
        return
    now = app.store.now()
    windows = _shut(now) if kind.shut else ALWAYS
    with plain(app) as database:
        for start in range(0, count, CHUNK):
            at = now + kind.away + start // CHUNK * SECOND
            like = New(
                queue.number, "work", "", TEXT, kind.phase, queue.order.rank(at, 100), at, min(at, now), lane=kind.lane,
                time_windows=windows,
            )  # fmt: skip
            database.fill(queue, like, min(CHUNK, count - start))
        database.settled()


def _shut(now: int) -> str:
    opens = to_datetime(now) + timedelta(hours=11)
    return dump([window(f"{opens:%H:%M}", f"{opens + timedelta(hours=1):%H:%M}")])


def table(queue: Queue) -> str:
    return f"{queue.app.name}_{queue.name}"


def _selected(like: New, job_id: str, text: str, mark: str) -> tuple[str, list[Any]]:
    """The columns of a new row: its id and, as its key, the same as text; else constants."""
    row = msgspec.structs.asdict(blank(like, 0))
    own = {"id": job_id, "job_key": text}
    return (
        ", ".join(own.get(name, mark) for name in COLUMNS),
        [row[name] for name in COLUMNS if name not in own],
    )


class PlainSqlite:
    def __init__(self, url: str) -> None:
        self._conn = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=60)

    def fill(self, queue: Queue, like: New, count: int) -> None:
        if not self._conn.in_transaction:
            self._conn.execute("BEGIN IMMEDIATE")
        query = "UPDATE hipq_queues SET last_id = last_id + ? WHERE number = ? RETURNING last_id"
        ((last,),) = self._conn.execute(query, (count, queue.number)).fetchall()
        job_id = f"(n << {QUEUE_BITS} | {queue.number})"
        columns, values = _selected(like, job_id, f"CAST({job_id} AS TEXT)", "?")
        self._conn.execute(
            "WITH RECURSIVE numbers (n) AS (VALUES (?) UNION ALL SELECT n + 1 FROM numbers WHERE n < ?) "
            f"INSERT INTO {table(queue)} ({', '.join(COLUMNS)}) SELECT {columns} FROM numbers",
            (last - count + 1, last, *values),
        )

    def settled(self) -> None:
        if self._conn.in_transaction:
            self._conn.execute("COMMIT")
        self._conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def vacuum(self, queue: Queue) -> bool:  # noqa: ARG002
        return False

    def count(self, queue: Queue, where: str = "TRUE", *, final: bool = False) -> int:
        query = f"SELECT count(*) FROM {table(queue)}{'_final' if final else ''} WHERE {where}"
        return int(self._conn.execute(query).fetchone()[0])

    def close(self) -> None:
        self._conn.close()


class PlainPostgres:
    def __init__(self, url: str) -> None:
        import psycopg

        assert urlsplit(url).scheme.startswith("postgres")
        self._conn = psycopg.connect(url, autocommit=True)

    def fill(self, queue: Queue, like: New, count: int) -> None:
        name = table(queue)
        columns, values = _selected(like, "id", "id::text", "%s")
        query = (
            f"INSERT INTO {name} ({', '.join(COLUMNS)}) SELECT {columns} FROM (SELECT nextval('{name}_ids') << "
            f"{QUEUE_BITS} | {queue.number} AS id FROM generate_series(1, %s)) AS fresh"
        )
        self._conn.execute(query.encode(), (*values, count))

    def settled(self) -> None:
        self._conn.execute("CHECKPOINT")

    def vacuum(self, queue: Queue) -> bool:
        self._conn.execute(f"VACUUM ANALYZE {table(queue)}".encode())
        return True

    def count(self, queue: Queue, where: str = "TRUE", *, final: bool = False) -> int:
        query = f"SELECT count(*) FROM {table(queue)}{'_final' if final else ''} WHERE {where}"
        found = self._conn.execute(query.encode()).fetchone()
        assert found is not None
        return int(found[0])

    def close(self) -> None:
        self._conn.close()


class PlainMaria:
    def __init__(self, url: str) -> None:
        import pymysql

        from hipq.stores.mariadb.address import options_of

        self._conn: Any = pymysql.connect(**options_of(url), autocommit=True, charset="utf8mb4")

    def _run(self, query: str, values: Any = None) -> Any:
        cursor = self._conn.cursor()
        cursor.execute(query, values)
        return cursor.fetchall()

    def fill(self, queue: Queue, like: New, count: int) -> None:
        name = table(queue)
        columns, values = _selected(like, "id", "CAST(id AS CHAR)", "%s")
        into = ", ".join(f"`{column}`" for column in COLUMNS)
        query = (
            f"INSERT INTO {name} ({into}) SELECT {columns} FROM (SELECT NEXTVAL({name}_ids) << {QUEUE_BITS} | "
            f"{queue.number} AS id FROM seq_1_to_{count}) AS fresh"
        )
        self._run(query, values)

    def settled(self) -> None:
        """Wait until what is dirty was written."""
        self._run("SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0.001, GLOBAL innodb_max_dirty_pages_pct = 0")
        try:
            while int(self._run("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'")[0][1]) > FEW_PAGES:
                time.sleep(0.1)
        finally:
            self._run("SET GLOBAL innodb_max_dirty_pages_pct = 90, GLOBAL innodb_max_dirty_pages_pct_lwm = 0")

    def vacuum(self, queue: Queue) -> bool:
        self._run(f"ANALYZE TABLE {table(queue)}")
        return True

    def count(self, queue: Queue, where: str = "TRUE", *, final: bool = False) -> int:
        return int(self._run(f"SELECT count(*) FROM {table(queue)}{'_final' if final else ''} WHERE {where}")[0][0])

    def close(self) -> None:
        self._conn.close()
