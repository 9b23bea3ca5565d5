"""The rules of queues in SQLite: the write lock is the admission lock of all of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hipq.limits.rules import Rules, load
from hipq.stores.claim_groups import ClaimGroup, RankPosition
from hipq.stores.claims import Claim
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.rule_claims import QueueReader, Rulebook, Ruled


class SqliteReader(QueueReader):
    def more(self, lines: Sequence[tuple[ClaimGroup, RankPosition]], count: int) -> list[list[RankPosition]]:
        text = msgspec.json.encode([(*group, *place) for group, place in lines]).decode()
        found = self.sql.found("claim_group", self.queue, lines=text, count=count, now=self.now)
        return [[(rank, job_id) for rank, job_id in places] for places in found]


class SqliteRulebook(Rulebook):
    def read(self, sql: Sql, queue: int) -> Ruled:
        ((rules, memory),) = sql.found("admission", queue)
        return Ruled(load(rules), memory)

    def locked(self, sql: Sql, claim: Claim) -> Ruled:
        return self.read(sql, claim.queue)

    def reader(self, sql: Sql, queue: int, now: int) -> SqliteReader:
        return SqliteReader(sql, queue, now)

    def is_plain(self, sql: Sql, claim: Claim, rules: Rules) -> bool:
        """Whether nothing but the order decides what starts."""
        return rules.plain and not sql.found("others", claim.queue, types=list(claim.types))[0][0]
