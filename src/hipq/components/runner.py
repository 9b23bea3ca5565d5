"""The runner: what runs at a daemon, and what does not run any more."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from hipq.components.names import jobtype_of

if TYPE_CHECKING:
    from hipq.daemon.daemon import Daemon
    from hipq.job.model import Row

STOPPED: Final = 1000
ENDS: Final = ("ok", "failed", "error", "again", "gave up", "crashed", "lifetime over")


class Runner:
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
        return sorted(map(jobtype_of, self._daemon.warm()))

    def _stop(self, row: Row | None) -> None:
        if row is not None:
            self._stopped.append(self._daemon.jobs.seen(row) | {"code": row.code, "exitcode": row.exitcode})
