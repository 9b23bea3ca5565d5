"""Step 3, claim: from which queues to take jobs. How many in all is decided in prefetch.py."""

from __future__ import annotations

from collections.abc import Sequence

from hipq.engine.lanes import NO_SPARE, Round, Spare
from hipq.engine.queue_watch import QueueWatch, QueueWatches
from hipq.stores.claims import Claim


class ClaimPlanner:
    """Plans the claims of one turn, over all queues that may have work."""

    def __init__(self, watches: QueueWatches) -> None:
        self._watches = watches
        self._turn = list(watches)
        """The queues in the order in which they are asked. At each claim the first moves to the end."""

    def wants(self, room: int, spare: Spare) -> bool:
        """Whether there may be something to claim."""
        watches = [watch for watch in self._watches.served() if watch.may_have_work]
        return bool(watches) if room > 0 else any(_wants_spare(watch, spare) for watch in watches)

    def claims(self, room: int, hands: int, spare: Spare = NO_SPARE) -> list[Claim]:
        """Ask each queue for an equal part of the room. The queue that was asked first is asked last the next time."""
        self._turn.append(self._turn.pop(0))
        watches = [self._watches[number] for number in self._turn if number not in self._watches.locked]
        watches = [watch for watch in watches if watch.may_have_work]
        if room <= 0:
            return _on_spare_hands(watches, hands, spare)
        asked = watches[:room]
        share, more = divmod(room, len(asked)) if asked else (0, 0)
        claims: list[Claim] = []
        for index, watch in enumerate(asked):
            part = share + (index < more)
            if watch.round is not None:
                claims += _next_lanes(watch, watch.round, part, hands)
            else:
                queue = watch.queue
                strategies = tuple(queue.strategies)
                claims.append(
                    Claim(queue.number, queue.types, part, queue.critical, hands=hands, strategies=strategies)
                )
        return claims


def _next_lanes(watch: QueueWatch, lanes: Round, room: int, hands: int) -> list[Claim]:
    claims = lanes.claims(room, hands)
    if not claims and not lanes.looking:
        watch.may_have_work = False  # its scheduler wants nothing to start: until something changes
    return claims


def _wants_spare(watch: QueueWatch, spare: Spare) -> bool:
    return watch.round is not None and not watch.skips_spare and watch.round.wants(spare)


def _on_spare_hands(watches: Sequence[QueueWatch], hands: int, spare: Spare) -> list[Claim]:
    """Claims of the first queue that has something for spare hands."""
    for watch in watches:
        if watch.round is not None and _wants_spare(watch, spare):
            if claims := watch.round.claims(0, hands, spare):
                return claims
            watch.skips_spare = not watch.round.looking
    return []
