"""An engine process, as the scheduler of a simulated world knows it."""

from __future__ import annotations

from collections.abc import Callable

from hipq.engine.loop import Engine
from hipq.limits.code import Throttler
from hipq.stores.waker import NO_NEWS, News
from tests.simulation.daemon import SimulatedScheduler
from tests.simulation.executor import SimulatedExecutor


class Life:
    """One engine process from its start to its crash."""

    def __init__(self, wake_at: int) -> None:
        self.engine: Engine
        self.hands: SimulatedExecutor
        self.scheduler: SimulatedScheduler | None = None
        self.throttler: Throttler | None = None
        self.crons = 0
        """What its code had of those when it started,"""
        self.types: tuple[str, ...] = ()
        """and the job types it has code for."""
        self.wake_at = wake_at
        self.woken: News = NO_NEWS
        """What it has heard and not looked after yet."""
        self.failures = 0
        self.ticket = 0
        """The last one it took,"""
        self.asides: list[tuple[int, Callable[[], None]]] = []
        """and what its other threads will have done, and when."""

    @property
    def next_at(self) -> int:
        return min(self.wake_at, *(at for at, _ in self.asides)) if self.asides else self.wake_at
