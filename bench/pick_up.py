"""How long a job waits for an idle hipq worker in another process: measured as the peers are."""

from __future__ import annotations

import sys
from typing import Any

from bench.lines import PAYLOAD, Bench
from bench.peers.other_process import measured, report
from hipq import Hipq, Job


def pick_ups(bench: Bench, count: int) -> list[float]:
    """Milliseconds from just before `enqueue` to the handler's first line."""
    queue = bench.queue()
    worker = [sys.executable, "-m", "bench.pick_up", bench.app.url, queue.name]
    found = measured(worker, lambda: queue.enqueue("work", PAYLOAD), count)
    bench.check_done(queue, count + 1)
    return found


def _serve(url: str, name: str) -> None:
    """The idle worker: says when each job's handler began."""
    app = Hipq("bench", url)

    @app.queue(name).job
    def work(_: Job[Any]) -> None:
        report()

    app.run([name])


if __name__ == "__main__":
    _serve(*sys.argv[1:])
