"""What the rules of a queue need read. A queue with limits has an admission lock: its row in the registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from hipq.limits.rules import Rules, load
from hipq.stores.claim_groups import ClaimGroup, Head, RankPosition
from hipq.stores.claims import Claim
from hipq.stores.postgres.connection import Connection
from hipq.stores.postgres.statements import Statements
from hipq.stores.rule_claims import Admit, After, Held, Past, Picked, reading, unasked

BESIDE_OTHERS: Final = 100
"""Without the lock, other engines may have locked what is picked: so many more are picked than are wanted, at most
three times as many."""
_Line = msgspec.defstruct("_Line", ["number", "job_type", "lane", "time_windows", "factor", "rank", "id"])


@dataclass(slots=True)
class QueueReader:
    conn: Connection
    statements: Statements
    queue: int
    now: int

    def held(self) -> Held:
        return Held.of(self._read("held", {}))

    def heads(self, types: Sequence[str], after: After, depth: int) -> list[Head]:
        lane, windows, factor = after
        values = {"types": list(types), "lane": lane, "windows": windows, "factor": factor, "depth": depth}
        return [_head(row) for row in self._read("claim_groups", values | {"now": self.now})]

    def more(self, lines: Sequence[tuple[ClaimGroup, RankPosition]], count: int) -> list[list[RankPosition]]:
        text = msgspec.json.encode([_Line(n, *group, *place) for n, (group, place) in enumerate(lines)]).decode()
        found: list[list[RankPosition]] = [[] for _ in lines]
        for number, rank, job_id in self._read("claim_group", {"lines": text, "count": count, "now": self.now}):
            found[number].append((rank, job_id))
        return found

    def these(self, ids: Sequence[int]) -> list[Head]:
        return [_head(row) for row in self._read("admitted", {"ids": list(ids), "now": self.now})]

    def _read(self, name: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self.conn.execute(self.statements.of(name, self.queue), values, binary=True).fetchall()


def _beside_others(claim: Claim) -> int:
    return claim.limit + min(3 * claim.limit, BESIDE_OTHERS)


def _head(row: tuple[Any, ...]) -> Head:
    return Head(ClaimGroup(*row[:4]), (row[4], row[5]))


class Ruled(NamedTuple):
    """A queue as its row in the registry says."""

    rules: Rules
    memory: str
    """What its limits remember."""
    todo: bool
    """Jobs of the asked types wait for user code other than their handler."""


class Rulebook:
    """The rules of queues, as far as they are known here, and what they let start."""

    def __init__(self, statements: Statements, clock: Callable[[], int]) -> None:
        self._statements = statements
        self._clock = clock
        self._known: dict[int, tuple[int, Rules]] = {}
        """The rules of each queue as they were last read, and their version."""
        self._mixed: set[int] = set()
        """Queues in which there were claim groups other than the plain one."""
        self._past: dict[int, Past] = {}
        self._shared: dict[int, bool] = {}
        """Whether there were other engines when its rules were read."""

    def shared(self, queue: int) -> bool:
        """Whether others may wait for what ends here. One that has just come looks by itself."""
        return self._shared.get(queue, True)

    def limited(self, queue: int) -> bool:
        """Whether the queue has limits, as far as is known."""
        found = self._known.get(queue)
        return bool(found and found[1].in_force)

    def free(self, queue: int) -> tuple[int, Rules] | None:
        """The rules and their version, if, as far as is known, a claim by them needs no lock."""
        found = self._known.get(queue)
        return None if not found or found[1].in_force or found[1].throttled else found

    def plain(self, queue: int) -> bool:
        """Whether, as far as is known, nothing but the order decides."""
        found = self._known.get(queue)
        return bool(found and found[1].plain and queue not in self._mixed)

    def still_plain(self, conn: Connection, claim: Claim) -> bool:
        """Look: whether the rules are the known ones, and all ready jobs are in plain claim groups."""
        query = self._statements.of("others", claim.queue)
        found = conn.execute(query, {"types": list(claim.types)}).fetchone()
        assert found is not None
        if found[1]:
            self._mixed.add(claim.queue)
        else:
            self._mixed.discard(claim.queue)
        return self.plain(claim.queue) and self._known[claim.queue][0] == found[0]

    def read(
        self, conn: Connection, queue: int, claim: Claim | None = None, *, lock: str = "", current: str = "version"
    ) -> Ruled:
        """With a claim, also whether anything of its types waits for user code other than a handler."""
        query = self._statements.of("admission", queue, lock=lock, current=current)
        values = {"types": list(claim.types if claim else ()), "strategies": ["", *(claim.strategies if claim else ())]}
        while True:
            found = conn.execute(query, values).fetchone()
            assert found is not None
            rules, memory, version, todo, newest, shared = found
            if version == newest:
                self._known[queue] = (version, load(rules))
                self._shared[queue] = shared
                return Ruled(self._known[queue][1], memory, todo)

    def change(self, conn: Connection, queue: int, change: Callable[[Rules], Rules]) -> tuple[Rules, bool]:
        """In a transaction: the rules as they are then, and whether that is a change."""
        before = self.read(conn, queue).rules
        if change(before) == before:
            return before, False
        conn.execute(self._statements.plain("bar"), {"queue": queue})
        before = self.read(conn, queue, lock="FOR UPDATE").rules
        after = change(before)
        if after != before:
            query = b"UPDATE hipq_queues SET rules = %s, version = version + 1 WHERE number = %s"
            conn.execute(query, (after.dump(), queue))
        return after, after != before

    def locked(self, conn: Connection, claim: Claim) -> Ruled:
        """In a transaction, which has the admission lock from here on if there are limits; if there are none, whoever
        makes some waits for it."""
        if not self.limited(claim.queue):
            found = self.read(conn, claim.queue, claim, current="hipq_version(number)")
            if not found.rules.in_force:
                return found
        return self.read(conn, claim.queue, claim, lock="FOR UPDATE")

    def reader(self, conn: Connection, queue: int, now: int) -> QueueReader:
        return QueueReader(conn, self._statements, queue, now)

    def pick_freely(self, conn: Connection, claim: Claim, rules: Rules, now: int) -> Picked:
        """By rules that need no lock."""
        return self._admit(conn, claim, _beside_others(claim), rules, "{}", now).pick_strand()

    def pick(self, conn: Connection, claim: Claim, found: Ruled, engine_id: int, now: int) -> Picked:
        """In the transaction of `locked`, which found this."""
        rules, memory, _ = found
        if rules.throttled and not claim.ticket:
            claim = unasked(claim)
        if rules.throttled and claim.ticket:
            if not self._has_ticket(conn, claim, engine_id):
                return Picked([], refused=True)
            picked = self._admit(conn, claim, claim.limit, rules, memory, now).pick_of(claim.admitted)
        else:
            want = claim.limit if rules.in_force else _beside_others(claim)
            picked = self._admit(conn, claim, want, rules, memory, now).pick()
        if rules.in_force:
            self._remember(conn, claim.queue, memory, picked)
        return picked

    def _remember(self, conn: Connection, queue: int, memory: str, picked: Picked) -> None:
        if picked.memory != memory:
            conn.execute(b"UPDATE hipq_queues SET admission = %s WHERE number = %s", (picked.memory, queue))

    def came_last(self, queue: int, lane: str) -> None:
        """Without the lock, not all that is picked is taken: the next turn is that of the lane after this one."""
        self._past[queue].lane = lane

    def _has_ticket(self, conn: Connection, claim: Claim, engine_id: int) -> bool:
        values = {"queue": claim.queue, "ticket": claim.ticket, "engine_id": engine_id}
        return bool(claim.ticket and conn.execute(self._statements.plain("use_ticket"), values).fetchall())

    def first(self, conn: Connection, claim: Claim, found: Ruled | None, want: int, now: int) -> tuple[Picked, Rules]:
        """In a transaction: the first jobs that could start if a throttler had no say, and the rules of their queue.
        `found`: what `locked` found; without it, nothing is written."""
        rules, memory, _ = found or self.read(conn, claim.queue)
        picked = self._admit(conn, claim, want, rules, memory, now).look()
        if found and rules.in_force:
            self._remember(conn, claim.queue, memory, picked)
        return picked, rules

    def _admit(self, conn: Connection, claim: Claim, want: int, rules: Rules, memory: str, now: int) -> Admit:
        reader = reading(self.reader(conn, claim.queue, now), claim.lane)
        past = self._past.setdefault(claim.queue, Past())
        return Admit(
            claim.types, claim.critical, want, rules, memory, now, reader, self._clock, past, claim.hands
        )  # fmt: skip
