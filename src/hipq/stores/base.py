"""What hipq asks of a database: some batch verbs, one transaction each.

What every store promises, and the contract suite (`tests.contract`) checks:

- A verb that returned is durable. One that raised StoreUnavailable happened wholly or not at all.
- A write of a live job names its token and changes it; where no row matches, nothing is written and the id is
  reported as lost.
- A job is in the live table or in the final table, never in both; a final row is never written again.
- A claim holds only while the claiming engine's lease is alive, checked in the same transaction.
- No user code runs inside a verb. Only what is passed in as `now` counts as the time of jobs; leases live on the
  store's own clock, which does not jump.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from hipq.errors import StoreRefused
from hipq.job.model import Brief, Change, New, Row
from hipq.job.states import DONE, FINAL

if TYPE_CHECKING:
    from hipq.job.answer import Answered, Kept, NewAnswer
    from hipq.job.matching import Placed
    from hipq.limits.rules import Rules
    from hipq.stores.rule_claims import Picked


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


UNCHOSEN: Final = "\x1f"
"""At the end of a key: no user's key has it."""


def renamed(jobs: Sequence[tuple[int, New]], added: Collection[int]) -> list[tuple[int, New]]:
    """Of jobs that came with their ids those that could not be added, since somebody chose such an id as a key: their
    ids are promised, so they get keys that nobody can choose, since they cannot be printed."""
    return [(job_id, replace(job, job_key=f"{job_id}{UNCHOSEN}")) for job_id, job in jobs if job_id not in added]


def taken(ids: Sequence[int]) -> StoreRefused:
    return StoreRefused(
        f"{len(ids)} jobs of a journal have ids that other jobs have, {ids[0]} for one: this is not the database they "
        "were accepted for, or it is as it was before"
    )


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


JOURNALS: Final = "journal"
"""The kind of notes that say how far the store has each journal, by its identity."""
LAST: Final = chr(0x10FFFF)
"""Behind all other characters, in either store."""
TOP: Final = "~"
"""Behind the names of all tenants, and of all their lanes."""
ANY_TYPE: Final = "*"
"""In place of the types an engine has code for: whatever there is. Such an engine claims lane by lane."""


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


class Counted(NamedTuple):
    """Jobs of one type that are alike."""

    job_type: str
    state: str
    phase: str
    jobs: int


def counted(found: Sequence[tuple[Any, ...]], rows: int) -> tuple[list[Counted], int]:
    """What a census of so many rows says, of groups with their highest id."""
    more = sum(one[3] for one in found) == rows
    return [Counted(*one[:4]) for one in found], max((one[4] for one in found), default=0) if more else 0


STRATEGIES: Final = "strategies"
"""In what an engine says that it serves, beside its queues: the retry strategies that are registered there."""


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

    @classmethod
    def of(cls, engine_id: int, label: str, serves: str) -> EngineSeen:
        """From what `take_lease` was given; a critical type has a `!` before its name there."""
        found: dict[str, list[str]] = msgspec.json.decode(serves)
        strategies = found.pop(STRATEGIES, [])
        return cls(
            engine_id,
            label,
            {queue: [name.lstrip("!") for name in types] for queue, types in found.items()},
            {queue: [name[1:] for name in types if name.startswith("!")] for queue, types in found.items()},
            tuple(strategies),
        )


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


class Filter(NamedTuple):
    """Which jobs to list. Empty fields do not filter."""

    queue: int
    job_type: str = ""
    job_key: str = ""
    state: str = ""
    phase: str = ""
    tenant: str = ""
    lane: str = ""
    code: str = ""
    error: str = ""
    """Part of the text of its error."""
    since: int = 0
    """Added at this moment or later;"""
    before: int | None = None
    """and before this one."""
    table: str = ""
    """"live" or "final" ones only."""
    after: int = 0
    """Ids above this one only: the next page;"""
    until: int = 0
    """and up to this one."""
    limit: int = 100

    @property
    def tables(self) -> list[str]:
        """The tables such jobs can be in: of "live" and "final" both, one or none."""
        wanted = ((self.state, FINAL), (self.phase, DONE), (self.table, "final"))
        final = {value == last for value, last in wanted if value}
        return [table for table, is_final in (("live", False), ("final", True)) if final <= {is_final}]

    def condition(self, mark: str, contains: str) -> str:
        """Its fields as SQL. `mark` is how a parameter looks, `contains` how the search in a text does."""
        columns = ("job_type", "job_key", "state", "phase", "tenant", "lane", "code")
        found = [f"{name} = {mark.format(name)}" for name in columns if getattr(self, name)]
        found += ["tenant <> ''"] if self.tenant else []  # so that the indexes for tenants are found
        found += [contains.format("error", mark.format("error"))] if self.error else []
        found += [f"create_time >= {mark.format('since')}"] if self.since else []
        found += [f"create_time < {mark.format('before')}"] if self.before is not None else []
        found += [f"id > {mark.format('after')}"] if self.after else []
        found += [f"id <= {mark.format('until')}"] if self.until else []
        return " AND ".join(found) or "true"


