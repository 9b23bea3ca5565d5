"""What a daemon has to know to accept jobs while its store is away: kept beside its journal, from one run to the next.

That is the number of its queue, ids that were reserved for it, and its tenants, of whose tokens only the SHA-256.
"""

from __future__ import annotations

import threading

import msgspec
from msgspec.structs import replace

from hipq.journal import Journal


class Facts(msgspec.Struct, frozen=True):
    queue: int = 0
    """0 = nothing is known: the store was never there."""
    ids: tuple[int, int] = (0, 0)
    """The ids in reserve: the first of them, and the first behind them."""
    tenants: dict[str, str] = {}
    """Tenants as the store has them, by name."""


class Known:
    """For any thread."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        try:
            self.facts = msgspec.json.decode(journal.remembered() or b"{}", type=Facts)
        except msgspec.MsgspecError:
            self.facts = Facts()

    def keep(self, **changed: object) -> None:
        """These facts have changed: they are on disk when this returns."""
        with self._lock:
            after = replace(self.facts, **changed)
            if after != self.facts:
                self._journal.remember(msgspec.json.encode(after))
                self.facts = after
