"""`Job`: a job as its handler and its owner see it. The row underneath never changes; `edits_of` has what a retry
handler changed in its copy."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, Unpack

import msgspec

from hipq.errors import Invalid
from hipq.job import names, payload, windows
from hipq.job.fault import Fault
from hipq.job.history import entries_of
from hipq.job.meta import to_show, traceparent_in
from hipq.job.model import Brief, Row, column
from hipq.job.progress import JobProgress, Reported
from hipq.job.run_result import Edits
from hipq.job.states import NONE
from hipq.job.typevars import T
from hipq.job.units import Number, number
from hipq.job.when import moment, to_datetime

if TYPE_CHECKING:
    from hipq.job.options import JobOptions
    from hipq.job.spec import Spec

Chain = Callable[[Any, Any, dict[str, Any]], None]


class Wanted(Protocol):
    """The run of a handler, as far as the job in it needs it."""

    @property
    def abandoned(self) -> bool: ...

    @property
    def reported(self) -> Reported | None:
        """The last progress that was reported."""

    def traceparent(self) -> str:
        """The traceparent of the current span; "" = the run is not traced."""

    def report(self, reported: Reported) -> None:
        """Report progress."""

    def sends(self, where: str) -> None:
        """Note that a request is about to be sent."""

    def heartbeat(self) -> None:
        """Send a heartbeat."""


class Looking(Protocol):
    """Reads what a job from a list lacks."""

    def row(self, job_id: int) -> Row:
        """The whole row, with its payload, which may be large."""

    def progress(self, row: Brief) -> Reported | None:
        """The progress that its handler has reported."""


_UNREAD: Any = object()


class Job(Generic[T]):
    """One job. `Job[Charge]` as a handler's annotation types its data, and is checked when the job is added."""

    __slots__ = ("_chain", "_data", "_edits", "_look", "_row", "_run", "_spec", "_whole")

    def __init__(
        self,
        row: Brief,
        spec: Spec | None = None,
        chain: Chain | None = None,
        run: Wanted | None = None,
        look: Looking | None = None,
        is_draft: bool = False,
    ) -> None:
        """`look` reads what is not in `row`, when it is asked for. `is_draft`: it is the copy a retry handler may
        change."""
        self._row = row
        self._whole = row if isinstance(row, Row) else None
        self._look = look
        self._spec = spec
        self._chain = chain
        self._run = run
        self._data: Any = _UNREAD
        self._edits: dict[str, Any] | None = {} if is_draft else None

    @property
    def _carried(self) -> Row:
        """The row with its payload, result and history, as they are when the first of them is asked for."""
        if self._whole is None:
            assert self._look is not None
            self._whole = self._look.row(self._row.id)
        return self._whole

    @property
    def cancelled(self) -> bool:
        """Inside a handler: whether nobody waits for its result any more. The job was cancelled, took longer than it
        may, or was taken by another engine. Long work in a thread should look at this now and then, and end if it is
        true; a task is cancelled, and a process gets a signal."""
        return self._run is not None and self._run.abandoned

    @property
    def progress(self) -> JobProgress:
        """How far the job has come in its present attempt, or its last one: `fraction`, `message` and `at`, read when
        this is asked for. Its handler reports it: `job.progress(0.4, "page 4 of 10")`. Nothing is kept once the job has
        ended."""
        if self._run is not None:
            return JobProgress(self._run.reported, self._run.report)
        return JobProgress(self._look.progress(self._row) if self._look else None)

    def heartbeat(self) -> None:
        """Inside a handler: say that it is at work. Its `run_timeout` counts from now; its `timeout` does not
        change."""
        if self._run is None:
            raise Invalid("job.heartbeat() works inside a handler only")
        self._run.heartbeat()

    def enqueue(
        self, job_type: Any, data: Any = None, *, key: str | None = None, **options: Unpack[JobOptions]
    ) -> None:
        """Add a job together with this one's outcome: both are saved, or neither.

        `job_type` is a job type, or the name of one in this job's queue. A live job with the same key is left alone.
        """
        if self._chain is None:
            raise Invalid("job.enqueue works inside a handler only; elsewhere use the job type's enqueue")
        self._chain(job_type, data, {"key": key, **options})

    @property
    def data(self) -> T:
        if self._data is _UNREAD:  # when it is asked for: a retry handler need not be able to read it
            text = self._carried.job_data
            try:
                self._data = self._spec.load(text) if self._spec else payload.decode(text)
            except msgspec.ValidationError:
                raise
            except msgspec.DecodeError as error:  # another program has stored it
                raise msgspec.DecodeError(f"its data is not JSON: {error}") from None
            if self._edits is not None:
                self._edits["read"] = _text(self._data, self._spec)
        found: T = self._data
        return found

    @data.setter
    def data(self, value: T) -> None:
        self._draft()
        self._data = value

    def _draft(self) -> dict[str, Any]:
        """Where changes are noted, if this is a copy that may be changed."""
        if self._edits is None:
            raise Invalid("only a retry handler's copy of a job can be changed; elsewhere use app.jobs.change")
        return self._edits

    id = column("id", int)
    key = column("job_key", str)
    wait_key = column("wait_key", str)
    """The key of its wait (`Wait(key=...)`), under which answers find it as under its own; "" if that has none."""
    job_type = column("job_type", str)
    job_key, job_data = key, data
    type = job_type

    state = column("state", str)
    phase = column("phase", str)
    attempt = column("attempt", int)
    failures = column("failures", int)
    error = column("error", str)
    """NONE, or what went wrong, as text or JSON."""

    @property
    def fault(self) -> Fault | None:
        """What went wrong last. Of a job whose answer handler is called again: why."""
        return self.cause if self._row.error == NONE else Fault.load(self._row.error)

    @property
    def cause(self) -> Fault | None:
        """In a cancel handler: why the job is given up. Its `kind` is "timeout" or "cancelled". Of a job that waits for
        its answer handler to be called again: what that raised."""
        from hipq.job import waiting  # hardly anybody asks

        return waiting.load(self._row.wait).cause if self._row.wait else None

    def callback_url(self, valid: float | timedelta | None = None) -> str:
        """A URL by which whoever has it can bring the answer to this job, and to no other: by a POST of the answer. It
        is signed, names this attempt, and is good until a while after the job's end, or its time-out; with `valid`, for
        so many seconds from now. See `hipq.callbacks`."""
        if self._spec is None or self._spec.callback is None:
            raise Invalid("a job has a callback URL in its handlers only")
        return self._spec.callback(self._carried, valid)

    @property
    def result(self) -> Any:
        return payload.decode(self._carried.result) if self._carried.result else None

    code = column("code", str)
    exitcode = column("exitcode", int)

    @property
    def history(self) -> list[dict[str, Any]]:
        """What happened to the job, oldest first; `at` and `scheduled` are datetimes. An entry that another program
        wrote, and that cannot be read, is called `unreadable`."""
        return [
            {name: to_datetime(value) if name in ("at", "scheduled") else value for name, value in entry.items()}
            for entry in entries_of(self._carried.history)
        ]

    @property
    def traceparent(self) -> str:
        """The header `traceparent` for a request; "" = there is none. Inside a handler that is traced it names the
        current span, else the one in which the job was added."""
        return (self._run.traceparent() if self._run is not None else "") or traceparent_in(self._carried.meta)

    @property
    def retry(self) -> dict[str, Any] | None:
        """The retry strategy it was added with: its name and its parameters. None = what its type says."""
        return to_show(self._carried.meta).retry

    @property
    def then(self) -> str:
        """In the daemon: the type of the job that is added with its result, once it is ok; "" = none."""
        return to_show(self._carried.meta).then

    @property
    def priority(self) -> int:
        changed: int = self._row.priority if self._edits is None else self._edits.get("priority", self._row.priority)
        return changed

    @priority.setter
    def priority(self, value: int) -> None:
        self._draft()["priority"] = names.priority(value)

    @property
    def throttle_factor(self) -> Number:
        """How many units it takes where its queue has limits."""
        return number(self._row.throttle_factor)

    timeout = column("timeout", float)
    tenant = column("tenant", str)
    lane = column("lane", str)

    @property
    def time_windows(self) -> list[Any]:
        """The windows in which it may start. None = at any time, or another program wrote what cannot be read."""
        try:
            windows.load(self._row.time_windows)
        except Invalid:
            return []
        found: list[Any] = payload.decode(self._row.time_windows)
        return found

    owner = column("owner", int)
    crashes = column("crashes", int)

    @property
    def scheduled_run_time(self) -> datetime:
        time = self._row.scheduled_run_time
        return to_datetime(time if self._edits is None else self._edits.get("at", time))

    @scheduled_run_time.setter
    def scheduled_run_time(self, value: datetime) -> None:
        self._draft()["at"] = moment(value, "scheduled_run_time")

    @property
    def deadline(self) -> datetime | None:
        """When its time-out is over, while it runs."""
        return to_datetime(self._row.deadline) if self._row.deadline else None

    @property
    def create_time(self) -> datetime:
        return to_datetime(self._row.create_time)

    @property
    def update_time(self) -> datetime:
        return to_datetime(self._row.update_time)

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.type} {self.key!r} {self.state}/{self.phase} attempt {self.attempt}>"


def sends(job: Job[Any], where: str) -> None:
    """Note in the history that the handler is about to send a request there."""
    if job._run is not None:
        job._run.sends(where)


def edits_of(job: Job[Any]) -> Edits | None:
    """What a retry handler changed in its copy, by assigning or in place; None = nothing. Raises Invalid if its data
    cannot be stored or does not fit its type."""
    noted = job._edits or {}
    data, before = None, noted.get("read", job._carried.job_data)
    if job._data is not _UNREAD and (before or _text(job._data, job._spec)):
        write = job._spec.dump if job._spec else payload.encode
        text = write(job._data, "the data that the retry handler left")
        if text != before:
            data = text
    found = Edits(data, noted.get("priority"), noted.get("at"))
    return None if found == Edits() else found


def _text(data: Any, spec: Spec | None) -> str:
    """Data as it would be stored; "" if it cannot be, as some that another program stored."""
    try:
        return spec.dump(data) if spec else payload.encode(data)
    except Invalid:
        return ""
