"""Whether the store takes any job at all, when it has refused one batch after the other: those behind them say so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from hipq.job.model import New
from hipq.journal import Batch, Journal, Position, Reserved
from hipq.stores.protocols import Store

AT_ONCE: Final = 1_000
"""Jobs that the store tries in one transaction: others wait for its end."""
SECONDS: Final = 0.5
"""How long one look may take; the next goes on where it ended."""

Made = Sequence[tuple[int, New]]


class Ahead:
    """What lies in the journal behind a batch that the store refuses. Nothing of it is taken."""

    def __init__(self, store: Store, journal: Journal, made: Callable[[Batch], Made]) -> None:
        """`made` are the jobs of a batch, without those that cannot be made."""
        self._store = store
        self._journal = journal
        self._made = made
        self._looked: Position | None = None
        """Where the last look ended: all up to here is refused."""
        self._takes: Position | None = None
        """The store takes something before this."""

    def forget(self) -> None:
        """Something was stored: the next time all is looked at anew."""
        self._looked = self._takes = None

    def has_some(self, token: Reserved) -> bool:
        """Whether the store takes any job behind these: then it is them that it refuses, and not all."""
        if self._takes is not None and token.after < self._takes:
            return True
        at = token.after if self._looked is None else max(self._looked, token.after)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            batches, after = self._journal.look_behind(at, AT_ONCE)
            if not batches:
                self._looked = None  # what is refused now may be taken later
                return False
            if self._is_any_taken([job for batch in batches for job in self._made(batch)]):
                self._takes = after
                return True
            self._looked = at = after
        return False

    def _is_any_taken(self, jobs: Made) -> bool:
        parts = (jobs[start : start + AT_ONCE] for start in range(0, len(jobs), AT_ONCE))
        return any(len(self._store.refusals(part)) < len(part) for part in parts)
