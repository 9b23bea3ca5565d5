"""The shards of an instance: which of them has a job, a queue or a key, and asking one, any or all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from hipq.errors import NotFound, StoreUnavailable
from hipq.shards import place
from hipq.shards.fetching import Fetcher
from hipq.shards.shard import Shard
from hipq.stores.protocols import Store

T = TypeVar("T")

Name = tuple[str, str, str]
"""The names of an instance, of a queue, and of the queue's table."""


class ShardSet:
    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = list(shards)
        self.by_slot = {shard.slot: shard for shard in shards}
        self.fetcher = Fetcher()
        self.names: dict[int, Name] = {}
        """By the number that a queue has in any shard."""

    def of_job(self, job_id: int) -> Shard:
        return self.with_slot(place.slot_of_job(job_id), f"no job {job_id}")

    def with_slot(self, slot: int, missing: str) -> Shard:
        if slot not in self.by_slot:
            raise NotFound(f"there is {missing}: no shard has such numbers")
        return self.by_slot[slot]

    def own(self, number: int, shard: Shard) -> int:
        """The number that a queue has in a shard."""
        return shard.number(*self._named(number))

    def numbers(self, number: int) -> list[int]:
        """All numbers that a queue has. A shard that has been away since this program began is left out."""
        name, found = self._named(number), list[int]()
        for shard in self.shards:
            try:
                found.append(shard.number(*name))
            except StoreUnavailable:
                continue
        self.names.update(dict.fromkeys(found, name))
        return found

    def _named(self, number: int) -> Name:
        if number not in self.names:
            for shard in self.there():
                with shard.asked() as store:
                    self.names |= {one.number: (one.app, one.name, one.table) for one in store.queues()}
        if number not in self.names:
            raise NotFound(f"no queue has the number {number}")
        return self.names[number]

    def there(self) -> list[Shard]:
        """The shards that are there, as far as is known. StoreUnavailable, if none is."""
        found = [shard for shard in self.shards if shard.is_asked]
        if not found:
            raise StoreUnavailable("; ".join(shard.away for shard in self.shards))
        return found

    def not_away(self) -> list[Shard]:
        """The shards that were there when they were last asked, if any was. The others are looked at beside this."""
        for shard in self.shards:
            if shard.away and shard.is_asked:
                self.fetcher.add(partial(_look, shard))
        return [shard for shard in self.shards if not shard.away] or self.there()

    def any(self, work: Callable[[Store, Shard], T]) -> T:
        """What the first shard says that is there."""
        failed = ""
        for shard in self.there():
            try:
                with shard.asked() as store:
                    return work(store, shard)
            except StoreUnavailable as error:
                failed = str(error)
        raise StoreUnavailable(failed)

    def all(self, number: int, work: Callable[[Store, int], T]) -> list[T]:
        """What every shard says about a queue, by its number there. A shard that is away is an error: what the others
        say would look like everything."""
        found = []
        for shard in self.shards:
            own = self.own(number, shard)
            with shard.asked() as store:
                found.append(work(store, own))
        return found

    def home(self, key: str) -> Shard:
        """The shard to which a key belongs."""
        return self.by_slot[place.home(key, self.by_slot)]


def _look(shard: Shard) -> None:
    """Whether a shard is there again, as `Shard.away` says afterwards."""
    with suppress(StoreUnavailable), shard.asked() as store:
        store.queues()
