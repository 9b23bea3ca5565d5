"""Step 3, claim: how many jobs to take, and from which queues.

Handlers that take microseconds want hundreds of jobs a turn; handlers that take minutes want not one more than can
start. So an engine claims what it can start within AHEAD seconds at the pace it has measured. What it could not start
after all it gives back, at no cost to the job.
"""

from __future__ import annotations

from collections.abc import Sequence

from hipq.engine.lanes import NO_SPARE, Round, Spare
from hipq.engine.queue_watch import QueueWatch, QueueWatches
from hipq.stores.claims import Claim

AHEAD = 0.05
"""Seconds of work claimed ahead of free hands."""
BATCH = 500
"""The most claimed ahead in one turn (larger ones were not faster on either store), and half of what is claimed ahead
in all: while one batch is executed, the one before is saved and the next is claimed."""
STEADY = 50
"""Jobs that a mean is made of, once so many were measured."""
GROWTH = 4
"""Jobs claimed ahead for each that was measured: the first few may be quicker than most."""
UNSTARTED_FOR = 1_000_000
"""Microseconds a claimed job may wait for a free hand before it is given back."""


class Prefetch:
    """How long handlers take, as a running mean; from it, how many jobs may wait in memory for a free hand."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._mean = 0.0
        self._measured = 0

    def unknown(self) -> None:
        """What was measured proved wrong: claim nothing ahead, and measure again."""
        self._measured = 0

    def measure(self, durations: Sequence[int]) -> None:
        if count := len(durations):
            weight = min(self._measured, STEADY)
            self._mean += count / (count + weight) * (sum(durations) / count - self._mean)
            self._measured += count

    def room(self, free: int) -> int:
        """How many jobs to claim in one turn if so many hands are free; negative if too many jobs wait for a hand."""
        return min(free + self._ahead(self._concurrency), max(free, BATCH))

    def for_one(self) -> int:
        """How many jobs to claim for one hand."""
        return 1 + self._ahead(1)

    def _ahead(self, hands: int) -> int:
        return min(2 * BATCH, GROWTH * self._measured, int(AHEAD * 1e6 * hands / max(self._mean, 1)))


class ClaimPlanner:
    """What to claim, from the queues that may have something."""

    def __init__(self, watches: QueueWatches) -> None:
        self._watches = watches
        self._turn = list(watches)
        """The queues in the order in which they are asked; at each claim the first goes to the end."""

    def wants(self, room: int, spare: Spare) -> bool:
        """Whether something could be claimed now, as far as is known."""
        hungry = [watch for watch in self._watches.served() if watch.hungry]
        return bool(hungry) if room > 0 else any(_wants_spare(watch, spare) for watch in hungry)

    def claims(self, room: int, hands: int, spare: Spare = NO_SPARE) -> list[Claim]:
        """Ask each queue for an equal part of the room. The queue that was asked first is asked last the next time."""
        self._turn.append(self._turn.pop(0))
        hungry = [self._watches[number] for number in self._turn if number not in self._watches.locked]
        hungry = [watch for watch in hungry if watch.hungry]
        if room <= 0:
            return _on_spare_hands(hungry, hands, spare)
        asked = hungry[:room]
        share, more = divmod(room, len(asked)) if asked else (0, 0)
        claims: list[Claim] = []
        for index, watch in enumerate(asked):
            part = share + (index < more)
            if watch.round is not None:
                claims += _next_lanes(watch, watch.round, part, hands)
            else:
                queue = watch.queue
                judged = tuple(queue.strategies)
                claims.append(Claim(queue.number, queue.types, part, queue.critical, hands=hands, strategies=judged))
        return claims


def _next_lanes(watch: QueueWatch, lanes: Round, room: int, hands: int) -> list[Claim]:
    claims = lanes.claims(room, hands)
    if not claims and not lanes.looking:
        watch.hungry = False  # its scheduler wants nothing to start: until something changes
    return claims


def _wants_spare(watch: QueueWatch, spare: Spare) -> bool:
    return watch.round is not None and not watch.content and watch.round.wants(spare)


def _on_spare_hands(hungry: Sequence[QueueWatch], hands: int, spare: Spare) -> list[Claim]:
    """Claims of the first queue that has something for spare hands."""
    for watch in hungry:
        if watch.round is not None and _wants_spare(watch, spare):
            if claims := watch.round.claims(0, hands, spare):
                return claims
            watch.content = not watch.round.looking
    return []
