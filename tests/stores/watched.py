"""Stores whose databases tell how each statement was run."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import psycopg
import pytest

from hipq.limits.rules import NO_RULES
from hipq.stores.claims import Claim
from hipq.stores.mariadb import connection as mariadb_connection
from hipq.stores.mariadb.store import MariaStore
from hipq.stores.postgres.session import Session
from hipq.stores.postgres.store import PostgresStore
from hipq.stores.protocols import Store
from hipq.stores.sqlite.store import SqliteStore
from hipq.testing.clock import HandClock
from tests.databases import sql
from tests.mariadb_server import FAST, OwnMariaDB
from tests.servers import OwnPostgres


class Seen(NamedTuple):
    """A statement as it was run."""

    text: str
    indexes: frozenset[str]
    whole: frozenset[str]
    """What it reads without an index, or joins by reading all of it: a plan made while that was little is kept."""
    ways: frozenset[str]
    """How PostgreSQL reads what it reads."""
    work: int


class Watch(Protocol):
    """A store, and what its database has to say about each statement."""

    name: str

    @property
    def store(self) -> Store: ...

    def during(self, call: Callable[[], object]) -> list[Seen]: ...

    def execute(self, query: str) -> None:
        """Behind the store's back."""

    def sweep(self) -> None:
        """Remove what earlier calls left behind."""

    def believe_empty(self) -> None:
        """Let the planner believe that all tables are empty."""

    def pattern(self, name: str, queue: int) -> str:
        """What finds the statement of a file."""

    def look_at_others(self, claim: Claim) -> None:
        """Whether nothing but the order decides in this queue."""


# -- SQLite ---------------------------------------------------------------------------------------------------------
class Recorder(sqlite3.Connection):
    """Counts the steps of each statement."""

    ran: Final[list[tuple[str, Any, int]]] = []

    def execute(self, query: str, values: Any = ()) -> sqlite3.Cursor:
        steps = Counter[str]()

        def step() -> None:
            steps[query] += 1

        self.set_progress_handler(step, 1)
        try:
            return super().execute(query, values)
        finally:
            self.set_progress_handler(None, 0)
            self.ran.append((query, values, steps[query]))


