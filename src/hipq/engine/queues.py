"""A queue as an engine sees it: its number, its order, and the code of its job types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from hipq.job.model import New
from hipq.job.order import Order
from hipq.job.retries import RetryHandler
from hipq.job.schedule import DeclaredSchedule, Schedule
from hipq.job.spec import Spec
from hipq.limits.code import Throttler
from hipq.stores.claims import ANY_TYPE

if TYPE_CHECKING:
    from hipq.engine.lanes import Scheduler


class EngineQueue(msgspec.Struct, frozen=True, eq=False):
    number: int
    name: str
    order: Order
    specs: Mapping[str, Spec]
    throttler: Throttler | None = None
    crons: Mapping[str, DeclaredSchedule] = {}
    """The schedules in code, by name. Read at each look: one may be declared after the engine was made."""
    make: Callable[[Schedule, int], New] | None = None
    """Makes the job of a schedule's tick. None = schedules do not tick in this engine."""
    strategies: Mapping[str, RetryHandler] = {}
    """The registered retry strategies, by name. Read at each look, like the schedules."""
    scheduler: Scheduler | None = None
    """In a daemon: chooses the next lane. Such an engine serves all job types, so `specs` has a spec for any name."""

    @property
    def types(self) -> tuple[str, ...]:
        """The job types that the program has code for: an engine claims no others."""
        if self.scheduler is not None:
            return (ANY_TYPE,)
        return tuple(name for name, spec in self._known if spec.fn is not None)

    @property
    def critical(self) -> tuple[str, ...]:
        """The critical job types, which limits do not hold up."""
        return tuple(name for name, spec in self._known if spec.fn is not None and spec.critical)

    @property
    def _known(self) -> list[tuple[str, Spec]]:
        return list(self.specs.items())  # at once: any thread may register a type meanwhile

    @property
    def published(self) -> list[str]:
        """The job types as other programs read them from the engine's lease, with `!` before a critical one."""
        critical = frozenset(self.critical)
        return [f"!{name}" if name in critical else name for name in self.types]
