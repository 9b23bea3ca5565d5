"""Pollers to be killed: `python -m tests.waiter.killed ENDPOINT QUEUE THREADS`.

For each line on its input, "AHEAD HOW_MANY", so many pollers are started whose clocks are ahead by so many seconds;
their process ids are the answer. They are forked, so that they start at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import boto3

from hipq.waiter import Waiter
from tests.waiter.cloud import Clock


def poll_forever(session: Any, endpoint: str, queue: str, threads: int, ahead: float) -> None:
    waiter = Waiter([queue], session=session, endpoint_url=endpoint, clock=Clock(ahead), threads=threads, delay=0.05)
    waiter.run(threading.Event())


def main(endpoint: str, queue: str, threads: str) -> None:
    session = boto3.session.Session()
    for service in ("sqs", "dynamodb"):
        session.client(service)  # reads its description, which is then not done in each child
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        ahead, how_many = line.split()
        pids = []
        for _ in range(int(how_many)):
            pid = os.fork()
            if not pid:
                try:
                    poll_forever(session, endpoint, queue, int(threads), float(ahead))
                finally:
                    os._exit(1)
            pids.append(pid)
        print(*pids, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
