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
"""The first character. No name sorts between a name and that name with this appended."""
LAST: Final = chr(0x10FFFF)
"""The last character: it sorts after all others, in every store."""

TOP: Final = "~"
"""Sorts after the names of all tenants, and of all their lanes."""

STRATEGIES: Final = "strategies"
"""The entry of an engine's `serves` that lists the retry strategies which are registered there. All others are
queues."""

CRONS: Final = "crons"
"""The entry of an engine's `serves` that lists the cron schedules in its code, each with its queue before it."""

EndPlace = tuple[int, int]
"""The place of a final job among those of its queue: when it ended, and its id."""

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
    """What it holds, in thousandths of a unit."""
    owner: int


class Limits(NamedTuple):
    """A queue's rules, and how much of its limits is used."""

    rules: Rules
    memory: str
    held: dict[str, int]
    """What jobs hold, in thousandths of units, by lane."""
    holders: list[Holder]
    """The jobs that hold most, the heaviest first. Of very many, not all are listed."""
    note: str
    """Why the queue's throttler could not be asked the last time; "" = it could."""


class WaitingLane(NamedTuple):
    """Jobs of a tenant that can be claimed: of one type, in one lane."""

    job_type: str
    lane: str
    jobs: int
    """How many there are. Counting stopped at what was asked for."""


class Usage(msgspec.Struct, frozen=True):
    """What a tenant has in a queue, final jobs apart."""

    jobs: int
    size: int
    """Bytes of payload, as they are stored."""


class Depth(msgspec.Struct, frozen=True):
    """How many jobs of a phase there are."""

    phase: str
    """The phase. Jobs that engines have are "executing", whatever code of theirs runs."""
    jobs: int
    """How many there are, as far as they were counted."""
    due: int
    """When the first of them was or is due; of waiting jobs, the first deadline. 0 = there are none."""
    job_type: str = ""
    """The type of ready jobs; "" for other phases, which are counted over all types."""


class Counts(NamedTuple):
    """Counts of a queue's jobs, each as far as it was counted."""

    ready: int
    scheduled: int
    executing: int
    waiting: int
    parked: int
    retry: int
    """Jobs that are ready or scheduled, and that failed or were given back before."""
    failed: int
    """Jobs that ended without success since a moment, cancelled ones apart."""
    done: int
    """Jobs that ended since a moment."""
    next_start: int
    """When the first scheduled job is due; 0 = there is none."""
    next_timeout: int
    """When the first waiting job times out; 0 = there is none."""


class Counted(NamedTuple):
    """A count of jobs that have the same type, state and phase."""

    job_type: str
    state: str
    phase: str
    jobs: int
    size: int = 0
    """Bytes of their payloads, results and histories, if those were asked for."""


class EngineSeen(msgspec.Struct, frozen=True):
    """An engine that is alive."""

    engine_id: int
    label: str
    serves: dict[str, list[str]]
    """The job types it has code for, by the number of their queue."""
    critical: Mapping[str, list[str]] = MappingProxyType({})
    """Of these job types, the critical ones, which limits do not hold up."""
    strategies: tuple[str, ...] = ()
    """The retry strategies that are registered there."""
    crons: frozenset[str] = frozenset()
    """The cron schedules in its code, as `number/name`."""
    lease: float = 0.0
    """Seconds until its lease is over, unless it is renewed."""
    version: str = ""
    """The version of hipq that runs there; "" = it did not say."""
    since: int = 0
    """When it took the lease; 0 = it did not say."""

    @classmethod
    def of(
        cls, engine_id: int, label: str, serves: str, lease: float = 0.0, version: str = "", since: int = 0
    ) -> EngineSeen:
        """An engine from what `take_lease` was given, where critical types have a `!` before their names."""
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


class Crew(msgspec.Struct, frozen=True):
    """Engines that are alive and serve the same as this one, which is one of them."""

    size: int
    place: int
    """How many of them came before this one."""


class Delivered(msgspec.Struct, frozen=True):
    """What became of an answer that arrived."""

    outcome: Answered
    id: int
    """Its number in the inbox; of a duplicate, that of the first."""
    job: int
    """The job it belongs to; 0 = none yet."""
    change: Change | None = None
    """The change of that job, if there was one."""
    placed: Sequence[Placed] = ()
    """Earlier answers to the job that were moved with it."""
    late: tuple[Row, Kept] | None = None
    """The job and the answer, if it is late and `on_late` is to be shown both: read in the transaction that kept the
    answer, because the store may be away right after it."""


class Maintained(msgspec.Struct, frozen=True):
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
    """How far it has come; None = there is nothing more to look at."""
    before: EndPlace
    """The place up to which the next steps go."""
