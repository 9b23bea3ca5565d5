"""One shard: a database that an instance shares its jobs out to, and whether that database is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from hipq.errors import Invalid, StoreBusy, StoreUnavailable
from hipq.limits.rules import Rules
from hipq.limits.slice import Slice
from hipq.shards import place
from hipq.stores.password import without_password
from hipq.stores.protocols import Store

AGAIN: Final = 1.0
"""Seconds after which a shard that was away is tried again: until then nobody waits for it."""


class Shard:
    def __init__(self, name: str, url: str, opened: Callable[[str], Store]) -> None:
        self.name = name
        self.url = url
        self.slot = -1
        """Its slot, once that is known."""
        self.part = self.even = 0
        """The parts of each queue's limits with which the shard begins."""
        self._opened = opened
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._away = ""
        """Why the database is not used at the moment; "" if it is."""
        self._again = self._since = 0.0
        self._numbers: dict[tuple[str, str], int] = {}
        """The number of each queue, by the names of its instance and its own."""

    @property
    def store(self) -> Store:
        """The database itself, opened at its first use. For engines, which wait for it by themselves."""
        if self._store is None:
            with self._lock:
                if self._store is None:
                    self._store = self._opened(self.url)
        return self._store

    @property
    def is_open(self) -> bool:
        return self._store is not None

    @property
    def away(self) -> str:
        """Why the database was away when it was last tried; "" if it was there."""
        return self._away

    @property
    def away_for(self) -> float:
        """Seconds since the database was found to be away; 0 = it is there."""
        return time.monotonic() - self._since if self._away else 0.0

    @property
    def is_asked(self) -> bool:
        """Whether to ask the database: it is there, or was away some time ago."""
        return not self._away or time.monotonic() >= self._again

    @contextmanager
    def asked(self) -> Iterator[Store]:
        """The database, for one verb. While it is away, only one caller a second waits for it."""
        if not self.is_asked:
            raise StoreUnavailable(self._away)
        self._again = time.monotonic() + AGAIN
        try:
            yield self.store
        except StoreBusy:
            raise
        except StoreUnavailable as error:
            self._since = self._since if self._away else time.monotonic()
            self._away = f"shard {self.name} ({without_password(self.url)}) is away: {error}"
            self._again = time.monotonic() + AGAIN
            raise StoreUnavailable(self._away) from error
        else:
            self._away = ""

    def number(self, app: str, queue: str, table: str) -> int:
        """The number that a queue has in this shard, which registers the queue if need be."""
        found = self._numbers.get((app, queue))
        if found is None:
            with self.asked() as store:
                found = store.queue(app, queue, table).number
                store.change_rules(found, self._with_slice)
            if place.slot_of_queue(found) != self.slot:
                raise Invalid(
                    f"shard {self.name} has no number left for the queue {queue}: it can have {place.QUEUES} queues"
                )
            self._numbers[app, queue] = found
        return found

    def _with_slice(self, rules: Rules) -> Rules:
        """A shard has a part of a queue's limits from the beginning, or none: what it has later is what it was sent."""
        return rules if rules.slice else replace(rules, slice=Slice(self.part, self.even))

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def __repr__(self) -> str:
        return f"<Shard {self.name} on {without_password(self.url)}>"
