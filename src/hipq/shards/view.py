"""One shard as its engine sees it: the shard's own store, except that what its handlers add names queues by numbers
that may be another shard's, and that what begins to wait may have its answer in another shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hipq.errors import StoreUnavailable
from hipq.job.model import Change, New
from hipq.job.schedule import ScheduleChange
from hipq.job.states import WAITING
from hipq.stores.claims import Claim, Turned
from hipq.stores.forwarding import Forwarding
from hipq.stores.values import Stored

if TYPE_CHECKING:
    from hipq.shards.router import ShardRouter
    from hipq.shards.shard import Shard


class ShardView(Forwarding):
    def __init__(self, shard: Shard, router: ShardRouter) -> None:
        self._shard = shard
        self._router = router

    def __getattr__(self, name: str) -> Any:
        """Whatever is not a verb, such as the store's waker."""
        return getattr(self._shard.store, name)

    def _call(self, verb: str, given: tuple[Any, ...], more: dict[str, Any]) -> Any:
        try:
            return getattr(self._shard.store, verb)(*given, **more)
        except StoreUnavailable as error:
            error.args = (f"shard {self._shard.name}: {error}",)  # engines log it
            raise

    def turn(self, engine_id: int, changes: Sequence[Change], claims: Sequence[Claim], now: int) -> Turned:
        theirs = [self._with_own(change) if change.children else change for change in changes]
        turned: Turned = self._call("turn", (engine_id, theirs, claims, now), {})
        for change in theirs:
            if change.after.phase == WAITING and change.before.id not in turned.lost:
                self._router.fetch_soon(self._shard, change.after, now)
        return turned

    def change_schedules(self, queue: int, changes: Sequence[ScheduleChange]) -> list[list[Stored] | None]:
        theirs = [change._replace(jobs=tuple(map(self._own, change.jobs))) for change in changes]
        return self._shard.store.change_schedules(queue, theirs)

    def _with_own(self, change: Change) -> Change:
        return replace(change, children=tuple(map(self._own, change.children)))

    def _own(self, new: New) -> New:
        return replace(new, queue=self._router.own(new.queue, self._shard))
