"""A store over several databases: each verb goes to the shard that has the job, or to all, whose results it merges.

Callers know a queue by the number it has in any of the shards. What only engines do has no place here: an engine works
on one shard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from msgspec.structs import replace

from hipq.errors import Invalid, ShardAway, StoreUnavailable, WrongConnection
from hipq.job.model import Brief, Change, New, Row
from hipq.job.progress import Reported
from hipq.shards import merge, place
from hipq.shards.answers import ShardedAnswers
from hipq.shards.rules import ShardedRules
from hipq.shards.shard import Shard
from hipq.stores.claims import Claim, Turned
from hipq.stores.filters import Filter
from hipq.stores.forwarding import Forwarding
from hipq.stores.values import EARLIEST, Counts, Depth, EndPlace, EngineSeen, Pruned, QueueTables, Stored

T = TypeVar("T")


class ShardRouter(ShardedAnswers, ShardedRules, Forwarding):
    at_once = 1

    def __init__(self, shards: Sequence[Shard], shard_key: Callable[[New], str]) -> None:
        """`shard_key`: what says to which shard a new job belongs; "" if any will do."""
        super().__init__(shards)
        self.url = ", ".join(f"{shard.name}: {shard.url}" for shard in shards)
        self._shard_key = shard_key
        self._turns = count()

    def _call(self, verb: str, given: tuple[Any, ...], more: dict[str, Any]) -> Any:  # noqa: ARG002
        raise Invalid(f"{verb} is for one shard at a time: give the URL of one, instead of {len(self.shards)}")

    # -- setting up -------------------------------------------------------------------------------------------------
    def now(self) -> int:
        return self.any(lambda store, _: store.now())

    def queue(self, app: str, name: str, table: str) -> QueueTables:
        numbers = list[int]()
        for shard in self.there():
            try:
                numbers.append(shard.number(app, name, table))
            except StoreUnavailable:
                continue  # it is registered there when the shard is back, and used
        if not numbers:
            self.there()
            raise StoreUnavailable("; ".join(shard.away for shard in self.shards))
        self.names.update(dict.fromkeys(numbers, (app, name, table)))
        return QueueTables(numbers[0], app, name, table)

    def queues(self, app: str = "") -> list[QueueTables]:
        found: list[QueueTables] = self.any(lambda store, _: store.queues(app))
        self.names |= {one.number: (one.app, one.name, one.table) for one in found}
        return found

    def drop_queue(self, number: int) -> None:
        self.all(number, lambda store, own: store.drop_queue(own))

    def close(self) -> None:
        for shard in self.shards:
            shard.close()

    # -- jobs -------------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[New], *, all_or_nothing: bool = False, conn: Any = None) -> list[Stored]:
        """See `Store.enqueue`; `all_or_nothing` holds in each shard. Jobs without a key go to one that is there, next
        time to another one."""
        if conn is not None:
            return self._enqueue_inside(jobs, all_or_nothing, conn)
        found: list[Stored | None] = [None] * len(jobs)
        shared_out = self._shared_out(jobs)
        for shard in shared_out:
            if not shard.is_asked:
                raise ShardAway(shard.away)
        for shard, some in shared_out.items():
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
            (found[self.home(key)] if key else free).append(n)
        if free:
            there = self.not_away()
            found[there[next(self._turns) % len(there)]] += free
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
        for shard in self.there():
            try:
                with shard.asked() as store:
                    store.enqueue([], conn=conn)
                return shard
            except WrongConnection:
                continue
        raise WrongConnection(f"conn is open on no shard: there are {', '.join(map(repr, self.shards))}")

    def get(self, job_id: int) -> Row | None:
        if place.slot_of_job(job_id) not in self.by_slot:
            return None
        with self.of_job(job_id).asked() as store:
            return store.get(job_id)

    def find(self, wanted: Filter, *, brief: bool = False) -> list[Any]:
        def some(store: Any, own: int) -> list[Brief]:
            found: list[Brief] = store.find(wanted._replace(queue=own), brief=brief)
            return found

        return merge.by_id(self.all(wanted.queue, some), wanted)

    def progress(self, job_id: int, attempt: int) -> Reported | None:
        with self.of_job(job_id).asked() as store:
            return store.progress(job_id, attempt)

    def having(self, queues: Sequence[int], wanted: Filter) -> list[int]:
        return [number for number in queues if any(self.all(number, lambda store, own: store.having([own], wanted)))]

    def reach(self, wanted: Filter, rows: int) -> int:
        each = max(rows // len(self.shards), 1)
        ends = self.all(wanted.queue, lambda store, own: store.reach(wanted._replace(queue=own), each))
        return (max if wanted.newest else min)(filter(None, ends), default=0)

    def count(self, wanted: Filter) -> int:
        counts = self.all(wanted.queue, lambda store, own: store.count(wanted._replace(queue=own)))
        return min(sum(counts), wanted.limit)

    def waiting_types(self, queue: int, most: int = 1 << 62, *, todo: bool = False) -> list[str]:
        found = self.all(queue, lambda store, own: store.waiting_types(own, most, todo=todo))
        return sorted({name for names in found for name in names})[:most]

    def depth(self, queue: int, types: Sequence[str], most: int) -> list[Depth]:
        return merge.depths(self.all(queue, lambda store, own: store.depth(own, types, most)), most)

    def counts(self, queue: int, most: int, failed_since: int, ended_since: int) -> Counts:
        found = self.all(queue, lambda store, own: store.counts(own, most, failed_since, ended_since))
        return merge.counts(found, most)

    def ended(self, ids: Sequence[int]) -> list[Row]:
        """Those of shards that are there: whoever waits for jobs asks again."""
        found = list[Row]()
        for shard, some in self._by_shard(ids, lambda job_id: job_id).items():
            with suppress(StoreUnavailable), shard.asked() as store:
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
        with self.with_slot(place.slot_of_queue(queue), f"no queue {queue}").asked() as store:
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
        for shard in self.there():
            with shard.asked() as store:
                found += store.engines()
        return found

    def _by_shard(self, some: Iterable[T], id_of: Callable[[T], int]) -> Mapping[Shard, list[T]]:
        found = defaultdict[Shard, list[T]](list)
        for one in some:
            found[self.of_job(id_of(one))].append(one)
        return found

    @property
    def waker(self) -> ShardWakers:
        return ShardWakers(self.shards)


class ShardWakers:
    """Wakes the engines of this process, whatever shards they work on."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    def notify(self, *, done: bool = False) -> None:
        for shard in self._shards:
            if shard.is_open:
                shard.store.waker.notify(done=done)
