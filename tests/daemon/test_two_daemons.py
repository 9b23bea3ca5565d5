"""Two daemons on one database: whichever is asked for a job, it is never said not to exist because the other has it."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hipq.daemon import accepted
from hipq.daemon.daemon import Daemon
from hipq.daemon.http import not_stored_yet
from hipq.daemon.http.api import app
from hipq.daemon.ids import BLOCK, RUN
from hipq.limits.tenants import PerTenant
from hipq.stores.filters import Filter
from tests.daemon.api_serving import Site, Tenant, eventually
from tests.daemon.test_api_behind import call
from tests.daemon.working import add, made
from tests.ending import at_the_end
from tests.engine.conftest import url
from tests.servers import free_port, fresh_database

__all__ = ["url"]

pytestmark = pytest.mark.every_store

POSTS = 200


@pytest.fixture
def two(url: str, tmp_path: Path) -> Iterator[tuple[Daemon, Daemon]]:
    """Not started: nothing is taken in before a test says so."""
    found = [made(tmp_path, url, journal=str(tmp_path / name)) for name in ("a", "b")]
    yield found[0], found[1]
    for one in found:
        one.stop()
        one.close()


def stepping(daemon: Daemon, done: threading.Event, pause: float = 0.0) -> threading.Thread:
    def run() -> None:
        time.sleep(pause)
        while not done.is_set():
            daemon._ingest.step()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_job_that_another_daemon_has_in_its_journal_is_waited_for(two: tuple[Daemon, Daemon]) -> None:
    first, second = two
    (job_id,) = add(first, "mail", b"x")
    done = threading.Event()
    thread = stepping(first, done, 0.1)
    try:
        assert call(app(second, tokens=False), "GET", f"/v1/acme/jobs/{job_id}").status == 200
    finally:
        done.set()
        first.journal.notify()
        thread.join()


@pytest.mark.parametrize(("method", "verb", "status"), [
    ("GET", "", 202), ("GET", "/result", 202), ("GET", "/why", 202), ("POST", "/cancel", 503), ("POST", "/retry", 503),
])  # fmt: skip
def test_one_that_stays_there_is_accepted_and_not_stored_yet(
    two: tuple[Daemon, Daemon], method: str, verb: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(not_stored_yet, "ON_ITS_WAY", 0.5)
    first, second = two
    (job_id,) = add(first, "mail", b"x")
    got = call(app(second, tokens=False), method, f"/v1/acme/jobs/{job_id}{verb}")
    assert (got.status, dict(got.headers)[b"retry-after"]) == (status, b"1")
    assert b"not stored yet" in got.body
    assert b"accepted" in got.body


def test_what_another_daemon_never_gave_out_does_not_exist_once_it_has_said_so(two: tuple[Daemon, Daemon]) -> None:
    first, second = two
    (job_id,) = add(first, "mail", b"x")
    never = job_id + (7 << 16)  # of a block of the first daemon's
    done = threading.Event()
    thread = stepping(first, done)
    try:
        began = time.monotonic()
        assert call(app(second, tokens=False), "GET", f"/v1/acme/jobs/{never}").status == 404
        assert time.monotonic() - began < not_stored_yet.ON_ITS_WAY - 1
    finally:
        done.set()
        first.journal.notify()
        thread.join()


@pytest.mark.parametrize("how", ["its own daemon is asked", "its block was left", "its daemon has ended"])
def test_what_was_stored_and_is_gone_or_anothers_is_404_at_once(
    two: tuple[Daemon, Daemon], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepted, "ASK_AFTER", 60.0)
    first, second = two
    (job_id, *_) = add(first, "mail", b"x", b"y", tenant="other")
    first._ingest.step()
    if how == "its block was left":
        first.ids.take("third", BLOCK - RUN)
        first.ids.reserve()
        add(first, "mail", *[b"z"] * (RUN + 1), tenant="third")
        first._ingest.step()
    if how == "its daemon has ended":
        first._ingest.stop()
    api = app(first if how.startswith("its own") else second, tokens=False)
    assert call(api, "GET", f"/v1/acme/jobs/{job_id}").status == 404
    assert call(api, "GET", f"/v1/acme/jobs/{job_id + (1 << 40)}").status == 404, "nobody's block"


def test_a_tenants_job_is_waited_for_although_the_store_has_later_numbers_of_others(two: tuple[Daemon, Daemon]) -> None:
    first, second = two
    add(first, "mail", b"x", tenant="acme")
    add(first, "mail", b"x", tenant="other")
    first._ingest.step()
    (job_id,) = add(first, "mail", b"y", tenant="acme")
    done = threading.Event()
    thread = stepping(first, done, 0.1)
    try:
        assert call(app(second, tokens=False), "GET", f"/v1/acme/jobs/{job_id}").status == 200
    finally:
        done.set()
        first.journal.notify()
        thread.join()


# -- over a network ----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with fresh_database() as found:
        site = Site(found, tmp_path_factory.mktemp("pair"))
        for _ in range(2):
            site.daemon()
        yield site
        site.close()


def test_result_waits_for_a_job_that_was_posted_to_the_other_daemon(pair: Site) -> None:
    first, second = pair.daemons
    mine = pair.tenant(first)
    mine.handler("shout", "return payload.upper()")
    for n in range(20):
        (job_id,) = mine.add("shout", f"hello {n}".encode())
        got = second.call("GET", f"/v1/{mine.name}/jobs/{job_id}/result?wait=30", token=mine.token)
        assert (got.status, got.body) == (200, f"HELLO {n}".encode())


def test_quotas_that_are_changed_while_they_run_count_at_both_within_a_second_or_so(pair: Site) -> None:
    mine = pair.tenant()
    mine.handler("slow", "import time\ntime.sleep(0.4)")
    both = [Tenant(daemon, mine.name, mine.token) for daemon in pair.daemons]

    def posted(*statuses: int) -> bool:
        return all(one("POST", "/{}/job/later/add?dt=2040-01-01T00:00:00Z", b"x").status in statuses for one in both)

    def soon(true: Any) -> None:
        began = time.monotonic()
        eventually(true, 20)
        took.append(time.monotonic() - began)

    took: list[float] = []
    assert posted(200)
    pair.tenants.set(mine.name, waiting=1)
    soon(lambda: posted(429))
    pair.tenants.set(mine.name, waiting=0, requests=1)
    soon(lambda: posted(200))
    soon(lambda: all(429 in [one("GET", "/v1/{}/queues").status for _ in range(2)] for one in both))
    pair.tenants.set(mine.name, requests=0, running=1)
    (queue,) = pair._store.queues()
    soon(lambda: PerTenant({mine.name: 1}) in pair._store.rules(queue.number).limits)
    ids = [job_id for one in both for job_id in one.add("slow", b"1\n2\n")]
    executing = Filter(queue.number, tenant=mine.name, phase="executing", limit=10)
    looks = [len(pair._store.find(executing))]
    while len(pair._store.find(Filter(queue.number, tenant=mine.name, job_type="slow", state="final"))) < len(ids):
        looks.append(len(pair._store.find(executing)))
    assert max(looks) == 1
    assert sorted(took)[2] < 3, "the machine may have been busy once"


def balancer(folder: Path, ports: list[int]) -> tuple[list[str], int]:
    """A round-robin proxy in front of these ports: how it is started, and where it listens."""
    port = free_port()
    if shutil.which("haproxy") or Path("/usr/sbin/haproxy").exists():
        servers = "".join(f"  server s{n} 127.0.0.1:{one}\n" for n, one in enumerate(ports))
        text = f"""defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen all
  bind 127.0.0.1:{port}
  balance roundrobin
{servers}"""
        (folder / "haproxy.cfg").write_text(text)
        return [shutil.which("haproxy") or "/usr/sbin/haproxy", "-db", "-f", str(folder / "haproxy.cfg")], port
    if nginx := shutil.which("nginx") or (Path("/usr/sbin/nginx").exists() and "/usr/sbin/nginx"):
        servers = "".join(f"server 127.0.0.1:{one};" for one in ports)
        text = f"""daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{}}
