"""What a look costs does not grow with the database. Work is counted, not timed: steps of SQLite's machine, entries of
indexes that PostgreSQL reads, rows that MariaDB does."""

from __future__ import annotations

import sqlite3
from typing import Final

import pytest

from hipq import Hipq
from hipq.stores.health.facts import COUNTED, Health
from hipq.stores.mariadb import health as mariadb_health
from hipq.stores.postgres import health as postgres_health
from hipq.stores.sqlite import health as sqlite_health
from tests.contract.jobs import new
from tests.databases import sql
from tests.doctor.conftest import alone

SMALL: Final = 2 * COUNTED
LARGE: Final = 6 * SMALL
PLACES: Final = {
    "ready": "phase = 'ready'",
    "parked": "phase = 'parked'",
    "due": "phase = 'scheduled', scheduled_run_time = 1000",
    "waits": "state = 'running', phase = 'waiting', deadline = 1000, held = 1",
    "left": "state = 'running', phase = 'answered'",
    "lost": "state = 'running', phase = 'executing', owner = 77",
}
"""By lane, where the jobs of a queue are."""


class Growing:
    """A queue that gets larger in every place that is looked at."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Hipq("shop", url)
        self.app.migrate()
        self.number = self.app.queue("orders").number
        self.size = 0

    def to(self, size: int) -> None:
        more = range(size - self.size)
        self.app.store.enqueue([new(self.number, lane=lane) for lane in PLACES for _ in more])
        for lane, what in PLACES.items():
            sql(self.url, f"UPDATE shop_orders SET {what} WHERE lane = '{lane}' AND phase = 'ready'")
        self.size = size
        sql(self.url, "ANALYZE TABLE shop_orders" if self.url.startswith("mariadb") else "ANALYZE")


def whole(health: Health) -> None:
    """Everything was found, and nothing was left out."""
    assert health.error == ""
    assert health.unread == []
    (queue,) = health.queues
    for samples in (queue.ready, queue.parked, queue.scheduled, queue.waiting, queue.left, queue.orphans):
        assert [sample.jobs for sample in samples] == [COUNTED]


def test_sqlite_takes_no_more_steps(sqlite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [0]
    opened = sqlite_health._open

    def counted(path: str, mode: str) -> sqlite3.Connection:
        conn = opened(path, mode)

        def step() -> None:
            steps[0] += 1

        conn.set_progress_handler(step, 10)
        return conn

    monkeypatch.setattr(sqlite_health, "_open", counted)
    growing = Growing(sqlite)
    found = []
    for size in (SMALL, LARGE):
        growing.to(size)
        steps[0] = 0
        whole(sqlite_health.health(sqlite.removeprefix("sqlite:///")))
        found.append(steps[0])
    growing.app.close()
    assert found[0] > 100
    assert found[1] < found[0] * 1.1


def test_postgres_reads_no_more_of_its_indexes_and_no_table(postgres: str) -> None:
    growing = Growing(postgres)
    found = []
    for size in (SMALL, LARGE):
        growing.to(size)
        growing.app.close()
        sql(postgres, "VACUUM shop_orders")  # dead entries are somebody else's cost
        alone(postgres)
        before = _read(postgres)
        whole(postgres_health.health(postgres))
        alone(postgres)
        after = _read(postgres)
        assert after[1] == before[1]
        found.append(after[0] - before[0])
    assert found[0] >= 6 * COUNTED
    assert found[1] < found[0] * 1.1


def test_mariadb_reads_no_more_rows(mariadb: str) -> None:
    growing = Growing(mariadb)
    found = []
    for size in (SMALL, LARGE):
        growing.to(size)
        before = _rows(mariadb)
        whole(mariadb_health.health(mariadb))
        found.append(_rows(mariadb) - before)
    growing.app.close()
    assert found[0] >= 6 * COUNTED
    assert found[1] < found[0] * 1.1


def _rows(url: str) -> int:
    """Rows and entries of indexes that were read in all."""
    return sum(int(count) for _, count in sql(url, "SHOW GLOBAL STATUS LIKE 'Handler_read_%'"))


def _read(url: str) -> tuple[int, int]:
    """Entries of the queue's indexes that were read in all, and how often its table was read through."""
    ((entries, scans),) = sql(
        url,
        "SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'shop_orders'), "
        "(SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'shop_orders')",
    )
    return int(entries), int(scans)
