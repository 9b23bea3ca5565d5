"""A pool is what one limit counts in: so many units, some of them used. A job takes its `throttle_factor` of them.
Units are counted in whole thousandths here.

Limits are lists of pools by lane; what the pools have in common is here, so that a claim need not know any limit.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Pool:
    name: str
    """As a person reads it, and as it is remembered from claim to claim."""
    cap: int
    used: int = 0
    rate: tuple[int, list[list[int]]] | None = None
    """For a pool of starts: the span in microseconds, and what was started in it (see `hipq.limits.rate`)."""
    heavy: tuple[str, int] | None = None
    """The place of the first job that is too heavy for what is left: those behind it pass it."""
    passed: int = 0
    """Units that have passed that job, in this claim and in those before."""
    taken: int = 0
    """Units taken in this claim."""
    came: bool = False
    """The job that others passed before has its turn in this claim."""

    @property
    def full(self) -> bool:
        return self.used >= max(self.cap, 1)

    def fits(self, factor: int) -> bool:
        """A job heavier than the whole pool (the limit was lowered since it was added) runs alone in it."""
        return self.used + factor <= self.cap or (factor > self.cap and self.used == 0)

    def passes(self, place: tuple[str, int]) -> bool:
        return self.heavy is not None and place > self.heavy

    def take(self, factor: int, place: tuple[str, int]) -> None:
        self.used += factor
        self.taken += factor
        if self.passes(place):
            self.passed += factor
