"""Step 7, prune: final jobs older than anybody wants to look at are deleted, in small steps."""

from __future__ import annotations

from collections.abc import Iterator

from hipq.stores.base import Store

STEP = 1_000


def prune(store: Store, queue: int, before: int) -> Iterator[int]:
    """Delete final jobs last updated before a moment; yields the count of each step."""
    while count := store.prune(queue, before, STEP):
        yield count
