"""The verbs about rules, schedules, activity, notes and the audit log, over several databases.

Rules are in every shard. Schedules, notes and the audit log are in the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from msgspec.structs import replace

from hipq.job.activity import Activity
from hipq.job.schedule import Schedule, ScheduleChange
from hipq.limits.rules import Rules
from hipq.shards import merge
from hipq.shards.shard_set import ShardSet
from hipq.stores.audit import AuditEntry
from hipq.stores.claim_groups import Head
from hipq.stores.claims import Claim
from hipq.stores.protocols import Store
from hipq.stores.values import Limits, Stored

T = TypeVar("T")


class ShardedRules(ShardSet):
    def rules(self, queue: int, *, patient: bool = True) -> Rules:
        found = self.any(lambda store, shard: store.rules(self.own(queue, shard), patient=patient))
        return replace(found, slice=None)

    def limits(self, queue: int) -> Limits:
        return merge.limits(self.all(queue, lambda store, own: store.limits(own)))

    def change_rules(self, queue: int, change: Callable[[Rules], Rules]) -> Rules:
        """In one shard after another: where one is away, the change is to be made again when that is back."""
        changed: list[Rules] = self.all(queue, lambda store, own: store.change_rules(own, change))
        return replace(changed[0], slice=None)

    def would_start(self, claim: Claim, now: int, rules: Rules | None = None) -> list[Head]:
        parts = self.all(claim.queue, lambda store, own: store.would_start(claim._replace(queue=own), now, rules))
        return sorted((head for part in parts for head in part), key=lambda head: head.place)[: claim.limit]

    # -- in the first shard -----------------------------------------------------------------------------------------
    def first(self, work: Callable[[Store], T]) -> T:
        with self.shards[0].asked() as store:
            return work(store)

    def schedules(self, queue: int, after: int = 0, names: Sequence[str] | None = None) -> list[Schedule]:
        own = self.own(queue, self.shards[0])
        return self.first(lambda store: store.schedules(own, after, names))

    def change_schedules(self, queue: int, changes: Sequence[ScheduleChange]) -> list[list[Stored] | None]:
        own = self.own(queue, self.shards[0])
        theirs = [change._replace(jobs=tuple(replace(job, queue=own) for job in change.jobs)) for change in changes]
        return self.first(lambda store: store.change_schedules(own, theirs))

    def notes(self, kind: str, start: str = "", *, exact: bool = False) -> dict[str, str]:
        return self.first(lambda store: store.notes(kind, start, exact=exact))

    def change_note(self, kind: str, name: str, change: Callable[[str], str]) -> str:
        return self.first(lambda store: store.change_note(kind, name, change))

    def record(self, entry: AuditEntry) -> None:
        self.first(lambda store: store.record(entry))

    def audit_log(self, before: int, limit: int) -> list[AuditEntry]:
        return self.first(lambda store: store.audit_log(before, limit))

    # -- activity ---------------------------------------------------------------------------------------------------
    def activity(
        self, queues: Sequence[int], grain: int, since: int, until: int,
        by: Literal["", "queue", "job_type"] = "",
    ) -> list[Activity]:  # fmt: skip
        found = []
        for shard in self.shards:
            numbers = {self.own(queue, shard): queue for queue in queues}
            with shard.asked() as store:
                rows = store.activity(list(numbers), grain, since, until, by)
            found.append([replace(row, queue=numbers.get(row.queue, 0)) for row in rows])
        return merge.activities(found)
