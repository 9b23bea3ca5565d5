"""Step 3, claim: how many jobs to take, and from which queues.

Handlers that take microseconds want hundreds of jobs a turn; handlers that take minutes want not one more than can
start. So an engine claims what it can start within AHEAD seconds at the pace it has measured. What it could not start
after all it gives back, at no cost to the job.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from hipq.engine.lanes import NO_SPARE, Round, Spare
from hipq.engine.queues import EngineQueue
from hipq.stores.claims import Claim
from hipq.stores.protocols import Store

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
        """How many to claim in one turn if so many hands are free; fewer than none if too many wait for one."""
        return min(free + self._ahead(self._concurrency), max(free, BATCH))

    def for_one(self) -> int:
        """How many to claim for one hand."""
        return 1 + self._ahead(1)

    def _ahead(self, hands: int) -> int:
        return min(2 * BATCH, GROWTH * self._measured, int(AHEAD * 1e6 * hands / max(self._mean, 1)))


class ClaimPlanner:
    """Which queues may have something to claim. A claim that came back short means: not until something changes."""

    def __init__(self, queues: Sequence[EngineQueue], store: Store, without: Container[int] = ()) -> None:
        """`without`: queues that nothing can be claimed from just now."""
        self._without = without
        self._queues = list(queues)
        self._with_code = {queue.number for queue in queues if queue.types}
        self._hungry = set(self._with_code)
        self._rounds = {
            queue.number: Round(store, queue.number, queue.scheduler) for queue in queues if queue.scheduler is not None
        }
        """Of the queues whose lanes are claimed one by one."""
        self._content: set[int] = set()
        """Of those, where nothing is to start on spare hands until something changes."""
        self.everywhere()

    def wants(self, room: int, spare: Spare) -> bool:
        """Whether something could be claimed now, as far as is known."""
        hungry = [queue for queue in self._hungry if queue not in self._without]
        if room > 0:
            return bool(hungry)
        rounds = [queue for queue in hungry if queue in self._rounds and queue not in self._content]
        return any(self._rounds[queue].wants(spare) for queue in rounds)

    def everywhere(self) -> None:
        for queue in self._with_code:
            self.at(queue)

    def at(self, queue: int) -> None:
        self._hungry |= {queue} & self._with_code
        self._content.discard(queue)
        if queue in self._rounds:
            self._rounds[queue].stale()

    def notice(self, queue: int, lanes: Iterable[tuple[str, str]]) -> None:
        """Jobs of these types and lanes were added. Any thread."""
        if queue in self._rounds:
            for job_type, lane in lanes:
                self._rounds[queue].notice(job_type, lane)
            self._content.discard(queue)

    def claims(self, room: int, hands: int, spare: Spare = NO_SPARE) -> list[Claim]:
        """Ask each queue for an equal part of the room; who was asked first is asked last the next time."""
        self._queues.append(self._queues.pop(0))
        hungry = [queue for queue in self._queues if queue.number in self._hungry and queue.number not in self._without]
        if room <= 0:
            return self._on_spare_hands([queue.number for queue in hungry], hands, spare)
        asked = hungry[:room]
        share, more = divmod(room, len(asked)) if asked else (0, 0)
        claims: list[Claim] = []
        for index, queue in enumerate(asked):
            part = share + (index < more)
            if queue.number in self._rounds:
                claims += self._next_lanes(queue.number, part, hands)
            else:
                judged = tuple(queue.strategies)
                claims.append(Claim(queue.number, queue.types, part, queue.critical, hands=hands, strategies=judged))
        return claims

    def _next_lanes(self, queue: int, room: int, hands: int) -> list[Claim]:
        claims = self._rounds[queue].claims(room, hands)
        if not claims and not self._rounds[queue].looking:
            self._hungry.discard(queue)  # its scheduler wants nothing to start: until something changes
        return claims

    def _on_spare_hands(self, queues: Sequence[int], hands: int, spare: Spare) -> list[Claim]:
        """Of the first queue that has something for them."""
        for queue in queues:
            if queue in self._rounds and queue not in self._content and self._rounds[queue].wants(spare):
                if claims := self._rounds[queue].claims(0, hands, spare):
                    return claims
                if not self._rounds[queue].looking:
                    self._content.add(queue)
        return []

    def fed(self, claim: Claim, got: int, refused: bool = False) -> None:
        if claim.lane is not None:
            self._rounds[claim.queue].fed(claim, got, refused)
            if not self._rounds[claim.queue]:
                self._hungry.discard(claim.queue)
        elif got < claim.limit:
            self._hungry.discard(claim.queue)
