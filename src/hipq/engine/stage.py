"""Step 2, stage: when the time of a scheduled job has come it becomes ready, in small steps, earliest first.

Until then it is in no index a claim reads: a million jobs for next week cost a claim nothing.
"""

from __future__ import annotations

from hipq.job import transitions
from hipq.job.model import Change
from hipq.job.order import Order
from hipq.job.states import SCHEDULED
from hipq.stores.protocols import Store

STEP = 1_000
"""Rows a step, so that a backlog that falls due at once delays no turn for long."""


def stage(store: Store, queue: int, now: int) -> tuple[int, bool]:
    """Stage one step; how many, and whether more may be due."""
    count = store.stage(queue, SCHEDULED, now, STEP)
    return count, count == STEP


def rank(store: Store, queue: int, order: Order, now: int) -> list[Change]:
    """Jobs that are due and were added in plain SQL (docs/tables.md) get their rank; then they can be staged."""
    return [Change(row, transitions.ranked(row, order, now)) for row in store.due(queue, SCHEDULED, now, STEP)]
