"""The jobs of a queue that run, and where."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from hipq.job.model import Brief
from hipq.job.states import EXECUTING
from hipq.job.when import SECOND
from hipq.stores.filters import Filter
from hipq.stores.protocols import Store
from hipq.stores.values import EngineSeen, QueueTables

RUNNING: Final = 200
"""The most running jobs of a queue that are looked at: those that were added first."""


class RunningJob(NamedTuple):
    queue: QueueTables
    row: Brief
    seconds: float
    """For which it has run."""
    worker: str
    """The label of its engine."""


def running(store: Store, queues: Iterable[QueueTables], engines: Iterable[EngineSeen], now: int) -> list[RunningJob]:
    """The jobs of these queues that run, the longest first. `engines`: those that are alive."""
    labels = {one.engine_id: one.label for one in engines}
    found = [(queue, row) for queue in queues for row in store.find(_of(queue.number), brief=True)]
    jobs = [
        RunningJob(queue, row, max(now - row.update_time, 0) / SECOND, _worker(row, labels)) for queue, row in found
    ]
    return sorted(jobs, key=lambda job: -job.seconds)


def _of(queue: int) -> Filter:
    return Filter(queue, phase=EXECUTING, table="live", limit=RUNNING)


def _since(row: Brief, now: int) -> float:
    return max(now - row.update_time, 0) / SECOND


def _worker(row: Brief, labels: dict[int, str]) -> str:
    return labels.get(row.owner, f"engine {row.owner}, gone")


def serving(engine: EngineSeen, queues: Iterable[QueueTables]) -> list[QueueTables]:
    """Those of these queues that an engine serves."""
    return [queue for queue in queues if str(queue.number) in engine.serves]
