"""The shards of an instance as one store that has all verbs, so that the contract can be tried on it: what an engine
does is done in one shard after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hipq.job.model import Change, New, Row
from hipq.job.progress import Report
from hipq.shards import merge
from hipq.shards.members import joined
from hipq.shards.router import ShardRouter
from hipq.shards.shard import Shard
from hipq.shards.view import ShardView
from hipq.stores.claims import Claim, Peek, Turned
from hipq.stores.clock import Clock
from hipq.stores.open import open_store
from hipq.stores.protocols import Store
from hipq.stores.values import Crew, Maintained


def open_shards(urls: Sequence[str], clock: Clock | None) -> Store:
    shards = [Shard(f"s{n}", url, lambda url: open_store(url, clock)) for n, url in enumerate(urls, 1)]
    joined("suite", shards)
    return AllShards(shards, lambda new: new.job_key).as_store()


class AllShards(ShardRouter):
    changes_at_once = 100

    def __init__(self, shards: Sequence[Shard], shard_key: Callable[[New], str]) -> None:
        super().__init__(shards, shard_key)
        self._engines: dict[int, list[int]] = {}
        """The ids that an engine has in each shard, by the first of them."""

    def _each(self, engine_id: int = 0) -> list[tuple[Shard, Store, int]]:
        ids = self._engines.get(engine_id, [engine_id] * len(self.shards))
        return [(shard, ShardView(shard, self).as_store(), own) for shard, own in zip(self.shards, ids, strict=True)]

    def take_lease(self, seconds: float, label: str, *more: Any, **named: Any) -> int:
        ids = [store.take_lease(seconds, label, *more, **named) for _, store, _ in self._each()]
        self._engines[ids[0]] = ids
        return ids[0]

    def renew_lease(self, engine_id: int, seconds: float) -> Crew | None:
        found = [store.renew_lease(own, seconds) for _, store, own in self._each(engine_id)]
        return found[0]

    def owned(self, queues: Sequence[int], engine_id: int | None, limit: int = 1 << 62) -> list[Row]:
        return [
            row
            for shard, store, own in self._each(engine_id or 0)
            for row in store.owned([self.own(one, shard) for one in queues], engine_id and own, limit)
        ]

    def turn(self, engine_id: int, changes: Sequence[Change], claims: Sequence[Claim], now: int) -> Turned:
        parts, left = [], {n: claim.limit for n, claim in enumerate(claims)}
        by_shard = self._by_shard(changes, lambda change: change.before.id)
        for shard, store, own in self._each(engine_id):
            asked = [
                claim._replace(queue=self.own(claim.queue, shard), limit=left[n])
                for n, claim in enumerate(claims)
                if left[n] > 0
            ]
            part = store.turn(own, by_shard.get(shard, []), asked, now)
            for n, claim in enumerate(claims):
                left[n] -= sum(row.job_type in claim.types for row in part.won)
            parts.append(part)
        first, *others = parts
        for one in others:
            first.won.extend(one.won)
            first.children.extend(one.children)
            first.answered.update(one.answered)
            first.answers.update(one.answers)
            first.placed.extend(one.placed)
        return _with_lost(first, parts)

    def stage(self, queue: int, phase: str, now: int, limit: int) -> int:
        staged = 0
        for shard, store, _ in self._each():
            staged += store.stage(self.own(queue, shard), phase, now, limit - staged)
        return staged

    def due(self, queue: int, phase: str, now: int, limit: int, *more: Any, **named: Any) -> list[Row]:
        found = [
            row
            for shard, store, _ in self._each()
            for row in store.due(self.own(queue, shard), phase, now, limit, *more, **named)
        ]
        return sorted(found, key=lambda row: (row.deadline, row.rank, row.id))[:limit]

    def peek(self, queues: Sequence[tuple[int, tuple[str, ...]]], strategies: tuple[str, ...] = ()) -> list[Peek]:
        found = []
        for queue, types in queues:
            parts = [store.peek([(self.own(queue, shard), types)], strategies)[0] for shard, store, _ in self._each()]
            start, deadline = (merge.first(moments) for moments in zip(*(one[2:4] for one in parts), strict=True))
            found.append(Peek(queue, any(one.ready for one in parts), start, deadline, any(one.owned for one in parts)))
        return found

    def locked(self, queues: Sequence[int]) -> set[int]:
        return {one for one in queues for shard, store, _ in self._each() if store.locked([self.own(one, shard)])}

    def report(self, reports: Sequence[Report], now: int) -> set[int]:
        by_shard = self._by_shard(reports, lambda report: report.id)
        return {job for shard, some in by_shard.items() for job in shard.store.report(some, now)}

    def maintain(self, queues: Sequence[int], now: int, limit: int) -> Maintained:
        parts = [
            store.maintain([self.own(one, shard) for one in queues], now, limit) for shard, store, _ in self._each()
        ]
        return merge.maintained(parts)


def _with_lost(first: Turned, parts: Sequence[Turned]) -> Turned:
    lost = frozenset[int]().union(*(one.lost for one in parts))
    return Turned(
        lost, first.won, first.children, first.refused, first.closed, first.answered, first.answers, first.placed
    )
