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


class SetupStore(Protocol):
    """The clock, the schema and the registry of queues: for programs that start, and for operators."""

    url: str
    """Where the database is, for people: there is no password in it."""
    at_once: int
    """How many verbs one process can have under way at a time; others wait."""

    def now(self) -> int:
        """The time by which jobs run: that of the store's own clock, if it has one."""

    def migrate(self) -> list[str]:
        """Bring the schema, and the tables of every queue, to this program's version; the names of what was applied."""

    def queue(self, app: str, name: str, table: str) -> QueueTables:
        """Register a queue, or find it, and complete its tables. NameClash if another queue owns the table."""

    def queues(self, app: str = "") -> list[QueueTables]:
        """The registered queues, of one instance or of all."""

    def drop_queue(self, number: int) -> None:
        """Remove a queue with its tables, its jobs and their answers. No queue gets its number again, since ids contain
        it. Conflict while a live engine serves it or has one of its jobs. Programs that only add jobs cannot be seen:
        they may go on with the old number, so give a later queue other table names."""

    def restored(self, margin: int) -> None:
        """Note that the database was restored from an older copy of itself, and where it is now. Counters of ids and
        tokens move on by `margin`, so that nothing is given out twice: Conflict while an engine is alive. A complete
        copy needs no margin, and engines may be alive."""

    def number_above(self, queue: int, answer: int) -> None:
        """Give queues and answers that come from now on numbers above these: so no shard uses those of another."""

    def close(self) -> None: ...


class JobStore(Protocol):
    """Adding jobs, reading them and deleting them: what applications and the command line need."""

    def enqueue(self, jobs: Sequence[New], *, all_or_nothing: bool = False, conn: Any = None) -> list[Stored]:
        """Store jobs. With `all_or_nothing` a duplicate raises DuplicateKey and stores none of them. With `conn`, the
        user's own connection, they commit with its transaction; WrongConnection if it is open elsewhere."""

    def get(self, job_id: int) -> Row | None:
        """A job, live or final."""

    @overload
    def find(self, wanted: Filter, *, brief: Literal[True]) -> list[Brief]: ...
    @overload
    def find(self, wanted: Filter) -> list[Row]:
        """Jobs by filter, live and final, in the order of their ids or against it. `brief` is for lists: payloads,
        results and histories are not read."""

    def progress(self, job_id: int, attempt: int) -> Reported | None:
        """What the handler has reported of its progress in this attempt."""

    def having(self, queues: Sequence[int], wanted: Filter) -> list[int]:
        """Which of these queues have a job with the parent, the key or the beginning of a key that the filter names.
        The rest of the filter does not count. One statement reads all queues."""

    def reach(self, wanted: Filter, rows: int) -> int:
        """The id that is reached by looking at `rows` jobs, in each table that the filter is about, along the index
        that serves it (`Filter.walked`), in its order. 0 = there are no more jobs."""

    def count(self, wanted: Filter) -> int:
        """How many jobs match; counting stops at the filter's limit."""

    def waiting_types(self, queue: int, most: int = 1 << 62, *, todo: bool = False) -> list[str]:
        """The types, up to `most`, of jobs that can be claimed, whoever has their code. `todo`: only of jobs that wait
        for other code than their handler."""

    def depth(self, queue: int, types: Sequence[str], most: int) -> list[Depth]:
        """How many jobs there are in each phase, ready ones by type, for these types. Counting stops at `most`, and so
        does the search for the one that is due for longest: where the order is not by time, a later one may be."""

    def counts(self, queue: int, most: int, failed_since: int, ended_since: int) -> Counts:
        """Counts of a queue's jobs, for people. Each stops at `most`."""

    def ended(self, ids: Sequence[int]) -> list[Row]:
        """The rows of those of these jobs that are final. One statement reads all of them."""

    def prune(
        self, queue: int, before: EndPlace, limit: int, after: EndPlace = EARLIEST, job_type: str = "",
        code: str = "", tenant: str = "", keep: int | None = None,
    ) -> Pruned:  # fmt: skip
        """Look at up to `limit` final jobs, oldest first, from one place to another, and delete those of this job_type,
        code and tenant, as far as these are given. `keep`: stop before the last `keep` jobs; the result has the place
        where these begin, for the next step."""


class JournalStore(Protocol):
    """Jobs that come into the store from a journal."""

    def ingest(self, jobs: Sequence[tuple[int, New]], journal: str, before: str, after: str) -> bool:
        """Store jobs under the ids that their journal gave them, and move the store's place in that journal from
        `before` to `after`: so what is read twice is stored once. False, and nothing is stored, if the place is
        another. DuplicateKey, and nothing is stored, if a live job has the key of one."""

    def refusals(self, jobs: Sequence[tuple[int, New]]) -> dict[int, str]:
        """Which of these jobs `ingest` would refuse, taken one after the other, and why, by id. Nothing is stored."""


