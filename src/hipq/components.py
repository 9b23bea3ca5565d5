"""The components of the daemon's first design with the verbs it gave them: journal, store, state, scheduler, results
and runner.

Each is a view of what the daemon does anyway, for programs that were written for those verbs, and for schedulers and
runners that are tried out one by one. A jobtype is `tenant-jobtype` here, and ids are strings.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from hipq.daemon import payloads
from hipq.daemon.census import Census
from hipq.daemon.daemon import Daemon, Options
from hipq.daemon.job_factory import ORDER, lane
from hipq.daemon.scheduler import FairShare
from hipq.daemon.tenancy.tenants import jobtype_name, tenant_name
from hipq.engine.lanes import Guarded
from hipq.errors import Invalid, shown
from hipq.job import transitions
from hipq.job.event_names import JobEvent
from hipq.job.fault import Fault, FaultKind
from hipq.job.model import Change, Row, numbered
from hipq.job.run_result import Rerun
from hipq.job.states import FINAL
from hipq.job.when import to_datetime
from hipq.journal import Batch, Reserved
from hipq.limits.tenants import BETWEEN
from hipq.sandbox import Handler
from hipq.stores.claims import Claim
from hipq.stores.filters import Filter

__all__ = ["Components", "Daemon", "Journal", "Options", "Result", "Results", "Runner", "Scheduler", "State", "Store"]

HOW: Final = ("retry", "unget", "archive")
RETRY_SECONDS: Final = 60.0
LEASE_SECONDS: Final = 10.0
STOPPED: Final = 1000
"""Jobs that stopped which a runner remembers."""
ENDS: Final = (
    JobEvent.OK, JobEvent.FAILED, JobEvent.ERROR, JobEvent.AGAIN, JobEvent.GAVE_UP, JobEvent.CRASHED,
    JobEvent.LIFETIME_OVER,
)  # fmt: skip
PAGE: Final = 1000
Found = TypeVar("Found")
Done = Callable[[Exception | None], None]
Callback = Callable[[Exception | None, Any], None] | None
"""Called once: with None and what was found, or with what went wrong and None."""


class Components:
    """The components of one daemon. If the daemon was started, its engine works beside them."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.journal = Journal(daemon)
        self.state = State(daemon)
        self.store = Store(daemon, self.state)
        self.scheduler = Scheduler(daemon.scheduler)
        self.results = Results(daemon)
        self.runner = Runner(daemon)


class Journal:
    """Jobs that were added are on disk here before the store has them. Whoever reads the journal must be the only
    reader: a daemon that was started takes in what is there by itself."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._journal = daemon.journal
        self.wsync = daemon.journal.wsync
        """Wait until what was written before is on disk, and raise what went wrong with it; or tell a callback so."""
        self.rsync = daemon.journal.rsync
        """The lines of a token are in the store: the journal forgets them."""
        self.ingest = daemon.ingest
        """Store the jobs that are in the journal, as a daemon does that was started; how many there were."""

    def write(self, jobtype: str, lines: Iterable[str | bytes], callback: Done | None = None) -> list[str]:
        """Add a job for each line, which ends with a newline; the ids that they will have. `callback` is called from
        another thread: with None when they are on disk, else with what went wrong. Without one, `wsync` says that."""
        tenant, name = _pair(jobtype)
        some = tuple(_payload(line) for line in lines)
        if not some:
            return []
        daemon = self._daemon
        first = daemon.ids.take(tenant, len(some))
        self._journal.write(Batch(tenant, name, first, some, daemon.jobs.now()), callback or (lambda _error: None))
        return [str(numbered(first + n, daemon.queue.number)) for n in range(len(some))]

    def read_reserve(self, line_count: int, read_timeout_ms: float) -> Reserved | None:
        """The right to read about so many lines, whole batches; None if there are none. Lines that are not `rsync`ed in
        so many milliseconds go back."""
        return self._journal.read_reserve(line_count, read_timeout_ms / 1000)

    def read(self, token: Reserved, callback: Callback = None) -> list[bytes] | None:
        """The lines that were reserved, in the order they were written: `timestamp|tenant-jobtype|payload` and a
        newline. They are returned, or told to the callback."""
        return _told(callback, lambda: [line for batch in self._journal.read(token) for line in _lines(batch)])


class State:
    """The state that all daemons of a store share: who they are, and how many jobs there are."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._store = daemon.store
        self.sysid = 0
        """The sysid that was reserved last, under which `Store` locks jobs; 0 = none."""

    def reserve_sysid(self, tempid: str, callback: Callback = None, *, seconds: float = LEASE_SECONDS) -> int | None:
        """A sysid that nobody else has, for so long; `tempid` is what people see it by."""

        def reserve() -> int:
            self.sysid = self._store.take_lease(seconds, tempid)
            return self.sysid

        return _told(callback, reserve)

    def renew_sysid(self, sysid: int, callback: Callback = None, *, seconds: float = LEASE_SECONDS) -> bool | None:
        """False: the lease is over, and the sysid's jobs are somebody else's."""
        return _told(callback, lambda: self._store.renew_lease(sysid, seconds) is not None)

    def release_sysid(self, sysid: int, callback: Callback = None) -> None:
        """The jobs that are still locked by this sysid run again elsewhere."""

        def release() -> None:
            self._store.renew_lease(sysid, 0)

        _told(callback, release)

    def jobs(self, tenant: str) -> dict[str, Counter[str]]:
        """How many jobs a tenant has, by jobtype: waiting, scheduled, running, retrying, waiting_for_answer, done. The
        first 100,000 that live, and that are done, are counted."""
        census = Census(self._store, self._daemon.queue.number, tenant)
        while census.step():
            pass
        return {_jobtype_of(lane(tenant, name)): found for name, found in census.types.items()}


