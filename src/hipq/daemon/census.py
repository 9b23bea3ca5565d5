"""How many jobs of a tenant wait, run and so on, by type: counted step by step, so that others have their turn."""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal

from hipq.job.states import ERROR, FINAL, RETRY, RUNNING, SCHEDULED, WAITING
from hipq.stores.protocols import Store
from hipq.stores.values import Counted

STEP: Final = 5_000
"""Jobs that are looked at in one step."""
MOST: Final = 100_000
"""Jobs that are counted at most, live ones and ended ones each."""
COUNTS: Final = ("waiting", "scheduled", "running", "retrying", "waiting_for_answer", "done")


class Census:
    """`step` until it is over; each step is one read of the store."""

    def __init__(self, store: Store, queue: int, tenant: str) -> None:
        self.types: dict[str, Counter[str]] = {}
        """By type, how many jobs are what `COUNTS` names."""
        self.more = False
        """There are more jobs than were counted."""
        self._store, self._queue, self._tenant = store, queue, tenant
        self._tables: list[Literal["live", "final"]] = ["live", "final"]
        """Those that are not counted yet;"""
        self._after = self._seen = 0
        """of the first one, how far: the last id, and how many jobs."""

    def step(self) -> bool:
        """Whether there is another one to do."""
        found, self._after = self._store.census(self._queue, self._tenant, self._tables[0], self._after, STEP)
        for one in found:
            self.types.setdefault(one.job_type, Counter())[_name(one)] += one.jobs
        self._seen += STEP
        if not self._after or self._seen >= MOST:
            self.more = self.more or self._after > 0
            self._tables.pop(0)
            self._after = self._seen = 0
        return bool(self._tables)


def _name(one: Counted) -> str:
    if one.state == FINAL:
        return "done"
    if one.phase == WAITING:
        return "waiting_for_answer"
    if one.state == RUNNING:
        return "running"
    if one.state in (RETRY, ERROR):
        return "retrying"
    return "scheduled" if one.phase == SCHEDULED else "waiting"
