"""Queues whose tables somebody has locked, with an ALTER TABLE perhaps: left out of turns until that is over.

A statement that meets such a lock waits for it, and all that is done in the same statement or transaction waits too. So
after the first such wait the queue is left out, and the store is asked now and then whether the lock is gone, which
waits for nothing. A queue that is locked again and again is left out for longer each time: each time costs a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from hipq.stores.protocols import Store

LOOK: Final = 500_000
"""Microseconds between looks whether a lock is gone."""
LONGEST: Final = 16_000_000
QUIET: Final = 60_000_000
"""Microseconds after which a lock is not one of a series."""


class LockedQueues:
    def __init__(self, store: Store, queues: Iterable[int]) -> None:
        self._store = store
        self._queues = list(queues)
        self._look_at: dict[int, int] = {}
        self._rests: dict[int, tuple[int, int]] = {}
        """How long each was left out at least, the last time, and when that was over."""

    def __contains__(self, queue: object) -> bool:
        return queue in self._look_at

    def __iter__(self) -> Iterator[int]:
        return iter(self._look_at)

    def __bool__(self) -> bool:
        return bool(self._look_at)

    @property
    def next_look(self) -> int:
        """On the steady clock; only while there are some."""
        return min(self._look_at.values())

    def others(self) -> list[int]:
        return [queue for queue in self._queues if queue not in self._look_at]

    def found(self, steady: int) -> list[int]:
        """Something stood in the way: the queues that are locked, and were not known to be."""
        new = sorted(self._store.locked(self.others()))
        for queue in new:
            rest, over = self._rests.get(queue, (0, 0))
            rest = min(2 * rest, LONGEST) if rest and steady - over < QUIET else LOOK
            self._rests[queue] = rest, steady
            self._look_at[queue] = steady + rest
        return new

    def freed(self, steady: Callable[[], int]) -> list[int]:
        """Those among them that are not locked any more; left out until they are taken back."""
        due = [queue for queue, at in self._look_at.items() if steady() >= at]
        if not due:
            return []
        still = self._store.locked(due)
        self._look_at |= dict.fromkeys(due, steady() + LOOK)
        return [queue for queue in due if queue not in still]

    def take_back(self, queue: int, steady: int) -> None:
        del self._look_at[queue]
        self._rests[queue] = self._rests[queue][0], steady
