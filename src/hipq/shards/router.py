"""A store over several databases: each verb goes to the shard that has the job, or to all, whose results it merges.

Callers know a queue by the number it has in any of the shards. What an engine does besides adding and moving jobs has no
place here: an engine works on one shard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from hipq.errors import Invalid, NotFound, StoreUnavailable, WrongConnection
from hipq.job.model import Brief, Change, New, Row, queue_of
from hipq.job.progress import Reported
from hipq.shards import merge, place
from hipq.shards.answers import ShardedAnswers
from hipq.shards.shard import Shard
from hipq.stores.claims import Claim, Turned
from hipq.stores.filters import Filter
from hipq.stores.forwarding import Forwarding
from hipq.stores.values import EARLIEST, Counts, Depth, EndPlace, EngineSeen, Pruned, QueueTables, Stored

T = TypeVar("T")
TOGETHER: Final = 100
"""Jobs without a key that go to one shard together."""

Name = tuple[str, str, str]
"""The names of an instance, of a queue, and of the queue's table."""


class ShardRouter(ShardedAnswers, Forwarding):
    at_once = 1

    def __init__(self, shards: Sequence[Shard], shard_key: Callable[[New], str]) -> None:
        """`shard_key`: what says to which shard a new job belongs; "" if any will do."""
        self.shards = list(shards)
        self.url = ", ".join(f"{shard.name}: {shard.url}" for shard in shards)
        self._by_slot = {shard.slot: shard for shard in shards}
        self._slots = sorted(self._by_slot)
        self._shard_key = shard_key
        self._turns = count()
        self._names: dict[int, Name] = {}
        """By the number that a queue has in any shard."""

    def _call(self, verb: str, given: tuple[Any, ...], more: dict[str, Any]) -> Any:
        raise Invalid(f"this works on one shard at a time: give its URL instead of {len(self.shards)} shards ({verb})")

    # -- finding the shard ------------------------------------------------------------------------------------------
    def of_job(self, job_id: int) -> Shard:
        return self._with_slot(place.slot_of_job(job_id), f"no job {job_id}")

    def _with_slot(self, slot: int, missing: str) -> Shard:
        if slot not in self._by_slot:
            raise NotFound(f"there is {missing}: no shard has such numbers")
        return self._by_slot[slot]

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
        self._names.update(dict.fromkeys(found, name))
        return found

    def _named(self, number: int) -> Name:
        if number not in self._names:
            for shard in self._there():
                with shard.asked() as store:
                    self._names |= {one.number: (one.app, one.name, one.table) for one in store.queues()}
        if number not in self._names:
            raise NotFound(f"no queue has the number {number}")
        return self._names[number]

    def _there(self) -> list[Shard]:
        """The shards that are there, as far as is known. StoreUnavailable, if none is."""
        found = [shard for shard in self.shards if shard.is_asked]
        if not found:
            raise StoreUnavailable("; ".join(shard.away for shard in self.shards))
        return found

    def _any(self, work: Callable[[Any], T]) -> T:
        """What the first shard says that is there."""
        failed = ""
        for shard in self._there():
            try:
                with shard.asked() as store:
                    return work(store)
            except StoreUnavailable as error:
                failed = str(error)
        raise StoreUnavailable(failed)

    def _all(self, number: int, work: Callable[[Any, int], T]) -> list[T]:
        """What every shard says about a queue, by its number there. A shard that is away is an error: what the others
        say would look like everything."""
        found = []
        for shard in self.shards:
            own = self.own(number, shard)
            with shard.asked() as store:
                found.append(work(store, own))
        return found

    # -- setting up -------------------------------------------------------------------------------------------------
    def now(self) -> int:
        return self._any(lambda store: int(store.now()))

    def migrate(self) -> list[str]:
        applied = []
        for shard in self.shards:
            with shard.asked() as store:
                applied += [f"{shard.name}: {name}" for name in store.migrate()]
        return applied

    def queue(self, app: str, name: str, table: str) -> QueueTables:
        numbers = list[int]()
        for shard in self._there():
            try:
                numbers.append(shard.number(app, name, table))
            except StoreUnavailable:
                continue  # it is registered there when the shard is back, and used
        if not numbers:
            self._there()
            raise StoreUnavailable("; ".join(shard.away for shard in self.shards))
        self._names.update(dict.fromkeys(numbers, (app, name, table)))
        return QueueTables(numbers[0], app, name, table)

    def queues(self, app: str = "") -> list[QueueTables]:
        found: list[QueueTables] = self._any(lambda store: store.queues(app))
        self._names |= {one.number: (one.app, one.name, one.table) for one in found}
        return found

    def drop_queue(self, number: int) -> None:
        self._all(number, lambda store, own: store.drop_queue(own))

    def close(self) -> None:
        for shard in self.shards:
            shard.close()

    # -- jobs -------------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[New], *, all_or_nothing: bool = False, conn: Any = None) -> list[Stored]:
        """See `Store.enqueue`. With `all_or_nothing` that holds in each shard. Jobs without a key go to any shard that is
        there."""
        if conn is not None:
            return self._enqueue_inside(jobs, all_or_nothing, conn)
        found: list[Stored | None] = [None] * len(jobs)
        for shard, some in self._shared_out(jobs).items():
            theirs = [replace(jobs[n], queue=self.own(jobs[n].queue, shard)) for n in some]
            with shard.asked() as store:
                stored = store.enqueue(theirs, all_or_nothing=all_or_nothing)
            for n, one in zip(some, stored, strict=True):
                found[n] = one
        return [one for one in found if one is not None]

    def _shared_out(self, jobs: Sequence[New]) -> dict[Shard, list[int]]:
        """The places of the jobs in the list, by shard."""
        found = defaultdict[Shard, list[int]](list)
        free: list[int] = []
        for n, job in enumerate(jobs):
            key = self._shard_key(job)
            if key:
                found[self.home(key)].append(n)
            else:
                free.append(n)
        for start in range(0, len(free), TOGETHER):
            there = self._there()
            found[there[next(self._turns) % len(there)]] += free[start : start + TOGETHER]
        return found

    def _enqueue_inside(self, jobs: Sequence[New], all_or_nothing: bool, conn: Any) -> list[Stored]:
        here = self._with_connection(conn)
        for job in jobs:
            key = self._shard_key(job)
            if key and self.home(key) is not here:
                raise Invalid(
                    f"conn is open on shard {here.name}, and the job {job.job_key or key} belongs to shard "
                    f"{self.home(key).name}"
                )
        with here.asked() as store:
            theirs = [replace(job, queue=self.own(job.queue, here)) for job in jobs]
            return store.enqueue(theirs, all_or_nothing=all_or_nothing, conn=conn)

    def _with_connection(self, conn: Any) -> Shard:
        """The shard whose database a user's connection is open on."""
        for shard in self._there():
            try:
                with shard.asked() as store:
                    store.enqueue([], conn=conn)
                return shard
            except WrongConnection:
                continue
        raise WrongConnection(f"conn is open on no shard: there are {', '.join(map(repr, self.shards))}")

    def home(self, key: str) -> Shard:
        """The shard to which a key belongs."""
        return self._by_slot[place.home(key, self._slots)]

    def get(self, job_id: int) -> Row | None:
        if place.slot_of_job(job_id) not in self._by_slot:
            return None
        with self.of_job(job_id).asked() as store:
            return store.get(job_id)

    def find(self, wanted: Filter, *, brief: bool = False) -> list[Any]:
        def some(store: Any, own: int) -> list[Brief]:
            found: list[Brief] = store.find(wanted._replace(queue=own), brief=brief)
            return found

        return merge.by_id(self._all(wanted.queue, some), wanted)

    def progress(self, job_id: int, attempt: int) -> Reported | None:
        with self.of_job(job_id).asked() as store:
            return store.progress(job_id, attempt)

    def having(self, queues: Sequence[int], wanted: Filter) -> list[int]:
        return [number for number in queues if any(self._all(number, lambda store, own: store.having([own], wanted)))]

    def reach(self, wanted: Filter, rows: int) -> int:
        ends = self._all(wanted.queue, lambda store, own: store.reach(wanted._replace(queue=own), rows))
        return (max if wanted.newest else min)(filter(None, ends), default=0)

    def count(self, wanted: Filter) -> int:
        counts = self._all(wanted.queue, lambda store, own: store.count(wanted._replace(queue=own)))
        return min(sum(counts), wanted.limit)

    def waiting_types(self, queue: int, most: int = 1 << 62, *, todo: bool = False) -> list[str]:
        found = self._all(queue, lambda store, own: store.waiting_types(own, most, todo=todo))
        return sorted({name for names in found for name in names})[:most]

    def depth(self, queue: int, types: Sequence[str], most: int) -> list[Depth]:
        return merge.depths(self._all(queue, lambda store, own: store.depth(own, types, most)), most)

    def counts(self, queue: int, most: int, failed_since: int, ended_since: int) -> Counts:
        found = self._all(queue, lambda store, own: store.counts(own, most, failed_since, ended_since))
        return merge.counts(found, most)

    def ended(self, ids: Sequence[int]) -> list[Row]:
        found = list[Row]()
        for shard, some in self._by_shard(ids, lambda job_id: job_id).items():
            with shard.asked() as store:
                found += store.ended(some)
        return found

    def tokens(self, ids: Sequence[int]) -> dict[int, int]:
        found = dict[int, int]()
        for shard, some in self._by_shard(ids, lambda job_id: job_id).items():
            with shard.asked() as store:
                found |= store.tokens(some)
        return found

    def prune(
        self, queue: int, before: EndPlace, limit: int, after: EndPlace = EARLIEST, job_type: str = "",
        code: str = "", tenant: str = "", keep: int | None = None,
    ) -> Pruned:  # fmt: skip
        """In the one shard in which the queue has this number: every shard comes as far as it does."""
        with self._with_slot(place.slot_of_queue(queue), f"no queue {queue}").asked() as store:
            return store.prune(queue, before, limit, after, job_type, code, tenant, keep)

    def turn(self, engine_id: int, changes: Sequence[Change], claims: Sequence[Claim], now: int) -> Turned:
        """An operator's changes, each in its shard."""
        if engine_id or claims:
            self._call("turn", (), {})
        done = []
        for shard, some in self._by_shard(changes, lambda change: change.before.id).items():
            with shard.asked() as store:
                done.append(store.turn(0, some, [], now))
        return merge.turns(done)

    def engines(self) -> list[EngineSeen]:
        found = list[EngineSeen]()
        for shard in self._there():
            with shard.asked() as store:
                found += store.engines()
        return found

    def _by_shard(self, some: Iterable[T], id_of: Callable[[T], int]) -> Mapping[Shard, list[T]]:
        found = defaultdict[Shard, list[T]](list)
        for one in some:
            found[self.of_job(id_of(one))].append(one)
        return found

    @property
    def waker(self) -> Iterator[None]:
        raise NotImplementedError


_ = queue_of
