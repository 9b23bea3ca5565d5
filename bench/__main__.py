"""`make bench`: hipq against the plain database, in one run on one machine. Ratios count, not figures.

`--quick` measures smaller amounts in about a minute.
"""

from __future__ import annotations

import argparse
import platform
import sqlite3
import tempfile
from pathlib import Path

from tests.servers import fresh_database

from bench.answers import Answers
from bench.beside import Beside
from bench.lines import Bench
from bench.measure import steal, steal_between
from bench.rules import UnderRules

GROUPS = ("plain", "rules", "beside", "answers")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller amounts")
    parser.add_argument("--store", choices=["sqlite", "postgres"], help="only this one")
    parser.add_argument("--only", choices=GROUPS, help="only these lines")
    options = parser.parse_args()
    size, future = (4_000, 100_000) if options.quick else (20_000, 1_000_000)
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}; best of 3, interleaved; hipq | raw")
    if options.store != "postgres":
        with tempfile.TemporaryDirectory() as folder:
            _sqlite(Path(folder) / "bench.db", size, future, options.only)
    if options.store != "sqlite":
        with fresh_database() as url:
            _postgres(url, size, future, options.only)


def _sqlite(path: Path, size: int, future: int, only: str | None) -> None:
    from bench.raw.sqlite import RawSqlite

    bench = Bench(f"sqlite:///{path}", lambda table, queue: RawSqlite(str(path), table, queue), size)
    _report("SQLite (WAL, synchronous FULL)", bench, future, only, drain=0.5, bulk=0.5, together=5.0)


def _postgres(url: str, size: int, future: int, only: str | None) -> None:
    from bench.raw.postgres import RawPostgres

    bench = Bench(url, lambda table, queue: RawPostgres(url, table, queue), size)
    _report("PostgreSQL (fsync on)", bench, future, only, drain=0.7, bulk=0.8, together=6.0)


def _report(
    title: str, bench: Bench, future: int, only: str | None, *, drain: float, bulk: float, together: float
) -> None:
    before = steal()
    print(f"\n{title}")
    groups = {
        "plain": bench.lines(future, drain, bulk, together),
        "rules": UnderRules(bench, drain).lines(),
        "beside": Beside(bench, future * 99 // 100).lines(),
        "answers": Answers(bench, future // 10, drain).lines(),
    }
    for name in GROUPS:
        for line in groups[name] if only in (None, name) else ():
            print(line, flush=True)
    print(f"steal {steal_between(before, steal()):.1f} %")
    bench.app.close()


if __name__ == "__main__":
    main()
