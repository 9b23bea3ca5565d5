"""From what a user writes about a database to the database; and how it is named to people."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from hipq import Hipq, Invalid
from hipq.errors import StoreUnavailable
from hipq.stores.open import url_of, without_password
from tests.servers import OwnPostgres

PASSWORD = "p@s/s:w?rd %&'\"=\\ü"
"""With everything in it that means something in one of the forms."""

IN_MEMORY: dict[str, Any] = {
    "sqlite://": "sqlite://",
    "sqlite:///:memory:": "sqlite:///:memory:",
    ":memory:": ":memory:",
    "as a database": {"driver": "sqlite", "database": ":memory:"},
    "as a file": {"driver": "sqlite", "file": ":memory:"},
    "as JSON": '{"driver": "sqlite", "database": ":memory:"}',
}

FILES: dict[str, Any] = {
    "a URL": "sqlite:///x.db",
    "a database": {"driver": "sqlite", "database": "x.db"},
    "a file": {"driver": "sqlite", "file": "x.db"},
    "a file, and no database": {"driver": "sqlite", "file": "x.db", "database": None},
    "JSON": '{"driver": "sqlite", "database": "x.db"}',
    "JSON in a mapping": {"url": ' {"driver": "sqlite", "file": "x.db"}'},
}


@pytest.mark.parametrize("db", FILES.values(), ids=FILES)
def test_a_file_is_a_file_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: Any) -> None:
    """What was acknowledged is there for the next process, under the name that was given."""
    monkeypatch.chdir(tmp_path)
    app = Hipq("cfg", db)
    job_id = app.queue("orders").enqueue("work", {"n": 1})
    app.close()
    assert (tmp_path / "x.db").exists()
    again = Hipq("cfg", "sqlite:///x.db")
    again.queue("orders")
    assert again.job(job_id).data == {"n": 1}
    again.close()


@pytest.mark.parametrize("db", IN_MEMORY.values(), ids=IN_MEMORY)
def test_in_memory_is_asked_for_by_name(db: Any) -> None:
    assert url_of(db) == "sqlite://"


REFUSED: dict[str, tuple[Any, str]] = {
    "a URL for its database": (
        {"driver": "postgresql", "database": "postgresql://ann:s3cret@127.0.0.1/shop"},
        "must be the name of a database",
    ),
    "words for its database": ({"driver": "postgresql", "dbname": "password=s3cret"}, "must be the name of a database"),
    "a port that is no number": ({"driver": "postgresql", "port": "s3cret"}, "port must be a number"),
    "no file": ({"driver": "sqlite"}, "must name one file"),
    "an empty file": ({"driver": "sqlite", "file": ""}, "must name one file"),
    "a database that is null": ('{"driver": "sqlite", "database": null}', "must name one file"),
    "two files": ({"driver": "sqlite", "file": "a.db", "database": "b.db"}, "must name one file"),
    "a list of files": ({"driver": "sqlite", "file": ["a.db"]}, "must be a string"),
    "a host for a file": ({"driver": "sqlite", "file": "a.db", "host": "b"}, "known are driver, database, file"),
    "a mistyped key": ({"driver": "postgresql", "sslmod": "require"}, "did you mean sslmode? known are driver"),
    "a mistyped key in a URL": ("postgresql://db/shop?sslmod=require", "did you mean sslmode? known are"),
    "a URL and more": ({"url": "sqlite:///a.db", "host": "b"}, "known are url"),
    "no driver": ({"database": "a.db"}, "driver must be sqlite, postgresql or mariadb"),
    "another driver": ({"driver": "oracle", "database": "a"}, "sqlite, postgresql or mariadb, not oracle"),
    "two names for one": ({"driver": "postgresql", "database": "a", "dbname": "b"}, "are the same"),
    "Oracle": ("oracle://y", "no jobs in oracle databases: use sqlite:///file.db"),
    "SQLAlchemy's": ("postgresql+psycopg://a@b/c", "no jobs in postgresql+psycopg databases"),
    "a file name": ("shop.db", "write sqlite:///shop.db"),
    "nothing": ("", "this is not a database URL"),
    "half of JSON": ('{"driver": "sqlite"', "db is not JSON"),
    "no scheme": ("ann:sezzy@db/shop", "write postgresql://user:password@host/database"),
    "two signs": ("postgresql://ann:se@zzy@db/shop", "%40 for @"),
    "a slash": ("postgresql://ann:12/zzy@db/shop", "%2F for /"),
    "a question": ("postgresql://ann:se?zzy@db/shop", "percent-encoded"),
    "a port of letters": ("postgresql://ann:sezzy", "the port in a PostgreSQL URL must be a number"),
    "half a percent": ("postgresql://ann:se%zzy@db/shop", "percent-encoded"),
    "words with a gap": ("host=db password=se zzy", "this is not a PostgreSQL URL"),
    "an unknown word": ("host=db pasword=sezzy", "this is not a PostgreSQL URL"),
    "semicolons": ("host=db;password=sezzy", "spaces between them, not semicolons"),
    "a line of settings": ("DATABASE_URL=postgresql://ann:sezzy@db/shop", "this is not a PostgreSQL URL"),
    "a URI of SQLite's": ("sqlite:///file:memorydb_default?mode=memory&cache=shared", "takes the path of a file"),
    "the same as a path": ({"driver": "sqlite", "database": "file:shop.db?mode=ro"}, "takes the path of a file"),
    "bytes": (b"sqlite://", "must be a URL, a mapping, or several of them in a list, not bytes"),
}


@pytest.mark.parametrize(("db", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_database_is_refused_where_it_is_written(db: Any, sentence: str) -> None:
    with pytest.raises(Invalid) as raised:
        Hipq("shop", db)
    assert sentence in str(raised.value)
    assert "zzy" not in str(raised.value)
    assert raised.value.__cause__ is None


# -- PostgreSQL ------------------------------------------------------------------------------------------------------
KEYS: dict[str, dict[str, Any]] = {
    "few": {"driver": "postgresql", "database": "shop"},
    "libpq's own name": {"driver": "postgres", "dbname": "shop", "user": "ann"},
    "all that a URL has a place for": {
        "driver": "postgresql", "database": "sh/op", "user": "a@b", "password": PASSWORD, "host": "db", "port": 5433,
    },
    "options": {
        "driver": "postgresql", "database": "shop", "host": "db", "sslmode": "require", "connect_timeout": 3,
        "options": "-c search_path=a,b -c work_mem='1 MB'", "keepalives": False,
    },
    "a socket's folder": {"driver": "postgresql", "host": "/run/post gres", "port": 5433, "password": PASSWORD},
    "an abstract socket": {"driver": "postgresql", "host": "@pg", "database": "shop"},
    "IPv6": {"driver": "postgresql", "host": "fe80::1", "port": "5433", "user": "ann"},
    "IPv6 with a zone": {"driver": "postgresql", "host": "fe80::1%eth0", "port": "5433"},
    "several hosts": {"driver": "postgresql", "host": "a,b", "port": "1,2", "target_session_attrs": "read-write"},
}  # fmt: skip


@pytest.mark.parametrize("form", ["mapping", "JSON", "words"])
@pytest.mark.parametrize("given", KEYS.values(), ids=KEYS)
def test_any_key_of_libpq_reaches_it_as_it_was(given: dict[str, Any], form: str) -> None:
    wanted = {name: str(int(value)) if isinstance(value, bool) else str(value) for name, value in given.items()}
    del wanted["driver"]
    if "database" in wanted:
        wanted["dbname"] = wanted.pop("database")
    db: Any = given
    if form == "JSON":
        db = json.dumps(given)
    if form == "words":
        db = " ".join(f"{name}='{_escaped(value)}'" for name, value in wanted.items())
    url = Hipq("shop", db).url
    assert conninfo_to_dict(url) == wanted
    assert url_of(url) == url
    assert PASSWORD not in without_password(url)


def test_an_ipv6_host_may_be_in_brackets_as_in_a_url() -> None:
    assert url_of({"driver": "postgresql", "host": "[::1]", "port": 5433}) == "postgresql://[::1]:5433/"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    """One that listens on IPv6 and on a socket, and wants a password."""
    server = OwnPostgres(listen_addresses="127.0.0.1,::1")
    server.settings["unix_socket_directories"] = str(server.folder)
    try:
        (server.folder / "data" / "pg_hba.conf").write_text(
            "host all postgres 127.0.0.1/32 trust\nlocal all all scram-sha-256\nhost all all all scram-sha-256\n"
        )
        server.start()
        with psycopg.connect(server.url, autocommit=True) as conn:
            literal = psycopg.sql.Literal(PASSWORD)
            conn.execute(psycopg.sql.SQL("CREATE ROLE ann SUPERUSER LOGIN PASSWORD {}").format(literal))
        yield server
    finally:
        server.close()


def _has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


@pytest.mark.parametrize("where", ["a name", "IPv4", "a socket's folder", *(["IPv6"] if _has_ipv6() else [])])
def test_postgresql_is_reached_by_every_way_to_name_it(server: OwnPostgres, where: str) -> None:
    """By a real server that wants the password: as a mapping, as JSON, as words and as a URL."""
    at = urlsplit(server.url)
    host = {"a name": "localhost", "IPv4": "127.0.0.1", "IPv6": "::1", "a socket's folder": str(server.folder)}[where]
    database = at.path[1:]
    given: dict[str, Any] = {
        "driver": "postgresql", "host": host, "port": at.port, "user": "ann", "password": PASSWORD,
        "database": database, "options": "-c application_name=from\\ options", "connect_timeout": 10,
        "sslmode": "prefer",
    }  # fmt: skip
    words = f"host='{host}' port={at.port} user=ann password='{_escaped(PASSWORD)}' dbname={database}"
    in_brackets = f"[{host}]" if ":" in host else quote(host, safe="")
    url = f"postgresql://ann:{quote(PASSWORD, safe='')}@{in_brackets}:{at.port}/{database}"
    forms: list[Any] = [given, json.dumps(given), words, url]
    for number, db in enumerate(forms):
        app = Hipq(f"shop{'abcd'[number]}", db)
        app.migrate()
        job_id = app.queue("orders").enqueue("work", number)
        assert app.job(job_id).data == number
        assert PASSWORD not in repr(app) + app.store.url
        app.close()


# -- what people see -------------------------------------------------------------------------------------------------
SHOWN = {
    "postgresql://ann:s3cret@db:5432/shop": "postgresql://ann:…@db:5432/shop",
    "postgresql://ann:s3@c/r?et@db:5432/shop": "postgresql://ann:…@db:5432/shop",
    "postgresql://ann:s3cret": "postgresql://ann:…",
    "postgresql://ann:s3cret@[::1]:5432/shop": "postgresql://ann:…@[::1]:5432/shop",
    "postgresql://[::1]:5432/shop": "postgresql://[::1]:5432/shop",
    "postgresql://a:1,b:2/shop?sslmode=require": "postgresql://a:1,b:2/shop?sslmode=require",
    "postgresql+x://ann:s3cret@db/shop": "postgresql+x://ann:…@db/shop",
    "postgresql://db/shop?user=ann&password=s3cret&sslpassword=s3cret&port=1": (
        "postgresql://db/shop?user=ann&password=…&sslpassword=…&port=1"
    ),
    "ann:s3cret@db/shop": "ann:…@db/shop",
    "host=db password=s3cret user=ann": "host=db password=… user=ann",
    "host=db password = 's3\\'cr et' user=ann": "host=db password=… user=ann",
    "host=db PASSWORD=s3 cr&et": "host=db PASSWORD=…",
    "password='s3cret": "password=…",
    '{"driver": "postgresql", "pass\\u0077ord": "s3cret", "port": 1}': (
        '{"driver": "postgresql", "password": "…", "port": 1}'
    ),
    '{"url": "postgresql://ann:s3cret@db/shop"}': '{"url": "postgresql://ann:…@db/shop"}',
    '{"password": "s3cret"': "{…}",
    "DATABASE_URL=postgresql://ann:s3@cret@db/shop": "DATABASE_URL=postgresql://ann:…@db/shop",
    "postgresql://db/shop?passw%6Frd=s3cret": "postgresql://db/shop?…",
    "postgresql://db/shop?password%3Ds3cret": "postgresql://db/shop?…",
    "postgresql://ann/s3cret@db/shop": "postgresql://ann:…@db/shop",
    "ann/s3cret@db/shop": "ann:…@db/shop",
    "sqlite:////home/ann@corp:1/shop@2.db": "sqlite:////home/ann@corp:1/shop@2.db",
    "sqlite:///shop.db": "sqlite:///shop.db",
    "shop:app": "shop:app",
}  # fmt: skip


@pytest.mark.parametrize(("db", "shown"), SHOWN.items())
def test_a_database_is_shown_without_its_password(db: str, shown: str) -> None:
    assert without_password(db) == shown
    assert "cret" not in without_password(db)


@pytest.mark.parametrize("url", ["postgresql://hipq@127.0.0.1:1/shop", "sqlite:////no/such/folder/shop.db"])
def test_a_program_that_runs_jobs_hears_at_once_that_its_database_is_away(url: str) -> None:
    """As its docstring says; `hipq worker` waits."""
    app = Hipq("shop", url)
    app.queue("orders")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        app.run()
    with pytest.raises(StoreUnavailable), app.working():
        pass
    assert time.monotonic() - began < 30
