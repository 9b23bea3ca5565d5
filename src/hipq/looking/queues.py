"""What there is in a queue: how many jobs of each kind, which has been due for longest, its rules."""

from __future__ import annotations

from typing import Final, NamedTuple

from hipq.job.states import READY
from hipq.job.when import SECOND
from hipq.limits.rules import Rules
from hipq.stores.protocols import Store
from hipq.stores.values import Counts, Limits, QueueTables

TYPES: Final = 20
"""Job types that are looked at for the oldest due job;"""
FIRST: Final = 100
"""and ready jobs of each: those that come first."""
HOUR: Final = 3600 * SECOND


class QueueLook(NamedTuple):
    tables: QueueTables
    counts: Counts
    """Failed ones of the last hour."""
    oldest_due: int
    """When the first of the ready jobs was due; 0 = none is ready."""
    rules: Rules
    limits: Limits | None
    """What is held, if anything limits the queue."""


def look_at(store: Store, tables: QueueTables, most: int, now: int) -> QueueLook:
    """`most`: where counting stops."""
    counts = store.counts(tables.number, most, now - HOUR, now)
    rules = store.rules(tables.number)
    limits = store.limits(tables.number) if rules.in_force else None
    return QueueLook(tables, counts, _oldest_due(store, tables.number) if counts.ready else 0, rules, limits)


def _oldest_due(store: Store, queue: int) -> int:
    types = store.waiting_types(queue, TYPES)
    return min((one.due for one in store.depth(queue, types, FIRST) if one.phase == READY and one.due), default=0)