class EngineStore(Protocol):
    """The life of a job: what an engine's turn needs."""

    changes_at_once: int
    """How many changes one `turn` may be given, since it locks the keys of their jobs."""

    @property
    def waker(self) -> Waking:
        """What this process's engines sleep on. After a fork, or a move of the jobs, it is another one."""

    def stage(self, queue: int, phase: str, now: int, limit: int) -> int:
        """Make up to `limit` jobs ready: scheduled ones that are due, earliest first, or parked ones. Returns how
        many."""

    def turn(self, engine_id: int, changes: Sequence[Change], claims: Sequence[Claim], now: int) -> Turned:
        """Save what stopped and claim what is next, in one transaction. Without a live lease nothing is claimed."""

    def due(
        self, queue: int, phase: str, now: int, limit: int, types: Sequence[str] = (), windows: Sequence[str] = ()
    ) -> list[Row]:
        """Up to `limit` jobs of a phase about which an engine has to decide, earliest first: waiting ones whose
        deadline has passed; scheduled ones that were added in plain SQL, have no rank yet, and are not staged before
        they do; or ready ones of these types with one of these windows, which has closed."""

    def peek(self, queues: Sequence[tuple[int, tuple[str, ...]]], strategies: tuple[str, ...] = ()) -> list[Peek]:
        """What there is to do in each queue for an engine that has these types, and these retry strategies registered.
        One statement reads all queues."""

    def locked(self, queues: Sequence[int]) -> set[int]:
        """Which of these queues have tables that somebody has locked, or is about to lock, so that writers wait. The
        look itself waits for nothing."""

    def report(self, reports: Sequence[Report], now: int) -> set[int]:
        """Store progress, in place of what was reported of these jobs before. Returns the ids of the jobs that still
        have the token named. Neither the jobs nor their tokens change."""

    def tokens(self, ids: Sequence[int]) -> dict[int, int]:
        """The tokens of these jobs, as far as they are live. One statement reads all of them."""

    def schedules(self, queue: int, after: int = 0, names: Sequence[str] | None = None) -> list[Schedule]:
        """The cron schedules of a queue, by name: with a higher version than `after`, and of these names, if any are
        given."""

    def change_schedules(self, queue: int, changes: Sequence[ScheduleChange]) -> list[list[Stored] | None]:
        """Write schedules, each with the jobs of its ticks, in one transaction. Returns what became of those jobs; None
        for a schedule that somebody else has changed meanwhile, of which nothing is written."""


class LeaseStore(Protocol):
    """Engines, their leases, and the jobs they own."""

    def take_lease(self, seconds: float, label: str, serves: str = "{}", version: str = "", since: int = 0) -> int:
        """A new engine id, with a lease for this many seconds. `serves`, `version` and `since`: see `EngineSeen`."""

    def renew_lease(self, engine_id: int, seconds: float) -> Crew | None:
        """Renew a lease that is still alive, and count the engines that serve the same. None = it has expired, and
        cannot be renewed. With 0 seconds the lease ends."""

    def engines(self) -> list[EngineSeen]:
        """The engines that have a live lease."""

    def owned(self, queues: Sequence[int], engine_id: int | None, limit: int = 1 << 62) -> list[Row]:
        """Jobs that this engine owns, or, with None, an engine without a live lease: up to `limit` in each queue. One
        statement reads all queues."""


class AnswerStore(Protocol):
    """The inbox: answers that arrived, and the jobs they belong to."""

    def answer(
        self, answers: Sequence[NewAnswer], now: int, *, instead_of: int = 0, patient: bool = True
    ) -> list[Delivered]:
        """Keep up to a thousand answers that arrived and match them with their jobs, in one transaction. `instead_of`:
        an answer in the inbox that is delivered again, and replaced: NotFound, if it is gone; Conflict, if it has been
        used. Engines are not `patient`, because of their leases: they get StoreBusy instead of waiting for a lock."""

    def answers(self, wanted: AnswerFilter) -> list[Kept]:
        """Answers by filter, in the order in which they arrived. Those in the state "new" were written in plain SQL and
        nobody has looked at them: `answer` with `instead_of` does."""

    def count_answers(self, queue: int, tenant: str = "") -> dict[str, tuple[int, int]]:
        """The number of answers in each state, and how often these arrived in all: of one tenant, if it is named."""

    def unused_answers(self, queues: Sequence[int], most: int) -> dict[str, int]:
        """How many answers to jobs of these queues no job has used, by state. Counting stops at `most` for each queue
        and state. An answer that was kept for a job which ended without it may still count as buffered."""

    def drop_answer(self, answer_id: int) -> bool:
        """Delete an answer, unless a job has it and has not looked at it yet. Returns whether it is gone."""


