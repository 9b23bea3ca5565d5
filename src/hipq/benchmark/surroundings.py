"""What the figures depend on: the versions, the distance of the database, and the time its disk takes for a commit."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hipq import __version__
from hipq.benchmark.database import BenchmarkDatabase
from hipq.benchmark.workbench import Workbench
from hipq.stores.open import MARIADB

SHARE: Final = 0.05
_LEAST, _MOST = 10, 1_000
_BLOCK: Final = b"x" * 4096


def surroundings(bench: Workbench, database: BenchmarkDatabase, seconds: float) -> dict[str, Any]:
    """The surroundings as JSON. Milliseconds are medians."""
    found: dict[str, Any] = {
        "hipq": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    if database.file is not None:
        found |= {"database": "SQLite", "version": sqlite3.sqlite_version, "network": False, "connection": "a file"}
        found["sync_ms"] = _sync(database.file.parent, seconds / 2)
    else:
        read = _mariadb if bench.app.url.startswith(MARIADB) else _postgres
        found |= read(bench.app.url, seconds / 2)
    return found | {"commit_ms": _median(bench.renew, seconds / 2)}


def _median(work: Callable[[], object], seconds: float) -> float:
    until, times = time.monotonic() + seconds, list[float]()
    while len(times) < _LEAST or (len(times) < _MOST and time.monotonic() < until):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def _sync(folder: Path, seconds: float) -> float:
    """The time to append a page to a file and sync it: no commit can take less."""
    sync = getattr(os, "fdatasync", os.fsync)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:

        def append() -> None:
            file.write(_BLOCK)
            sync(file.fileno())

        return _median(append, seconds)


def _postgres(url: str, seconds: float) -> dict[str, Any]:
    import psycopg

    from hipq.stores.postgres.connection import translated

    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as conn:
            host = conn.info.host

            def setting(name: str) -> str:
                row = conn.execute("SELECT current_setting(%s)", (name,)).fetchone()
                return str(row[0]) if row else ""

            return {
                "database": "PostgreSQL",
                "version": setting("server_version"),
                "network": not (host.startswith("/") or _is_here(conn.info.hostaddr or host)),
                "connection": "a socket file" if host.startswith("/") else f"TCP to {host}",
                "fsync": setting("fsync"),
                "synchronous_commit": setting("synchronous_commit"),
                "round_trip_ms": _median(lambda: conn.execute("SELECT 1").fetchone(), seconds),
            }
    except psycopg.Error as error:
        raise translated(error) from None


def _mariadb(url: str, seconds: float) -> dict[str, Any]:
    from hipq.stores.mariadb.connection import Connections
    from hipq.stores.mariadb.flavour import number_of

    with Connections(url, on_fork=lambda: None).using() as conn:
        query = "SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog"
        ((flush, log, sync),) = conn.run(query).fetchall()
        return {
            "database": conn.flavour.name,
            "version": ".".join(map(str, number_of(conn.get_server_info()))),
            "network": not (conn.unix_socket or _is_here(conn.host)),
            "connection": "a socket file" if conn.unix_socket else f"TCP to {conn.host}",
            "innodb_flush_log_at_trx_commit": flush,
            "sync_binlog": sync if log else "no log",
            "round_trip_ms": _median(lambda: conn.run("SELECT 1").fetchall(), seconds),
        }


def _is_here(address: str) -> bool:
    return address in ("localhost", "::1") or address.startswith("127.")
