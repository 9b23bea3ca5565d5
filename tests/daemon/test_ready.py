"""What a daemon says of itself, and how it starts and goes on when its store is away or is another one."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
import psycopg
import pytest

from hipq.cli.main import run
from hipq.daemon import daemon as module
from hipq.daemon import ready as ready_module
from hipq.daemon.http.api import app
from hipq.errors import JournalBroken, JournalRefused, StoreUnavailable
from hipq.journal import JournalFinding
from tests.daemon.api_serving import Daemon as Served
from tests.daemon.api_serving import Site, eventually
from tests.daemon.test_api_behind import call
from tests.daemon.working import add, daemon, ended, made, python, refuse
from tests.engine.conftest import url
from tests.proxy import Proxy
from tests.servers import fresh_database
from tests.their_connection import committed

__all__ = ["url"]


def said(served: Any, query: str = "") -> tuple[int, dict[str, Any]]:
    got = call(app(served, tokens=False), "GET", "/ready", query=query)
    return got.status, json.loads(got.body)


def test_ready_says_whether_it_accepts_stores_and_runs_and_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon(tmp_path) as served:
        assert said(served) == (200, {"accepts": True, "stores": True, "runs": True, "reasons": []})
        with monkeypatch.context() as patched:
            patched.setattr(module, "why_no_sandbox", lambda: "bubblewrap is not there")
            patched.setattr(served, "_options", msgspec.structs.replace(
                served._options, contexts=msgspec.structs.replace(served._options.contexts, trust=False)))  # fmt: skip
            status, found = said(served)
            assert (status, found["accepts"], found["stores"], found["runs"]) == (503, True, True, False)
            assert "sandbox cannot start" in found["reasons"][0]
        with monkeypatch.context() as patched:
            patched.setattr(served._ingest, "away", "no route to host 10.0.0.7")
            status, found = said(served)
            assert (status, found["accepts"], found["stores"], found["runs"]) == (503, True, False, False)
            assert "10.0.0.7" not in str(found), "whoever can connect may ask"
            assert said(served, "for=accepts")[0] == 200, "what a balancer in front of posts asks"
        with monkeypatch.context() as patched:
            patched.setattr(served.journal._tail, "broken", JournalBroken("the disk"))
            status, found = said(served, "for=accepts")
            assert (status, found["accepts"]) == (503, False)
            assert "latched" in found["reasons"][0]
            patched.undo()
        with monkeypatch.context() as patched:
            patched.setattr(ready_module, "LOW", 1 << 62)
            status, found = said(served)
            assert status == 200
            assert "disk of the journal is low" in found["reasons"][0]
        served.journal.found.append(JournalFinding("damage", "x", 0, 10, "rubbish"))
        status, found = said(served)
        assert status == 200
        assert "journal is damaged" in found["reasons"][0]


def test_a_daemon_starts_and_accepts_while_the_database_is_away(tmp_path: Path) -> None:
    with fresh_database() as real, ExitStack() as stack:
        server = urlsplit(real)
        proxy = stack.enter_context(Proxy(server.hostname or "", server.port or 5432))
        through = urlunsplit(server._replace(netloc=f"{server.username}@127.0.0.1:{proxy.port}"))
        site = Site(real, tmp_path)
        daemon = Served(tmp_path, through)
        site.daemons.append(daemon)
        mine = site.tenant(daemon)
        mine.handler("echo", "return payload")
        (before,) = mine.add("echo", b"x")
        mine.ended(before)
        eventually(lambda: mine.name in next(tmp_path.glob("journal-*/daemon")).read_text())
        daemon.stop()
        journal = next(tmp_path.glob("journal-*"))
        proxy.silence()
        again = Served(tmp_path, through, "--journal", str(journal), HIPQ_STORE_TIMEOUT="4")
        mine.daemon = again
        (job_id,) = mine.add("echo", b"while it was away")
        assert job_id not in (before, "")
        assert mine("GET", f"/v1/{{}}/jobs/{job_id}").status == 202
        got = again.call("GET", "/ready")
        assert (got.status, got.json["accepts"], got.json["stores"], got.json["runs"]) == (503, True, False, False)
        assert again.call("GET", "/health").status == 200
        assert again.call("GET", f"/v1/{mine.name}/jobs", token="hipq_nobodys").status == 503
        proxy.heal()
        assert mine.ended(job_id).body == b"while it was away"
        eventually(lambda: again.call("GET", "/ready").status == 200)
        again.stop()
        site.close()


def test_one_that_never_saw_its_database_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        made(tmp_path, "postgresql://postgres@127.0.0.1:1/nothing")


def test_a_wrong_database_is_refused_before_tables_are_made_in_it(url: str, tmp_path: Path) -> None:
    with daemon(tmp_path, url) as served:
        python(served, "echo", "return payload")
        ended(served, add(served, "echo", b"x")[0])
    with pytest.raises(JournalRefused, match="belongs to another database"):
        made(tmp_path, f"sqlite:///{tmp_path}/wrong.db")
    assert not os.path.exists(tmp_path / "wrong.db")
    empty = tmp_path / "empty.db"
    with closing(sqlite3.connect(empty)) as conn:
        conn.execute("CREATE TABLE mine (x)")
    with pytest.raises(JournalRefused, match="belongs to another database"):
        made(tmp_path, f"sqlite:///{empty}")
    with closing(sqlite3.connect(empty)) as conn:
        assert conn.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    with fresh_database() as other:
        with pytest.raises(JournalRefused, match="belongs to another database"):
            made(tmp_path, other)
        with psycopg.connect(other) as pg:
            query = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'hipq%'"
            assert pg.execute(query).fetchall() == [(0,)]


def test_what_is_in_quarantine_is_listed_looked_at_and_posted_again(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "journal")
    served = made(tmp_path, url)
    refuse(served.store, url, "poison")
    ids = add(served, "echo", b"a", b"poison", b"b")
    served.close()
    with daemon(tmp_path, url) as served:
        python(served, "echo", "return payload")
        ended(served, ids[2])
        assert served.health() == "refused"
        assert run(["journal", "quarantine", folder, "--json"]) == 0
        (one,) = msgspec.json.decode(capsys.readouterr().out)
        assert (one["what"], one["jobs"]) == ("refused", 1)
        assert "picky" in one["why"]
        assert run(["journal", "quarantine", folder, one["file"]]) == 0
        assert "poison" in capsys.readouterr().out
        assert run(["journal", "quarantine", folder, "../store"]) == 1
        capsys.readouterr()
        assert run(["journal", "repost", folder, "--db", url, "--json"]) == 1
        assert "refused" in msgspec.json.decode(capsys.readouterr().out)[0]["outcome"]
        _allow(url, served)
        assert run(["journal", "repost", folder, "--db", url, "--json"]) == 0
        assert msgspec.json.decode(capsys.readouterr().out) == [{"file": one["file"], "jobs": 1, "outcome": "stored"}]
        assert served.jobs.result(ended(served, ids[1])) == b"poison", "under the id that was promised"
        eventually(lambda: served.health() == "ok")
        assert run(["journal", "quarantine", folder, "--json"]) == 0
        assert msgspec.json.decode(capsys.readouterr().out) == []


def _allow(url: str, served: Any) -> None:
    (queue,) = served.store.queues()
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as conn:
            conn.execute("DROP TRIGGER picky")
    else:
        with committed(url) as conn:
            conn.execute(f"ALTER TABLE {queue.table} DROP CONSTRAINT picky")
