"""The verbs of seed 003, by their names: a store, a state and a runner as that document draws them.

Each is a view of what the core does anyway, for programs that were written for those verbs; the daemon itself uses the
core. A jobtype is here what it is there: `tenant-jobtype`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from hipq.daemon.handlers.handlers import Handlers
from hipq.daemon.job_factory import ORDER, lane
from hipq.daemon.jobs import Jobs
from hipq.engine.loop import Engine
from hipq.errors import Invalid
from hipq.job import transitions
from hipq.job.fault import Fault
from hipq.job.model import Change, Row
from hipq.job.run_result import Rerun
from hipq.sandbox import Handler
from hipq.stores.base import Claim, Store

HOW: Final = ("retry", "unget", "archive")
RETRY_SECONDS: Final = 60.0
STOPPED: Final = 1000


def pair(jobtype: str) -> tuple[str, str]:
    """Tenant and type: no tenant has a `-` in its name."""
    tenant, dash, name = jobtype.partition("-")
    if not (tenant and dash and name):
        raise Invalid(f"a jobtype is tenant-jobtype here, not {jobtype!r:.60}")
    return tenant, name


class SeedStore:
    """Repository of task and payload data."""

    def __init__(self, store: Store, queue: int, jobs: Jobs, handlers: Handlers, engine_id: int = 0) -> None:
        self._store = store
        self._queue = queue
        self._jobs = jobs
        self._handlers = handlers
        self._held: dict[str, Row] = {}
        self.engine_id = engine_id
        """Under which jobs are locked: see `reserve_sysid`."""

    # -- tasks ------------------------------------------------------------------------------------------------------
    def set_handler(self, jobtype: str, lang: str, body: str) -> Handler:
        return self._handlers.set(*pair(jobtype), lang=lang, body=body)

    def get_handler(self, jobtype: str) -> Handler | None:
        return self._handlers.get(*pair(jobtype))

    def delete_handler(self, jobtype: str) -> None:
        self._handlers.delete(*pair(jobtype))

    # -- jobs -------------------------------------------------------------------------------------------------------
    def get_waiting_jobtypes(self) -> tuple[list[str], dict[str, int]]:
        """The types of which jobs can run now, and how many there are of each (up to a thousand)."""
        counts = {one.lane.replace("/", "-", 1): one.jobs for one in self._jobs.lanes()}
        return list(counts), counts

    def get_waiting_jobs(self, jobtype: str, limit: int) -> list[dict[str, Any]]:
        """The jobs belong to this sysid until they are released or its lease ends."""
        tenant, name = pair(jobtype)
        claim = Claim(self._queue, (name,), limit, lane=lane(tenant, name))
        won = self._store.turn(self.engine_id, [], [claim], self._store.now()).won
        self._held |= {str(row.id): row for row in won}
        return [self._jobs.seen(row) for row in won]

    def release_jobs(self, ids: Iterable[str], how: str) -> int:
        """`retry`: again after a moment. `unget`: again at once. `archive`: they are done. How many were still ours."""
        if how not in HOW:
            raise Invalid(f"jobs are released by {', '.join(HOW)}, not {how!r:.40}")
        now = self._store.now()
        rows = [self._held.pop(job_id) for job_id in ids if job_id in self._held]
        changes = [Change(row, _released(row, how, now), (), how) for row in rows]
        lost = self._store.turn(self.engine_id, changes, [], now).lost if changes else frozenset[int]()
        self._store.notify()
        return len(changes) - len(lost)

    # -- state ------------------------------------------------------------------------------------------------------
    def reserve_sysid(self, tempid: str, seconds: float = 10.0) -> int:
        """A engine_id that nobody else has, for so long; `tempid` is what people see it by."""
        self.engine_id = self._store.take_lease(seconds, tempid)
        return self.engine_id

    def renew_sysid(self, engine_id: int, seconds: float = 10.0) -> bool:
        """False: it is over, and its jobs are somebody else's."""
        return self._store.renew_lease(engine_id, seconds)

    def release_sysid(self, engine_id: int) -> None:
        self._store.drop_lease(engine_id)


def _released(row: Row, how: str, now: int) -> Row:
    if how == "archive":
        return transitions.succeeded(row, "null", 200, now)
    if how == "unget":
        return transitions.given_back(row, "unget", True, now)
    return transitions.asked_again(
        row, Rerun(Fault("retry", "released for another try"), delay=RETRY_SECONDS), ORDER, now
    )


class SeedRunner:
    """What runs here, and what does not run any more."""

    def __init__(self, engine: Engine, seen: Callable[[Row], dict[str, Any]]) -> None:
        self._engine = engine
        self._seen = seen
        self._stopped: deque[dict[str, Any]] = deque(maxlen=STOPPED)
        for code in ("ok", "failed", "error", "again", "gave up", "crashed", "lifetime over"):
            engine.events.subscribe(lambda event: self._stop(event.job), code)

    def get_running_jobs(self) -> list[dict[str, Any]]:
        """Those whose locks this engine renews."""
        return [self._seen(running.row) for running in list(self._engine.in_flight.values())]

    def get_stopped_jobs(self) -> Sequence[dict[str, Any]]:
        """Those that stopped since the last time, with `code` and `exitcode`; the last thousand at most."""
        return [self._stopped.popleft() for _ in range(len(self._stopped))]

    def _stop(self, row: Row | None) -> None:
        if row is not None:
            self._stopped.append(self._seen(row) | {"code": row.code, "exitcode": row.exitcode})
