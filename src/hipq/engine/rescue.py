"""Step 6, rescue: jobs that nobody would finish, because their engine died or their answer never came.

An engine is dead when its lease has run out. A job that still runs is not touched, however long it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hipq.engine.queues import EngineQueue
from hipq.executors.execution import Execution
from hipq.job import transitions, wait_transitions
from hipq.job.event_names import JobEvent
from hipq.job.model import Change, queue_of
from hipq.job.order import Order
from hipq.job.states import ANSWERED, WAITING
from hipq.stores.protocols import Store

STEP = 500


def orphans(store: Store, queues: Mapping[int, EngineQueue], now: int) -> list[Change]:
    """Give back the jobs whose engine has no live lease, without a failure. They run apart from others from now on.
    Answers to them may be there: the engine may have sent their requests."""
    found = []
    for row in store.owned(list(queues), None, STEP):
        after, spec = transitions.rescued(row, now), queues[queue_of(row.id)].specs.get(row.job_type)
        seeking = wait_transitions.agreed(after, spec.fence, spec.cancelled is not None) if spec and spec.fn else None
        found.append(Change(row, after, (), JobEvent.RESCUED, seeking=seeking))
    return found


def overdue(store: Store, queue: int, order: Order, now: int) -> list[Change]:
    """The changes of waiting jobs whose deadline has passed: they look at their answer again, are cancelled, or have
    timed out. A time-out is an error, and an engine that has the job's retry handler decides about it."""
    found = []
    for row in store.due(queue, WAITING, now, STEP):
        after = wait_transitions.overdue(row, order, now)
        found.append(Change(row, after, (), JobEvent.ANSWERED if after.phase == ANSWERED else JobEvent.TIMED_OUT))
    return found


def forgotten(
    store: Store, queues: Sequence[int], engine_id: int, in_flight: Mapping[int, Execution], now: int
) -> tuple[list[Change], list[Execution]]:
    """Compare the rows that this engine owns with its memory, both ways. A row that is not in memory was claimed in a
    commit whose acknowledgement was lost: its job was never started, so it is given back as it was. A job in memory
    whose row is no longer ours was taken from us."""
    owned = {row.id: row for row in store.owned(queues, engine_id)}
    reason = "claimed, but the claim was never confirmed"
    back = [
        Change(row, transitions.given_back(row, reason, False, now), (), JobEvent.GIVEN_BACK)
        for job_id, row in owned.items()
        if job_id not in in_flight
    ]
    taken = [
        execution
        for job_id, execution in in_flight.items()
        if job_id not in owned or owned[job_id].token != execution.row.token
    ]
    return back, taken
