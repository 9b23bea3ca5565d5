"""The real nginx and haproxy, as deploy/proxy says, in front of two daemons: what passes, and what is posted while the
daemons are restarted."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.daemon.api_serving import Daemon, Site, Tenant, eventually
from tests.deploy.proxied import Proxy, others, proxied
from tests.servers import clean_database, free_port

pytestmark = pytest.mark.long

LARGE = b"\n".join([b"x" * (256 << 10)] * 40)
"""Of 10 MB: forty jobs."""


class Fleet:
    """Two daemons on one database behind a proxy, and a tenant that calls it."""

    def __init__(self, site: Site, ports: list[int]) -> None:
        self.site, self.ports = site, ports
        self.running = [self.start(number) for number in (0, 1)]
        self.tenant = site.tenant()
        self.tenant.handler("shout", "return payload.upper()")

    def start(self, number: int) -> Daemon:
        where = ("--port", str(self.ports[number]), "--journal", str(self.site.folder / f"journal-of-{number}"))
        return self.site.daemon(*where, "--retry-after", "1")

    def restart(self, number: int) -> None:
        assert self.running[number].stop() == 0, self.running[number].log
        self.running[number] = self.start(number)
        eventually(lambda: self.running[number].call("GET", "/ready").status == 200)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with clean_database() as url:
        site = Site(url, tmp_path)
        try:
            yield Fleet(site, [free_port(), free_port()])
        finally:
            site.close()


@pytest.fixture(params=["nginx", "haproxy"])
def proxy(request: pytest.FixtureRequest, fleet: Fleet, tmp_path: Path) -> Iterator[Proxy]:
    one, two = fleet.ports
    with others() as port:
        ports = {"8000": one, "8010": two, "8001": port, "4477": port}
        with proxied(request.param, tmp_path, ports) as found:
            eventually(lambda: found.call("GET", "/ready")[0] == 200)
            yield found


def post(proxy: Proxy, tenant: Tenant, body: bytes, key: str = "") -> tuple[int, bytes]:
    headers = {"authorization": f"Bearer {tenant.token}", **({"idempotency-key": key} if key else {})}
    return proxy.call("POST", f"/{tenant.name}/job/shout/add", body, headers)


def test_jobs_results_events_and_large_bodies_pass(fleet: Fleet, proxy: Proxy) -> None:
    tenant, token = fleet.tenant, {"authorization": f"Bearer {fleet.tenant.token}"}
    stream = proxy.connect()
    stream.request("GET", f"/v1/{tenant.name}/events", headers=token)
    events = stream.getresponse()
    assert events.status == 200
    posted = [post(proxy, tenant, b"hello") for _ in range(4)]  # some to each daemon
    assert [status for status, _ in posted] == [200] * 4
    job_id = posted[0][1].decode().split('"')[3]
    assert proxy.call("GET", f"/v1/{tenant.name}/jobs/{job_id}/result?wait=30", headers=token) == (200, b"HELLO")
    told = threading.Event()
    reader = threading.Thread(target=lambda: told.set() if any(line.startswith(b"data:") for line in events) else None)
    reader.start()
    eventually(
        lambda: told.is_set() or post(proxy, tenant, b"hello")[0] != 200
    )  # a daemon tells of what it does itself
    assert told.is_set(), "an event comes while the stream is open"
    stream.close()
    reader.join(30)
    assert post(proxy, tenant, LARGE)[0] == 200
    assert proxy.call("GET", "/metrics", headers=token)[0] == 403
    for path in ("/hipq/secret", "/dashboard/jobs"):
        assert proxy.call("GET", path) == (200, f"{path} https".encode())


def test_daemons_are_restarted_one_after_the_other_and_no_job_is_lost_or_doubled(fleet: Fleet, proxy: Proxy) -> None:
    tenant, over = fleet.tenant, threading.Event()
    posted, again = list[str](), list[str]()

    def client(number: int) -> None:
        """What has no good answer is sent again, under the same key, as any client should."""
        for turn in range(100_000):
            if over.is_set():
                return
            key = f"{number}-{turn}"
            while True:
                try:
                    status, _ = post(proxy, tenant, key.encode(), key)
                except (OSError, http.client.HTTPException):
                    status = 0
                if status == 200:
                    posted.append(key)
                    break
                assert status in (0, 502, 503, 504), status
                again.append(key)
                assert not over.wait(0.02) or len(again) < 10_000

    threads = [threading.Thread(target=client, args=[number]) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in (0, 1):
            fleet.restart(number)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert len(posted) > 20
    assert len(again) < len(posted) / 4, f"{len(again)} of {len(posted)} posts had to be sent again"
    with psycopg.connect(fleet.site.url, autocommit=True) as conn:
        table = next(one.table for one in fleet.site._store.queues())

        def done() -> list[str]:
            query = f"SELECT result FROM {table}_final WHERE job_type = 'shout' AND code = 'ok'"
            return [row[0] for row in conn.execute(query.encode())]

        eventually(lambda: len(done()) >= len(posted))
        assert sorted(done()) == sorted(json.dumps(key.upper()) for key in posted)
        alive = conn.execute(f"SELECT count(*) FROM {table} WHERE job_type = 'shout'".encode()).fetchone()
    assert alive == (0,)
