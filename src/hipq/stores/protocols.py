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

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from hipq.job.activity import Activity
from hipq.job.answer import Kept, NewAnswer
from hipq.job.model import Brief, Change, New, Row
from hipq.job.progress import Report, Reported
from hipq.job.schedule import Schedule, ScheduleChange
from hipq.limits.rules import Rules
from hipq.stores.audit import AuditEntry
from hipq.stores.claim_groups import Head
from hipq.stores.claims import Asked, Claim, Peek, Turned
from hipq.stores.filters import AnswerFilter, Filter
from hipq.stores.values import (
    EARLIEST,
    Counted,
    Counts,
    Crew,
    Delivered,
    Depth,
    EndPlace,
    EngineSeen,
    Limits,
    Maintained,
    Pruned,
    QueueTables,
    Stored,
    Usage,
    WaitingLane,
)

if TYPE_CHECKING:
    from hipq.stores.waker import Waking  # programs that only add jobs need not load what it takes


class Clocked(Protocol):
    """What needs the time of jobs."""

    def now(self) -> int:
        """The time of jobs: the store's clock where it has one of its own."""


class SetupStore(Protocol):
    """The schema and the registry of queues: what programs need that begin, and operators."""

    url: str
    """Where this is, for people: no password in it."""
    at_once: int
    """How many verbs can be under way at the same time in one process; others wait."""

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


class JobStore(Protocol):
    """Adding jobs, reading them and deleting them: what applications and the command line need."""

    def enqueue(self, jobs: Sequence[New], *, all_or_nothing: bool = False, conn: Any = None) -> list[Stored]:
        """Store jobs. With `all_or_nothing` a duplicate raises DuplicateKey and stores none of them. With `conn`, the
        user's own connection, they commit with its transaction."""

    def get(self, job_id: int) -> Row | None:
        """A job, live or final."""

    @overload
    def find(self, wanted: Filter, *, brief: Literal[True]) -> list[Brief]: ...
    @overload
    def find(self, wanted: Filter) -> list[Row]:
        """Jobs by filter, live and final, in the order of their ids or against it. `brief` is for lists: payloads,
        results and histories are not read."""

    def progress(self, job_id: int, attempt: int) -> Reported | None:
        """What a job's handler has said of its progress in this attempt."""

    def having(self, queues: Sequence[int], wanted: Filter) -> list[int]:
        """Those of these queues that have a job with the parent of this filter, or with its key, or with a key that
        begins as it says: one statement for many queues. Nothing else in the filter counts."""

    def reach(self, wanted: Filter, rows: int) -> int:
        """How far one gets by looking at so many jobs in each table that the filter is about, on the filter's way: in
        the order of ids or against it, by its `walked`. The id of the last of them; 0 = there are no more."""

    def count(self, wanted: Filter) -> int:
        """How many there are; it stops counting at the filter's limit."""

    def waiting_types(self, queue: int, most: int = 1 << 62, *, todo: bool = False) -> list[str]:
        """The types of jobs that can be claimed, whoever has their code, up to so many. `todo`: only those of jobs that
        wait for other code than their handler."""

    def depth(self, queue: int, types: Sequence[str], most: int) -> list[Depth]:
        """How many jobs of each phase there are, ready ones of each of these types; it stops counting at `most`, and
        looks at no more of them to find the first. (In a claim group with more ready ones, later ones may be due for
        longer where `order` is not by time.)"""

    def counts(self, queue: int, most: int, failed_since: int, ended_since: int) -> Counts:
        """What there is in a queue, for people: it stops counting each at `most`."""

    def ended(self, ids: Sequence[int]) -> list[Row]:
        """Those of these jobs that are final: one statement for all of them."""

    def prune(
        self, queue: int, before: EndPlace, limit: int, after: EndPlace = EARLIEST, job_type: str = "",
        code: str = "", tenant: str = "", keep: int | None = None,
    ) -> Pruned:  # fmt: skip
        """Look at final jobs from one place on and up to another, oldest first, not more than `limit`, and delete
        those that have this job_type, this code and this tenant, if such are given. `keep`: go on up to the last
        `keep` jobs, if those begin later than `before`; the result says where that is, for the next step."""


class JournalStore(Protocol):
    """Jobs that a journal has taken in, and that come into the store from there."""

    def ingest(self, jobs: Sequence[tuple[int, New]], journal: str, before: str, after: str) -> bool:
        """Store jobs of a journal under ids they were given there; if the store's place in that journal is still
        `before`, and with its move to `after`: so what is read twice is stored once. False if it is another: then
        nothing is stored. Nor is it if one has a key that a live job has: DuplicateKey."""

    def refusals(self, jobs: Sequence[tuple[int, New]]) -> dict[int, str]:
        """Which of these `ingest` refuses, one after the other, and why, by id. Nothing is stored."""


