"""Real workers over the app of `shop`, and what they have written down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import redis

from tests import processes

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 90.0
"""Seconds until something has failed, on a machine however busy."""


class Shop:
    """One shop: a broker, a book, perhaps a database; and the processes that work for it."""

    def __init__(self, folder: Path, broker: str, db: str | None = None, **more: str) -> None:
        self.prefix = f"hipq_test_{uuid4().hex}"
        folder.mkdir(exist_ok=True)
        self.book = folder / "book"
        self._log = folder / "log"
        self._broker = broker
        set_here = {"SHOP_BROKER": broker, "SHOP_BACKEND": broker, "SHOP_PREFIX": self.prefix,
                    "SHOP_BOOK": str(self.book), "PYTHONPATH": str(ROOT)}  # fmt: skip
        ours = ("HIPQ_", "SHOP_", "CELERY_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self.environment = inherited | set_here | ({"SHOP_DB": db} if db else {}) | more

    def send(self, script: str) -> Any:
        """Run this beside the app, as a program that sends tasks does; what it prints is JSON."""
        program = f"import json\nfrom tests.celery.shop import *\n{script}"
        done = processes.run(
            [sys.executable, "-c", program], cwd=ROOT, env=self.environment, capture_output=True, text=True,
            timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @contextmanager
    def worker(self, pool: str = "prefork") -> Iterator[subprocess.Popen[str]]:
        """A Celery worker that is ready."""
        command = ["-m", "celery", "-A", "tests.celery.shop", "worker", "--pool", pool, "--concurrency", "2"]
        command += ["--without-mingle", "--without-gossip", "--without-heartbeat", "--loglevel", "INFO"]
        before = self.log().count(" ready.")
        with self.process(*command, "-n", f"{self.prefix}@here") as process:
            self.until(lambda: self.log().count(" ready.") > before, process)
            yield process

    def publisher(self, *options: str) -> Any:
        """`hipq worker`, which is the other way to have what is due published."""
        return self.process("-m", "hipq.cli.main", "worker", "tests.celery.shop:kept", *options)

    @contextmanager
    def process(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        with self._log.open("ab") as log:
            process = processes.Popen(
                [sys.executable, *arguments], cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def until(self, what: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> None:
        end = time.monotonic() + PATIENCE
        while not what():
            assert time.monotonic() < end, f"{self.lines()}\n{self.log()[-5000:]}"
            assert process is None or process.poll() is None, self.log()[-5000:]
            time.sleep(0.05)

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def lines(self, event: str = "", job_id: str = "") -> list[dict[str, Any]]:
        written = self.book.read_text().splitlines() if self.book.exists() else []
        found = [json.loads(line) for line in written]
        return [one for one in found if event in ("", one["event"]) and job_id in ("", one["id"])]

    def at_broker(self) -> int:
        """How many messages Redis has for its workers, delivered to one and not acknowledged or not delivered yet."""
        with redis.Redis.from_url(self._broker) as client:
            waiting: Any = client.llen(f"{self.prefix}:{self.prefix}")
            unacked: Any = client.hlen(f"{self.prefix}:unacked")
        return int(waiting + unacked)

    def waiting(self) -> list[bytes]:
        """The messages that Redis has for its workers."""
        with redis.Redis.from_url(self._broker) as client:
            found: Any = client.lrange(f"{self.prefix}:{self.prefix}", 0, -1)
        return list(found)

    def clean(self) -> None:
        forget_in_redis(self._broker, self.prefix)


def forget_in_redis(url: str, name: str) -> None:
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(f"*{name}*", count=10_000):
            client.delete(key)
