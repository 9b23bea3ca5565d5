"""Waiting for the journal on an event loop.

What came on all connections in one round of the loop is one write and one sync: in the loop itself while the disk is
quick, since to wake another thread would take longer; else in the journal's thread, which wakes the loop once for all
that one sync brought to disk.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from hipq.journal import Batch, Journal
from hipq.journal.append import Done

QUICK: Final = 0.002
"""Seconds a write may take, about, that an event loop waits for by itself."""
WEIGHT: Final = 0.2
"""Of the last one, in what writes take about: a single slow one says nothing."""
SMALL: Final = 64 << 10
"""Bytes of a batch that it writes by itself."""
AGAIN: Final = 1000
"""Batches after which a disk that was slow is tried again."""

_log = logging.getLogger("hipq")


class Written:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._done: list[tuple[Done, Exception | None]] = []
        self._slow = 0
        """Batches until the loop tries the disk again."""
        self._took = 0.0
        """Seconds, about."""
        self._gathering = False
        """What has gathered is to be written at the end of this round."""
        self._loop_thread = 0
        """The thread that is writing, if it is the loop's."""

    def put(self, batch: Batch, done: Done) -> None:
        """`done` is called on this event loop: with None when it is on disk, else with what went wrong. If this raises,
        it is never called."""
        loop = asyncio.get_running_loop()
        here = not self._slow and sum(map(len, batch.payloads)) < SMALL
        self._journal.write(batch, partial(self._tell, loop, done), wake=not here)
        self._slow = max(self._slow - 1, 0)
        if here and not self._gathering:
            self._gathering = True
            loop.call_soon(self.write_here)

    def write_here(self) -> None:
        """Now, not at the end of this round."""
        if not self._gathering:
            return
        self._gathering, self._loop_thread = False, threading.get_ident()
        began = time.perf_counter()
        try:
            self._journal.write_here()
        finally:
            self._loop_thread = 0
        self._took += WEIGHT * (time.perf_counter() - began - self._took)
        if self._took > QUICK:
            self._slow, self._took = AGAIN, 0.0
        self._tell_all()

    def _tell(self, loop: asyncio.AbstractEventLoop, done: Done, error: Exception | None) -> None:
        with self._lock:
            self._done.append((done, error))
            first = len(self._done) == 1
        if threading.get_ident() != self._loop_thread and first and not _soon(loop, self._tell_all):
            self._tell_all()  # nobody waits for these; who comes on another loop must not wait for them either

    def _tell_all(self) -> None:
        with self._lock:
            told, self._done = self._done, []
        for done, error in told:
            try:
                done(error)
            except Exception:
                _log.exception("what was to be told of a batch in the journal failed")


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> bool:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return False  # the loop is closed
    return True
