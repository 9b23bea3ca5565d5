"""What every system of the arena is asked. Runs in the system's own environment: the standard library only.

    python SYSTEM.py install        the schema and the queue, by the system's own way; ends
    python SYSTEM.py work           a worker with WORKERS hands, until it is killed
    python SYSTEM.py produce        adds jobs at the rate that standard input says, a number a line, until that ends

On standard output come lines for the ledger: `A first last` (added and acknowledged), `S number seconds` (a handler
began, so long after the job was added), `D number` (its handler has returned). Public verbs and default settings only;
DATABASE_URL says where."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

URL = os.environ["DATABASE_URL"]
WORKERS = int(os.environ.get("WORKERS", "10"))
WORK_SECONDS = float(os.environ.get("WORK_SECONDS", "0.001"))
BATCH = int(os.environ.get("BATCH", "20"))
TICK = 0.02
"""Seconds between two calls of a producer, at most BATCH jobs each."""
PADDING = "x" * 150

Add = Callable[[list[dict[str, Any]]], Awaitable[object]]


def said(line: str) -> None:
    """At once and in one piece: whoever is killed has said it, or not."""
    os.write(1, line.encode() + b"\n")


async def handle(payload: dict[str, Any]) -> None:
    """The handler of every system."""
    number = payload["number"]
    said(f"S {number} {time.time() - payload['at']:.6f}")
    if WORK_SECONDS:
        await asyncio.sleep(WORK_SECONDS)
    said(f"D {number}")


def main(install: Callable[[], object], opened: Callable[[], Awaitable[Add]], work: Callable[[], object]) -> None:
    """`opened` connects a producer, and is called again after each call that failed."""
    match sys.argv[1]:
        case "install":
            install()
        case "work":
            work()
        case "produce":
            asyncio.run(_produce(opened))


class _Rate:
    def __init__(self) -> None:
        self.now, self.over = 0.0, False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self.now = float(line)
        self.over = True


async def _produce(opened: Callable[[], Awaitable[Add]]) -> None:
    """What is due grows with the time that has really passed, also while a call takes long."""
    rate, number, due, add = _Rate(), 0, 0.0, None
    last = time.monotonic()
    while not rate.over:
        now = time.monotonic()
        due += rate.now * (now - last)
        last = now
        if due >= 1:
            count = min(int(due), BATCH)
            jobs = [{"number": number + one, "at": time.time(), "padding": PADDING} for one in range(count)]
            try:
                add = add or await opened()
                await add(jobs)
                said(f"A {number} {number + count - 1}")
            except Exception as error:
                print(f"not added: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                add = None
                await asyncio.sleep(0.1)
            due -= count  # what failed is not tried again: nobody knows whether it is there
            number += count
        if due < 1:
            await asyncio.sleep(TICK)
