"""What `hipq doctor` is told of a database: facts, read without changing anything, judged elsewhere.

Reading is bounded: heads of indexes, counts that stop at a limit, what the database has counted anyway. A part that
cannot be read (an index is missing, a right is lacking) is reported as unread, and the rest is read all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hipq.job.model import Row
from hipq.stores.values import EngineSeen, Limits, QueueTables

COUNTED: Final = 1000
"""Where counting stops."""
SQLITE: Final = "SQLite"
POSTGRESQL: Final = "PostgreSQL"
MARIADB: Final = "MariaDB"
MYSQL: Final = "MySQL"


class Unread(NamedTuple):
    """A part that could not be read, and why."""

    check: str
    queue: str
    reason: str


class Sample(NamedTuple):
    """The first of some jobs of one kind, since when it is of that kind, and how many they are, up to COUNTED."""

    row: Row
    since: int
    jobs: int


class EngineHealth(NamedTuple):
    seen: EngineSeen
    alive: bool
    lease_left: float | None
    """Seconds, below 0 if it is over; None = it is of an earlier boot of this machine."""


class Part(NamedTuple):
    """A table, an index or a check: as the migrations make it, or as it is there."""

    kind: str
    name: str
    table: str
    columns: tuple[str, ...] = ()
    unique: bool = False
    partial: bool = False
    valid: bool = True
    sql: str = ""


class Outstanding(NamedTuple):
    """A job that waits for its answer, and may do so a while yet."""

    id: int
    job_type: str
    wait: str
    """Its column: since when it waits, and until when."""


class UnclaimedAnswers(NamedTuple):
    """Answers that belong to no job, and that no job which is added from now on would take."""

    queue: int
    answers: int
    oldest: int
    first_forgotten: int
    """When the first of them is deleted."""


class Level(NamedTuple):
    """The schema's number, the oldest program it accepts, and this program's."""

    found: int
    accepts: int
    mine: int


@dataclass(slots=True)
class QueueHealth:
    tables: QueueTables
    level: int
    """The number of the last migration its tables have had."""
    limits: Limits | None = None
    heavy: list[Row] = field(default_factory=list)
    """The jobs which, as claims remember, others pass."""
    ready: list[Sample] = field(default_factory=list)
    """The head of each claim group, up to some of each type."""
    parked: list[Sample] = field(default_factory=list)
    scheduled: list[Sample] = field(default_factory=list)
    """Due, and not made ready yet."""
    not_runnable: list[Sample] = field(default_factory=list)
    """That no daemon could run the last time, by tenant and type: without a handler, say."""
    waiting: list[Sample] = field(default_factory=list)
    """Past their deadline."""
    outstanding: list[Outstanding] = field(default_factory=list)
    """Those whose deadline comes next, up to COUNTED."""
    usual: dict[str, float] = field(default_factory=dict)
    """Seconds within which 95 % of the answers of the last day came, by job type."""
    unread: list[Sample] = field(default_factory=list)
    """Whose answer handler has failed three times or more with their answer, by type."""
    left: list[Sample] = field(default_factory=list)
    """For other code than their handler, by type."""
    orphans: list[Sample] = field(default_factory=list)
    """In the hands of an engine that is not alive, by engine."""
    latest: int = 0
    """The latest moment at which a job of this queue was written, as far as its newest rows tell."""
    crons: dict[str, int] = field(default_factory=dict)
    """The last tick of each schedule that is not paused, or when it began."""

    @property
    def name(self) -> str:
        return f"{self.tables.app}.{self.tables.name}"


class FileHealth(NamedTuple):
    """A SQLite file and where it is."""

    path: str
    size: int
    log_size: int
    unwritable: tuple[str, ...]
    """Of the file, what SQLite and hipq have beside it, and its folder: those that this user may not write."""
    file_system: str
    disk_free: int
    disk_size: int
    held_by: str = ""
    """Who holds the lock file and did not let go of it."""
    moving: bool = False
    """Its jobs are being moved elsewhere."""
    exposed: tuple[tuple[str, str], ...] = ()
    """Of the file and what is beside it: those that more users may read or write than should, each with its mode."""


class PagesHealth(NamedTuple):
    """What a SQLite file says of itself."""

    journal_mode: str
    page_size: int
    pages: int
    free_pages: int
    damage: tuple[str, ...] | None = None
    """What a look at all pages found; None = nobody has looked."""


class TableHealth(NamedTuple):
    """What a server's statistics say of a table. MariaDB's say nothing of dead rows."""

    table: str
    live: int
    dead: int
    size: int
    vacuumed: float | None
    """Seconds since it was vacuumed; None = not since the statistics began."""
    autovacuum: bool


class Holdback(NamedTuple):
    """What keeps a server from removing dead rows, or old log."""

    kind: str
    """transaction, prepared or slot"""
    name: str
    """Its pid, its gid, or the slot's name."""
    who: str
    age: float | None
    """Seconds it has been there; slots do not say."""
    transactions: int
    """How many transactions ago what it holds back began."""
    log_size: int = 0
    """Bytes of log it keeps."""
    active: bool = True
    blocks: int = 0
    """How many others wait for its locks at this moment."""
    end: str = ""
    """The SQL that ends it, where that is not PostgreSQL's."""


class ServerHealth(NamedTuple):
    """A server."""

    standby: bool
    """It takes no writes."""
    settings: dict[str, str]
    connections: int
    max_connections: int
    """As far as ordinary users may use them."""
    sees_all: bool
    """Whether this user is shown what others do."""
    denied: tuple[str, ...] = ()
    """What this user may not do with hipq's tables: `INSERT on shop_orders`."""


@dataclass(slots=True)
class Health:
    kind: str
    version: tuple[int, ...] = ()
    error: str = ""
    """Why nothing could be read; "" = it could."""
    here: int = 0
    """What this machine's calendar says;"""
    now: int = 0
    """and the database's;"""
    uncertain: float = 0.0
    """by how many seconds the two may differ only because it took so long to ask."""
    moved: str = ""
    """Where its jobs have moved to, with a password if that has one; "" = they are here."""
    incoming: bool = False
    """It has a copy of jobs that are still elsewhere: a move to here was not finished."""
    noted_place: dict[str, str] = field(default_factory=dict)
    """Where it was when it was made, or when `hipq restored` ran last;"""
    place: dict[str, str] = field(default_factory=dict)
    """and where it is. What either does not have was not known then, or is not now."""
    level: Level | None = None
    engines: list[EngineHealth] = field(default_factory=list)
    queues: list[QueueHealth] = field(default_factory=list)
    expected: list[Part] = field(default_factory=list)
    found: list[Part] = field(default_factory=list)
    answers: list[UnclaimedAnswers] = field(default_factory=list)
    listeners: dict[str, str] = field(default_factory=dict)
    """What listeners report, by instance and stream; see `hipq.answers.reports`."""
    file: FileHealth | None = None
    pages: PagesHealth | None = None
    server: ServerHealth | None = None
    tables: list[TableHealth] = field(default_factory=list)
    holdbacks: list[Holdback] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)

    @property
    def alive(self) -> list[EngineSeen]:
        return [engine.seen for engine in self.engines if engine.alive]
