"""CONTRIBUTING.md, "A fourth database": what it says that a new store has to write is what the stores here write."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import hipq.stores
from hipq.stores.forwarding import VERBS
from hipq.stores.mariadb.store import MariaStore
from hipq.stores.postgres.store import PostgresStore
from hipq.stores.sql import (
    activity,
    dialect,
    inbox,
    insert,
    jobs,
    pool,
    rule_claims,
    schema,
    server,
    settle,
    setup,
    take,
)
from hipq.stores.sqlite.store import SqliteStore

STORES = Path(next(iter(hipq.stores.__path__)))
TEXT = " ".join((STORES.parents[2] / "CONTRIBUTING.md").read_text().partition("## A fourth database")[2].split())


def test_it_names_the_verbs_that_every_store_writes_itself() -> None:
    written = [
        {verb for verb in VERBS if not getattr(store, verb).__module__.startswith("hipq.stores.sql.")}
        for store in (SqliteStore, PostgresStore, MariaStore)
    ]
    assert f"`{' '.join(sorted(set.intersection(*written)))}`" in TEXT


@pytest.mark.parametrize(
    "module",
    [activity, dialect, inbox, insert, jobs, pool, rule_claims, schema, server, settle, setup, take],
    ids=lambda module: module.__name__,
)
def test_it_names_every_class_with_something_left_to_write(module: object) -> None:
    for name, one in inspect.getmembers(module, inspect.isabstract):
        own = one.__abstractmethods__ & vars(one).keys()
        assert not own or one.__module__ != getattr(module, "__name__", "") or f"`{name}`" in TEXT, name


def test_it_names_the_files_of_sql_that_a_new_store_may_do_without() -> None:
    files = [
        {path.stem for path in (STORES / name / "sql").glob("*.sql")} for name in ("sqlite", "postgres", "mariadb")
    ]
    shared = "".join(path.read_text() for path in (*STORES.glob("*.py"), *STORES.glob("sql/*.py")))
    named = set(re.findall(r'"(\w+)"', shared)) | {f"census_{name}" for name in ("live", "final", "sizes")}
    assert f"`{' '.join(sorted(set.intersection(*files) - named))}`" in TEXT