class EngineStore(Protocol):
    """The life of a job: what an engine's turn needs."""

    changes_at_once: int
    """How many changes one `turn` may be given: it locks the keys of their jobs."""

    @property
    def waker(self) -> Waking:
        """The sleep of this process's engines. A fork, or a move of the jobs, makes it another one."""

    def stage(self, queue: int, phase: str, now: int, limit: int) -> int:
        """Make jobs ready that are scheduled and due, earliest first, or that are parked; how many."""

    def turn(self, engine_id: int, changes: Sequence[Change], claims: Sequence[Claim], now: int) -> Turned:
        """Save what stopped and claim what is next, in one transaction. Without a live lease nothing is claimed."""

    def due(
        self, queue: int, phase: str, now: int, limit: int, types: Sequence[str] = (), windows: Sequence[str] = ()
    ) -> list[Row]:
        """Jobs of a phase that wait for an engine's decision, earliest first: waiting jobs whose deadline has passed;
        scheduled jobs that were added in plain SQL and have no rank yet, which `stage` leaves alone; or ready jobs of
        these types that have one of these windows, which has closed."""

    def peek(self, queues: Sequence[tuple[int, tuple[str, ...]]], strategies: tuple[str, ...] = ()) -> list[Peek]:
        """What there is to do in each queue for an engine that has these types, and these registered retry strategies:
        one statement for all of them."""

    def locked(self, queues: Sequence[int]) -> set[int]:
        """Those of these queues whose tables somebody has locked, or is about to lock: who writes there has to wait.
        It does not wait itself."""

    def report(self, reports: Sequence[Report], now: int) -> set[int]:
        """Store what handlers say of their progress, each in the place of what was said of the job before; the ids of
        the jobs that still have the token named. Neither the jobs nor their tokens are changed."""

    def tokens(self, ids: Sequence[int]) -> dict[int, int]:
        """The tokens of those of these jobs that are live: one statement for all of them."""

    def schedules(self, queue: int, after: int = 0, names: Sequence[str] | None = None) -> list[Schedule]:
        """The cron schedules of a queue, by name: those with a higher version than `after`, of these names if some are
        given. One statement."""

    def change_schedules(self, queue: int, changes: Sequence[ScheduleChange]) -> list[list[Stored] | None]:
        """Write schedules, each with the jobs of its ticks, in one transaction. What became of those jobs; None where
        the schedule was not as before, since somebody else was first: of that nothing is written."""


class LeaseStore(Protocol):
    """Engines, their leases, and the jobs they own."""

    def take_lease(self, seconds: float, label: str, serves: str = "{}", version: str = "", since: int = 0) -> int:
        """A fresh engine_id with a lease of so many seconds. `serves`, `version` and `since`: see `EngineSeen`."""

    def renew_lease(self, engine_id: int, seconds: float) -> Crew | None:
        """Prolong a lease that is still alive, and count the engines that serve the same; None: an expired lease cannot
        be renewed. With 0 seconds the lease ends."""

    def engines(self) -> list[EngineSeen]:
        """The engines whose lease is alive."""

    def owned(self, queues: Sequence[int], engine_id: int | None, limit: int = 1 << 62) -> list[Row]:
        """Jobs that this engine owns, or, with None, an engine that has no live lease; up to a limit a queue. One
        statement reads all queues."""


class AnswerStore(Protocol):
    """The inbox: answers that came, and the jobs they belong to."""

    def answer(
        self, answers: Sequence[NewAnswer], now: int, *, instead_of: int = 0, patient: bool = True
    ) -> list[Delivered]:
        """Keep answers that came, up to a thousand, and match them with their jobs, in one transaction. With
        `instead_of` it is an answer of the inbox that comes again: that one goes. NotFound, if it is not there any
        more; Conflict, if it has been used. Who is not `patient`, as an engine whose lease goes on, waits for nobody's
        lock: StoreBusy."""

    def answers(self, wanted: AnswerFilter) -> list[Kept]:
        """Answers by filter, in the order they came. Those in the state "new" are answers in plain SQL that nobody has
        looked at yet: `answer` with `instead_of` does."""

    def count_answers(self, queue: int, tenant: str = "") -> dict[str, tuple[int, int]]:
        """How many answers there are in each state, and how often in all they came: of one tenant, if it is named."""

    def unused_answers(self, queues: Sequence[int], most: int) -> dict[str, int]:
        """How many answers to jobs of these queues no job has used, by their state: it stops counting at `most` for
        each queue and state. An answer that was kept for a job which ended without it may still count as buffered."""

    def drop_answer(self, answer_id: int) -> bool:
        """Delete an answer, unless a job has it and has not looked at it yet; whether it is gone."""


