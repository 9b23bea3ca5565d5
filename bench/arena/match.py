"""One system in one cell: its producer, its two workers, a server of their own, and what came of it."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from tests.servers import OwnPostgres

from bench.arena.cells import Cell
from bench.arena.entrants import Entrant
from bench.arena.ledger import Ledger, percentile

WORKERS: Final = 2
HANDS: Final = 10
"""Of each worker."""
AGAIN: Final = 1.0
"""Seconds after which a worker that has ended starts again, as whoever supervises it would do."""
START_SECONDS: Final = 60.0


class Pace(NamedTuple):
    """How long each part of a cell takes, in seconds, and how much is added in one."""

    rate: float
    warm: float
    calm: float
    disturbed: float
    patience: float
    """How long it may take afterwards until nothing is missing."""


QUICK: Final = Pace(100, 2, 3, 5, 25)
FULL: Final = Pace(200, 15, 60, 120, 300)


class Match:
    """Also the field of its cell: what may be disturbed."""

    def __init__(self, entrant: Entrant, pace: Pace, server: OwnPostgres, log: Path) -> None:
        self.server, self.seconds, self.rate = server, pace.disturbed, pace.rate
        self._entrant, self._pace = entrant, pace
        self._ledger, self._log = Ledger(), log.open("ab")
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._started_again = 0
        self._producer = self._start("produce")
        self._workers = [self._start("work") for _ in range(WORKERS)]
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def offer(self, rate: float) -> None:
        assert self._producer.stdin
        self._producer.stdin.write(f"{rate}\n".encode())
        self._producer.stdin.flush()

    def kill(self, number: int) -> None:
        with self._lock:
            _end(self._workers[number])
            self._started_again -= 1  # that was us

    def play(self, cell: Cell) -> dict[str, Any]:
        self._keeper.start()
        watch = _Watch(self.server.url)
        self.offer(self.rate)
        self._begun()
        time.sleep(self._pace.warm)
        calm = time.monotonic()
        time.sleep(self._pace.calm)
        began = time.monotonic()
        cell.disturb(self)
        ended = time.monotonic()
        behind = self._ledger.missing
        recovered = self._recovered(ended)
        self.offer(0)
        over = self._drained()
        watch.close()
        late, before = self._ledger.late(began, over), self._ledger.late(calm, began)
        return {
            "calm_per_second": round(self._ledger.ended(calm, began) / (began - calm), 1),
            "per_second": round(self._ledger.ended(began, ended) / (ended - began), 1),
            "calm_p99_ms": _milliseconds(percentile(before, 0.99)),
            **{f"p{name}_ms": _milliseconds(percentile(late, part)) for name, part in PARTS.items()},
            "max_ms": _milliseconds(late[-1] if late else None),
            "behind": behind,
            "recovered_seconds": None if recovered is None else round(recovered, 1),
            "dead_tuples": watch.dead,
            "megabytes": round(watch.size / 1e6, 1),
            "added": self._ledger.added,
            "missing": self._ledger.missing,
            "doubled": self._ledger.doubled,
            "worker_exits": max(self._started_again, 0),
        }

    def close(self) -> None:
        self._over.set()
        for process in (self._producer, *self._workers):
            _end(process)
        self._log.close()

    def _begun(self) -> None:
        """Until the first jobs have run: how long programs take to start is not what is measured."""
        until = time.monotonic() + START_SECONDS
        while not self._ledger.ended(0, math.inf):
            if time.monotonic() > until:
                raise TimeoutError(f"no job ran within {START_SECONDS:.0f} s")
            time.sleep(0.05)

    def _recovered(self, ended: float) -> float | None:
        """Seconds until no more is missing than what is added in half a second, while adding goes on."""
        while (gone := time.monotonic() - ended) < self._pace.patience:
            if self._ledger.missing <= self.rate / 2:
                return gone
            time.sleep(0.05)
        return None

    def _drained(self) -> float:
        until = time.monotonic() + self._pace.patience
        while self._ledger.missing and time.monotonic() < until:
            time.sleep(0.05)
        return time.monotonic()

    def _start(self, part: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*self._entrant.command, part], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            env=os.environ | {"DATABASE_URL": self.server.url, "WORKERS": str(HANDS)}, process_group=0,
        )  # fmt: skip
        assert process.stdout
        self._ledger.follow(process.stdout)
        return process

    def _keep(self) -> None:
        """Start workers again that have ended, killed or not."""
        while not self._over.wait(0.05):
            with self._lock:
                ended = [number for number, worker in enumerate(self._workers) if worker.poll() is not None]
            if ended and not self._over.wait(AGAIN):
                with self._lock:
                    for number in ended:
                        self._started_again += 1
                        self._workers[number] = self._start("work")


PARTS: Final = {"50": 0.5, "99": 0.99, "99.9": 0.999}


class _Watch:
    """The most dead rows and bytes that its tables have had, as the server's statistics say."""

    QUERY: Final = (
        "SELECT coalesce(sum(n_dead_tup), 0), coalesce(sum(pg_total_relation_size(relid)), 0) FROM pg_stat_user_tables"
    )

    def __init__(self, url: str) -> None:
        self._url, self.dead, self.size = url, 0, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.is_set():
            with suppress(psycopg.Error), psycopg.connect(self._url, autocommit=True, application_name="arena") as conn:
                while not self._over.wait(0.5):
                    dead, size = conn.execute(self.QUERY).fetchone() or (0, 0)
                    self.dead, self.size = max(self.dead, int(dead)), max(self.size, int(size))
            self._over.wait(0.2)

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def played(entrant: Entrant, cell: Cell, pace: Pace, folder: Path) -> dict[str, Any]:
    """On a new server whose data are on a disk."""
    with OwnPostgres(max_connections="100", shared_buffers="256MB", autovacuum_naptime="10s") as server:
        log = folder / f"{entrant.name}-{cell.name.replace(' ', '-')}.log"
        with log.open("wb") as errors:
            subprocess.run(
                [*entrant.command, "install"], env=os.environ | {"DATABASE_URL": server.url}, stdin=subprocess.DEVNULL,
                stdout=errors, stderr=errors, check=True, timeout=120,
            )  # fmt: skip
        match = Match(entrant, pace, server, log)
        try:
            return match.play(cell)
        finally:
            match.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