http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
upstream all {{ {servers} }} server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://all; }} }} }}"""
        (folder / "nginx.conf").write_text(text)
        return [str(nginx), "-c", str(folder / "nginx.conf"), "-p", str(folder)], port
    pytest.skip("neither haproxy nor nginx is installed here: apt-get install haproxy")


def test_behind_a_round_robin_proxy_no_job_that_was_accepted_is_said_not_to_exist(pair: Site, tmp_path: Path) -> None:
    command, port = balancer(tmp_path, [daemon.port for daemon in pair.daemons])
    mine = pair.tenant()
    mine.handler("echo", "return payload")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    at_the_end(process.kill)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

        def ask(method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
            connection.request(method, f"/{path}", body, {"Authorization": f"Bearer {mine.token}"})
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text else None

        def is_up() -> bool:
            try:
                return ask("GET", "health")[0] == 200
            except OSError:
                connection.close()
                return False

        eventually(is_up)
        seen: dict[int, int] = {}
        for n in range(POSTS):  # three requests a round, of two daemons: both are posted to, and both are asked
            status, said = ask("POST", f"{mine.name}/job/echo/add", b"x%d" % n)
            assert status == 200
            for _ in range(2):
                status, _job = ask("GET", f"v1/{mine.name}/jobs/{said['ids'][0]}")
                seen[status] = seen.get(status, 0) + 1
        assert set(seen) <= {200, 202}, seen
        assert sum(seen.values()) == 2 * POSTS
    finally:
        process.kill()
        process.wait()
