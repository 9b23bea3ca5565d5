"""`hipq serve` and its signals: the first lets what runs finish, the second gives it back."""

from __future__ import annotations

import shutil
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hipq.daemon import ingest
from hipq.sandbox import trying
from hipq.signals import TOGETHER
from hipq.stores.notes import note
from hipq.stores.open import open_store
from hipq.stores.values import JOURNALS
from tests.daemon.api_serving import Daemon as Served
from tests.daemon.api_serving import Site, eventually
from tests.daemon.working import add, daemon


def test_what_runs_may_finish_and_a_second_signal_gives_it_back(tmp_path: Path) -> None:
    site = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    try:
        first = site.daemon()
        tenant = site.tenant()
        go = tmp_path / "go"
        body = f"import os, time\nopen({str(tmp_path)!r} + '/began-' + payload, 'w').close()\n"
        body += f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\nreturn 'rested'"
        tenant.handler("nap", body)
        (job_id,) = tenant.add("nap", b"1")
        eventually((tmp_path / "began-1").exists)  # what was claimed only is given back at once
        first.process.send_signal(signal.SIGTERM)
        eventually(lambda: not _answers(first.port))
        go.touch()
        assert first.process.wait(60) == 0
        go.unlink()
        second = site.daemon()
        tenant.daemon = second
        assert tenant.ended(job_id).body == b"rested", "it was let finish, although nobody could ask any more"
        (job_id,) = tenant.add("nap", b"2")
        eventually((tmp_path / "began-2").exists)
        second.process.send_signal(signal.SIGTERM)
        eventually(lambda: not _answers(second.port))
        time.sleep(TOGETHER * 2)  # else it is the same one
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(60) == 0
        row = site._store.get(int(job_id))
        assert row
        assert (row.owner, row.failures, row.state) == (0, 0, "retry")
    finally:
        site.close()


def test_a_daemon_whose_journal_was_removed_acknowledges_nothing_and_stops(tmp_path: Path) -> None:
    site = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    try:
        daemon = site.daemon()
        tenant = site.tenant()
        tenant.add("mail", b"x")
        (journal,) = tmp_path.glob("journal-*")
        shutil.rmtree(journal)
        try:
            assert tenant("POST", "/{}/job/mail/add", b"y").status == 503
        except OSError:
            pass  # it has noticed before, and is stopping
        assert daemon.process.wait(60) == 1
        assert "removed" in daemon.log.splitlines()[-1]
        assert "Traceback" not in daemon.log
    finally:
        site.close()


def _napping(site: Site, tmp_path: Path) -> str:
    """The id of a job that runs, and would go on for ever."""
    tenant = site.tenant()
    tenant.handler("nap", f"import time\nopen({str(tmp_path)!r} + '/began', 'w').close()\ntime.sleep(600)")
    (job_id,) = tenant.add("nap", b"1")
    eventually((tmp_path / "began").exists)
    return job_id


def _half_a_request(site: Site) -> socket.socket:
    """It is let in, and its body never comes."""
    tenant = site.tenant(site.daemons[-1])
    link = tenant.daemon.connect()
    token = tenant.token.encode()
    link.sendall(b"POST /%b/job/x/add HTTP/1.1\r\nauthorization: Bearer %b\r\ncontent-length: 100\r\n\r\nhalf" % (
        tenant.name.encode(), token))  # fmt: skip
    time.sleep(1.5)  # until it goes the usual way, which waits for it
    return link


def _given_back(site: Site, job_id: str) -> bool:
    row = site._store.get(int(job_id))
    assert row
    return (row.owner, row.failures, row.state) == (0, 0, "retry")


def test_drain_bounds_a_stop_and_gives_the_rest_back(tmp_path: Path) -> None:
    site = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    try:
        served = site.daemon("--drain", "1s")
        job_id = _napping(site, tmp_path)
        half = _half_a_request(site)
        began = time.monotonic()
        assert served.stop() == 0
        assert 0.9 < time.monotonic() - began < 9, "neither the handler nor the request was waited for any longer"
        assert _given_back(site, job_id)
        half.close()
    finally:
        site.close()


