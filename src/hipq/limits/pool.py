"""A pool: the units that one limit allows, and the units that are used. A job takes its `throttle_factor` of them.

Claims only know pools, whatever the limits behind them. All counts are whole thousandths of units.
"""

from __future__ import annotations

import msgspec


class Pool(msgspec.Struct, eq=False):
    name: str
    """The name that people read, and by which a queue remembers the pool from claim to claim."""
    cap: int
    used: int = 0
    heavy: tuple[str, int] | None = None
    """The place of the first job that is too heavy for what is left: jobs behind it pass it."""
    passed: int = 0
    """Units that have passed that job, in this claim and in earlier claims."""
    taken: int = 0
    """Units taken in this claim."""
    came: bool = False
    """Whether the job that others passed before starts in this claim."""
    alone: bool = True
    """Whether a job that is heavier than the whole pool may run alone in it. Not in a pool that is a part of another:
    jobs may run in the other parts."""

    @property
    def full(self) -> bool:
        return self.used >= (max(self.cap, 1) if self.alone else self.cap)

    def fits(self, factor: int) -> bool:
        """Whether a job of this weight fits. One that is heavier than the whole pool, because the limit was lowered
        since, runs alone in it."""
        return self.used + factor <= self.cap or (self.alone and factor > self.cap and self.used == 0)

    def lets_pass(self, factor: int, lightest: int) -> bool:
        """Whether lighter jobs may pass a job of this weight, which does not fit. `lightest`: the least that a job
        holds now. A pool of 2.8 units is no different from one of 2 where no job is lighter than a unit."""
        return factor > lightest

    def room_at(self, factor: int, now: int) -> int:
        """When a job of this weight fits, if nothing else starts first; 0 = that depends on when other jobs end."""
        return 0

    def passes(self, place: tuple[str, int]) -> bool:
        return self.heavy is not None and place > self.heavy

    def take(self, factor: int, place: tuple[str, int]) -> None:
        self.used += factor
        self.taken += factor
        if self.passes(place):
            self.passed += factor
