"""A shop with a database of its own, on a server of our own: its settings are as they should be until a test spoils
them. And a doctor who is asked what is new."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from hipq.doctor.finding import OK, PROBLEM, WARNING
from hipq.stores.mariadb.address import options_of
from tests.cli.conftest import HipqCommand, Worker, eventually, folder, hipq, program, worker
from tests.databases import STORES, sql
from tests.mariadb_server import OwnMariaDB, admin, drop, dumped, load
from tests.servers import OwnPostgres

__all__ = ["folder", "hipq", "program", "worker"]

Finding = dict[str, Any]
USUAL: Final = (
    "below SQLite 3.51.3",
    "no engine is alive",
    "the program declares this queue",
)
"""How the notes begin that a healthy database has, too."""


@pytest.fixture(scope="session")
def server() -> Iterator[OwnPostgres]:
    with OwnPostgres() as own:
        with psycopg.connect(own.url, autocommit=True) as conn:
            for setting in ("max_prepared_transactions = 5", "max_connections = 40"):
                conn.execute(f"ALTER SYSTEM SET {setting}".encode())
        own.restart(immediate=False)
        yield own


@pytest.fixture
def postgres(server: OwnPostgres, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: ARG001
    """An empty database: the same for all tests, since to make one takes longer than to empty it."""
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> %s"
    with psycopg.connect(server.url, autocommit=True) as conn:
        conn.execute(others, (conn.info.backend_pid,))
        conn.execute("DROP SCHEMA public CASCADE")
        conn.execute("CREATE SCHEMA public")
    monkeypatch.setenv("HIPQ_DATABASE_URL", server.url)
    return server.url


@pytest.fixture(scope="session")
def maria_server() -> Iterator[OwnMariaDB]:
    with OwnMariaDB(max_connections="40") as own:
        yield own


@pytest.fixture
def mariadb(maria_server: OwnMariaDB, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: ARG001
    """An empty database, and nobody is connected to it."""
    with admin(maria_server.url) as conn:
        drop(conn, "shop")
        conn.cursor().execute("CREATE DATABASE shop")
    url = maria_server.url.replace("/mysql", "/shop")
    monkeypatch.setenv("HIPQ_DATABASE_URL", url)
    return url


@pytest.fixture
def sqlite(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{folder}/shop.db"
    monkeypatch.setenv("HIPQ_DATABASE_URL", url)
    return url


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest) -> str:
    """The database of shop:app. It has no tables yet."""
    return str(request.getfixturevalue(request.param))


@contextmanager
def mariadb_copied(url: str, name: str) -> Iterator[str]:
    """A database beside this one that was dumped from it."""
    dump, beside = dumped(url), url.replace(f"/{options_of(url)['database']}", f"/{name}")
    with admin(url) as conn:
        conn.cursor().execute(f"CREATE DATABASE {name}")
        try:
            load(beside, dump)
            yield beside
        finally:
            drop(conn, name)


def alone(url: str) -> None:
    """Wait until all who were connected to the server have gone: what a session did is counted when it has ended, and
    whoever closes a connection does not wait for that."""
    others = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    eventually(lambda: sql(url, f"SELECT count(*) {others}") == [(0,)])


def _timeless(text: str) -> str:
    """Without how long something has lasted: it goes on."""
    return re.sub(r"\b([0-9.]+ (s|min|h|days?)\b ?)+", "", text)


class Doctor:
    def __init__(self, hipq: HipqCommand, worker: Callable[..., Worker]) -> None:
        self._hipq = hipq
        self._worker = worker

    def news(self, *arguments: str) -> list[Finding]:
        """What is not as it should be. How the command exits goes with that, whatever it is."""
        given = arguments or ("shop:app",)
        ran = self._hipq("doctor", *given, "--json")
        found: list[Finding] = ran.json
        levels = {finding["level"] for finding in found}
        assert ran.status == int(PROBLEM in levels)
        for finding in found:
            assert finding.keys() == {"check", "level", "queue", "sentence", "advice", "facts"}
            assert finding["advice"] or finding["level"] == OK
        return [one for one in found if one["level"] != OK and not one["sentence"].startswith(USUAL)]

    def only(self, *arguments: str) -> Finding:
        """The one thing that is wrong; people are told the same."""
        found = self.news(*arguments)
        assert len(found) == 1, found
        ran = self._hipq("doctor", *(arguments or ("shop:app",)), "--strict")
        assert ran.status == int(found[0]["level"] in (PROBLEM, WARNING))
        assert _timeless(found[0]["sentence"]) in _timeless(ran.out)
        assert f"do: {found[0]['advice']}" in ran.out
        return found[0]

    def follow(self, finding: Finding) -> None:
        """Do what the advice says: its `hipq` command, or its SQL is for the caller."""
        match = re.search(r"`hipq (.*?)`", finding["advice"])
        assert match, finding["advice"]
        words = shlex.split(match[1])
        if words[0] == "worker":
            assert words[1] == "shop:app"
            assert self._worker(*words[2:], "--until-empty").ended() == 0
        else:
            ran = self._hipq(*words)
            assert ran.status == 0, ran.err


@pytest.fixture
def doctor(hipq: HipqCommand, worker: Callable[..., Worker]) -> Doctor:
    return Doctor(hipq, worker)