class RuleStore(Protocol):
    """What may start: the rules of a queue, what its limits hold, and its code throttler's ticket."""

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

    def would_start(self, claim: Claim, now: int, rules: Rules | None = None) -> list[Head]:
        """The jobs that a claim could take now if a throttler had no say, in order: by the queue's rules, or by these
        instead. Nothing is changed."""

    def drop_ticket(self, queue: int, ticket: int, note: str) -> None:
        """Give a ticket back unused, and say why."""


class TenantStore(Protocol):
    """Lanes and tenants: what the daemon needs, whose engine goes round lanes by a plan of its own."""

    def tenants(self, queue: int, before: str, most: int) -> list[str]:
        """Tenants before this one that have jobs which are ready, the last first, up to so many. Jobs of no tenant do
        not count, here and in `lanes`."""

    def lanes(self, queue: int, before: Mapping[str, str], each: int, count: int) -> list[WaitingLane]:
        """Of each of these tenants the lanes before a place in which jobs are ready, its last lane first: up to so many
        each, and of each lane up to so many jobs are counted. All jobs of a tenant's lane have the same type."""

    def usage(
        self, queue: int, tenants: Sequence[str] | None = None, *, of: Literal["jobs", "answers"] = "jobs"
    ) -> dict[str, Usage]:
        """What each of these tenants has in a queue; each tenant, if none is named. Of jobs, that is every live job;
        of answers, those that no job has taken: early, late, contradicting or unreadable ones. It reads every row that
        it counts, so it is not to be asked often."""

    def census(
        self, queue: int, tenant: str, table: Literal["live", "final", "sizes"], after: int, rows: int
    ) -> tuple[list[Counted], int]:
        """How many jobs of a tenant there are, by type, state and phase (a job that was only given back is initial): of
        the next `rows` jobs behind an id, and the id behind which there are more; 0 = there are none. "sizes": of final
        jobs, with what they take, which has to read them."""


class ActivityStore(Protocol):
    """Counters of what has happened, by minute, hour and day: written by the verbs that change jobs."""

    def activity(
        self, queues: Sequence[int], grain: int, since: int, until: int, by: Literal["", "queue", "job_type"] = ""
    ) -> list[Activity]:
        """What has happened in these queues from the period on in which `since` is, and before `until`: by periods of
        `grain` seconds, which are whole minutes, in their order; periods without anything are left out. For all of the
        queues together, by queue, or by queue and job type. Older minutes have been folded into hours, and those into
        days: they count where these begin. At most 2,000 periods, else it is Invalid; so it returns at most 2,000 rows,
        or as many for each queue, or for each job type that is counted apart."""

    def maintain(self, queues: Sequence[int], now: int, limit: int) -> Maintained:
        """One step of what is done now and then, each part of it a transaction of its own. Answers that were kept for
        jobs of these queues which ended and never waited for them are marked as late, up to `limit` a queue; the
        progress of jobs of these queues that have ended is deleted, up to `limit` a queue. Answers of any queue that
        need not be kept any longer are deleted, up to `limit`. Old counters of these queues are folded: minutes into
        hours, hours into days, and very old days are deleted."""


class NoteStore(Protocol):
    """Notes that programs leave for each other."""

    def notes(self, kind: str, start: str = "", *, exact: bool = False) -> dict[str, str]:
        """The notes of one kind, by name; only those whose names start like this, or, if `exact`, the one that has
        this name."""

    def change_note(self, kind: str, name: str, change: Callable[[str], str]) -> str:
        """Read, change and write a note; a note that is not there is "". `change` is pure, and may be called again."""


class AuditStore(Protocol):
    """The audit log: what people did by hand, and what they were refused."""

    def record(self, entry: AuditEntry) -> None:
        """Add an entry; it gets a number of its own. After that some entries go that are more than 400 days older."""

    def audit_log(self, before: int, limit: int) -> list[AuditEntry]:
        """Up to `limit` entries, the newest first: of those before this number, if it is not 0."""


class Store(
    Clocked,
    SetupStore,
    JobStore,
    JournalStore,
    EngineStore,
    LeaseStore,
    AnswerStore,
    RuleStore,
    TenantStore,
    ActivityStore,
    NoteStore,
    AuditStore,
    Protocol,
):
    """All that hipq asks of a database."""
