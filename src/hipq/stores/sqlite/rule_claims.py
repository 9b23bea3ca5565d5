"""What the rules of a queue need read, inside the turn's transaction: the write lock is the admission lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from hipq.limits.rules import Rules, load
from hipq.stores.claim_groups import ClaimGroup, Head, RankPosition
from hipq.stores.claims import Claim
from hipq.stores.rule_claims import Admit, After, Held, Past, Picked, reading, unasked
from hipq.stores.sqlite.batch import in_json
from hipq.stores.sqlite.statements import Statements

_heads = msgspec.json.Decoder(list[Head])
_places = msgspec.json.Decoder(list[list[RankPosition]])
_held = msgspec.json.Decoder(list[tuple[str, int, int]])
RULES: Final = "SELECT rules, admission FROM hipq_queues WHERE number = ?"


def texts(values: Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()


@dataclass(slots=True)
class QueueReader:
    """Every read one step: see batch.py."""

    conn: sqlite3.Connection
    statements: Statements
    queue: int
    now: int

    def held(self) -> Held:
        return Held.of(_held.decode(self._read("held", {})))

    def heads(self, types: Sequence[str], after: After, depth: int) -> list[Head]:
        lane, windows, factor = after
        values = {"types": texts(types), "lane": lane, "windows": windows, "factor": factor, "depth": depth}
        return _heads.decode(self._read("claim_groups", values | {"now": self.now}))

    def more(self, lines: Sequence[tuple[ClaimGroup, RankPosition]], count: int) -> list[list[RankPosition]]:
        text = msgspec.json.encode([(*group, *place) for group, place in lines]).decode()
        return _places.decode(self._read("claim_group", {"lines": text, "count": count, "now": self.now}))

    def these(self, ids: Sequence[int]) -> list[Head]:
        return _heads.decode(self._read("admitted", {"ids": in_json(ids), "now": self.now}))

    def _read(self, name: str, values: Mapping[str, object]) -> str:
        return str(self.conn.execute(self.statements.of(name, self.queue), values).fetchone()[0])


class Rulebook:
    """The rules of queues, and what they let start."""

    def __init__(self, statements: Statements, clock: Callable[[], int]) -> None:
        self._statements = statements
        self._clock = clock
        self._past: dict[int, Past] = {}

    def read(self, conn: sqlite3.Connection, queue: int) -> tuple[Rules, str]:
        """A queue's rules, and what its limits remember."""
        rules, memory = conn.execute(RULES, (queue,)).fetchone()
        return load(rules), memory

    def reader(self, conn: sqlite3.Connection, queue: int, now: int) -> QueueReader:
        return QueueReader(conn, self._statements, queue, now)

    def is_plain(self, conn: sqlite3.Connection, claim: Claim, rules: Rules) -> bool:
        """Nothing but the order decides what starts."""
        if not rules.plain:
            return False
        others = self._statements.of("others", claim.queue)
        return not conn.execute(others, (texts(claim.types),)).fetchone()[0]

    def pick(self, conn: sqlite3.Connection, claim: Claim, want: int, rules: Rules, memory: str, now: int) -> Picked:
        if rules.throttled and not claim.ticket:
            claim = unasked(claim)
        admit = self._admit(conn, claim, want, rules, memory, now)
        picked = admit.pick_of(claim.admitted) if rules.throttled and claim.ticket else admit.pick()
        self._remember(conn, claim.queue, memory, picked)
        return picked

    def _remember(self, conn: sqlite3.Connection, queue: int, memory: str, picked: Picked) -> None:
        if picked.memory != memory:
            conn.execute("UPDATE hipq_queues SET admission = ? WHERE number = ?", (picked.memory, queue))

    def first(
        self, conn: sqlite3.Connection, claim: Claim, want: int, now: int, *, leave_traces: bool
    ) -> tuple[Picked, Rules]:
        """The first jobs that could start if a throttler had no say, and the rules of their queue."""
        rules, memory = self.read(conn, claim.queue)
        picked = self._admit(conn, claim, want, rules, memory, now).look()
        if leave_traces:
            self._remember(conn, claim.queue, memory, picked)
        return picked, rules

    def _admit(self, conn: sqlite3.Connection, claim: Claim, want: int, rules: Rules, memory: str, now: int) -> Admit:
        reader = reading(self.reader(conn, claim.queue, now), claim.lane)
        past = self._past.setdefault(claim.queue, Past())
        return Admit(
            claim.types, claim.critical, want, rules, memory, now, reader, self._clock, past, claim.hands
        )  # fmt: skip
