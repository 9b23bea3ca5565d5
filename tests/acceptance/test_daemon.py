"""Two daemons on one PostgreSQL, handlers in four languages, three tenants; daemons killed, the database stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psycopg

from hipq import Hipq
from hipq.daemon.tenancy.tenants import Tenants
from tests import processes
from tests.servers import OwnPostgres, free_port

JOBS = 2 * int(os.environ.get("HIPQ_ACCEPTANCE_JOBS", "250"))
POST = 25
"""Jobs in one request."""
CHAINED = 5
"""Every fifth job asks for another."""
TENANTS = ("ann", "ben", "cat")
PATIENCE = 240.0
HANDLERS = {
    "python": 'n = int(payload)\nif n % 5 == 0: print(f"J: tail|{n}")\nreturn f"python {n}"',
    "node": "const n = Number(payload); if (n % 5 === 0) console.log(`J: tail|${n}`); return `node ${n}`",
    "php": '$n = intval($payload); if ($n % 5 === 0) { echo "J: tail|$n\\n"; } return "php $n";',
    "shell": 'read -r n; [ $((n % 5)) -eq 0 ] && echo "J: tail|$n"; status 200 "shell $n"',
}
DOWN = 10.0


class Served:
    """A daemon in a process of its own, on a journal of its own."""

    def __init__(self, url: str, folder: Path, name: str) -> None:
        self.port = free_port()
        self._log = folder / f"{name}.log"
        self._command = [
            sys.executable, "-m", "hipq.cli.main", "serve", "--db", url, "--port", str(self.port), "--journal",
            str(folder / f"{name}.journal"), "--concurrency", "6", "--retry-after", "1",
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = processes.Popen(self._command, stdout=log, stderr=log)
        eventually(lambda: self.get("/health")["status"] == "ok", 60, lambda: f"it starts: {self.said}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    @property
    def said(self) -> str:
        return self._log.read_text()[-3000:]

    def get(self, path: str, token: str = "") -> Any:
        return self._ask(Request(f"http://127.0.0.1:{self.port}{path}"), token)

    def post(self, path: str, body: bytes, token: str) -> Any:
        return self._ask(Request(f"http://127.0.0.1:{self.port}{path}", body, method="POST"), token, plain=True)

    def _ask(self, request: Request, token: str, plain: bool = False) -> Any:
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        if plain:
            request.add_header("Content-Type", "text/plain")
        try:
            with urlopen(request, timeout=30) as reply:
                return json.loads(reply.read())
        except HTTPError as error:
            raise OSError(f"{error.code} {error.read()!r}") from None


def eventually(check: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
    until = time.monotonic() + seconds
    while True:
        with suppress(OSError):
            if check():
                return
        assert time.monotonic() < until, what()
        time.sleep(0.1)


class Posting:
    """Somebody who posts jobs, to whichever daemon takes them, and notes what was acknowledged."""

    def __init__(self, served: list[Served], tokens: dict[str, str], seed: int) -> None:
        self._served = served
        self._tokens = tokens
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._next = 0
        self.acknowledged: dict[int, tuple[str, str, int]] = {}
        """Tenant, type and number by id."""
        self.refused = 0

    def run(self) -> None:
        threads = [threading.Thread(target=self._post, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def _post(self) -> None:
        while (numbers := self._numbers()) is not None:
            tenant, lang = self._chance.choice(TENANTS), self._chance.choice(list(HANDLERS))
            body = "".join(f"{n}\n" for n in numbers).encode()
            while True:
                try:
                    ids = self._chance.choice(self._served).post(
                        f"/{tenant}/job/{lang}/add", body, self._tokens[tenant]
                    )
                except OSError:
                    self.refused += 1
                    time.sleep(0.05)
                    numbers = self._fresh(len(numbers))  # those may have been added or not: they are nobody's
                    body = "".join(f"{n}\n" for n in numbers).encode()
                else:
                    found = dict(zip(map(int, ids["ids"]), numbers, strict=True))
                    with self._lock:
                        assert self.acknowledged.keys().isdisjoint(found)
                        self.acknowledged |= {job_id: (tenant, lang, n) for job_id, n in found.items()}
                    break

    def _numbers(self) -> range | None:
        with self._lock:
            if len(self.acknowledged) >= JOBS:
                return None
        return self._fresh(POST)

    def _fresh(self, count: int) -> range:
        with self._lock:
            self._next += count
            return range(self._next - count, self._next)


@contextmanager
def both(url: str, folder: Path) -> Iterator[list[Served]]:
    served = [Served(url, folder, name) for name in ("one", "two")]
    try:
        for one in served:
            one.start()
        yield served
    finally:
        for one in served:
            if one.process is not None and one.process.poll() is None:
                one.kill()


def finished(url: str) -> int:
    with psycopg.connect(url) as conn:
        found = conn.execute("SELECT count(*) FROM daemon_jobs_final").fetchone()
    return int(found[0]) if found else 0


def unfinished(url: str) -> int:
    try:
        with psycopg.connect(url) as conn:
            found = conn.execute("SELECT count(*) FROM daemon_jobs").fetchone()
    except psycopg.Error as error:
        raise OSError(str(error)) from None
    return int(found[0]) if found else 0


def test_everything_acknowledged_is_done_whatever_is_killed_or_stopped(tmp_path: Path) -> None:
    with OwnPostgres() as server:
        url = server.url
        app = Hipq("daemon", url)
        app.queue("jobs")
        app.migrate()
        tenants = Tenants(app.store)
        tokens = {}
        for name in TENANTS:
            tenants.add(name)
            tokens[name] = tenants.token(name)[1]
        with both(url, tmp_path) as served:
            for name in TENANTS:
                for lang, body in HANDLERS.items():
                    path = f"/{name}/handler/add/{lang}?method={lang}"
                    served[0].post(path, body.encode(), tokens[name])
                served[1].post(f"/{name}/handler/add/tail?method=python", b"return 'tail ' + payload", tokens[name])
            posting = Posting(served, tokens, 1)
            thread = threading.Thread(target=posting.run)
            thread.start()
            for part in (0.25, 0.5):
                eventually(
                    lambda part=part: finished(url) > JOBS * part / 2,  # type: ignore[misc]
                    PATIENCE, lambda: f"jobs are done: {finished(url)}; {served[0].said}",
                )  # fmt: skip
                served[0].kill()
                served[0].start()
            server.stop()
            down, before = time.monotonic(), len(posting.acknowledged)
            single = served[1].post("/ann/job/python/add", b"-5\n", tokens["ann"])
            posting.acknowledged[int(single["ids"][0])] = ("ann", "python", -5)
            time.sleep(max(0.0, down + DOWN - time.monotonic()))
            taken = len(posting.acknowledged) - before
            server.start()
            thread.join(PATIENCE)
            assert not thread.is_alive()
            assert taken > 0, "a daemon takes jobs while its store is away"
            in_the_journals = [
                lambda: not any(one.get("/health")["status"] != "ok" for one in served),
                lambda: unfinished(url) == 0,
            ]
            for check in in_the_journals:
                eventually(check, PATIENCE, lambda: f"{unfinished(url)} are left: {served[0].said} {served[1].said}")
            check_all(app, posting)
            assert [one.stop() for one in served] == [0, 0], [one.said for one in served]
        app.close()


def check_all(app: Hipq, posting: Posting) -> None:
    """What was acknowledged is there, done once and right; so is what those jobs asked for."""
    with psycopg.connect(app.url) as conn:
        rows = conn.execute(
            "SELECT id, tenant, job_type, job_data, state, code, attempt, result FROM daemon_jobs_final"
        ).fetchall()
        live = conn.execute("SELECT count(*) FROM daemon_jobs").fetchone()
    assert live == (0,)
    by_id = {row[0]: row[1:] for row in rows}
    assert len(by_id) == len(rows)
    wrong = []
    for job_id, (tenant, lang, number) in posting.acknowledged.items():
        found = by_id.get(job_id)
        if (
            found is None
            or found[:5] != (tenant, lang, f'"{number}"', "final", "ok")
            or found[5] < 1
            or json.loads(found[6]) != f"{lang} {number}"
        ):
            wrong.append((job_id, tenant, lang, number, found))
    assert not wrong, f"{len(wrong)} of {len(posting.acknowledged)}: {wrong[:3]}"
    assert len(posting.acknowledged) >= JOBS
    asked = Counter((row[1], row[3]) for row in rows if row[2] != "tail" and int(json.loads(row[3])) % CHAINED == 0)
    tails = Counter((row[1], row[3]) for row in rows if row[2] == "tail")
    assert tails == asked, "every chain has its second job, and has it once"
