"""The scheduler: which jobtype runs next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from hipq.components.names import jobtype_of, lane_of
from hipq.daemon.scheduler import FairShare

if TYPE_CHECKING:
    from hipq.engine.lanes import Guarded


class Scheduler:
    """A daemon's own, or one that stands alone: tenants get shares by weight, the jobtypes of a tenant take turns."""

    def __init__(
        self, scheduler: FairShare | Guarded | None = None, weight: Callable[[str], float] = lambda _tenant: 1.0
    ) -> None:
        self._scheduler = scheduler or FairShare(weight)

    def select_jobtype_to_run(self, jobtypes: Sequence[str], jobcounts: Mapping[str, int] | None = None) -> str | None:
        """The one of these jobtypes, of which jobs wait, that is to run next; None if there are none. `jobcounts` are
        what is known of the number of jobs of each."""
        lanes = [lane_of(name) for name in jobtypes]
        counts = {lane_of(name): count for name, count in (jobcounts or {}).items()}
        chosen = self._scheduler.select_jobtype_to_run(lanes, counts)
        return None if chosen is None else jobtype_of(chosen)

    def jobs_started(self, jobtype: str, count: int) -> None:
        """A batch of so many jobs started to run."""
        self._scheduler.jobs_started(lane_of(jobtype), count)

    def jobs_stopped(self, jobtype: str, count: int) -> None:
        """So many jobs run no more, whatever became of them."""
        self._scheduler.jobs_stopped(lane_of(jobtype), count)

    def contexts_warm(self, jobtypes: Sequence[str]) -> None:
        """A runner's hint: it has contexts at hand in which these jobtypes would start at once."""
        self._scheduler.contexts_warm([lane_of(name) for name in jobtypes])
