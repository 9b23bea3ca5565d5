"""The rules of queues in PostgreSQL. A queue with limits has an admission lock: its row in the registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from hipq.limits.rules import Rules, load
from hipq.stores.claim_groups import TOP, ClaimGroup, Head, RankPosition
from hipq.stores.claims import Claim
from hipq.stores.postgres.wake import notify
from hipq.stores.rule_claims import After, Held, Picked
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.rule_claims import QueueReader, Rulebook, Ruled, beside_others, head_of

FEW_GROUPS: Final = 16
"""Up to this many claim groups have their next places read along with their heads: of more, that might be far too
many."""
_Line = msgspec.defstruct("_Line", ["number", "job_type", "lane", "time_windows", "factor", "rank", "id"])


class PostgresReader(QueueReader):
    """Reads ahead: each statement costs a round trip, so `look_ahead` reads what it can in one, and later calls use
    that."""

    def __init__(self, sql: Sql, queue: int, now: int) -> None:
        super().__init__(sql, queue, now)
        self._held: Held | None = None
        self._is_empty = False
        """No job was ready at that look, so nothing was summed up: a full queue says so all the same, by a sum of its
        own. What comes after that look is left to the next claim."""
        self._passed: dict[tuple[int, ...], list[Head]] = {}
        self._heads: dict[tuple[tuple[str, ...], After, int], list[Head]] = {}
        self._behind: dict[tuple[ClaimGroup, RankPosition], list[RankPosition]] = {}
        """The next places of claim groups, by their heads."""
        self._places = 0
        """How many next places were read of each claim group; of one that has fewer, all."""

    def look_ahead(
        self, types: Sequence[str], asked: Sequence[str], after: After, depth: int, passed: Sequence[int], places: int
    ) -> None:
        lane, windows, factor = after
        found: dict[str, list[Head]] = {"ready": [], "held": [], "passed": [], "head": [], "behind": []}
        for kind, *row in self.sql.found(
            "look_ahead", self.queue, types=list(types), asked=list(asked), lane=lane, windows=windows, factor=factor,
            depth=depth, now=self.now, passed=list(passed), few=FEW_GROUPS, places=places,
        ):  # fmt: skip
            found[kind].append(head_of(row))
        self._is_empty = not found["ready"]
        if not self._is_empty:
            self._held = Held.of((group.lane, group.factor, least) for group, (_, least) in found["held"])
        self._passed[tuple(passed)] = found["passed"]
        self._heads[tuple(types), after, depth] = heads = found["head"]
        if 0 < len(heads) <= FEW_GROUPS:
            self._places = max(places // len(heads), 2)
            of_group: dict[ClaimGroup, list[RankPosition]] = {head.group: [] for head in heads}
            for group, place in found["behind"]:
                of_group[group].append(place)
            self._behind = {(head.group, head.place): sorted(of_group[head.group]) for head in heads}

    def held(self) -> Held:
        return super().held() if self._held is None else self._held

    def heads(self, types: Sequence[str], after: After, depth: int) -> list[Head]:
        if self._is_empty:
            return []
        known = self._heads.get((tuple(types), after, depth))
        return super().heads(types, after, depth) if known is None else known

    def these(self, ids: Sequence[int]) -> list[Head]:
        known = self._passed.get(tuple(ids))
        return super().these(ids) if known is None else known

    def more(self, lines: Sequence[tuple[ClaimGroup, RankPosition]], count: int) -> list[list[RankPosition]]:
        if count <= self._places and all(line in self._behind for line in lines):
            return [self._behind[line][:count] for line in lines]
        text = msgspec.json.encode([_Line(n, *group, *place) for n, (group, place) in enumerate(lines)]).decode()
        found: list[list[RankPosition]] = [[] for _ in lines]
        for number, rank, job_id in self.sql.found("claim_group", self.queue, lines=text, count=count, now=self.now):
            found[number].append((rank, job_id))
        return found


class PostgresRulebook(Rulebook):
    """The rules of queues, as far as they are known here, and the jobs that they let start."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self._known: dict[int, tuple[int, Rules]] = {}
        """The rules of each queue as they were last read, and their version."""
        self._mixed: set[int] = set()
        """Queues in which there were other claim groups than the plain one."""
        self._shared: dict[int, bool] = {}
        """By queue, whether there were other engines when its rules were read."""

    def shared(self, queue: int) -> bool:
        """An engine that has just started looks by itself."""
        return self._shared.get(queue, True)

    def free(self, queue: int) -> tuple[int, Rules] | None:
        """The rules and their version, if, as far as is known, a claim by them needs no lock."""
        found = self._known.get(queue)
        return None if not found or found[1].in_force or found[1].throttled else found

    def plain(self, queue: int) -> bool:
        """Whether, as far as is known, nothing but the order decides."""
        found = self._known.get(queue)
        return bool(found and found[1].plain and queue not in self._mixed)

    def still_plain(self, sql: Sql, claim: Claim) -> bool:
        """Look whether the rules are the known ones, and all ready jobs are in plain claim groups."""
        ((version, mixed),) = sql.found("others", claim.queue, types=list(claim.types))
        if mixed:
            self._mixed.add(claim.queue)
        else:
            self._mixed.discard(claim.queue)
        return self.plain(claim.queue) and self._known[claim.queue][0] == version

    def read(
        self, sql: Sql, queue: int, claim: Claim | None = None, *, lock: str = "", current: str = "version"
    ) -> Ruled:
        """With a claim, also whether anything of its types waits for user code other than a handler."""
        query = sql.statements.of("admission", queue, lock=lock, current=current)
        values = {"types": list(claim.types if claim else ()), "strategies": ["", *(claim.strategies if claim else ())]}
        while True:
            ((rules, memory, version, todo, newest, shared),) = sql.run(query, values)
            if version == newest:
                self._known[queue] = (version, self.known(queue, load(rules)))
                self._shared[queue] = shared
                return Ruled(self._known[queue][1], memory, todo)

    def _to_change(self, sql: Sql, queue: int) -> Ruled:
        sql.changed("bar", queue)
        return self.read(sql, queue, lock="FOR UPDATE")

    def _changed(self, sql: Sql, queue: int) -> None:
        notify(sql.conn, queue, TOP)

    def locked(self, sql: Sql, claim: Claim) -> Ruled:
        if not self.limited(claim.queue):
            found = self.read(sql, claim.queue, claim, current="hipq_version(number)")
            if not found.rules.in_force:
                return found
        return self.read(sql, claim.queue, claim, lock="FOR UPDATE")

    def reader(self, sql: Sql, queue: int, now: int) -> PostgresReader:
        return PostgresReader(sql, queue, now)

    def pick_freely(self, sql: Sql, claim: Claim, rules: Rules, now: int) -> Picked:
        """Pick by rules that need no lock."""
        return self._picking(sql, claim, beside_others(claim.limit), rules, "{}", now).pick_group()
