"""Two daemons behind haproxy, restarted one after the other while jobs are posted: none fails, and none is lost."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hipq.stores.filters import Filter
from tests.daemon.api_serving import Daemon, Site, Tenant, eventually
from tests.ending import at_the_end
from tests.servers import free_port, fresh_database

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
CLIENTS = 8
OPTIONS = ("--shutdown-delay", "1s", "--drain", "30s")


class Haproxy:
    def __init__(self, folder: Path, first: int, second: int) -> None:
        assert HAPROXY
        self.port, self._socket = free_port(), folder / "haproxy.socket"
        text = (Path(__file__).parent / "haproxy.cfg").read_text()
        file = folder / "haproxy.cfg"
        file.write_text(text.format(socket=self._socket, port=self.port, first=first, second=second))
        self.process = subprocess.Popen([HAPROXY, "-db", "-q", "-f", str(file)])
        at_the_end(self.process.kill)
        eventually(lambda: self._socket.exists() and self.up() == {"first", "second"})

    def up(self) -> set[str]:
        """The servers to which it sends requests."""
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(self._socket))
            link.sendall(b"show stat\n")
            text = b"".join(iter(lambda: link.recv(65536), b"")).decode()
        lines = [line.split(",") for line in text.splitlines() if line.startswith("daemons,")]
        return {line[1] for line in lines if line[17] == "UP"} & {"first", "second"}


class Posting:
    """Clients that post jobs, one in a request, each on a connection that it keeps, until they have posted so many and
    are told to end. None of them tries anything twice."""

    def __init__(self, tenant: Tenant, port: int, least: int) -> None:
        self._tenant, self._port, self._least = tenant, port, least
        self.ids: list[str] = []
        self.failures: Counter[str] = Counter()
        self.enough = threading.Event()
        self._threads = [threading.Thread(target=self._post) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _post(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        headers = {"Authorization": f"Bearer {self._tenant.token}"}
        while not self.enough.is_set() or len(self.ids) < self._least:
            try:
                connection.request("POST", f"/{self._tenant.name}/job/echo/add", b"x", headers)
                response = connection.getresponse()
                text = response.read()
                if response.status == 200:
                    self.ids += json.loads(text)["ids"]
                else:
                    self.failures[f"{response.status} {text!r}"] += 1
            except (OSError, http.client.HTTPException) as error:
                self.failures[repr(error)] += 1
                connection.close()
        connection.close()

    def end(self) -> None:
        self.enough.set()
        for thread in self._threads:
            thread.join()


def stored(site: Site) -> Counter[str]:
    (queue,) = site._store.queues()
    found: Counter[str] = Counter()
    after = 0
    while rows := site._store.find(Filter(queue.number, after=after, limit=5000), brief=True):
        found.update(str(row.id) for row in rows)
        after = rows[-1].id
    return found


@contextmanager
def behind_haproxy(folder: Path) -> Iterator[tuple[Site, Haproxy]]:
    with fresh_database() as url:
        site = Site(url, folder)
        try:
            for _ in range(2):
                site.daemon(*OPTIONS)
            first, second = site.daemons
            proxy = Haproxy(folder, first.port, second.port)
            try:
                yield site, proxy
            finally:
                proxy.process.kill()
                proxy.process.wait()
        finally:
            site.close()


def restart(site: Site, proxy: Haproxy, number: int) -> None:
    before = site.daemons[number]
    assert before.stop() == 0, before.log
    assert proxy.up() == {("second", "first")[number]}, "haproxy knew before nobody listened any more"
    site.daemons[number] = Daemon(site.folder, site.url, *OPTIONS, journal=before.journal, port=before.port)
    eventually(lambda: len(proxy.up()) == 2)


def roll(folder: Path, posts: int) -> None:
    with behind_haproxy(folder) as (site, proxy):
        tenant = site.tenant()
        tenant.handler("echo", "return payload")
        posting = Posting(tenant, proxy.port, posts)
        try:
            eventually(lambda: len(posting.ids) > posts // 10)
            for number in (0, 1):
                restart(site, proxy, number)
                wanted = len(posting.ids) + posts // 10  # both have some again
                while len(posting.ids) < wanted:
                    time.sleep(0.01)
        finally:
            posting.end()
        assert posting.failures == {}
        assert len(posting.ids) >= posts
        for one in site.daemons:
            assert one.stop() == 0
        found = stored(site)
        assert set(found.values()) == {1}
        assert set(found) == set(posting.ids), "all that was acknowledged is there, and nothing else"


@pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed here: apt-get install haproxy")
def test_a_rolling_restart_of_two_daemons_behind_haproxy_fails_no_post_and_loses_none(tmp_path: Path) -> None:
    roll(tmp_path, 1000)


@pytest.mark.long
@pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed here: apt-get install haproxy")
def test_a_rolling_restart_under_20_000_posts(tmp_path: Path) -> None:
    roll(tmp_path, 20_000)
