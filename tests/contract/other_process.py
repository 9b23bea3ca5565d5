"""What another process does in the suite: `python -m tests.contract.other_process VERB URL QUEUE`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Final

import msgspec

from hipq.job import transitions
from hipq.job.model import Change, Row
from hipq.stores.claims import Claim
from hipq.stores.open import open_store
from hipq.stores.protocols import Store
from tests import processes
from tests.contract.jobs import NOW, TYPE, add, claim, new

JOBS: Final = 1000
"""How many jobs each worker process adds."""


def start(verb: str, url: str, queue: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", __name__, verb, url, str(queue)]
    return processes.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def enqueue_on_demand(store: Store, queue: int) -> None:
    """One job for each line on standard input, a moment after it: by then the asker sleeps."""
    print("here", flush=True)
    for _ in sys.stdin:
        time.sleep(0.2)
        store.enqueue([new(queue)])


def say_and_die(store: Store, queue: int) -> None:
    """Five jobs added, two claimed, one finished; then killed with no chance to tidy up."""
    ids = add(store, [new(queue)] * 5)
    first, _ = claim(store, store.take_lease(60, "doomed"), queue, limit=2)
    store.turn(
        0, [Change(first, transitions.succeeded(first, '"done"', 200, first.update_time))], [], first.update_time
    )
    print(msgspec.json.encode(ids).decode(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def work(store: Store, queue: int) -> None:
    """Add jobs and run whatever is ready, at the same time as others do; then say what was run."""
    engine_id = store.take_lease(300, f"worker {os.getpid()}")
    ran: list[int] = []
    running: list[Row] = []
    for n in range(0, JOBS, 50):
        add(store, [new(queue, f"{engine_id}-{n + m}" if m % 2 else "") for m in range(50)])
        running = _turn(store, engine_id, queue, running, ran)
    while running or store.peek([(queue, (TYPE,))])[0].ready:
        running = _turn(store, engine_id, queue, running, ran)
    print(msgspec.json.encode(ran).decode(), flush=True)


def _turn(store: Store, engine_id: int, queue: int, running: list[Row], ran: list[int]) -> list[Row]:
    changes = [Change(row, transitions.succeeded(row, str(engine_id), 200, NOW)) for row in running]
    turned = store.turn(engine_id, changes, [Claim(queue, (TYPE,), 40)], NOW)
    assert not turned.lost
    ran += [row.id for row in running]
    return turned.won


def main() -> None:
    verb, url, queue = sys.argv[1:]
    store = open_store(url)
    store.queues()
    {"enqueue": enqueue_on_demand, "die": say_and_die, "work": work}[verb](store, int(queue))
    store.close()


if __name__ == "__main__":
    main()
