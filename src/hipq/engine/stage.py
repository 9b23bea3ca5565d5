"""Step 2, stage: scheduled jobs whose time has come become ready, in small steps, earliest first.

Until then a job is in no index that a claim reads: a million jobs for next week cost a claim nothing.
"""

from __future__ import annotations

import msgspec

from hipq.errors import Invalid, shown
from hipq.job import meta, retries, transitions, windows
from hipq.job.event_names import JobEvent
from hipq.job.fault import clean
from hipq.job.model import Change, Row
from hipq.job.order import Order
from hipq.job.states import SCHEDULED
from hipq.stores.protocols import Store

STEP = 1_000
"""Rows in one step, so that a backlog that falls due at once delays no turn for long."""


def stage(store: Store, queue: int, now: int) -> tuple[int, bool]:
    """Stage one step. Returns how many jobs it made ready, and whether more may be due."""
    count = store.stage(queue, SCHEDULED, now, STEP)
    return count, count == STEP


def rank(store: Store, queue: int, order: Order, now: int) -> list[Change]:
    """Give due jobs that were added in plain SQL (docs/tables.md) their rank, so that they can be staged. A job that no
    engine can read ends here, before it is in anybody's way."""
    found = []
    for row in store.due(queue, SCHEDULED, now, STEP):
        if reason := _unreadable(row):
            found.append(Change(row, transitions.unreadable(row, reason, now), (), JobEvent.ERROR))
        else:
            found.append(Change(row, transitions.ranked(row, order, now)))
    return found


def _unreadable(row: Row) -> str:
    """Why a job that another program added cannot be read; "" = it can."""
    try:
        windows.load(row.time_windows)
    except Invalid as error:
        return clean(f"time_windows, {shown(row.time_windows)}, cannot be used: {error}")
    try:
        own = meta.load(row.meta).retry
        if own is not None:
            retries.handler(own, {})
    except retries.NotRegistered:
        pass  # the program that has this code is asked when the job fails
    except (msgspec.MsgspecError, TypeError) as error:
        return clean(f"meta, {shown(row.meta)}, cannot be used: {error}")
    return ""
