"""Programs of several versions as real processes on one database: workers, and what adds jobs. Each hipq is a folder
that comes first in PYTHONPATH."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.ending import at_the_end

ROOT: Final = Path(__file__).parents[2]
HIPQ: Final = (sys.executable, "-m", "hipq.cli.main")
_LIFELINE, _HELD = os.pipe()
"""However the tests end, workers notice that nobody holds the other end any more."""
SHOP: Final = """
import os, sys, time
import psycopg
from hipq import Hipq, Wait
import hipq

app = Hipq("shop", os.environ["SHOP_DATABASE"])
orders = app.queue("orders")

def note(job):
    with psycopg.connect(os.environ["SHOP_DATABASE"], autocommit=True) as conn:
        conn.execute("INSERT INTO runs (key, program) VALUES (%s, %s)", (job.key, os.environ["PROGRAM"]))

@orders.job(timeout=600)
def charge(job):
    note(job)
    time.sleep(job.data["seconds"])
    return Wait() if job.data["waits"] else {"by": os.environ["PROGRAM"]}

if __name__ == "__main__":
    prefix, count, seconds, waits = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "waits"
    for number in range(count):
        charge.enqueue({"seconds": seconds, "waits": waits}, key=f"{prefix}-{number}")
"""


class Version:
    """A hipq at a place, and a folder with an application of it."""

    def __init__(self, name: str, place: Path, folder: Path, url: str) -> None:
        self.name, self.folder = name, folder
        (folder / "shop.py").write_text(SHOP)
        self.environment = os.environ | {
            "PYTHONPATH": f"{place}:{folder}", "SHOP_DATABASE": url, "PROGRAM": name, "PYTHONSAFEPATH": "1",
        }  # fmt: skip

    def is_at(self, place: Path) -> bool:
        return self.said(sys.executable, "-c", "import hipq; print(hipq.__file__)").startswith(str(place))

    def said(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, (self.name, command, done.stdout[-2000:], done.stderr[-4000:])
        return done.stdout

    def hipq(self, *words: str) -> str:
        return self.said(*HIPQ, *words)

    def adding(self, prefix: str, count: int, seconds: float = 0.0, waits: bool = False) -> subprocess.Popen[bytes]:
        words = [sys.executable, str(self.folder / "shop.py"), prefix, str(count), str(seconds), "waits" * waits]
        return subprocess.Popen(words, cwd=self.folder, env=self.environment)

    def worker(self, *options: str) -> Worker:
        return Worker(self, options)


class Worker:
    def __init__(self, version: Version, options: tuple[str, ...]) -> None:
        self.version, self.options = version, options
        self.log = version.folder / f"worker-{version.name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*HIPQ, "worker", "shop:app", "--lease", "5", "--lifeline", str(_LIFELINE), *options],
                cwd=version.folder, stdout=log, stderr=log, env=version.environment, process_group=0,
                pass_fds=[_LIFELINE],
            )  # fmt: skip
        at_the_end(self.kill)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def working() -> Iterator[list[Worker]]:
    """Workers that are in this list end with the block, however that ends."""
    workers = list[Worker]()
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()


class Ledger:
    """What handlers have noted, beside hipq."""

    def __init__(self, url: str) -> None:
        self._conn = psycopg.connect(url, autocommit=True)
        self._conn.execute("CREATE TABLE runs (key TEXT NOT NULL, program TEXT NOT NULL)")

    def runs(self) -> dict[str, int]:
        return dict(self.rows("SELECT key, count(*) FROM runs GROUP BY key"))

    def programs(self) -> set[str]:
        return {str(name) for (name,) in self.rows("SELECT DISTINCT program FROM runs")}

    def ended(self) -> int:
        return int(self.rows("SELECT count(*) FROM shop_orders_final WHERE code = 'ok'")[0][0])

    def rows(self, query: str) -> list[Any]:
        return self._conn.execute(query.encode()).fetchall()

    def close(self) -> None:
        self._conn.close()
