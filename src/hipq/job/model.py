"""What is stored. `Row` is a job as the database has it; `New` is one about to be added. Pure: no I/O, no clock.

Moments are whole microseconds since 1970 (UTC), in the database and in the core; datetimes live at the public edge.
Durations are seconds. What a job takes of limits (`throttle_factor`, `held`) is in whole thousandths of a unit.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final, TypeVar, cast

import msgspec

from hipq.job.event_names import LEFT_OUT
from hipq.job.fault import FAILURES, Fault
from hipq.job.meta import PLAIN
from hipq.job.states import INITIAL, NONE
from hipq.job.units import UNIT

V = TypeVar("V")
SUSPECT: Final = 1
ALONE: Final = 2
"""Values of `crashes`; each crash that is the job's own adds one to the second."""
QUEUE_BITS: Final = 16
"""The low bits of an id are the number of its queue, so an id finds its tables without a search."""


def queue_of(job_id: int) -> int:
    return job_id & ((1 << QUEUE_BITS) - 1)


def sequence_of(job_id: int) -> int:
    return job_id >> QUEUE_BITS


def numbered(sequence: int, queue: int) -> int:
    return sequence << QUEUE_BITS | queue


class New(msgspec.Struct, frozen=True, gc=False):
    """A job to be stored. `job_key` "" asks for its id as key."""

    queue: int
    job_type: str
    job_key: str
    job_data: str
    phase: str
    rank: str
    scheduled_run_time: int
    create_time: int
    priority: int = 100
    throttle_factor: int = UNIT
    timeout: float = 86_400.0
    lane: str = ""
    tenant: str = ""
    time_windows: str = "[]"
    meta: str = PLAIN
    id: int = 0
    """The id that was reserved for the job; 0 = the store gives it one."""


class Brief(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A job as lists have it: without what it carries, what came of that, and what happened to it. Those may be
    megabytes each, so a list does not read them."""

    id: int
    tenant: str
    lane: str
    job_type: str
    job_key: str
    state: str
    phase: str
    rank: str
    priority: int
    throttle_factor: int
    held: int
    time_windows: str
    timeout: float
    scheduled_run_time: int
    deadline: int
    wait: str
    wait_key: str
    attempt: int
    failures: int
    crashes: int
    owner: int
    token: int
    error: str
    code: str
    exitcode: int
    create_time: int
    update_time: int

    @property
    def answer_keys(self) -> tuple[str, ...]:
        """The keys under which answers find the job: its own, which never changes, and that of its wait, if it has
        one."""
        return (self.job_key, self.wait_key) if self.wait_key else (self.job_key,)


class Row(Brief, array_like=True, frozen=True, gc=False):
    """A job as stored. Frozen: a change is another Row (`hipq.job.transitions`)."""

    job_data: str
    result: str
    meta: str
    history: str

    @property
    def suspect(self) -> bool:
        """Whether the job was executing when its engine died. Until a run has come to its end, it runs in a child
        process that other jobs use before and after it."""
        return self.crashes >= SUSPECT

    @property
    def alone(self) -> bool:
        """Whether a child process died while it ran the job. Until a run has come to its end, the job runs in a process
        that no other job uses."""
        return self.crashes >= ALONE

    @property
    def crashes_counted(self) -> int:
        """How often the job has killed a process in which it was alone, since a run last came to its end."""
        return max(self.crashes - ALONE, 0)


COLUMNS: Final = Row.__struct_fields__
LISTED: Final = Brief.__struct_fields__
UNCHANGING: Final = (
    "id", "tenant", "lane", "job_type", "job_key", "create_time", "time_windows", "timeout", "throttle_factor", "meta",
)  # fmt: skip
"""Columns that no transition changes: a settled row is written without them."""


class Ran(msgspec.Struct, frozen=True):
    """The run whose outcome a change saves, as far as the row does not store it."""

    seconds: float
    fault: Fault | None
    """Why the run did not succeed, if it did not."""
    raised: BaseException | None = None
    """The exception that the handler raised, if it ran in this process."""

    @property
    def failed(self) -> bool:
        """Whether code of the job raised, took too long or crashed. Failed and Retry do not count."""
        return self.fault is not None and self.fault.kind in FAILURES


class Change(msgspec.Struct, frozen=True, gc=False):
    """One write of a live job: it happens only if the row still has `before.token`.

    `children` are jobs its handler enqueued: they are stored with it or not at all.
    """

    before: Row
    after: Row
    children: tuple[New, ...] = ()
    event: str = ""
    """The name under which the change is announced."""
    answer: int = 0
    """The answer that the job has used up; 0 = none."""
    seeking: Row | None = None
    """The row with which the job looks for its answer in the inbox, if not `after`: of a failed job, the row before the
    consequences of the failure."""
    unused: str = ""
    """Why the job could not use the answer, which stays in the inbox, for somebody to replay."""
    ran: Ran | None = None
    """The run with this outcome, if there was one."""


HISTORY_LIMIT: Final = 40
"""The most entries kept on a row: the first few and the latest, with a note of how many were left out."""


def remember(history: str, at: int, event: str, **details: Any) -> str:
    """The history with one more entry, within its bound. The entry is not before the last one, which another process
    may have written, by a clock that is ahead. Names of events need no escaping."""
    more = f",{msgspec.json.encode(details).decode()[1:]}" if details else "}"
    if history == "[]":
        return f'[{{"at":{at},"event":"{event}"{more}]'
    start = history.rfind('{"at":') + 6  # no text in an entry has this: its quotes would be escaped
    at = max(at, int(history[start : history.index(",", start)]))
    history = f'{history[:-1]},{{"at":{at},"event":"{event}"{more}]'
    return history if history.count('"at":') <= HISTORY_LIMIT else _shortened(history)


def _shortened(history: str) -> str:
    entries: list[dict[str, Any]] = msgspec.json.decode(history)
    if len(entries) <= HISTORY_LIMIT:  # an error's text may contain "at": too
        return history
    dropped = sum(entry.get("count", 0) for entry in entries if entry["event"] == LEFT_OUT)
    entries = [entry for entry in entries if entry["event"] != LEFT_OUT]
    keep = HISTORY_LIMIT // 2
    head, cut, tail = entries[:4], entries[4:-keep], entries[-keep:]
    note = {"at": cut[-1]["at"], "event": LEFT_OUT, "count": dropped + len(cut)}
    return msgspec.json.encode([*head, note, *tail]).decode()


def column(name: str, _kind: type[V]) -> V:
    """A column of `_row` as a read-only attribute of the object that users see."""
    return cast(V, property(attrgetter(f"_row.{name}")))


def blank(new: New, job_id: int) -> Row:
    """The row a new job becomes."""
    return Row(
        id=job_id, tenant=new.tenant, lane=new.lane, job_type=new.job_type, job_key=new.job_key or str(job_id),
        job_data=new.job_data, state=INITIAL, phase=new.phase, rank=new.rank, priority=new.priority,
        throttle_factor=new.throttle_factor, held=0, time_windows=new.time_windows, timeout=new.timeout,
        scheduled_run_time=new.scheduled_run_time, deadline=0, wait="", wait_key="", attempt=0, failures=0,
        crashes=0, owner=0, token=0, error=NONE, code=NONE, exitcode=0, result="", meta=new.meta, history="[]",
        create_time=new.create_time, update_time=new.create_time,
    )  # fmt: skip
