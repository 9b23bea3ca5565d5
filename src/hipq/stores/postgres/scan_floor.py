"""Where a claim starts to read.

A claimed row leaves its old version at the head of the index, and while somebody's long transaction is open no vacuum
can remove it: after 200,000 jobs a claim of one took 40 ms instead of 1. So a claim starts at the place where the last
one stopped. What becomes ready below that lowers the floor: this process sees its own jobs, a NOTIFY tells of others.
Nobody promises that one arrives, so every so often a claim starts from the bottom: as often as that costs a twentieth
of the time, and every five seconds whatever it costs. Until then such a job may be passed over: so queues with limits,
where the order decides who gets what there is, do without floors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from hipq.stores.claim_groups import TOP, RankPosition

BOTTOM: Final[RankPosition] = ("", 0)
WORTH: Final = 1000
"""Rows claimed before floors are kept: fewer dead ones cost nothing to read, and the order is exact without floors."""
SHARE: Final = 20
LONGEST: Final = 5.0
CHEAP: Final = 0.005
"""Seconds of reading from the bottom that are not worth saving: a claim that found nothing above its floor looks below
it at once."""


@dataclass(slots=True, eq=False)
class Reading:
    """One claim: where it starts, where it stopped, and the lowest place that became ready while it read."""

    floor: RankPosition
    stopped: RankPosition = TOP
    lowest: RankPosition = TOP
    claimed: int = 0


@dataclass(slots=True)
class _Floor:
    place: RankPosition = BOTTOM
    claimed: int = 0
    from_bottom_at: float = 0.0
    from_bottom_took: float = 0.0
    open: list[Reading] = field(default_factory=list)


class ScanFloor:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._floors: dict[tuple[int, tuple[str, ...]], _Floor] = {}

    @contextmanager
    def reading(self, queue: int, types: tuple[str, ...], *, bottom: bool = False) -> Iterator[Reading]:
        """A context in which a claim reads. It sets where it `stopped` and how many rows it `claimed`."""
        started = time.monotonic()
        with self._lock:
            floor = self._floors.setdefault((queue, types), _Floor())
            bottom = bottom or floor.claimed < WORTH or started >= floor.from_bottom_at
            reading = Reading(BOTTOM if bottom else floor.place)
            floor.open.append(reading)
        try:
            yield reading
        finally:
            with self._lock:
                floor.open.remove(reading)
                floor.claimed += reading.claimed
                if reading.claimed:
                    floor.place = min(reading.stopped, reading.lowest)
                if reading.floor == BOTTOM:
                    now = time.monotonic()
                    floor.from_bottom_took = now - started
                    floor.from_bottom_at = now + min(floor.from_bottom_took * SHARE, LONGEST)

    def rest(self, queue: int, types: tuple[str, ...]) -> float:
        """Seconds until a claim that found nothing above its floor may look below it."""
        with self._lock:
            floor = self._floors[queue, types]
            return 0.0 if floor.from_bottom_took <= CHEAP else max(floor.from_bottom_at - time.monotonic(), 0.0)

    def lower(self, queue: int, place: RankPosition) -> None:
        """A job became ready at this place."""
        with self._lock:
            for (number, _), floor in self._floors.items():
                if number == queue:
                    _lower(floor, place)

    def forget(self) -> None:
        """Jobs may have become ready anywhere: nobody listened for a while."""
        with self._lock:
            for floor in self._floors.values():
                _lower(floor, BOTTOM)


def _lower(floor: _Floor, place: RankPosition) -> None:
    floor.place = min(floor.place, place)
    for reading in floor.open:
        reading.lowest = min(reading.lowest, place)
