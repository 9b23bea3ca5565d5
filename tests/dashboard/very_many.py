"""A week of a shop with very many jobs, on either store: the database makes the rows, and their indexes afterwards."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from hipq import Hipq
from hipq.job.activity import COUNTERS, DAY, HOUR, MINUTE, beginning
from hipq.job.when import SECOND
from hipq.stores.values import QueueTables

WEEK: Final = 7 * DAY * SECOND
TYPES: Final = {"orders": ("charge", "refund", "ship"), "mails": ("send",), "imports": ("load",)}
_SHARES: Final = {"orders": 80, "mails": 15, "imports": 5}
_TYPE: Final = {
    "orders": "CASE WHEN n % 1000 = 1 THEN 'ship' WHEN n % 5 < 3 THEN 'charge' ELSE 'refund' END",
    "mails": "'send'",
    "imports": "'load'",
}
_SCHEDULED: Final = 11
"""Each so manyeth job is scheduled; the others have ended."""
_READY: Final = 100
"""One is ready for so many that have ended."""
_WRITERS: Final = 8
"""Connections that count for themselves in the same minute."""

_FAMILY: Final = 4_000
"""A fortieth of so many are children of the first of them, and as many more."""

_COMMON: Final = {
    "tenant": "CASE WHEN n % 10 = 0 THEN 'acme' WHEN n % 10 = 5 THEN 'tenant-' || (n % 1000) ELSE '' END",
    "lane": "CASE WHEN n % 100003 = 1 THEN 'vip' WHEN n % 3 = 0 THEN 'lane-' || (n % 21) ELSE '' END",
    "job_type": "job_type",
    "job_data": """'{"customer":' || (n % 100000) || ',"sum":12.5,"items":[{"sku":"s-' || (n % 1000) || '","count":2}],'
        || '"address":{"street":"12 Long Street","city":"Springfield","zip":"04711"},"paid":true,'
        || '"note":"please ring twice, and leave it with the neighbours"}'""",
    "throttle_factor": "1000",
    "time_windows": "'[]'",
    "timeout": "86400",
    "priority": "100",
    "create_time": "added",
    "meta": f"""CASE WHEN n % 40 IN (7, 9) THEN '{{"parent":' || ((n - n % {_FAMILY} + 1) * 65536 + queue) || '}}' ELSE
        '{{}}' END""",
}
_BROKEN: Final = r"""'{"kind":"error","message":"bank-' || (n % 50) || '.example refused order-' || n
    || '","type":"ConnectionError","kinds":["ConnectionError","OSError","Exception"],"traceback":"Traceback (most '
    || 'recent call last):\n  File \"/srv/shop/jobs.py\", line 23, in charge\n    bank.charge(order)\n"}'"""
_CLAIMED: Final = """'[{"event":"claimed","by":1,"at":' || (added + 400000) || '}"""
_FINAL: Final = _COMMON | {
    "job_key": "CASE WHEN n % 50 = 3 THEN 'nightly-' || (n % 500) ELSE 'order-' || n END",
    "state": "'final'",
    "phase": "'done'",
    "rank": "{rank}",
    "held": "0",
    "scheduled_run_time": "added",
    "deadline": "0",
    "wait": "''",
    "attempt": "1",
    "failures": "CASE WHEN n % 100 = 7 THEN 1 ELSE 0 END",
    "crashes": "0",
    "owner": "0",
    "token": "2",
    "error": f"""CASE WHEN n % 100 = 7 THEN {_BROKEN} WHEN n % 200 = 13 THEN
        '{{"kind":"failed","message":"the card was refused"}}' WHEN n % 500 = 99 THEN
        '{{"kind":"cancelled","message":"not wanted"}}' ELSE 'NONE' END""",
    "code": """CASE WHEN n % 100 = 7 THEN 'error' WHEN n % 200 = 13 THEN 'failed' WHEN n % 500 = 99 THEN 'cancelled'
        ELSE 'ok' END""",
    "exitcode": "200",
    "result": """CASE WHEN n % 100 = 7 THEN '' ELSE '{"receipt":' || n || '}' END""",
    "history": f"""{_CLAIMED},{{"event":"ok","at":' || (added + 900000) || '}}]'""",
    "update_time": "added + 900000 + (n * 7919) % 60000000",
}
_LIVE: Final = _COMMON | {"job_key": "'order-' || n"}
_LATER: Final = _LIVE | {
    "state": "CASE WHEN n % 100 = 7 THEN 'retry' ELSE 'initial' END",
    "phase": "'scheduled'",
    "rank": "{rank}",
    "scheduled_run_time": f"now + {DAY * SECOND} + (n * 7919) % {DAY * SECOND}",
    "failures": "CASE WHEN n % 100 = 7 THEN 1 ELSE 0 END",
    "attempt": "CASE WHEN n % 100 = 7 THEN 1 ELSE 0 END",
    "error": f"CASE WHEN n % 100 = 7 THEN {_BROKEN} ELSE 'NONE' END",
    "code": "CASE WHEN n % 100 = 7 THEN 'error' ELSE 'NONE' END",
}
"""What is scheduled, a hundredth of it to be tried again."""
_NOW: Final = _LIVE | {
    "state": "CASE WHEN n % 11 = 0 AND n % 10 <> 1 THEN 'running' ELSE 'initial' END",
    "phase": """CASE WHEN n % 11 <> 0 THEN 'ready' WHEN n % 10 = 0 THEN 'executing' WHEN n % 10 = 1 THEN 'parked'
        ELSE 'waiting' END""",
    "rank": "{rank}",
    "scheduled_run_time": "added",
    "deadline": f"CASE WHEN n % 11 = 0 THEN now + {DAY * SECOND} + (n * 7919) % {DAY * SECOND} ELSE 0 END",
    "held": "CASE WHEN n % 11 = 0 AND n % 10 <> 1 THEN 1000 ELSE 0 END",
    "owner": "CASE WHEN n % 110 = 0 THEN engine ELSE 0 END",
    "attempt": "CASE WHEN n % 11 = 0 AND n % 10 <> 1 THEN 1 ELSE 0 END",
}
"""What is ready, and a tenth as many that run, wait for answers or are held back."""
_ANSWER: Final = {
    "queue": "queue",
    "job_type": "'charge'",
    "job_key": "'order-' || n",
    "answer_id": "'a-' || n",
    "twin": "n",
    "data": """'{"receipt":' || n || '}'""",
    "state": """CASE WHEN n % 20 <> 0 THEN 'settled' WHEN n % 100 = 0 THEN 'late' WHEN n % 100 = 20 THEN 'conflict'
        WHEN n % 100 = 40 THEN 'unreadable' WHEN n % 100 = 60 THEN 'duplicate' ELSE 'buffered' END""",
    "job": "CASE WHEN n % 20 = 0 AND n % 100 > 20 THEN 0 ELSE (n * 11 + 1) * 65536 + queue END",
    "arrived": "added",
    "keep_until": f"now + {30 * DAY * SECOND}",
}


