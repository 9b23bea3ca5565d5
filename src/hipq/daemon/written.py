"""Jobs that go into the journal from an event loop, and who is told that they are on disk.

What came on all connections in one round of the loop is one write and one sync: in the loop itself while the disk is
quick, since to wake another thread would take longer; else in the journal's thread, which wakes the loop once for all
that one sync brought to disk. Jobs of one tenant, type and options that came in one round are one batch: what a
batch costs, when it is written and when it is read, is paid once for all of them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hipq.journal import Batch, Journal
from hipq.journal.append import Done

if TYPE_CHECKING:
    from hipq.daemon.ids import Ids

QUICK: Final = 0.002
"""Seconds a write may take, about, that an event loop waits for by itself."""
WEIGHT: Final = 0.2
"""Weight of the last write in what writes take about: a single slow one says nothing."""
SMALL: Final = 64 << 10
"""Bytes of a batch that the event loop writes by itself."""
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
        """Seconds that a write takes, about."""
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
        """Write what has gathered now, not at the end of this round."""
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
        if first and threading.get_ident() != self._loop_thread:
            try:
                loop.call_soon_threadsafe(self._tell_all)
            except RuntimeError:  # the loop is closed, and nobody waits: who comes on another loop must not either
                self._tell_all()

    def _tell_all(self) -> None:
        with self._lock:
            told, self._done = self._done, []
        for done, error in told:
            _told(done, error)


class Gathered:
    """The jobs of one round, by tenant, type and options. Lives on one event loop."""

    def __init__(self, written: Written, ids: Ids, now: Callable[[], int]) -> None:
        self._written = written
        self._ids = ids
        self._now = now
        self._groups: dict[tuple[str, str, str], tuple[list[bytes], list[tuple[int, Callable[[Any], None]]]]] = {}
        """The payloads, and who is to be told of how many of them."""
        self._size = 0

    def put(
        self, tenant: str, jobtype: str, payloads: Sequence[bytes], options: str, size: int,
        done: Callable[[int | Exception], None],
    ) -> None:  # fmt: skip
        """`done` is called on this loop, never before this returns: with the first of the numbers that the jobs have,
        in a row, when they are on disk; or with what went wrong."""
        if self._size and self._size + size > SMALL:
            self._write()
        if not self._groups:
            asyncio.get_running_loop().call_soon(self._write)
        group = self._groups.setdefault((tenant, jobtype, options), ([], []))
        group[0].extend(payloads)
        group[1].append((len(payloads), done))
        self._size += size

    def _write(self) -> None:
        groups, self._groups, self._size = self._groups, {}, 0
        for (tenant, jobtype, options), (payloads, waiting) in groups.items():
            first = 0
            try:
                first = self._ids.take(tenant, len(payloads))
                batch = Batch(tenant, jobtype, first, tuple(payloads), self._now(), options)
                self._written.put(batch, partial(_tell_each, waiting, first))
            except Exception as error:  # whatever it is, nobody may wait for ever
                _tell_each(waiting, first, error)
        self._written.write_here()


def _tell_each(waiting: Sequence[tuple[int, Callable[[Any], None]]], first: int, error: Exception | None) -> None:
    for count, done in waiting:
        _told(done, error or first)
        first += count


def _told(done: Callable[[Any], None], what: object) -> None:
    try:
        done(what)
    except Exception:  # the others are to hear of it all the same
        _log.exception("what was to be told of jobs in the journal failed")
