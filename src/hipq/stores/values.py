"""The small values that stores give back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from hipq.job.model import Change, Row

if TYPE_CHECKING:
    from hipq.job.answer import Answered, Kept
    from hipq.job.matching import Placed
    from hipq.limits.rules import Rules

JOURNALS: Final = "journal"
"""The kind of notes that say how far the store has each journal, by its identity."""

LISTENERS: Final = "listener"
"""The kind of notes in which listeners report, by instance and stream."""

NEXT: Final = chr(1)
"""The first character: no name lies between a name and that name with this at its end."""
LAST: Final = chr(0x10FFFF)
"""Behind all other characters, in either store."""

TOP: Final = "~"
"""Behind the names of all tenants, and of all their lanes."""

STRATEGIES: Final = "strategies"
"""In what an engine says that it serves, beside its queues: the retry strategies that are registered there."""

CRONS: Final = "crons"
"""In the same place: the cron schedules in its code, with their queues before them."""

EndPlace = tuple[int, int]
"""Of a final job among those of its queue: when it ended, and its id."""

EARLIEST: Final[EndPlace] = (-(1 << 62), 0)


class QueueTables(NamedTuple):
    """A registered queue: its number (the low bits of its ids) and its table."""

    number: int
    app: str
    name: str
    table: str


class Stored(NamedTuple):
    """What became of one new job: its id, or, with `duplicate`, the id of the live job that has its key."""

    id: int
    duplicate: bool = False


class Holder(NamedTuple):
    """A job that counts against limits."""

    id: int
    lane: str
    held: int
    """Thousandths of a unit."""
    owner: int


class Limits(NamedTuple):
    """A queue's rules, and how far its limits are used."""

    rules: Rules
    memory: str
    held: dict[str, int]
    """Thousandths of units, by lane."""
    holders: list[Holder]
    """Who holds them, the heaviest first; not all, if they are very many."""
    note: str
    """Why the queue's throttler could not be asked the last time; "" if it could."""


class WaitingLane(NamedTuple):
    """Jobs of a tenant that can be claimed: of one type, in one lane."""

    job_type: str
    lane: str
    jobs: int
    """How many there are, up to what was asked for."""


class Usage(NamedTuple):
    """What a tenant has in a queue that is not final."""

    jobs: int
    size: int
    """Bytes of payload, as they are stored."""


class Depth(NamedTuple):
    """How many jobs of a phase there are."""

    phase: str
    """Jobs in the hands of engines are "executing", whatever their code."""
    jobs: int
    """As far as it was counted."""
    due: int
    """When the first of them was or is due; of those that wait, their first deadline. 0 = there are none."""
    job_type: str = ""
    """Of ready jobs; "" = all types of others."""


class Counts(NamedTuple):
    """What there is in a queue, each as far as it was counted."""

    ready: int
    scheduled: int
    executing: int
    waiting: int
    parked: int
    retry: int
    """Of those that are ready or scheduled, the ones that failed or were given back before."""
    failed: int
    """Ended without success since a moment; those that were cancelled do not count."""
    done: int
    """Ended since a moment."""
    next_start: int
    """When the first scheduled job is due, and"""
    next_timeout: int
    """when the first waiting one times out; 0 = there is none."""


class Counted(NamedTuple):
    """Jobs of one type that are alike."""

    job_type: str
    state: str
    phase: str
    jobs: int
    size: int = 0
    """Bytes of their payloads, results and histories, if those were asked for."""


class EngineSeen(NamedTuple):
    """An engine that is alive."""

    engine_id: int
    label: str
    serves: dict[str, list[str]]
    """The job types it has code for, by the number of their queue."""
    critical: Mapping[str, list[str]] = MappingProxyType({})
    """Of those the ones that limits do not hold up."""
    strategies: tuple[str, ...] = ()
    """The retry strategies that are registered there."""
    crons: frozenset[str] = frozenset()
    """The cron schedules in its code, as `number/name`."""
    lease: float = 0.0
    """Seconds until its lease is over, unless it is renewed."""
    version: str = ""
    """The hipq that runs there; "" = it did not say."""
    since: int = 0
    """When it took the lease; 0 = it did not say."""

    @classmethod
    def of(
        cls, engine_id: int, label: str, serves: str, lease: float = 0.0, version: str = "", since: int = 0
    ) -> EngineSeen:
        """From what `take_lease` was given; a critical type has a `!` before its name there."""
        found: dict[str, list[str]] = msgspec.json.decode(serves)
        strategies, crons = found.pop(STRATEGIES, []), found.pop(CRONS, [])
        return cls(
            engine_id,
            label,
            {queue: [name.lstrip("!") for name in types] for queue, types in found.items()},
            {queue: [name[1:] for name in types if name.startswith("!")] for queue, types in found.items()},
            tuple(strategies),
            frozenset(crons),
            lease,
            version,
            since,
        )


class Crew(NamedTuple):
    """Engines that are alive and serve the same as this one, which is one of them."""

    size: int
    place: int
    """How many of them came before this one."""


class Delivered(NamedTuple):
    """What became of an answer that came."""

    outcome: Answered
    id: int
    """Its number in the inbox; of a duplicate, that of the first."""
    job: int
    """The job it belongs to; 0 = none yet."""
    change: Change | None = None
    """What that job did about it."""
    placed: Sequence[Placed] = ()
    """Earlier answers to the job that were moved with it."""
    late: tuple[Row, Kept] | None = None
    """The job and the answer, if it is late and `on_late` is to be shown both: read in the transaction that kept the
    answer, because the store may be away right after it."""


class Maintained(NamedTuple):
    """What one step of maintenance did."""

    late: int
    """Answers that were marked as late."""
    answers: int
    """Answers that were deleted."""
    progress: int
    """Jobs that have ended and whose progress was deleted."""
    folded: bool
    """Whether counters were folded, so that there may be more to fold."""


class Pruned(NamedTuple):
    """What one step of a prune did."""

    deleted: int
    last: EndPlace | None
    """Where it has come to; None = there is nothing more to look at."""
    before: EndPlace
    """Up to where the next steps go."""
