"""Decides which notices to send to engines in other processes."""

from __future__ import annotations

import time
from typing import Final

from hipq.stores.claim_groups import RankPosition

QUIET_SECONDS: Final = 0.01
"""Seconds per notice and queue, on average at least: in PostgreSQL a NOTIFY takes a lock of the whole cluster when it
commits, elsewhere a notice is a row."""
BURST: Final = 3
"""How many notices may follow each other at once, so that a program that adds a job now and then is never held back."""


class Notices:
    """Decides which notices to send: per queue one in 10 ms on average, and any that names a lower place than the
    last."""

    def __init__(self) -> None:
        self._sent: dict[int, tuple[float, RankPosition]] = {}
        self._before: dict[int, tuple[float, RankPosition]] = {}

    def wanted(self, queue: int, place: RankPosition) -> bool:
        now = time.monotonic()
        used_until, last = self._sent.get(queue, (0.0, place))
        if used_until > now + QUIET_SECONDS * BURST and place >= last:
            return False
        self._before[queue] = (used_until, last)
        self._sent[queue] = (min(max(used_until, now), now + QUIET_SECONDS * BURST) + QUIET_SECONDS, place)
        return True

    def unsent(self, queue: int) -> None:
        """The last notice that was asked for was not sent after all."""
        self._sent[queue] = self._before[queue]
