"""`make bench`: hipq, the plain database and other queues, in one run on one machine. Ratios count, not figures.

A target that is missed is printed, and no failure. A measurement that means nothing (jobs left, rows missing) is one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from tests.mariadb_server import installed

from bench import answers, around, beside, counters, million, plain, rules
from bench.database import fresh_database, fresh_mariadb
from bench.lines import HEADING, Bench, Line
from bench.measure import scratch, steal, steal_between
from bench.peers import MARIADB, PEERS, POSTGRES, REDIS, SQLITE, Listed, PeerFailed
from bench.peers.company import Company
from bench.peers.redis_server import redis_addresses
from bench.results import Found, Results
from hipq.stores.mariadb.address import options_of
from hipq.stores.mariadb.flavour import number_of

Raw = Callable[[str, int], Any]
Group = Callable[[Bench], Iterator[Line]]
GROUPS: dict[str, Group] = {
    "plain": plain.lines,
    "peers": plain.compared,
    "counters": counters.lines,
    "rules": rules.lines,
    "beside": beside.lines,
    "answers": answers.lines,
    "million": million.lines,
    "around": around.lines,
}
"""What `--only` chooses from. Without it, the lines of `plain` have the peers in their rounds."""
BESIDE_PEERS = {"plain", "peers"}
LONG = {"beside", "million", "around"}
"""Not in a quick run, unless chosen."""
STORES = {"sqlite": SQLITE, "postgres": POSTGRES, "mariadb": MARIADB}
LACKING = {MARIADB: {"peers", "rules", "answers", "around", "counters"}}
"""Lines that a store has none of: there is no plain SQL of that shape, and no peer."""
BESIDE = {SQLITE: (SQLITE,), POSTGRES: (POSTGRES, REDIS), MARIADB: ()}
"""Whose peers are measured in the rounds of hipq on a store."""
QUICK_PEERS = {("huey", SQLITE), ("pgqueuer", POSTGRES)}
"""Those a target names."""
TITLES = {
    SQLITE: "SQLite (WAL, synchronous FULL)",
    POSTGRES: "PostgreSQL (fsync on)",
    MARIADB: "MariaDB (innodb_flush_log_at_trx_commit 1)",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller amounts, and only the peers that targets name")
    parser.add_argument("--store", choices=STORES, help="only this one")
    parser.add_argument("--only", choices=GROUPS, help="only these lines")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results there")
    options = parser.parse_args()
    run = Run(options.quick, options.only)
    stores = (
        [STORES[options.store]] if options.store else [one for one in STORES.values() if one != MARIADB or _maria()]
    )
    if options.only and all(options.only in LACKING.get(store, ()) for store in stores):
        parser.error(f"there are no such lines on {stores[0]}: {options.only}")
    run.install(stores)
    for store in stores:
        run.measure(store)
    run.end()
    print(f"\n{run.results.summary()}")
    if run.results.broken:
        sys.exit(1)
    if options.json:
        run.results.save(options.json)


class Run:
    def __init__(self, quick: bool, only: str | None) -> None:
        self.results = Results()
        self._quick = quick
        self._with_peers = only in (None, "peers")
        every = [name for name in GROUPS if name != "peers" and not (quick and name in LONG)]
        self._groups = [only] if only else every
        self._companies: dict[str, Company] = {}

    def install(self, stores: Sequence[str]) -> None:
        for store in stores:
            company = self._companies[store] = Company()
            if self._with_peers:
                company.install(listed for listed in PEERS if listed.store in BESIDE[store] and self._wanted(listed))
        self._began, self._load = datetime.now(), os.getloadavg()[0]
        self._clock, self._steal = time.monotonic(), steal()

    def _wanted(self, listed: Listed) -> bool:
        return not self._quick or (listed.name, listed.store) in QUICK_PEERS

    def measure(self, store: str) -> None:
        company = self._companies[store]
        print(f"\n{TITLES[store]}\n{HEADING}", flush=True)
        with self._bench(store, company) as bench:
            for name in [name for name in self._groups if name not in LACKING.get(store, ())]:
                with ExitStack() as stack:
                    if name in BESIDE_PEERS:
                        stack.callback(company.close)  # they are not there when nobody is compared with them
                        company.start(_Addresses(stack))
                    self._measure(name, bench)
        self.results.peers += company.described
        self.results.failures += company.failures

    def _measure(self, name: str, bench: Bench) -> None:
        began = time.monotonic()
        try:
            for line in GROUPS[name](bench):
                print(line, flush=True)
                self.results.lines.append(Found(bench.store, line))
        except Exception as reason:  # the others may still mean something
            traceback.print_exc()
            self.results.broken.append(f"{name} on {bench.store}: {type(reason).__name__}: {reason}")
        print(f"({name}: {time.monotonic() - began:.0f} s)", flush=True)

    def end(self) -> None:
        minutes = (time.monotonic() - self._clock) / 60
        stolen = steal_between(self._steal, steal())
        self.results.describe(self._began, self._load, minutes, stolen, self._quick)

    @contextmanager
    def _bench(self, store: str, company: Company) -> Iterator[Bench]:
        size = 4_000 if self._quick else 20_000
        with ExitStack() as stack:
            if store == SQLITE:
                path = stack.enter_context(scratch()) / "bench.db"
                url, raw = f"sqlite:///{path}", _raw_sqlite(path)
            elif store == MARIADB:
                url = stack.enter_context(fresh_mariadb())
                raw = _raw_mariadb(url)
                with closing(pymysql.connect(**options_of(url))) as maria:
                    self.results.versions[MARIADB] = ".".join(map(str, number_of(maria.get_server_info())))
            else:
                url = stack.enter_context(fresh_database())
                raw = _raw_postgres(url)
                with psycopg.connect(url) as connection:  # "15.20 (Debian ...)"
                    version = connection.info.parameter_status("server_version") or "?"
                    self.results.versions[POSTGRES] = version.split()[0]
            bench = Bench(url, raw, size, self._quick, company)
            stack.callback(bench.app.close)
            yield bench


def _raw_sqlite(path: Path) -> Raw:
    from bench.raw.sqlite import RawSqlite

    return lambda table, queue: RawSqlite(str(path), table, queue)


def _raw_postgres(url: str) -> Raw:
    from bench.raw.postgres import RawPostgres

    return lambda table, queue: RawPostgres(url, table, queue)


def _raw_mariadb(url: str) -> Raw:
    from bench.raw.mariadb import RawMariaDB

    return lambda table, queue: RawMariaDB(url, table, queue)


def _maria() -> bool:
    return installed() or "HIPQ_TEST_MARIADB_URL" in os.environ


class _Addresses:
    """An empty database of its own for each peer."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._redis: Iterator[str] | None = None

    def __call__(self, listed: Listed) -> str:
        if listed.store == POSTGRES:
            return self._stack.enter_context(fresh_database())
        if listed.store == SQLITE:
            return str(self._stack.enter_context(scratch()) / "peer.db")
        if self._redis is None:
            self._redis = self._stack.enter_context(redis_addresses())
        try:
            return next(self._redis)
        except StopIteration:
            raise PeerFailed("no database of the Redis here is empty") from None


if __name__ == "__main__":
    main()