def test_a_second_signal_ends_a_stop_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    site = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    try:
        served = site.daemon("--shutdown-delay", "10m")
        job_id = _napping(site, tmp_path)
        tenant = site.tenant()
        half = _half_a_request(site)
        served.process.send_signal(signal.SIGTERM)
        eventually(lambda: served.call("GET", "/ready").status == 503)
        ids = [tenant.add("mail", b"x")[0] for _ in range(50)]
        assert len(set(ids)) == 50, "it takes jobs until it ends"
        time.sleep(TOGETHER * 2)  # else it is the same one
        began = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(60) == 0
        assert time.monotonic() - began < 9
        half.close()
        assert _given_back(site, job_id)
        tenant.daemon = Served(site.folder, site.url, journal=served.journal)
        site.daemons.append(tenant.daemon)
        assert {tenant.job(one)["type"] for one in ids} == {"mail"}
    finally:
        site.close()


def test_what_is_in_the_journal_is_stored_before_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine may be taken away next."""
    monkeypatch.setattr(ingest, "REST", 0.2)
    monkeypatch.setattr(ingest, "STEP", 10)
    with daemon(tmp_path) as served:
        ids = [job_id for _ in range(10) for job_id in add(served, "mail", *[b"x"] * 10)]
        served.stop()
        served.close()
        store = open_store(f"sqlite:///{tmp_path}/daemon.db")
        try:
            assert all(store.get(job_id) for job_id in (ids[0], ids[-1]))
            assert note(store, JOURNALS, served.journal.identity).startswith(str(served.journal.last))
        finally:
            store.close()


def test_it_says_that_it_is_not_ready_before_nobody_listens_any_more_and_ends_connections_with_a_reply(
    tmp_path: Path,
) -> None:
    site = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    try:
        served = site.daemon("--shutdown-delay", "2s")
        tenant = site.tenant()
        post = b"POST /%b/job/mail/add HTTP/1.1\r\nauthorization: Bearer %b\r\ncontent-length: 1\r\n\r\nx"
        add = post % (tenant.name.encode(), tenant.token.encode())
        with served.connect() as idle, served.connect() as busy, served.connect() as other:
            for one in (idle, busy, other):
                one.sendall(add)
                assert b"connection: close" not in one.recv(65536).lower()
            served.process.send_signal(signal.SIGTERM)
            got = eventually(lambda: (said := served.call("GET", "/ready?for=accepts")).status == 503 and said)
            assert got.json["reasons"][0].startswith("the daemon stops")
            assert served.call("GET", "/health").status == 200, "it is alive"
            assert tenant("POST", "/{}/job/mail/add", b"new").status == 200, "nobody who comes is sent away"
            busy.sendall(add)
            said = _all(busy)
            assert said.startswith(b"HTTP/1.1 200")
            assert b"connection: close" in said.lower()
            other.sendall(b"GET /health HTTP/1.1\r\n\r\n")
            assert b"connection: close" in _all(other).lower()
            assert _all(idle) == b"", "closed, not reset"
        assert served.process.wait(60) == 0
    finally:
        site.close()


def _all(link: socket.socket) -> bytes:
    found = b""
    while part := link.recv(65536):
        found += part
    return found


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_it_waits_for_no_test_of_a_handler_and_says_so(tmp_path: Path) -> None:
    """Nor for those that wait for their turn behind others."""
    site = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    try:
        daemon = site.daemon()
        began = tmp_path / "began"
        body = f"import time\nwith open({str(began)!r}, 'a') as file:\n    file.write('x')\ntime.sleep(50)"
        slow = {"handler": {"lang": "python", "body": body}}
        tenants = [site.tenant() for _ in range(trying.AT_ONCE + 1)]
        with ThreadPoolExecutor(len(tenants)) as threads:
            tests = [threads.submit(one, "POST", "/v1/{}/handlers/x/test", slow) for one in tenants]
            eventually(lambda: began.exists() and len(began.read_text()) == trying.AT_ONCE)
            assert daemon.stop() == 0
            said = [one.result() for one in tests]
        assert {got.status for got in said} == {503}
        assert {got.error for got in said} == {"the daemon stops, and the test with it: try again"}
        assert "Traceback" not in daemon.log
    finally:
        site.close()
