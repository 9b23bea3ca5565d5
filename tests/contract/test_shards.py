"""The contract, kept by three SQLite files as the shards of one instance."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hipq.stores.clock import Clock
from hipq.stores.protocols import Store
from tests.contract import suite
from tests.contract.database import Database
from tests.contract.shards import open_shards
from tests.contract.suite import (  # noqa: F401 - pytest finds them here
    TestAnswersForNoJob,
    TestAnswersForOneJob,
    TestAuditLog,
    TestBadRows,
    TestDepth,
    TestEarlyAnswers,
    TestGet,
    TestLargePayloads,
    TestMoves,
    TestNotes,
    TestOneNote,
    TestOrphans,
    TestOverdue,
    TestOwned,
    TestStage,
    TestTokens,
    TestUsedAnswers,
    TestWaitingTypes,
    TestWalking,
)


class SqliteShards:
    package = "hipq.stores.sqlite"
    catalogue = "SELECT name FROM sqlite_master"
    refusal: type[Exception] = sqlite3.IntegrityError

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / f"{name}.db" for name in "abc"]
        self.url = f"sqlite:///{self.paths[0]}"

    def open(self, clock: Clock | None = None) -> Store:
        return open_shards([f"sqlite:///{path}" for path in self.paths], clock)

    def connect(self, *, autocommit: bool = False, dict_rows: bool = False) -> sqlite3.Connection:  # noqa: ARG002
        """A look at the tables of all shards, as if they were one."""
        conn = sqlite3.connect(self.paths[0], isolation_level=None if autocommit else "DEFERRED")
        for path in self.paths[1:]:
            conn.execute(f"ATTACH '{path}' AS {path.stem}")
        tables = "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        for (name,) in conn.execute(tables).fetchall():
            parts = [f"SELECT * FROM {where}.{name}" for where in ("main", *(path.stem for path in self.paths[1:]))]
            conn.execute(f"CREATE TEMP VIEW {name} AS {' UNION ALL '.join(parts)}")
        conn.commit()
        return conn


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return SqliteShards(tmp_path)  # type: ignore[return-value]


class TestEnqueue(suite.TestEnqueue):
    """Ids grow in each shard, and have its numbers of queues."""

    test_a_batch_is_stored_whole_and_in_order = None  # type: ignore[assignment]
    test_ids_grow_from_batch_to_batch = None  # type: ignore[assignment]
    test_an_id_carries_the_number_of_its_queue = None  # type: ignore[assignment]


class TestKeys(suite.TestKeys):
    test_all_or_nothing_looks_within_the_batch_and_at_every_queue = None  # type: ignore[assignment]
    """That holds in each shard."""


class TestFind(suite.TestFind):
    """A census is for the daemon, which has one database."""

    test_what_runs_is_counted_by_type = None  # type: ignore[assignment]
    test_a_job_that_was_only_given_back_is_counted_as_initial = None  # type: ignore[assignment]


class TestInbox(suite.TestInbox):
    """Answers are listed by their numbers, which grow in each shard."""

    test_prune_deletes_what_need_not_be_kept = None  # type: ignore[assignment]
    test_filters_pages_and_counts = None  # type: ignore[assignment]
    test_those_that_no_job_used_are_listed_newest_first_and_counted_up_to_a_limit = None  # type: ignore[assignment]


class TestAnswers(suite.TestAnswers):
    pass
