"""Step 8, prune: final jobs older than anybody wants to look at, and answers, are deleted, in small steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from hipq.events import Events
from hipq.stores.base import Store

STEP: Final = 1_000


def prune(store: Store, queue: int, before: int) -> Iterator[int]:
    """Delete final jobs last updated before a moment; yields the count of each step."""
    while count := store.prune(queue, before, STEP):
        yield count


def answers(store: Store, queues: Iterable[int], events: Events, now: int) -> bool:
    """One step: answers whose job ended before it waited for them are late, and those that need not be kept any longer
    go; whether there may be more."""
    late = store.late_answers(list(queues), STEP)
    count = store.prune_answers(now, STEP)
    if count:
        events.emit("answers pruned", now, count=count)
    return max(late, count) >= STEP
