"""What every peer's driver shares. Runs in the peer's own virtual environment: the standard library only, nothing of
hipq. The bench writes one command a line to its stdin and reads one reply a line from its stdout.

    {"do": "enqueue", "count": 1000}       -> {"seconds": 0.7}       one at a time, each acknowledged before the next
    {"do": "enqueue_many", "count": 50000} -> {"seconds": 1.4}       in one call, or null: it has no such thing
    {"do": "drain", "count": 20000}        -> {"seconds": 1.3}       added before, untimed; until the last has completed
    {"do": "latency", "count": 100}        -> {"milliseconds": [..]} to the start of the handler in an idle process
    {"do": "about"}                        -> {"version": "1.6.0", "setting": "batch 500, uvloop"}
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any

PAYLOAD = {"amount": 5, "currency": "EUR", "reference": "order-000017", "note": "x" * 40}
"""About 100 bytes of JSON: the same for all. The handler does nothing with it."""


class Peer:
    """What a driver implements, with its library's own best setting. It talks to `address`, an empty database."""

    package = ""
    """Its distribution, for the version."""
    setting = ""
    """What was chosen for it, in a few words, for the report."""

    def __init__(self, address: str) -> None:
        self.address = address

    def enqueue(self, count: int) -> None:
        """Add jobs one at a time, each acknowledged before the next."""
        raise NotImplementedError

    def enqueue_many(self, count: int) -> bool:  # noqa: ARG002
        """Add jobs in one call; False: the library has no such thing."""
        return False

    def fill(self, count: int) -> None:
        """Add jobs for `drain`, however is fastest."""
        if not self.enqueue_many(count):
            self.enqueue(count)

    def drain(self, count: int) -> float:
        """Seconds from the moment one worker may begin (it is connected already, where that can be told apart) until
        the last of these jobs has completed as the library counts that: acknowledged or stored, not merely called."""
        raise NotImplementedError

    def check_done(self, count: int) -> None:
        """Raise unless the queue is empty and, where the library keeps them, these jobs are there as completed."""
        raise NotImplementedError

    def clear(self) -> None:
        """Remove all jobs, for the next measurement."""
        raise NotImplementedError

    def latency(self, count: int) -> list[float]:
        """Milliseconds from just before `enqueue` here to the handler's first line in a worker process that is idle in
        between (each job is added about 30 ms after the one before has run). Clock: time.time(), one machine."""
        raise NotImplementedError

    def close(self) -> None:
        """End what was started."""


def serve(make: type[Peer]) -> None:
    """The driver's main: one peer, told what to do line by line. What its library prints goes to stderr."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = make(sys.argv[1])
    try:
        for line in sys.stdin:
            command = json.loads(line)
            try:
                reply = _done(peer, command["do"], command.get("count", 0))
            except Exception as error:
                traceback.print_exc()
                reply = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            print(json.dumps(reply), file=replies, flush=True)
    finally:
        peer.close()


def _done(peer: Peer, verb: str, count: int) -> dict[str, Any] | None:
    if verb == "about":
        from importlib.metadata import version

        return {"version": version(peer.package), "setting": peer.setting}
    if verb == "latency":
        peer.clear()
        return {"milliseconds": peer.latency(count)}
    if verb == "drain":
        peer.clear()
        peer.fill(count)
        took = peer.drain(count)
        peer.check_done(count)
        return {"seconds": took}
    peer.clear()
    began = time.perf_counter()
    if getattr(peer, verb)(count) is False:
        return None
    return {"seconds": time.perf_counter() - began}