class WatchedSqlite:
    name = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.store = SqliteStore(str(path), HandClock())

    def execute(self, query: str) -> None:
        conn = sqlite3.connect(self._path, isolation_level=None)
        conn.execute(query)
        conn.close()

    def sweep(self) -> None:
        """Nothing is left behind."""

    def believe_empty(self) -> None:
        """It has no such beliefs."""

    def pattern(self, name: str, queue: int) -> str:
        text = re.escape(str(self.store._statements.of(name, queue)))
        return text.replace(r"\{types\}", "[?, ]+").replace(r"\{rows\}", "VALUES [(),? ]+")

    def look_at_others(self, claim: Claim) -> None:
        with self.store._reading() as sql:
            assert self.store._rulebook.is_plain(sql, claim, NO_RULES)

    def during(self, call: Callable[[], object]) -> list[Seen]:
        Recorder.ran.clear()
        call()
        conn = sqlite3.connect(self._path)
        found = [
            Seen(query, *self._plan(conn, query, values), frozenset(), work)
            for query, values, work in tuple(Recorder.ran)
            if not re.match("BEGIN|COMMIT|PRAGMA", query)
        ]
        conn.close()
        return found

    def rows_read(self, query: str, values: Any) -> bool:
        """Whether it reads columns of a table's rows, beside those that are in the entries of an index."""
        conn = sqlite3.connect(self._path)
        tables = {row[0] for row in conn.execute("SELECT rootpage FROM sqlite_master WHERE type = 'table'")}
        steps = [row[1:4] for row in conn.execute(f"EXPLAIN {query}", values)]
        conn.close()
        opened = {cursor for name, cursor, root in steps if name == "OpenRead" and root in tables}
        return any(name == "Column" and cursor in opened for name, cursor, _ in steps)

    def _plan(self, conn: sqlite3.Connection, query: str, values: Any) -> tuple[frozenset[str], frozenset[str]]:
        steps = [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {query}", values)]
        indexes = {found[1] for step in steps if (found := re.search(r"USING (?:COVERING )?INDEX (\w+)", step))}
        scans = re.compile(r"SCAN (shop_\w+|hipq_answers|hipq_activity|[labfs])|.*AUTOMATIC.*")
        whole = {step for step in steps if scans.fullmatch(step)}
        return frozenset(indexes), frozenset(whole)


# -- PostgreSQL -----------------------------------------------------------------------------------------------------
class WatchedPostgres:
    """Its server tells the plan of each statement as it was run (auto_explain)."""

    name = "postgres"

    def __init__(self, url: str, patch: pytest.MonkeyPatch) -> None:
        self._url = url
        self._plans: list[dict[str, Any]] = []
        self._settled = Session.settle_in
        patch.setattr(Session, "settle_in", lambda conn: self._settle(conn))
        self.store = PostgresStore(url)
        self.store.migrate()

    def _settle(self, conn: Session) -> None:
        """As hipq does it; but tables of this size, as large ones are, seem worth several processes."""
        self._settled(conn)
        conn.execute("LOAD 'auto_explain'")
        more = {"log_min_duration": "0", "log_analyze": "on", "log_buffers": "on", "log_format": "json"}
        settings = {f"auto_explain.{name}": value for name, value in more.items()}
        settings |= {
            "min_parallel_table_scan_size": "0",
            "min_parallel_index_scan_size": "0",
            "parallel_setup_cost": "0",
        }
        settings |= {"client_min_messages": "log"}
        for name, value in settings.items():
            conn.execute(f"SET {name} = {value}".encode())
        conn.add_notice_handler(self._heard)

    def _heard(self, message: psycopg.errors.Diagnostic) -> None:
        _, _, plan = (message.message_primary or "").partition("plan:\n")
        self._plans += [json.loads(plan)] if plan else []

    def execute(self, query: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as conn:
            conn.execute(query.encode())

    def sweep(self) -> None:
        self.execute("VACUUM (INDEX_CLEANUP ON) shop_plain, shop_ruled, hipq_queues, hipq_tickets")

    def believe_empty(self) -> None:
        ours = "relname LIKE 'shop_%' OR relname LIKE 'hipq_%'"
        self.execute(f"UPDATE pg_class SET reltuples = 0 WHERE relkind IN ('r', 'i') AND ({ours})")

    def pattern(self, name: str, queue: int) -> str:
        statements = self.store._statements
        if name.startswith("pick_"):
            text = statements.of("claim", queue, pick=name)
        elif name == "admission":
            text = statements.of(name, queue, lock="FOR UPDATE", current="version")
        else:
            text = statements.of(name, queue)
        return re.sub(r"%(\\\(\w+\\\))?s", r"\\$\\d+", re.escape(text.decode()))

    def look_at_others(self, claim: Claim) -> None:
        with self.store._reading() as sql:
            assert self.store._rulebook.still_plain(sql, claim)

    def during(self, call: Callable[[], object]) -> list[Seen]:
        self._plans.clear()
        call()
        return [self._seen(plan["Query Text"], plan["Plan"]) for plan in self._plans]

    def _seen(self, text: str, plan: dict[str, Any]) -> Seen:
        nodes = list(_nodes(plan))
        indexes = {node["Index Name"] for node in nodes if "Index Name" in node}
        whole = {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"}
        joined = [node for node in nodes if node["Node Type"] == "Hash" or node["Node Type"] == "Merge Join"]
        whole |= {one.get("Relation Name", "") for node in joined for one in _nodes(node)}
        ways = {node["Node Type"] for node in nodes}
        pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return Seen(text, frozenset(indexes), frozenset(whole), frozenset(ways), pages)


# -- MariaDB --------------------------------------------------------------------------------------------------------
_SKIPPING: Final = re.compile(r"/\*M!.*?\*/\s*")
"""What may stand before the first word of a statement."""
_NUMBERS: Final = re.compile(r"VALUES \(\d+\)(?:, \(\d+\))*")
"""Locks of keys: which depends on the keys."""
_UNSEEN: Final = re.compile(r"INSERT INTO hipq_news|SELECT CAST\(UNIX_TIMESTAMP\(SYSDATE\(6\)\) [^,]*$")
"""News, which name their writer; and the time, which is asked for again where a sum took long."""


class WatchedMaria:
    """Its server says how many rows, and entries of indexes, it has read in all: nobody else uses it."""

    name = "mariadb"

    def __init__(self, url: str, patch: pytest.MonkeyPatch) -> None:
        self._url = url
        self._run = mariadb_connection.Session.run
        self._ran: list[tuple[str, Any, int]] | None = None
        """What has run, and how much had been read before."""
        patch.setattr(mariadb_connection.Session, "run", lambda *given: self._watched(*given))
        self.store = MariaStore(url)
        self.store.migrate()
        self._side = self.store._db.connect()
        """To look meanwhile: what a session has changed, it is asked for by its next statement."""

    def execute(self, query: str) -> None:
        sql(self._url, query if query != "ANALYZE" else f"ANALYZE LOCAL TABLE {', '.join(self._tables())}")

    def sweep(self) -> None:
        """What earlier calls left behind is not counted."""

    def believe_empty(self) -> None:
        """And read what is noted of the tables: the first statement does that which opens one."""
        here = "database_name = DATABASE()"
        sql(
            self._url,
            f"UPDATE mysql.innodb_table_stats SET n_rows = 0, clustered_index_size = 1 WHERE {here}",
            f"UPDATE mysql.innodb_index_stats SET stat_value = 0 WHERE {here}",
            "FLUSH TABLES",
            *(f"SET STATEMENT use_stat_tables = preferably FOR SELECT 1 FROM {one} LIMIT 1" for one in self._tables()),
        )

    def pattern(self, name: str, queue: int) -> str:
        parts = {"admission": {"lock": "FOR UPDATE"}, "claim_groups": {"behind": "lane >= :lane"}}
        texts = self.store._statements.of(name, queue, **parts.get(name, {}))
        found = (re.escape(_SKIPPING.sub("", text)) for text in texts)
        return "|".join(re.sub(r"%\\\(\w+\\\)s", r"%\\(\\w+\\)s", text) for text in found)

    def look_at_others(self, claim: Claim) -> None:
        with self.store._reading() as conn:
            assert self.store._rulebook.is_plain(conn, claim, NO_RULES)

    def during(self, call: Callable[[], object]) -> list[Seen]:
        self._ran = []
        call()
        ran, self._ran = self._ran, None
        reads = [before for _, _, before in ran[1:]] + [self._reads()]
        looked = self._reads() - reads[-1]  # what a look itself reads
        return [
            Seen(_NUMBERS.sub("VALUES (0)", query), *self._plan(query, values), frozenset(), after - before - looked)
            for (query, values, before), after in zip(ran, reads, strict=True)
        ]

    def _tables(self) -> list[str]:
        return [name for (name,) in sql(self._url, "SHOW TABLES") if not name.endswith("_ids")]

    def _watched(self, conn: mariadb_connection.Session, query: str, values: Any = None) -> Any:
        if self._ran is not None and not _UNSEEN.match(query):
            self._ran.append((query, values, self._reads()))
        return self._run(conn, query, values)

    def _reads(self) -> int:
        """Entries that a condition on the index refused are counted apart."""
        counted = "variable_name LIKE 'Handler_read_%' OR variable_name = 'Handler_icp_attempts'"
        return sum(int(count) for _, count in self._run(self._side, f"SHOW GLOBAL STATUS WHERE {counted}").fetchall())

    def _plan(self, query: str, values: Any) -> tuple[frozenset[str], frozenset[str]]:
        text = _SKIPPING.sub("", query)
        if not re.match(r"\(|SELECT|UPDATE|DELETE|INSERT .*\sSELECT", text, re.DOTALL):
            return frozenset(), frozenset()
        before = query[: len(query) - len(text)]
        rows = self._run(self._side, f"{before}EXPLAIN {text}", values).fetchall()
        tables = re.compile(r"shop_\w+|hipq_answers|hipq_activity|[labfs]")
        whole = {row[2] for row in rows if row[3] == "ALL" and tables.fullmatch(row[2])}
        return frozenset(name for row in rows for name in (row[5] or "").split(",")), frozenset(whole)


@contextmanager
def watched(store: str, folder: Path) -> Iterator[WatchedSqlite | WatchedPostgres | WatchedMaria]:
    """An empty database of this kind. MariaDB's server has statistics as old as its tables. PostgreSQL's server is
    nobody else's: while a transaction is open in any of a server's databases, entries of jobs that are gone are not
    marked, and each scan reads them again."""
    with pytest.MonkeyPatch.context() as patch:
        if store == "sqlite":
            connect = sqlite3.connect
            patch.setattr(sqlite3, "connect", lambda *where, **how: connect(*where, **how, factory=Recorder))
            yield WatchedSqlite(folder / "jobs.db")
        elif store == "mariadb":
            with OwnMariaDB(in_memory=True, **FAST, innodb_stats_auto_recalc="0") as server:
                sql(server.url, "CREATE DATABASE watched")
                maria = WatchedMaria(server.url.replace("/mysql", "/watched"), patch)
                try:
                    yield maria
                finally:
                    maria.store.close()
        else:
            with OwnPostgres(in_memory=True, fsync="off", autovacuum="off") as server:
                watch = WatchedPostgres(server.url, patch)
                try:
                    yield watch
                finally:
                    watch.store.close()


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)