class RuleStore(Protocol):
    """What may start: the rules of a queue, what its jobs hold of limits, and its code throttler's ticket."""

    def rules(self, queue: int, *, patient: bool = True) -> Rules:
        """The queue's rules as they are now. Not `patient`: StoreBusy if another thread's work is in the way."""

    def limits(self, queue: int) -> Limits:
        """The queue's rules, and what its jobs hold of its limits."""

    def change_rules(self, queue: int, change: Callable[[Rules], Rules]) -> Rules:
        """Read, change and write the rules, which apply to every claim from now on. `change` is pure."""

    def ask(
        self, engine_id: int, claim: Claim, after: tuple[str, int], seconds: float, page: int, now: int
    ) -> Asked | None:
        """Take the queue's ticket for this many seconds, and read what its throttler is to be asked about: the first
        ready jobs, and the parked ones after a place. None while another engine has the ticket. With 0 seconds it takes
        no ticket and changes nothing."""

    def would_start(self, claim: Claim, now: int, rules: Rules | None = None) -> list[Head]:
        """The jobs that a claim could take now if a throttler had no say, in order: by these rules, or by the queue's
        own. Nothing is changed."""

    def drop_ticket(self, queue: int, ticket: int, note: str) -> None:
        """Give a ticket back unused, and say why."""


class TenantStore(Protocol):
    """Lanes and tenants: for the daemon, whose engine goes round lanes by a plan of its own."""

    def tenants(self, queue: int, before: str, most: int) -> list[str]:
        """Up to `most` tenants before this one that have ready jobs, the last first. Jobs without a tenant do not
        count, here and in `lanes`."""

    def lanes(self, queue: int, before: Mapping[str, str], each: int, count: int) -> list[WaitingLane]:
        """Lanes with ready jobs, of each of these tenants, before a place, the last lane first: up to `each` per
        tenant, with their jobs counted up to `count`. All jobs in a tenant's lane have the same type."""

    def usage(
        self, queue: int, tenants: Sequence[str] | None = None, *, of: Literal["jobs", "answers"] = "jobs"
    ) -> dict[str, Usage]:
        """What each of these tenants, or every one, has in a queue: its live jobs; or the answers that no job has
        taken, because they are early, late, contradicting or unreadable. It reads every row that it counts, so ask
        rarely."""

    def census(
        self, queue: int, tenant: str, table: Literal["live", "final", "sizes"], after: int, rows: int
    ) -> tuple[list[Counted], int]:
        """How many jobs of a tenant there are, by type, state and phase, among the next `rows` jobs after an id; and
        the id after which there are more, 0 = none. A job that was only given back counts as initial. "sizes": final
        jobs, with their size, for which their rows are read."""


class ActivityStore(Protocol):
    """Counters of what has happened, by minute, hour and day: written by the verbs that change jobs."""

    def activity(
        self, queues: Sequence[int], grain: int, since: int, until: int, by: Literal["", "queue", "job_type"] = ""
    ) -> list[Activity]:
        """What has happened in these queues, from the period that contains `since` up to `until`, by periods of `grain`
        seconds (whole minutes), in order; empty periods are left out. All queues are added up, unless it is asked for
        `by` queue, or by queue and job type. Old minutes are folded into hours, and hours into days: these count where
        they begin. Invalid, if there are more than 2,000 periods."""

    def maintain(self, queues: Sequence[int], now: int, limit: int) -> Maintained:
        """Do one step of maintenance, each part in transactions of its own and up to `limit`, in these queues: mark
        answers as late that were kept for jobs which ended without them; delete the progress of jobs that have ended;
        fold old counters, minutes into hours and those into days, and delete very old ones. And in any queue: delete
        answers that need not be kept."""


class NoteStore(Protocol):
    """Notes that programs leave for each other."""

    def notes(self, kind: str, start: str = "", *, exact: bool = False) -> dict[str, str]:
        """The notes of one kind, by name. `start`: only those whose names begin like this or, with `exact`, are
        this."""

    def change_note(self, kind: str, name: str, change: Callable[[str], str]) -> str:
        """Read, change and write a note. One that does not exist is "". `change` is pure, and may be called again."""


class AuditStore(Protocol):
    """The audit log: what people did by hand, and what was refused to them."""

    def record(self, entry: AuditEntry) -> None:
        """Add an entry, which gets a number of its own, and then delete some that are more than 400 days older."""

    def audit_log(self, before: int, limit: int) -> list[AuditEntry]:
        """Up to `limit` entries, newest first; `before`: only those with lower numbers, unless it is 0."""


class Store(
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
