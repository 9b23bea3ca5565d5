"""`hipq serve` in a process of its own, shared by the tests of its HTTP front; tenants to call it as, and a client."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from hipq.daemon.tenancy.tenants import Quotas, Tenants
from hipq.daemon.tenancy.tokens import ALL_TENANTS
from hipq.stores.open import open_store
from tests import processes
from tests.databases import fresh
from tests.ending import at_the_end

_names = count(1)


class Got(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The one sentence of a refusal: there is nothing else in it but what helps a program."""
        said = self.json
        assert self.status >= 400, said
        assert set(said) <= {"error", "id", "ids", "answer"}, said
        assert 0 < len(said["error"]) < 500
        assert "\n" not in said["error"]
        assert "Traceback" not in said["error"]
        return str(said["error"])


class Daemon:
    """Its log is kept."""

    command: Sequence[str] = (sys.executable,)
    """What begins it."""

    def __init__(
        self, folder: Path, url: str, *options: str, trust: bool = True, journal: str = "", port: int = 0,
        **environment: str,
    ) -> None:  # fmt: skip
        self.folder, self.url = folder, url
        self._log = folder / f"serve-{next(_names)}.log"
        self.journal = journal or str(folder / f"journal-{next(_names)}")
        command = [*self.command, "-m", "hipq.cli.main", "serve", "--port", str(port), "--db", url,
                   "--journal", self.journal]  # fmt: skip
        with self._log.open("wb") as log:
            self.process = processes.Popen(
                [*command, *(["--trust-handlers"] if trust else []), *options], cwd=folder, stdout=log, stderr=log,
                env={**os.environ, **environment}, process_group=0,
            )  # fmt: skip
        at_the_end(self.kill)  # a test that fails does not stop it
        self.port = int(eventually(self._listening))

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _listening(self) -> str:
        assert self.process.poll() is None, self.log
        found = re.search(r"listening.*http://127.0.0.1:(\d+)", self.log)
        return found[1] if found else ""

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    # -- calling ----------------------------------------------------------------------------------------------------
    def call(
        self, method: str, path: str, body: Any = None, token: str = "", headers: Mapping[str, str] = {}, **more: str
    ) -> Got:
        """One request. A body that is no bytes is sent as JSON."""
        sent = {name.replace("_", "-"): value for name, value in more.items()} | dict(headers)
        if token:
            sent["authorization"] = f"Bearer {token}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("content-type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Got(response.status, found, response.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def raw(self, text: bytes) -> bytes:
        """What is replied to these bytes until it hangs up."""
        with self.connect() as link:
            try:
                link.sendall(text)
            except OSError:
                pass  # it has hung up already
            found = b""
            try:
                while part := link.recv(65536):
                    found += part
            except ConnectionResetError:
                pass
            return found


class Tenant:
    """Somebody who calls a daemon."""

    def __init__(self, daemon: Daemon, name: str, token: str) -> None:
        self.daemon, self.name, self.token = daemon, name, token

    def __call__(self, method: str, path: str, body: Any = None, **headers: Any) -> Got:
        """`{}` in the path is its name."""
        return self.daemon.call(method, path.replace("{}", self.name), body, self.token, **headers)

    def add(self, jobtype: str, body: Any, query: str = "", **headers: str) -> list[str]:
        got = self("POST", f"/{{}}/job/{jobtype}/add{query}", body, **headers)
        assert got.status == 200, got
        return list(got.json["ids"])

    def handler(self, jobtype: str, source: str, waits: bool = False) -> None:
        """In Python."""
        path = f"/{{}}/handler/add/{jobtype}?method=python{'&waits=true' if waits else ''}"
        got = self("POST", path, source.encode(), content_type="text/plain")
        assert got.status == 200, got

    def job(self, job_id: str) -> dict[str, Any]:
        got = self("GET", f"/v1/{{}}/jobs/{job_id}")
        assert got.status == 200, got
        return dict(got.json)

    def ended(self, job_id: str) -> Got:
        """The result, when there is one."""
        got: Got = eventually(
            lambda: (found := self("GET", f"/v1/{{}}/jobs/{job_id}/result?wait=5")).status == 200 and found
        )
        return got


def eventually(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.02)
    return found


class Site:
    """A database, its daemons, and whoever is known there."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self._store = open_store(url)
        self._store.migrate()
        self.tenants = Tenants(self._store)
        self.daemons: list[Daemon] = []

    def daemon(self, *options: str, trust: bool = True, **environment: Any) -> Daemon:
        self.daemons.append(Daemon(self.folder, self.url, *options, trust=trust, **environment))
        return self.daemons[-1]

    def tenant(self, daemon: Daemon | None = None, **quotas: int) -> Tenant:
        name = f"tenant{next(_names)}"
        self.tenants.add(name, quotas=Quotas(**quotas))
        return Tenant(daemon or self.daemons[0], name, self.tenants.token(name)[1])

    def admin(self) -> Tenant:
        return Tenant(self.daemons[0], "", self.tenants.token(ALL_TENANTS)[1])

    def close(self) -> None:
        for daemon in self.daemons:
            daemon.kill()
        self._store.close()


def site(store: str = "sqlite") -> Site:
    """One daemon for all tests of a process that need no other: to start one takes seconds."""
    return _site(store)


@cache
def _site(store: str) -> Site:
    folder = Path(tempfile.mkdtemp(prefix="hipq-serve-"))
    stack = ExitStack()
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    found = Site(stack.enter_context(fresh(store, folder / "daemon.db")), folder)
    stack.callback(found.close)
    at_the_end(stack.close)
    found.daemon("--log-level", "debug")
    return found