EndPlace = tuple[int, int]
"""Of a final job among those of its queue: when it ended, and its id."""
EARLIEST: Final[EndPlace] = (-(1 << 62), 0)


class Pruned(NamedTuple):
    """What one step of a prune did."""

    deleted: int
    last: EndPlace | None
    """Where it has come to; None = there is nothing more to look at."""


class AnswerFilter(NamedTuple):
    """Which answers to list. Empty fields do not filter."""

    queue: int = 0
    job_type: str = ""
    job_key: str = ""
    state: str = ""
    job: int = 0
    id: int = 0
    after: int = 0
    """Numbers above this one only: the next page."""
    limit: int = 100

    @property
    def given(self) -> dict[str, Any]:
        """Column and value of each that filters for one."""
        columns = ("queue", "job_type", "job_key", "state", "job", "id")
        return {name: getattr(self, name) for name in columns if getattr(self, name)}

    def condition(self, column: str, mark: str) -> str:
        """That a column has its value; spelled so that the index for it is found. `mark` is how a parameter looks."""
        wanted = f"{column} = {mark.format(column)}"
        return f"{wanted} AND job <> 0" if column == "job" else wanted


class Store(Protocol):
    url: str
    """Where this is, for people: no password in it."""
    at_once: int
    """How many verbs can be under way at the same time in one process; others wait."""
    changes_at_once: int
    """How many changes one `turn` may be given: it locks the keys of their jobs."""

    # -- setting up -------------------------------------------------------------------------------------------------
    def migrate(self) -> list[str]:
        """Bring the schema, and the tables of every queue, to this program's version; the names of what was applied."""

    def queue(self, app: str, name: str, table: str) -> QueueTables:
        """Register a queue or find it; its tables get what they lack. NameClash if another queue owns the table."""

    def queues(self, app: str = "") -> list[QueueTables]:
        """The registered queues, of one instance or of all."""

    def drop_queue(self, number: int) -> None:
        """Remove a queue and all it has: its tables, its jobs whatever their state, their answers. No queue gets its
        number again: ids contain it. Conflict while an engine that is alive serves it or has one of its jobs. Programs
        that only add jobs are not seen: one that goes on by the old number must not find a new queue's tables under
        the old names, so give a queue that comes after it other ones."""

    def restored(self, margin: int) -> None:
        """The database is an older copy of itself: whatever counts (ids of jobs, answers and engines, tokens of live
        jobs) moves on by so many, so that nothing is given out a second time. Conflict while an engine is alive. With a
        margin of 0 nothing moves, engines or not: it is a copy, and nothing is missing. Either way it is noted where
        the database lives now."""

    def close(self) -> None: ...

    # -- the life of a job ------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[New], *, all_or_nothing: bool = False, conn: Any = None) -> list[Stored]:
        """Store jobs. With `all_or_nothing` a duplicate raises DuplicateKey and stores none of them. With `conn`, the
        user's own connection, they commit with its transaction."""

    def ingest(self, jobs: Sequence[tuple[int, New]], journal: str, before: str, after: str) -> bool:
        """Store jobs of a journal under ids they were given there; if the store's place in that journal is still
        `before`, and with its move to `after`: so what is read twice is stored once. False if it is another: then
        nothing is stored. Nor is it if one has a key that a live job has: DuplicateKey."""

    def refusals(self, jobs: Sequence[tuple[int, New]]) -> dict[int, str]:
        """Which of these `ingest` refuses, one after the other, and why, by id. Nothing is stored."""

    def stage(self, queue: int, now: int, limit: int) -> int:
        """Make due scheduled jobs ready, earliest first; how many."""

    def unranked(self, queue: int, now: int, limit: int) -> list[Row]:
        """Due scheduled jobs that were added in plain SQL and have no rank yet, earliest first. `stage` leaves them."""

    def turn(self, engine_id: int, changes: Sequence[Change], claims: Sequence[Claim], now: int) -> Turned:
        """Save what stopped and claim what is next, in one transaction. Without a live lease nothing is claimed."""

    def overdue(self, queue: int, now: int, limit: int) -> list[Row]:
        """Waiting jobs whose deadline has passed, earliest first."""

    def ready_outside_window(self, queue: int, types: Sequence[str], windows: Sequence[str], limit: int) -> list[Row]:
        """Ready jobs of these types that have one of these windows."""

    # -- answers ----------------------------------------------------------------------------------------------------
    def answer(
        self, answers: Sequence[NewAnswer], now: int, *, instead_of: int = 0, patient: bool = True
    ) -> list[Delivered]:
        """Keep answers that came, up to a thousand, and match them with their jobs, in one transaction. With
        `instead_of` it is an answer of the inbox that comes again: that one goes. NotFound, if it is not there any
        more; Conflict, if it has been used. Who is not `patient`, as an engine whose lease goes on, waits for nobody's
        lock: StoreBusy."""

    def answers(self, wanted: AnswerFilter) -> list[Kept]:
        """Answers by filter, in the order they came."""

    def count_answers(self, queue: int) -> dict[str, tuple[int, int]]:
        """How many answers there are in each state, and how often in all they came."""

    def brought(self, queues: Sequence[int], limit: int) -> list[Kept]:
        """Answers in plain SQL that nobody has looked at yet, in the order they came: `answer` with `instead_of`
        does."""

    def drop_answer(self, answer_id: int) -> bool:
        """Delete an answer, unless a job has it and has not looked at it yet; whether it is gone."""

    def late_answers(self, queues: Sequence[int], limit: int) -> int:
        """Answers that were kept for jobs which ended and never waited for them are late; how many. Up to so many a
        queue, and of queues that have none only one question for all of them."""

    def prune_answers(self, now: int, limit: int) -> int:
        """Delete answers that need not be kept any longer; how many."""

    def ended(self, ids: Sequence[int]) -> list[Row]:
        """Those of these jobs that are final: one statement for all of them."""

    # -- rules ------------------------------------------------------------------------------------------------------
    def rules(self, queue: int, *, patient: bool = True) -> Rules:
        """The queue's rules as they are now. Not `patient`: StoreBusy if another thread's work is in the way."""

    def limits(self, queue: int) -> Limits:
        """The same, and what is held."""

    def change_rules(self, queue: int, change: Callable[[Rules], Rules]) -> Rules:
        """Read, change and write the rules; every claim from now on goes by them. `change` is pure."""

    def ask(
        self, engine_id: int, claim: Claim, after: tuple[str, int], seconds: float, page: int, now: int
    ) -> Asked | None:
        """Take the queue's ticket for so many seconds, and read what its throttler is to be asked about: the first
        ready jobs, and the parked ones after a place. None while another engine has the ticket. With 0 seconds it only
        looks, and changes nothing."""

    def drop_ticket(self, queue: int, ticket: int, note: str) -> None:
        """Give a ticket back unused, and say why."""

    def unpark(self, queue: int, limit: int) -> int:
        """Parked jobs are ready again; how many."""

    # -- notes ------------------------------------------------------------------------------------------------------
    def notes(self, kind: str, start: str = "") -> dict[str, str]:
        """What programs have left for each other, of one kind, by name; those only whose names start like this."""

    def note(self, kind: str, name: str) -> str:
        """One of them; "" is one that is not there."""

    def change_note(self, kind: str, name: str, change: Callable[[str], str]) -> str:
        """Read, change and write a note; "" is one that is not there. `change` is pure, and may be called again."""

    # -- cron -------------------------------------------------------------------------------------------------------
    def cron(self, queue: int, name: str, now: int) -> int:
        """The tick of a schedule that was added last; one that is new here begins now."""

    def tick(self, queue: int, name: str, last: int, tick: int, jobs: Sequence[New]) -> list[Stored] | None:
        """Add the jobs of a tick if `last` is still the one before it: None if another engine was first."""

    def prune(
        self, queue: int, before: EndPlace, limit: int, after: EndPlace = EARLIEST, job_type: str = "", code: str = ""
    ) -> Pruned:
        """Look at final jobs from one place on and up to another, oldest first, not more than so many, and delete
        those that have this job_type and this code, if such are given."""

    def newest(self, queue: int, count: int) -> EndPlace | None:
        """The place of the final job that so many are newer than; None = there are no more than those."""

    # -- engines and their leases -----------------------------------------------------------------------------------
    def take_lease(self, seconds: float, label: str, serves: str = "{}") -> int:
        """A fresh engine_id with a lease of so many seconds. `serves`: see `EngineSeen.of`."""

    def engines(self) -> list[EngineSeen]:
        """The engines whose lease is alive."""

    def renew_lease(self, engine_id: int, seconds: float) -> bool:
        """Prolong a lease that is still alive; an expired one cannot be renewed."""

    def drop_lease(self, engine_id: int) -> None: ...

    def orphans(self, queues: Sequence[int], limit: int) -> list[Row]:
        """Jobs owned by an engine that has no live lease, up to so many a queue: one statement for all of them."""

    def owned(self, queues: Sequence[int], engine_id: int) -> list[Row]:
        """Jobs this engine owns: one statement for all queues."""

    # -- looking ----------------------------------------------------------------------------------------------------
    def peek(self, queues: Sequence[tuple[int, tuple[str, ...]]], strategies: tuple[str, ...] = ()) -> list[Peek]:
        """What there is to do in each queue for an engine that has these types, and these registered retry strategies:
        one statement for all of them."""

    def tenants(self, queue: int, before: str, most: int) -> list[str]:
        """Tenants before this one that have jobs which are ready, the last first, up to so many. Jobs of no tenant do
        not count, here and in `lanes`."""

    def lanes(self, queue: int, before: Mapping[str, str], each: int, count: int) -> list[WaitingLane]:
        """Of each of these tenants the lanes before a place in which jobs are ready, its last lane first: up to so many
        each, and of each lane up to so many jobs are counted. All jobs of a tenant's lane have the same type."""

    def todo_types(self, queue: int, most: int) -> list[str]:
        """Types of which jobs wait for other code than their handler, up to so many."""

    def usage(self, queue: int, tenants: Sequence[str] | None = None) -> dict[str, Usage]:
        """What each of these tenants has there; of all, if none are named. It reads every live job they have: not to
        be asked often."""

    def usage_answers(self, queue: int, tenants: Sequence[str]) -> dict[str, Usage]:
        """The same of answers that no job has taken: early, late, contradicting or unreadable ones."""

    def usage_ended(self, queue: int, tenant: str, after: int, rows: int) -> tuple[Usage, int]:
        """What a tenant's final jobs take, payload, result and history: of so many that come behind an id, and the id
        behind which there are more; 0 = there are none."""

    def get(self, job_id: int) -> Row | None:
        """A job, live or final."""

    def find(self, wanted: Filter) -> list[Row]:
        """Jobs by filter, live and final, in id order."""

    def listed(self, wanted: Filter) -> list[Brief]:
        """The same, for lists: payloads, results and histories are not read."""

    def reach(self, wanted: Filter, rows: int) -> int:
        """How far one gets by looking at so many of a tenant's jobs (of those with a key, if the filter has one), in
        each table that the filter is about: the id of the last of them; 0 = there are no more."""

    def census(self, queue: int, tenant: str, table: str, after: int, rows: int) -> tuple[list[Counted], int]:
        """How many jobs of a tenant there are, by type, state and phase (one that was only given back is initial): of
        so many of the table ("live" or "final") that come behind an id, and the id behind which there are more; 0 =
        there are none."""

    def count(self, wanted: Filter) -> int:
        """How many there are; it stops counting at the filter's limit."""

    def locked(self, queues: Sequence[int]) -> set[int]:
        """Those of these queues whose tables somebody has locked, or is about to lock: who writes there has to wait.
        It does not wait itself."""

    def tokens(self, ids: Sequence[int]) -> dict[int, int]:
        """The tokens of those of these jobs that are live: one statement for all of them."""

    def now(self) -> int:
        """The time of jobs: the store's clock where it has one of its own."""

    # -- waking -----------------------------------------------------------------------------------------------------
    def wait(self, seconds: float) -> bool:
        """Sleep until something may have changed or `ring` is called (True), or there was a nudge or the time is over
        (False)."""

    def notify(self) -> None:
        """Wake whoever waits in this process. Any thread, any signal handler."""

    def notify_done(self) -> None:
        """The same, if nothing has changed in the store: a handler has ended."""

    def clear(self) -> None:
        """The nudges until now have been heard."""
