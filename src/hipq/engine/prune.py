"""Step 8, prune: final jobs nobody wants to look at any more, and answers, are deleted, in small steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hipq.events import Events
from hipq.job.event_names import InboxEvent
from hipq.stores.protocols import Store
from hipq.stores.values import EARLIEST, EndPlace

STEP: Final = 1_000


def prune(
    store: Store, queue: int, before: EndPlace, job_type: str = "", code: str = "", tenant: str = "",
    keep: int | None = None,
) -> Iterator[int]:  # fmt: skip
    """Delete final jobs that ended before a place, and all but the last `keep`, of one job_type, code or tenant if such
    are given; yields the count of each step. What is not to be deleted is passed once, and not looked at again."""
    place: EndPlace | None = EARLIEST
    while place is not None:
        deleted, place, before = store.prune(queue, before, STEP, place, job_type, code, tenant, keep)
        keep = None
        yield deleted


def maintain(store: Store, queues: Sequence[int], events: Events, now: int) -> bool:
    """One step of `Store.maintain`: answers that need not be kept, progress of jobs that have ended, and old counters;
    whether there may be more to do."""
    done = store.maintain(queues, now, STEP)
    if done.answers:
        events.emit(InboxEvent.ANSWERS_PRUNED, now, count=done.answers)
    return done.folded or max(done.late, done.answers, done.progress) >= STEP
