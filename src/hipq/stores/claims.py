"""The requests of an engine about a queue, and the replies: a claim, a question for a code throttler, a turn, a
peek."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from hipq.job.model import New, Row
from hipq.stores.values import Stored

if TYPE_CHECKING:
    from hipq.job.answer import Kept
    from hipq.job.matching import Placed
    from hipq.stores.rule_claims import Picked

ANY_TYPE: Final = "*"
"""Stands for all types, in place of those an engine has code for. Such an engine claims lane by lane."""


class Claim(NamedTuple):
    """A request for up to `limit` jobs of these types from one queue, in rank order, as the queue's rules allow."""

    queue: int
    types: tuple[str, ...]
    limit: int
    critical: tuple[str, ...] = ()
    """The critical types, which limits neither count nor hold up."""
    ticket: int = 0
    """The ticket under which a code throttler was asked, if the queue has one."""
    admitted: tuple[int, ...] = ()
    """The jobs that the throttler admitted."""
    lane: str | None = None
    """The only lane to claim from, if one is given: an engine that goes round lanes by a plan of its own claims one
    lane after another."""
    hands: int = 1 << 30
    """The free hands. Where a rate counts starts, no more jobs than these are claimed, since they would not start at
    once."""
    strategies: tuple[str, ...] = ()
    """The retry strategies that are registered here. A failed job that names another one is left to engines that have
    it."""


class Asked(NamedTuple):
    """The jobs that a code throttler is to decide on, and the ticket for the claim."""

    ticket: int
    due: list[Row]
    """Ready and parked jobs, in the queue's order."""
    running: list[Row]
    last_parked: tuple[str, int] | None
    """The place of the last parked job that was read; None = there are no more."""
    more: bool
    """Whether there may be more ready ones."""
    again: int
    """When a rate lets more of them start; 0 = no rate holds any up."""
    shut: list[Row]
    """Parked jobs whose window is closed."""


class Turned(msgspec.Struct, frozen=True):
    """The result of a turn."""

    lost: frozenset[int]
    """Ids whose token no longer matched."""
    won: list[Row]
    """The rows claimed, in order."""
    children: list[tuple[New, Stored]] = []
    """What became of the jobs that were chained to the changes."""
    refused: dict[int, int] = {}
    """The queues in which rules kept jobs from starting, with the moment to claim again (0 = when something
    changes)."""
    closed: dict[int, frozenset[str]] = {}
    """By queue, the windows of ready jobs that are closed."""
    answered: dict[int, Row] = {}
    """The jobs among the changes that found their answer when they began to wait, as they are now."""
    answers: dict[int, Kept] = {}
    """The answers of the claimed rows that have one to look at."""
    placed: list[Placed] = []
    """Answers that the changes moved: to jobs that began to wait, or, as jobs ended, to the state late, duplicate or
    conflict."""

    def add(self, queue: int, won: list[Row], picked: Picked) -> None:
        """Add the result of one claim. There may be two of one queue: of jobs that a throttler admitted, and of jobs
        that wait for a decision."""
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
    """Whether a job of the asked types can be claimed, to run or to be decided on."""
    next_start: int
    """When the first scheduled job is due; 0 = none."""
    next_deadline: int
    """When the first waiting job times out; 0 = none."""
    owned: bool
    """Whether some engine has a job of this queue."""
    parked: bool = False
    """Whether a code throttler has parked jobs here."""
    answers: bool = False
    """Whether another program has put answers into the inbox in plain SQL, which nobody has looked at yet."""
    crons: int = 0
    """The version of the cron schedule that was changed last; 0 = there has never been one."""
