"""How many jobs an engine claims ahead of free hands.

Handlers that take microseconds want hundreds of jobs a turn; handlers that take minutes want not one more than can
start. So an engine claims what it can start within AHEAD seconds at the pace it has measured, of each job type apart:
where quick jobs come with slow ones, it does not take slow ones that other engines could start at once. What it could
not start after all it gives back, at no cost to the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

AHEAD: Final = 0.05
"""Seconds of work claimed ahead of free hands."""
BATCH: Final = 500
"""The most claimed ahead in one turn (larger ones were not faster on either store), and half of what is claimed ahead
in all: while one batch is executed, the one before is saved and the next is claimed."""
STEADY: Final = 50
"""Jobs that the mean over all types is made of, once this many were measured."""
LATEST: Final = 8
"""Jobs that the mean of one type is made of."""
GROWTH: Final = 4
"""Jobs claimed ahead for each one that was measured: the first few may be quicker than most."""
UNSTARTED_FOR: Final = 1_000_000
"""Microseconds a claimed job may wait for a free hand before it is given back."""
MOST_KINDS: Final = 10_000
"""Job types whose pace is remembered: a daemon may meet any number of them."""

Kind = tuple[str, str]
"""A queue's name and a job type."""


class Prefetch:
    """Measures how long handlers take, as running means, and from that how many jobs may wait in memory for a free
    hand."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._means: dict[Kind, float] = {}
        self._mean = 0.0
        """The mean duration of the jobs that have ended, in microseconds, over all types."""
        self._expected = 0.0
        """The same mean over the jobs that were claimed, so that types whose jobs have not ended yet count as well."""
        self._measured = 0

    def unknown(self) -> None:
        """The measurements proved wrong: claim nothing ahead, and measure anew."""
        self._measured = 0

    def measure(self, ended: Sequence[tuple[Kind, int]]) -> None:
        """Jobs have ended; how many microseconds each took."""
        if not ended:
            return
        for kind, took in ended:
            mean = self._means.get(kind, took)
            self._means[kind] = mean + (took - mean) / LATEST
        if len(self._means) > MOST_KINDS:
            self._means.clear()
        weight = min(self._measured, STEADY)
        average = sum(took for _, took in ended) / len(ended)
        self._mean += len(ended) / (len(ended) + weight) * (average - self._mean)
        self._measured += len(ended)

    def outlasts(self, kind: Kind, lasted: int) -> None:
        """A job has been running for this many microseconds already."""
        if lasted > self._means.get(kind, self._mean):
            self._means[kind] = lasted

    def claimed(self, kinds: Iterable[Kind]) -> None:
        for kind, jobs in Counter(kinds).items():
            weight = 1 - (1 - 1 / STEADY) ** jobs
            self._expected += (self._means.get(kind, self._mean) - self._expected) * weight

    def room(self, free: int) -> int:
        """How many jobs to claim in one turn when this many hands are free; negative if too many jobs wait for a
        hand."""
        return min(free + self._ahead(self._concurrency), max(free, BATCH))

    def for_one(self) -> int:
        """How many jobs to claim for one hand."""
        return 1 + self._ahead(1)

    def _ahead(self, hands: int) -> int:
        mean = max(self._mean, self._expected, 1)
        return min(2 * BATCH, GROWTH * self._measured, int(AHEAD * 1e6 * hands / mean))
