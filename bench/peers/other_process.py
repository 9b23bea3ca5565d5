"""Latency across two processes: a driver's file runs once more as the worker, whose handler reports through a pipe.

Not through the queue that is measured. The standard library only, as `driver`.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

PAUSE = 0.03
"""Seconds the worker is idle between two jobs."""
PATIENCE = 30.0
"""Seconds until a job that has not run counts as lost; the first one waits for the worker to start, too."""
_PIPE = "PEER_REPORTS_TO"


def is_worker() -> bool:
    """Whether this process is the one `latencies` started."""
    return _PIPE in os.environ


def report() -> None:
    """The handler's first line, in the worker: when it started."""
    os.write(int(os.environ[_PIPE]), struct.pack("d", time.time()))


def latencies(script: str, address: str, enqueue: Callable[[], object], count: int) -> list[float]:
    """Milliseconds from just before each `enqueue` to the handler's `report()` in a worker run by `script`."""
    return measured([sys.executable, script, address], enqueue, count)


def measured(command: Sequence[str], enqueue: Callable[[], object], count: int) -> list[float]:
    reading, writing = os.pipe()
    worker = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=(writing,), env=os.environ | {_PIPE: str(writing)}
    )
    os.close(writing)
    try:
        _once(enqueue, reading)  # it is up and warm from here on
        found = []
        for _ in range(count):
            time.sleep(PAUSE)
            found.append(_once(enqueue, reading))
        return found
    finally:
        worker.terminate()
        try:
            worker.wait(5)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
        os.close(reading)


def _once(enqueue: Callable[[], object], reading: int) -> float:
    began = time.time()
    enqueue()
    if not select.select([reading], [], [], PATIENCE)[0]:
        raise TimeoutError(f"no job ran within {PATIENCE:.0f} s")
    reported = os.read(reading, 8)
    if len(reported) != 8:
        raise ChildProcessError("the worker ended")
    started: float = struct.unpack("d", reported)[0]
    return (started - began) * 1000
