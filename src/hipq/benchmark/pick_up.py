"""How long a job waits for an idle worker in another process: from `enqueue` to the first line of its handler."""

from __future__ import annotations

import json
import math
import os
import random
import select
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Final, NamedTuple

from hipq.benchmark.workbench import CONCURRENCY, LEASE, PICKING, Workbench, bench_app
from hipq.engine.loop import Engine
from hipq.errors import HipqError

SHARE: Final = 0.20
MOST: Final = 2_000
_WARM_UP: Final = 5
_PATIENCE: Final = 30.0
"""Seconds after which a job that was not picked up is a failure, and not a figure."""


class PickUp(NamedTuple):
    milliseconds: tuple[float, ...]
    """The latencies in milliseconds, sorted."""

    def percentile(self, part: float) -> float:
        """The smallest latency that this percentage of all does not exceed."""
        return self.milliseconds[max(math.ceil(part / 100 * len(self.milliseconds)) - 1, 0)]


def pick_up(bench: Workbench, seconds: float) -> PickUp:
    until = time.monotonic() + seconds
    found: list[float] = []
    with IdleWorker(bench) as worker:
        for _ in range(_WARM_UP):
            worker.latency()
        while not found or (time.monotonic() < until and len(found) < MOST):
            bench.pause()
            time.sleep(random.uniform(0.02, 0.04))  # until it is idle, and not in step with anything it does
            found.append(worker.latency())
    bench.check_done(PICKING, len(found) + _WARM_UP)
    return PickUp(tuple(sorted(found)))


class IdleWorker:
    """A worker in a process of its own. It ends when its input closes, so it does not outlive a killed run."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._unread = b""

    def __enter__(self) -> IdleWorker:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hipq.benchmark.pick_up"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            process_group=0,  # this process handles a terminal's Ctrl-C
        )  # fmt: skip
        assert self._process.stdin
        # not an argument, because it may contain a password
        where = json.dumps([self._bench.app.url, self._bench.token])
        self._process.stdin.write(where.encode() + b"\n")
        self._process.stdin.flush()
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(0.5 if kind else _PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def latency(self) -> float:
        """The latency of one job, in milliseconds."""
        began = time.monotonic_ns()
        self._bench.queue(PICKING).enqueue("tell")
        return (self._started_at() - began) / 1e6

    def _started_at(self) -> int:
        assert self._process.stdout
        output = self._process.stdout.fileno()
        until = time.monotonic() + _PATIENCE
        while b"\n" not in self._unread:
            self._bench.heed()
            if time.monotonic() > until:
                raise HipqError(f"a worker in another process did not pick up a job in {_PATIENCE:g} s")
            if select.select([output], [], [], 0.5)[0]:
                some = os.read(output, 4096)
                if not some:
                    raise HipqError(f"the worker in another process ended by itself, with {self._process.wait()}")
                self._unread += some
        line, _, self._unread = self._unread.partition(b"\n")
        return int(line)


# -- the other process ------------------------------------------------------------------------------------------------
def main() -> None:
    """Read from the input where to work, and work until the input closes."""
    url, token = json.loads(sys.stdin.readline())
    app = bench_app(url, token)
    engine = app.engine([PICKING], CONCURRENCY, lease=LEASE)
    threading.Thread(target=_end_with_input, args=[engine], daemon=True).start()
    try:
        engine.run()
    finally:
        engine.executor.close()
        app.close()


def _end_with_input(engine: Engine) -> None:
    sys.stdin.read()
    engine.stop()


if __name__ == "__main__":
    main()
