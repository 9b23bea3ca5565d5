"""Which jobs the rules of a queue let start: read, decided and remembered in the transaction of the claim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hipq.limits.rules import Rules
from hipq.stores.claim_groups import ClaimGroup, Head, RankPosition
from hipq.stores.claims import Claim
from hipq.stores.rule_claims import After, Held, Past, Picked, Picking, reading, unasked
from hipq.stores.sql.dialect import Sql

MANY_TYPES: Final = 200
"""From this many job types on, it is cheaper to find out first which of them have jobs to claim."""

BESIDE_OTHERS: Final = 100


def narrowed(sql: Sql, queue: int, types: Sequence[str]) -> tuple[str, ...]:
    """Which of these types have jobs to claim, if there are very many; all, if there are few."""
    if len(types) <= MANY_TYPES:
        return tuple(types)
    known = frozenset(types)
    return tuple({name for (name,) in sql.found("waiting_types", queue) if name in known})


def beside_others(want: int) -> int:
    """Without the lock, other engines may have locked what is picked: so more are picked than are wanted."""
    return want + min(3 * want, BESIDE_OTHERS)


class Ruled(NamedTuple):
    """A queue's row in the registry."""

    rules: Rules
    memory: str
    """What its limits remember."""
    todo: bool = False
    """Whether jobs of the asked types wait for other code than their handler."""


@dataclass(slots=True)
class QueueReader(ABC):
    sql: Sql
    queue: int
    now: int

    def look_ahead(  # noqa: B027 - a store may leave it at that
        self, types: Sequence[str], asked: Sequence[str], after: After, depth: int, passed: Sequence[int], places: int
    ) -> None:
        """Read ahead, where a store can: by default everything is read when it is needed."""

    def held(self) -> Held:
        return Held.of(self.sql.found("held", self.queue))

    def heads(self, types: Sequence[str], after: After, depth: int) -> list[Head]:
        lane, windows, factor = after
        found = self.sql.found(
            "claim_groups", self.queue, types=list(types), lane=lane, windows=windows, factor=factor, depth=depth,
            now=self.now,
        )  # fmt: skip
        return [head_of(row) for row in found]

    @abstractmethod
    def more(self, lines: Sequence[tuple[ClaimGroup, RankPosition]], count: int) -> list[list[RankPosition]]: ...

    def these(self, ids: Sequence[int]) -> list[Head]:
        return [head_of(row) for row in self.sql.found("admitted", self.queue, ids=list(ids), now=self.now)]


def head_of(row: Sequence[Any]) -> Head:
    job_type, lane, windows, factor, rank, job_id = row
    return Head(ClaimGroup(job_type, lane, windows, factor), (rank, job_id))


class Rulebook(ABC):
    """The rules of queues, and the jobs that they let start. `clock`: the time under the lock."""

    writes_claims = False
    """Every claim under limits writes the row it has locked, also where there is nothing new to remember."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._past: dict[int, Past] = {}
        self._limited: set[int] = set()
        """Queues that had limits when they were read last."""

    @abstractmethod
    def read(self, sql: Sql, queue: int) -> Ruled:
        """The rules of a queue as they are now."""

    @abstractmethod
    def locked(self, sql: Sql, claim: Claim) -> Ruled:
        """In a transaction: the queue's row. If the queue has limits, the transaction has its admission lock from here
        on; if it has none, whoever makes some waits for it."""

    def limited(self, queue: int) -> bool:
        """Whether the queue has limits, as far as is known."""
        return queue in self._limited

    def shared(self, queue: int) -> bool:  # noqa: ARG002
        """Whether other engines may wait for jobs that end here."""
        return True

    def known(self, queue: int, rules: Rules) -> Rules:
        """Rules that were read just now."""
        (self._limited.add if rules.in_force else self._limited.discard)(queue)
        return rules

    def change(self, sql: Sql, queue: int, change: Callable[[Rules], Rules]) -> Rules:
        """In a transaction: change the rules of a queue and tell engines elsewhere. Returns the new rules."""
        before = self._to_change(sql, queue).rules
        after = change(before)
        if after != before:
            sql.changed("change_rules", queue, rules=after.dump())
            self._changed(sql, queue)
        return after

    def _to_change(self, sql: Sql, queue: int) -> Ruled:
        """The rules of a queue, which nobody else changes before the transaction ends."""
        return self.read(sql, queue)

    def _changed(self, sql: Sql, queue: int) -> None:  # noqa: B027
        """Tell engines elsewhere of new rules."""

    @abstractmethod
    def reader(self, sql: Sql, queue: int, now: int) -> QueueReader: ...

    def pick(self, sql: Sql, claim: Claim, want: int, found: Ruled, now: int) -> Picked:
        """In the transaction of `locked`, which found this: the first jobs that may start, as many as the claim wants.
        Its ticket, if it has one, has been handed in."""
        is_asked = found.rules.throttled and claim.ticket
        if found.rules.throttled and not is_asked:
            claim = unasked(claim)
        picking = self._picking(sql, claim, want, found.rules, found.memory, now)
        return self._remembered(sql, claim, found, picking.pick_of(claim.admitted) if is_asked else picking.pick())

    def pick_now(self, sql: Sql, claim: Claim, want: int, found: Ruled, engine_id: int, now: int) -> Picked:
        """The same with the ticket handed in here. Without limits there is no lock."""
        if found.rules.throttled and claim.ticket:
            if not sql.changed("use_ticket", claim.queue, ticket=claim.ticket, engine_id=engine_id):
                return Picked([], refused=True)
        elif not found.rules.in_force:
            want = beside_others(want)
        return self.pick(sql, claim, want, found, now)

    def came_last(self, queue: int, lane: str) -> None:
        """Note the lane that was served last. Without the lock, not all that is picked is taken: the next turn is that
        of the lane after this one."""
        if queue in self._past:
            self._past[queue].lane = lane

    def first(self, sql: Sql, claim: Claim, found: Ruled | None, want: int, now: int) -> tuple[Picked, Rules]:
        """In a transaction: the first jobs that could start if a throttler had no say, and the rules of their queue.
        `found`: what `locked` found; without it, nothing is written."""
        rules, memory, _ = found or self.read(sql, claim.queue)
        picked = self._picking(sql, claim, want, rules, memory, now).look()
        return self._remembered(sql, claim, found, picked) if found else picked, rules

    def would_start(self, sql: Sql, claim: Claim, rules: Rules | None, now: int) -> list[Head]:
        """The jobs that this claim could take if a throttler had no say, by these rules or the queue's. Nothing is
        written."""
        found = self.read(sql, claim.queue)
        picked = self._picking(sql, claim, claim.limit, rules or found.rules, found.memory, now).look()
        return self.reader(sql, claim.queue, now).these(picked.ids)

    def _remembered(self, sql: Sql, claim: Claim, found: Ruled, picked: Picked) -> Picked:
        is_new = picked.memory != found.memory or (self.writes_claims and picked.ids)
        if found.rules.in_force and is_new:  # without limits the row is not locked
            sql.changed("remember", claim.queue, memory=picked.memory)
        return picked

    def _picking(self, sql: Sql, claim: Claim, want: int, rules: Rules, memory: str, now: int) -> Picking:
        reader = reading(self.reader(sql, claim.queue, now), claim.lane)
        past = self._past.setdefault(claim.queue, Past())
        return Picking(claim.types, claim.critical, want, rules, memory, now, reader, self._clock, past, claim.hands)
