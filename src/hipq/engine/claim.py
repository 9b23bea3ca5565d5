"""Step 3, claim: how many jobs to take, and from which queues.

Handlers that take microseconds want hundreds of jobs a turn; handlers that take minutes want not one more than can
start. So an engine claims what it can start within AHEAD seconds at the pace it has measured. What it could not start
after all it gives back, at no cost to the job.
"""

from __future__ import annotations

from collections.abc import Sequence

from hipq.engine.queues import EngineQueue
from hipq.stores.base import Claim

AHEAD = 0.05
"""Seconds of work claimed ahead of free hands."""
BATCH = 500
"""The most claimed ahead: larger turns were not faster on either store."""
PATIENCE = 1_000_000
"""Microseconds a claimed job may wait for a free hand before it is given back."""


class Pace:
    """How long handlers take, as a running mean; from it, how many jobs may wait in memory for a free hand."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._mean = 0.0
        self.unknown()

    def unknown(self) -> None:
        """Nothing measured yet, or what was measured proved wrong: claim nothing ahead."""
        self._mean = 2 * AHEAD * 1e6 * self._concurrency

    def measure(self, durations: Sequence[int]) -> None:
        if count := len(durations):
            self._mean += count / (count + 50) * (sum(durations) / count - self._mean)

    @property
    def ahead(self) -> int:
        return min(BATCH, int(AHEAD * 1e6 * self._concurrency / max(self._mean, 1)))


class Hunger:
    """Which queues may have something to claim. A claim that came back short means: not until something changes."""

    def __init__(self, queues: Sequence[EngineQueue]) -> None:
        self._queues = list(queues)
        self._with_code = {queue.number for queue in queues if queue.types}
        self._hungry = set(self._with_code)

    def __bool__(self) -> bool:
        return bool(self._hungry)

    def everywhere(self) -> None:
        self._hungry = set(self._with_code)

    def at(self, queue: int) -> None:
        self._hungry |= {queue} & self._with_code

    def claims(self, room: int, hands: int) -> list[Claim]:
        """Ask each queue for an equal part of the room; who was asked first is asked last the next time."""
        self._queues.append(self._queues.pop(0))
        asked = [queue for queue in self._queues if queue.number in self._hungry][: max(room, 0)]
        share, more = divmod(room, len(asked)) if asked else (0, 0)
        return [
            Claim(queue.number, queue.types, share + (index < more), queue.critical, hands=hands)
            for index, queue in enumerate(asked)
        ]

    def fed(self, claim: Claim, got: int) -> None:
        if got < claim.limit:
            self._hungry.discard(claim.queue)
