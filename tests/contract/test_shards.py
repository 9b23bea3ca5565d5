"""The contract, kept by three SQLite files as the shards of one instance."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hipq.stores.clock import Clock
from hipq.stores.protocols import Store
from tests.contract.database import Database
from tests.contract.shards import open_shards
from tests.contract.suite import *  # noqa: F403


class SqliteShards:
    package = "hipq.stores.sqlite"
    catalogue = "SELECT name FROM sqlite_master"
    refusal: type[Exception] = sqlite3.IntegrityError

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / f"{name}.db" for name in "abc"]
        self.url = f"sqlite:///{self.paths[0]}"

    def open(self, clock: Clock | None = None) -> Store:
        return open_shards([f"sqlite:///{path}" for path in self.paths], clock)

    def connect(self, *, autocommit: bool = False, dict_rows: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(self.paths[0], isolation_level=None if autocommit else "DEFERRED")


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return SqliteShards(tmp_path)  # type: ignore[return-value]
