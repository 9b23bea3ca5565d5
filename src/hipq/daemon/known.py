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
    """The ids in reserve."""
    tenants: dict[str, str] = {}
    """As the store has them, by name."""


class Known:
    """For any thread. Whatever changes is on disk when the verb returns."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        try:
            self.facts = msgspec.json.decode(journal.remembered() or b"{}", type=Facts)
        except msgspec.MsgspecError:
            self.facts = Facts()

    @property
    def spare(self) -> range:
        return range(*self.facts.ids)

    def keep_spare(self, block: range) -> None:
        self._keep(ids=(block.start, block.stop))

    def keep_queue(self, number: int) -> None:
        self._keep(queue=number)

    def keep_tenants(self, tenants: dict[str, str]) -> None:
        self._keep(tenants=tenants)

    def _keep(self, **changed: object) -> None:
        with self._lock:
            after = replace(self.facts, **changed)
            if after != self.facts:
                self._journal.remember(msgspec.json.encode(after))
                self.facts = after