class Store:
    """Tasks, and jobs until they are done. Jobs are locked by the sysid that `State.reserve_sysid` took last."""

    def __init__(self, daemon: Daemon, state: State) -> None:
        self._store = daemon.store
        self._queue = daemon.queue.number
        self._jobs = daemon.jobs
        self._handlers = daemon.handlers
        self._state = state
        self._held: dict[str, Row] = {}

    def set_handler(self, jobtype: str, lang: str, body: str) -> Handler:
        """Define the task that will process the payloads of a jobtype."""
        return self._handlers.set(*_pair(jobtype), lang=lang, body=body)

    def get_handler(self, jobtype: str) -> Handler | None:
        return self._handlers.get(*_pair(jobtype))

    def delete_handler(self, jobtype: str) -> None:
        """Jobs without a handler are retried until they time out."""
        self._handlers.delete(*_pair(jobtype))

    def get_waiting_jobtypes(self) -> tuple[list[str], dict[str, int]]:
        """The jobtypes of which jobs can run now, and how many jobs there are of each (up to a thousand)."""
        counts = {_jobtype_of(one.lane): one.jobs for one in self._jobs.lanes()}
        return list(counts), counts

    def get_waiting_jobs(self, jobtype: str, limit: int) -> list[dict[str, Any]]:
        """Jobs that can run now, locked from here on: they come back when they are released, or when the lease of the
        sysid is over. `dt` is when their run times out."""
        claim = Claim(self._queue, (_pair(jobtype)[1],), limit, lane=_lane_of(jobtype))
        won = self._store.turn(self._state.sysid, [], [claim], self._store.now()).won
        self._held |= {str(row.id): row for row in won}
        return [self._jobs.seen(row) for row in won]

    def release_jobs(self, ids: Iterable[str], how: str) -> int:
        """`retry`: they run again after a minute. `unget`: they run again at once. `archive`: they are done, `dt` is a
        thousand years later and the lock is `__done`. How many of them were still locked by this sysid."""
        if how not in HOW:
            raise Invalid(f"jobs are released by {', '.join(HOW)}, not {how!r:.40}")
        now = self._store.now()
        rows = [self._held.pop(job_id) for job_id in ids if job_id in self._held]
        changes = [Change(row, _released(row, how, now), (), how) for row in rows]
        lost = self._store.turn(self._state.sysid, changes, [], now).lost if changes else frozenset[int]()
        self._store.waker.notify()
        return len(changes) - len(lost)


class Scheduler:
    """Says which jobtype runs next. A daemon's own scheduler, or one that stands alone: tenants get shares by weight,
    the jobtypes of a tenant take turns."""

    def __init__(
        self, scheduler: FairShare | Guarded | None = None, weight: Callable[[str], float] = lambda _tenant: 1.0
    ) -> None:
        self._scheduler = scheduler or FairShare(weight)

    def select_jobtype_to_run(self, jobtypes: Sequence[str], jobcounts: Mapping[str, int] | None = None) -> str | None:
        """The one of these jobtypes, of which jobs wait, that is to run next; None if there are none. `jobcounts` are
        what is known of the number of jobs of each."""
        counts = {_lane_of(name): count for name, count in (jobcounts or {}).items()}
        chosen = self._scheduler.select_jobtype_to_run(list(map(_lane_of, jobtypes)), counts)
        return None if chosen is None else _jobtype_of(chosen)

    def jobs_started(self, jobtype: str, count: int) -> None:
        """A batch of so many jobs started to run."""
        self._scheduler.jobs_started(_lane_of(jobtype), count)

    def jobs_stopped(self, jobtype: str, count: int) -> None:
        """So many jobs run no more, whatever became of them."""
        self._scheduler.jobs_stopped(_lane_of(jobtype), count)

    def contexts_warm(self, jobtypes: Sequence[str]) -> None:
        """A runner's hint: it has contexts at hand in which these jobtypes would start at once."""
        self._scheduler.contexts_warm(list(map(_lane_of, jobtypes)))


