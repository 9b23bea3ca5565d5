"""The rules of queues in MariaDB. A queue's row in the registry is its admission lock; who claims without limits shares
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hipq.limits.rules import Rules, load
from hipq.stores.claim_groups import TOP, ClaimGroup, Head, RankPosition
from hipq.stores.claims import Claim
from hipq.stores.mariadb.dialect import MariaSql
from hipq.stores.rule_claims import After
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.rule_claims import QueueReader, Rulebook, Ruled

_LARGEST: Final = 1 << 30


class MariaReader(QueueReader):
    sql: MariaSql

    def heads(self, types: Sequence[str], after: After, depth: int) -> list[Head]:
        """Behind a place is where its lane is left behind, or, where that is a place before all windows, begins."""
        lane, windows, _ = after
        query = self.sql.statements.of(
            "claim_groups", self.queue, behind="lane > :lane" if windows else "lane >= :lane"
        )
        asked = [
            (query, {"type": name, "lane": lane, "depth": min(depth, _LARGEST), "now": self.now})
            for name in sorted(set(types))
        ]
        ids = [job_id for (job_id,) in self.sql.joined(asked) if job_id]
        found = self.these(ids) if ids else []
        return sorted(found, key=lambda head: (head.group, head.place))

    def more(self, lines: Sequence[tuple[ClaimGroup, RankPosition]], count: int) -> list[list[RankPosition]]:
        found: list[list[RankPosition]] = [[] for _ in lines]
        asked = [
            (
                "claim_group", self.queue,
                {
                    "number": n, "job_type": group.job_type, "lane": group.lane, "windows": group.time_windows,
                    "factor": group.factor, "rank": rank, "id": job_id, "count": count, "now": self.now,
                },
            )
            for n, (group, (rank, job_id)) in enumerate(lines)
        ]  # fmt: skip
        for number, rank, job_id in self.sql.each(asked):
            found[number].append((rank, job_id))
        return [sorted(places) for places in found]


class MariaRulebook(Rulebook):
    writes_claims = True

    def __init__(self, clock: Callable[[], int], tell: Callable[[Sql, Mapping[int, RankPosition]], None]) -> None:
        super().__init__(clock)
        self._tell = tell

    def read(self, sql: Sql, queue: int, lock: str = "") -> Ruled:
        ((rules, memory),) = sql.run(sql.statements.of("admission", queue, lock=lock), {})
        return Ruled(self.known(queue, load(rules)), memory)

    def locked(self, sql: Sql, claim: Claim) -> Ruled:
        if not self.limited(claim.queue):
            found = self.read(sql, claim.queue, "LOCK IN SHARE MODE")
            if not found.rules.in_force:
                return found
        return self.read(sql, claim.queue, "FOR UPDATE")

    def _to_change(self, sql: Sql, queue: int) -> Ruled:
        return self.read(sql, queue, "FOR UPDATE")

    def _changed(self, sql: Sql, queue: int) -> None:
        self._tell(sql, {queue: TOP})

    def reader(self, sql: Sql, queue: int, now: int) -> MariaReader:
        return MariaReader(sql, queue, now)

    def is_plain(self, sql: MariaSql, claim: Claim, rules: Rules) -> bool:
        """Nothing but the order decides what starts."""
        if not rules.plain:
            return False
        groups = sql.each(("others", claim.queue, {"type": name}) for name in claim.types)
        return all(plain for (plain,) in groups)
