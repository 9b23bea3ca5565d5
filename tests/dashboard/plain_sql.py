"""The list of jobs as somebody would write it in SQL who knows the tables, and nothing of how hipq reads them."""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, NamedTuple

import psycopg

from hipq.dashboard.site import Site

PATIENCE: Final = 3.0
"""Seconds until such a question is given up."""


class Asked(NamedTuple):
    ms: float
    is_over: bool

    def __str__(self) -> str:
        return f"{self.ms:.1f}" if self.is_over else f"> {self.ms:.0f}"


class Plain(ABC):
    def list(self, site: Site, where: str) -> Asked:
        """The better of two times."""
        first = self._timed(_query(site, where))
        return min(first, self._timed(_query(site, where))) if first.is_over else first

    def _timed(self, query: str) -> Asked:
        began = time.perf_counter()
        is_over = self._ran(query)
        return Asked((time.perf_counter() - began) * 1000, is_over)

    @abstractmethod
    def _ran(self, query: str) -> bool:
        """Whether it came to an end."""

    @abstractmethod
    def processor(self) -> float:
        """The seconds for which other processes than this one have worked for the database."""


class PlainSqlite(Plain):
    def __init__(self, path: Path) -> None:
        self._conn = sqlite3.connect(path, check_same_thread=False)

    def _ran(self, query: str) -> bool:
        until = time.monotonic() + PATIENCE
        self._conn.set_progress_handler(lambda: time.monotonic() > until, 10_000)
        try:
            self._conn.execute(query).fetchall()
        except sqlite3.OperationalError:
            return False
        return True

    def processor(self) -> float:
        return 0.0


class PlainPostgres(Plain):
    def __init__(self, url: str) -> None:
        self._conn = psycopg.connect(url, autocommit=True)
        self._conn.execute(f"SET statement_timeout = {PATIENCE * 1000:.0f}".encode())

    def _ran(self, query: str) -> bool:
        try:
            self._conn.execute(query.encode()).fetchall()
        except psycopg.errors.QueryCanceled:
            return False
        return True

    def processor(self) -> float:
        """Of those that are connected: Linux counts it in nanoseconds."""
        pids = self._conn.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()").fetchall()
        found = 0
        for (pid,) in pids:
            path = Path(f"/proc/{pid}/schedstat")
            found += int(path.read_text().split()[0]) if path.exists() else 0
        return found / 1e9


def _query(site: Site, where: str) -> str:
    columns = "id, job_type, job_key, tenant, lane, state, phase, code, error, attempt, create_time, update_time"
    tables = [name for one in site.store.queues() for name in (one.table, f"{one.table}_final")]
    parts = " UNION ALL ".join(f"SELECT {columns} FROM {table} WHERE {where}" for table in tables)
    return f"{parts} ORDER BY create_time DESC LIMIT 50"
