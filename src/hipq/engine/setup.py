"""What an engine is made of: its store and queues, where handlers run, its clocks, and its settings."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hipq.engine.executor import Executor
from hipq.engine.lanes import NO_SPARE, Spare
from hipq.engine.queues import EngineQueue
from hipq.engine.throttle import Spawn, spawn
from hipq.engine.timetable import LEASE, POLL
from hipq.events import Events
from hipq.job.answer import Kept
from hipq.job.model import New
from hipq.stores.protocols import Store
from hipq.stores.values import Stored


def _nobody(_news: Sequence[New], _stored: Sequence[Stored]) -> None: ...


@dataclass
class Setup:
    store: Store
    queues: Sequence[EngineQueue]
    executor: Executor
    events: Events
    steady: Callable[[], int]
    """The steady clock, in microseconds, which nobody sets."""
    concurrency: int = 10
    taken_elsewhere: Callable[[], int] = lambda: 0
    """How many of these hands other engines of this program have: those of other shards."""
    lease: float = LEASE
    poll: float = POLL
    drain: float | None = None
    """Seconds that a stop may take before handlers that still run are given back. None = handlers are waited for."""
    chance: random.Random = field(default_factory=random.Random)
    added: Callable[[Sequence[New], Sequence[Stored]], None] = _nobody
    """Called with the jobs that handlers and schedules added."""
    deliver: Callable[[Kept], None] | None = None
    """Matches an answer that another program put into the inbox in plain SQL."""
    run_spawned: Spawn = spawn
    """Runs a question to a code throttler in another thread."""
    spare: Callable[[], Spare] = lambda: NO_SPARE
    """Free slots beyond `concurrency`, which only tenants with nothing running may have."""
