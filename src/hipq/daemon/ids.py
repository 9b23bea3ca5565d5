"""Ids that are given out before the store has their jobs: in blocks, each reserved in the store for one daemon.

They are above all that the store gives out itself. What is left of a block when a daemon ends is never used: there are
seventy million blocks. Where blocks begin is drawn by chance: a journal that meets another database than the one it
was written for, or an older copy of it, must not bring ids that this one gives out again.
"""

from __future__ import annotations

import secrets
import threading
from typing import Final

from hipq.errors import StoreUnavailable
from hipq.job.model import sequence_of
from hipq.stores.base import Store

KIND: Final = "ids"
FIRST: Final = 1 << 46
BLOCK: Final = 1_000_000
START: Final = 1 << 24
"""Blocks among which the first of a database is drawn;"""
GAP: Final = 64
"""and those among which each next one is."""

SKIPPED: Final = 10_000


def is_given_out(job_id: int) -> bool:
    """Whether this may be the id of a job that was acknowledged before the store had it."""
    return sequence_of(job_id) >= FIRST


def skip(store: Store) -> None:
    """In a database that is an older copy of itself: leave out what daemons may have reserved since."""
    for queue in store.notes(KIND):
        store.change_note(KIND, queue, lambda before: str(int(before) + SKIPPED * BLOCK))


class Ids:
    def __init__(self, store: Store, queue: int) -> None:
        self._store = store
        self._queue = queue
        self._lock = threading.Lock()
        self._blocks: list[range] = []

    def take(self, count: int) -> int:
        """The first of so many in a row. Any thread; it asks nobody."""
        with self._lock:
            for place, block in enumerate(self._blocks):
                if len(block) >= count:
                    self._blocks[: place + 1] = [block[count:]]  # those before it are too short, and are not used
                    return block.start
        raise StoreUnavailable("the ids that were reserved are used up, and the store is away")

    @property
    def scarce(self) -> bool:
        return sum(len(block) for block in self._blocks) < BLOCK // 2

    def reserve(self) -> None:
        """One more block."""
        step = BLOCK * (1 + secrets.randbelow(GAP))
        begin = FIRST + BLOCK * secrets.randbelow(START)
        after = int(self._store.change_note(KIND, str(self._queue), lambda before: str(int(before or begin) + step)))
        with self._lock:
            self._blocks.append(range(after - BLOCK, after))