class Result(msgspec.Struct, frozen=True):
    code: str
    """Why the job stopped: ok, failed, retry, error or cancelled."""
    exitcode: int
    """1xx retry, 2xx ok, 4xx failed, 5xx error."""
    data: bytes
    """What the job returned: 16 MB at most."""


class Results:
    """How jobs ended and what they returned, for as long as they are kept."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def get(self, job_id: str) -> Result | None:
        """How a job ended; None if the job is not done, or not known."""
        if not job_id.isdecimal():
            raise Invalid(f"the id of a job is a number in a string, not {shown(job_id)}")
        row = self._daemon.store.get(int(job_id))
        is_done = row is not None and row.state == FINAL
        return Result(row.code, row.exitcode, self._daemon.jobs.result(row)) if row and is_done else None

    def exitcodes(self, tenant: str) -> Iterator[tuple[str, int]]:
        """Job id and exit code of each job of a tenant that is done, in the order of their ids."""
        wanted = Filter(self._daemon.queue.number, tenant=tenant, state=FINAL, limit=PAGE)
        while rows := self._daemon.store.find(wanted, brief=True):
            yield from ((str(row.id), row.exitcode) for row in rows)
            wanted = wanted._replace(after=rows[-1].id)


class Runner:
    """What runs at a daemon, and what does not run any more."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._stopped: deque[dict[str, Any]] = deque(maxlen=STOPPED)
        daemon.app.events.subscribe(lambda event: self._stop(event.job), *ENDS)

    def get_running_jobs(self) -> list[dict[str, Any]]:
        """The jobs that run here: those whose locks this daemon renews. `dt` is when their run times out."""
        return [self._daemon.jobs.seen(execution.row) for execution in list(self._daemon.engine.in_flight.values())]

    def get_stopped_jobs(self) -> Sequence[dict[str, Any]]:
        """The jobs that stopped since the last time, with `code` and `exitcode`; the last thousand at most."""
        return [self._stopped.popleft() for _ in range(len(self._stopped))]

    def get_warm_jobtypes(self) -> list[str]:
        """The jobtypes for which a context is at hand: what the scheduler is told."""
        return sorted(map(_jobtype_of, self._daemon.warm()))

    def _stop(self, row: Row | None) -> None:
        if row is not None:
            self._stopped.append(self._daemon.jobs.seen(row) | {"code": row.code, "exitcode": row.exitcode})


def _pair(jobtype: str) -> tuple[str, str]:
    """Tenant and type: no tenant has a `-` in its name."""
    tenant, dash, name = jobtype.partition("-")
    if not (tenant and dash and name):
        raise Invalid(f"a jobtype is tenant-jobtype here, not {jobtype!r:.60}")
    return tenant_name(tenant), jobtype_name(name)


def _lane_of(jobtype: str) -> str:
    """The lane in which the daemon has the jobs of a type."""
    return lane(*_pair(jobtype))


def _jobtype_of(lane: str) -> str:
    return lane.replace(BETWEEN, "-", 1)


def _told(callback: Callback, do: Callable[[], Found]) -> Found | None:
    """What `do` finds: returned, or told to the callback if there is one."""
    if callback is None:
        return do()
    try:
        found = do()
    except Exception as error:
        callback(error, None)
        return None
    callback(None, found)
    return found


def _payload(line: str | bytes) -> bytes:
    data = line.encode() if isinstance(line, str) else line
    if not data.endswith(b"\n") or b"\n" in data[:-1]:
        raise Invalid(f"a line has one newline, which ends it, not {shown(line)}")
    payloads.check(data[:-1])
    return data[:-1]


def _lines(batch: Batch) -> list[bytes]:
    stamp = to_datetime(batch.date).isoformat(timespec="microseconds").replace("+00:00", "Z")
    head = f"{stamp}|{batch.tenant}-{batch.jobtype}|".encode()
    return [b"%b%b\n" % (head, payload) for payload in batch.payloads]


def _released(row: Row, how: str, now: int) -> Row:
    if how == "archive":
        return transitions.succeeded(row, "null", 200, now)
    if how == "unget":
        return transitions.given_back(row, "unget", True, now)
    again = Rerun(Fault(FaultKind.RETRY, "released for another try"), delay=RETRY_SECONDS)
    return transitions.asked_again(row, again, ORDER, now)
