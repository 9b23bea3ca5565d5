"""What an engine asks of a queue, and what it gets: a claim, a question for a code throttler, a turn, a peek."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.job.model import New, Row
from hipq.stores.values import Stored

if TYPE_CHECKING:
    from hipq.job.answer import Kept
    from hipq.job.matching import Placed
    from hipq.stores.rule_claims import Picked

ANY_TYPE: Final = "*"
"""In place of the types an engine has code for: whatever there is. Such an engine claims lane by lane."""


class Claim(NamedTuple):
    """Up to `limit` jobs of these types from one queue, first in rank first, as the queue's rules allow."""

    queue: int
    types: tuple[str, ...]
    limit: int
    critical: tuple[str, ...] = ()
    """Types that limits do not count and do not hold up."""
    ticket: int = 0
    """The ticket under which a code throttler was asked, where the queue has one;"""
    admitted: tuple[int, ...] = ()
    """and the jobs it admitted."""
    lane: str | None = None
    """Of this lane only, if one is given: whoever goes round lanes by a plan of its own claims one after the other."""
    hands: int = 1 << 30
    """Free hands: where a rate counts starts no more are claimed, since they would not start at once."""
    strategies: tuple[str, ...] = ()
    """Retry strategies that are registered here: a job to be judged by another one is left to those who have it."""


class Asked(NamedTuple):
    """What a code throttler is to decide on, and the ticket to claim with."""

    ticket: int
    due: list[Row]
    """Ready and parked jobs, in the queue's order."""
    running: list[Row]
    last_parked: tuple[str, int] | None
    """Rank and id of the last parked job that was read; None = there are no more."""
    more: bool
    """There may be more ready ones."""
    again: int
    """When a rate lets more of them start; 0 = no rate keeps any from that."""
    shut: list[Row]
    """Parked jobs whose window is closed."""


@dataclass(frozen=True, slots=True)
class Turned:
    """What a turn did."""

    lost: frozenset[int]
    """Ids whose token no longer matched."""
    won: list[Row]
    """The rows claimed, in order."""
    children: list[tuple[New, Stored]] = field(default_factory=list)
    """What became of the jobs that were chained to the changes."""
    refused: dict[int, int] = field(default_factory=dict)
    """Queues in which rules kept jobs from starting, and when to claim again (0 = when something changes)."""
    closed: dict[int, frozenset[str]] = field(default_factory=dict)
    """By queue, the windows of ready jobs that are closed."""
    answered: dict[int, Row] = field(default_factory=dict)
    """Of the changes, the jobs that found their answer when they began to wait, as they are then."""
    answers: dict[int, Kept] = field(default_factory=dict)
    """Of the rows claimed, the answers of those that have one to look at."""
    placed: list[Placed] = field(default_factory=list)
    """Answers that the changes moved: to jobs that began to wait, or, as jobs ended, to late, duplicate, conflict."""

    def add(self, queue: int, won: list[Row], picked: Picked) -> None:
        """What one claim did. There may be two of one queue: what a throttler admitted, and what waits to be judged."""
        self.won.extend(won)
        if picked.refused:
            times = [again for again in (self.refused.get(queue, 0), picked.again) if again]
            self.refused[queue] = min(times, default=0)
        if picked.closed:
            self.closed[queue] = self.closed.get(queue, frozenset()) | picked.closed


class Peek(NamedTuple):
    """What there is to do in a queue: now, and when next."""

    queue: int
    ready: bool
    """A job of the asked types can be claimed (or judged)."""
    next_start: int
    """When the first scheduled job is due; 0 = none."""
    next_deadline: int
    """When the first waiting job times out; 0 = none."""
    owned: bool
    """A job of this queue is in some engine's hands."""
    parked: bool = False
    """A code throttler has parked jobs here."""
    answers: bool = False
    """Another program has put answers into the inbox in plain SQL, at which nobody has looked yet."""
    crons: int = 0
    """The version of the cron schedule that was changed last; 0 = there has never been one."""
