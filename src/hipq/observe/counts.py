"""Counts of what happened, by queue: a subscriber of `hipq.events` that needs nothing but memory.

    from hipq.observe.counts import Counts
    counts = Counts(app.events)
    counts.by_queue["orders"]["matched"]
    counts.waited["orders"].buckets[60]

It counts what happens in this process: engines in others have their own.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hipq.events import Event, Events
from hipq.job.answer import Answered
from hipq.job.event_names import JobEvent

COUNTED: Final = (
    Answered.MATCHED,
    Answered.BUFFERED,
    Answered.DUPLICATE,
    Answered.CONFLICT,
    Answered.LATE,
    Answered.UNREADABLE,
    JobEvent.OK,
    JobEvent.FAILED,
    JobEvent.GAVE_UP,
    JobEvent.TIMED_OUT,
)
"""The events that are counted: the outcomes of answers, and how jobs ended or failed."""
BOUNDS: Final = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 86_400.0)
"""Seconds between a request and its answer: the inclusive upper bounds of the buckets."""


@dataclass(frozen=True, slots=True)
class Waited:
    """How long answers took, in seconds."""

    count: int
    sum: float
    max: float
    buckets: Mapping[float, int]
    """For each bound, the number of answers that took at most so long; `count` is the number of all."""


class Times:
    """Adds up durations; whoever uses it sees to it that no two threads do so at once."""

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self.bounds = bounds
        self.sum = self.max = 0.0
        self.within = [0] * (len(bounds) + 1)

    def add(self, seconds: float) -> None:
        self.sum += seconds
        self.max = max(self.max, seconds)
        self.within[bisect_left(self.bounds, seconds)] += 1

    def shown(self) -> Waited:
        total, buckets = 0, {}
        for bound, count in zip(self.bounds, self.within, strict=False):
            total += count
            buckets[bound] = total
        return Waited(total + self.within[-1], self.sum, self.max, buckets)


class Counts:
    """Counts an app's events from now on. Thread-safe: each look is consistent."""

    def __init__(self, events: Events) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[str, int]] = {}
        self._times: dict[str, Times] = {}
        events.subscribe(self._count, *COUNTED)

    @property
    def by_queue(self) -> dict[str, dict[str, int]]:
        """How often each event happened, by queue; queues without events are left out."""
        with self._lock:
            return {queue: dict(counts) for queue, counts in self._counts.items()}

    @property
    def waited(self) -> dict[str, Waited]:
        """How long it took from the start of a job's attempt until an answer matched the job."""
        with self._lock:
            return {queue: times.shown() for queue, times in self._times.items()}

    def _count(self, event: Event) -> None:
        seconds = event.details.get("waited")
        with self._lock:
            counts = self._counts.setdefault(event.queue, dict.fromkeys(COUNTED, 0))
            counts[event.name] += 1
            if seconds is not None:
                self._times.setdefault(event.queue, Times()).add(seconds)