def parent(queue: int) -> int:
    """A job that has a hundred children and more."""
    return (_FAMILY + 1) * 65536 + queue


def sizes(jobs: int) -> dict[str, int]:
    """Jobs that have ended, by queue."""
    return {name: jobs * share // 100 for name, share in _SHARES.items()}


def shop(url: str) -> Hipq:
    app = Hipq("shop", url)
    for name, types in TYPES.items():
        queue = app.queue(name)
        for job_type in types:
            queue.job(job_type)(lambda _: None)
    return app


def fill(url: str, jobs: int) -> None:
    """So many have ended, a tenth as many are scheduled, and a hundredth are ready."""
    app = shop(url)
    app.migrate()
    store = app.store
    every = {one.name: one for one in store.queues()}
    serves = json.dumps({str(every[name].number): types for name, types in TYPES.items()})
    engine, now = store.take_lease(10 * DAY, "test", serves), store.now()
    app.close()  # SQLite does without a journal only where nobody else is
    with (_sqlite if url.startswith("sqlite") else _postgres)(url, [one.table for one in every.values()]) as database:
        for name, ended in sizes(jobs).items():
            _queue(database, every[name], ended, {"engine": engine, "now": now})
        made = {"queue": every["orders"].number, "now": now}
        _insert(database, "hipq_answers", _ANSWER, (1, jobs // 100), made, WEEK * 100 // jobs)
        entry = {
            "at": "added",
            "who": "'ann'",
            "role": "'admin'",
            "via": "'dashboard'",
            "address": "''",
            "action": "'pause'",
            "target": "n",
        }
        _insert(database, "hipq_audit", entry, (1, jobs // 1000), made, WEEK * 1000 // jobs)
        for name, types in TYPES.items():
            for job_type in types:
                _count(database, every[name].number, job_type, now)


def _queue(database: Any, tables: QueueTables, ended: int, made: Mapping[str, object]) -> None:
    early = ended * _SCHEDULED // (_SCHEDULED - 1)
    last = early + ended * _SCHEDULED // (_SCHEDULED - 1) // _READY
    own = {"id": f"n * 65536 + {tables.number}"}
    made = {**made, "job_type": _TYPE[tables.name], "queue": tables.number}
    step = WEEK // last
    _insert(database, f"{tables.table}_final", own | _FINAL, (1, early), made, step, f"n % {_SCHEDULED} <> 0")
    _insert(database, tables.table, own | _LATER, (1, early), made, step, f"n % {_SCHEDULED} = 0")
    _insert(database, tables.table, own | _NOW, (early + 1, last), made, step)
    database.number(tables, last)


def _insert(
    database: Any, table: str, columns: Mapping[str, str], numbers: tuple[int, int], made: Mapping[str, object],
    step: int, where: str = "true",
) -> None:  # fmt: skip
    """Columns are expressions over the number n of a row, the time at which it was added, and what is made beside."""
    first, last = numbers
    begin = f"({made['now']} - {WEEK})"
    others = ", ".join(f"{value} AS {name}" for name, value in made.items())
    values = ", ".join(columns.values()).replace("{rank}", database.rank)
    database.run(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM ("
        f"SELECT n, {begin} + n * {step} AS added, {others} FROM {database.series(first, last)} WHERE {where}) AS made"
    )


def _count(database: Any, queue: int, job_type: str, now: int) -> None:
    """Minutes of three hours, hours of a week."""
    counted = {"started": 600, "ok": 580, "failed": 5, "error": 10, "cancelled": 2, "retried": 8}
    counted |= {f"run_{n}": 60 for n in range(10)} | {f"answer_{n}": 6 for n in range(8, 14)}
    assert counted.keys() <= set(COUNTERS)
    for grain, periods, writers in ((MINUTE, 180, database.writers), (HOUR, 7 * 24, database.writers[:1])):
        for writer in writers:
            values = {"queue": queue, "grain": grain, "job_type": f"'{job_type}'", **counted} | writer
            start = beginning(now, grain) - (3 * HOUR * SECOND if grain == HOUR else 0)
            values["starts"] = f"{start} - n * {grain * SECOND}"
            columns = {name: str(value) for name, value in values.items()}
            _insert(database, "hipq_activity", columns, (0, periods - 1), {"now": now}, 0)


class _Sqlite:
    rank = "printf('%012x80000064', added / 1000000)"
    writers: Final[list[dict[str, int]]] = [{}]

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    def run(self, query: str) -> None:
        self._conn.execute(query)

    def series(self, first: int, last: int) -> str:
        more = f"SELECT {first} AS n UNION ALL SELECT n + 1 FROM series WHERE n < {last}"
        return f"(WITH RECURSIVE series AS ({more}) SELECT n FROM series)"

    def number(self, tables: QueueTables, last: int) -> None:
        self.run(f"UPDATE hipq_queues SET last_id = {last} WHERE number = {tables.number}")


class _Postgres:
    rank = "lpad(to_hex(added / 1000000), 12, '0') || '80000064'"
    writers: Final = [{"writer": n} for n in range(_WRITERS)]

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn

    def run(self, query: str) -> None:
        self._conn.execute(query.encode())

    def series(self, first: int, last: int) -> str:
        return f"generate_series({first}::bigint, {last}::bigint) AS n"

    def number(self, tables: QueueTables, last: int) -> None:
        self.run(f"SELECT setval('{tables.table}_ids', {last})")


@contextmanager
def _sqlite(url: str, tables: list[str]) -> Iterator[_Sqlite]:
    conn = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -400000", "threads = 2"):
        conn.execute(f"PRAGMA {setting}").fetchall()
    names = ", ".join(f"'{one}', '{one}_final'" for one in tables)
    query = f"SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name IN ({names}) AND sql IS NOT NULL"
    indexes = conn.execute(query).fetchall()
    for name, _ in indexes:
        conn.execute(f"DROP INDEX {name}")
    yield _Sqlite(conn)
    for _, again in indexes:
        conn.execute(again)
    conn.execute("PRAGMA journal_mode = WAL").fetchall()
    conn.close()


@contextmanager
def _postgres(url: str, tables: list[str]) -> Iterator[_Postgres]:
    """Without a log: a crash would empty the tables, and nothing is read or planned otherwise."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SET maintenance_work_mem = '400MB'")
        names = ", ".join(f"'{one}', '{one}_final'" for one in tables)
        query = (
            f"SELECT indexname, indexdef FROM pg_indexes WHERE tablename IN ({names}) AND indexname NOT LIKE '%pkey'"
        )
        indexes = conn.execute(query.encode()).fetchall()
        for name, _ in indexes:
            conn.execute(f"DROP INDEX {name}".encode())
        for one in tables:
            conn.execute(f"ALTER TABLE {one} SET UNLOGGED".encode())
            conn.execute(f"ALTER TABLE {one}_final SET UNLOGGED".encode())
        yield _Postgres(conn)
        for _, again in indexes:
            conn.execute(again.encode())
        conn.execute("VACUUM ANALYZE")
