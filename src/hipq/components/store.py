"""The store: tasks, and jobs until they are done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from hipq.components.names import jobtype_of, lane_of, pair
from hipq.daemon.job_factory import ORDER
from hipq.errors import Invalid
from hipq.job import transitions
from hipq.job.fault import Fault
from hipq.job.model import Change, Row
from hipq.job.run_result import Rerun
from hipq.stores.claims import Claim

if TYPE_CHECKING:
    from hipq.components.state import State
    from hipq.daemon.daemon import Daemon
    from hipq.sandbox import Handler

HOW: Final = ("retry", "unget", "archive")
RETRY_SECONDS: Final = 60.0


class Store:
    """Jobs are locked by the sysid that `State.reserve_sysid` took last."""

    def __init__(self, daemon: Daemon, state: State) -> None:
        self._store = daemon.store
        self._queue = daemon.queue.number
        self._jobs = daemon.jobs
        self._handlers = daemon.handlers
        self._state = state
        self._held: dict[str, Row] = {}

    # -- tasks ------------------------------------------------------------------------------------------------------
    def set_handler(self, jobtype: str, lang: str, body: str) -> Handler:
        """Define the task that will process the payloads of a jobtype."""
        return self._handlers.set(*pair(jobtype), lang=lang, body=body)

    def get_handler(self, jobtype: str) -> Handler | None:
        return self._handlers.get(*pair(jobtype))

    def delete_handler(self, jobtype: str) -> None:
        """Jobs without a handler are retried until they time out."""
        self._handlers.delete(*pair(jobtype))

    # -- jobs -------------------------------------------------------------------------------------------------------
    def get_waiting_jobtypes(self) -> tuple[list[str], dict[str, int]]:
        """The jobtypes of which jobs can run now, and how many jobs there are of each (up to a thousand)."""
        counts = {jobtype_of(one.lane): one.jobs for one in self._jobs.lanes()}
        return list(counts), counts

    def get_waiting_jobs(self, jobtype: str, limit: int) -> list[dict[str, Any]]:
        """Jobs that can run now, locked from here on: they come back when they are released, or when the lease of the
        sysid is over. `dt` is when their run times out."""
        _, name = pair(jobtype)
        claim = Claim(self._queue, (name,), limit, lane=lane_of(jobtype))
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
        self._store.notify()
        return len(changes) - len(lost)


def _released(row: Row, how: str, now: int) -> Row:
    if how == "archive":
        return transitions.succeeded(row, "null", 200, now)
    if how == "unget":
        return transitions.given_back(row, "unget", True, now)
    return transitions.asked_again(
        row, Rerun(Fault("retry", "released for another try"), delay=RETRY_SECONDS), ORDER, now
    )
