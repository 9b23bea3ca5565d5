"""Engines as a daemon has them: they serve whatever there is, lane by lane, as a scheduler says, with slots that are
shared between tenants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from hipq.daemon.scheduler import FairShare
from hipq.daemon.tenancy.fair_queue import FairQueue
from hipq.engine.lanes import Spare
from hipq.executors.execution import Execution
from hipq.job.model import New
from hipq.job.when import SECOND
from hipq.limits.tenants import BETWEEN
from tests.simulation.audit import Broken
from tests.simulation.executor import SimulatedExecutor, SimulatedLauncher

if TYPE_CHECKING:
    from tests.simulation.life import Life
    from tests.simulation.world import World

TYPES: Final = ("work", "mend", "send")
HOG: Final = "hog"
"""A job type whose handlers take a minute: one tenant fills all slots with it, once the faults are over."""
HOGS: Final = 24
HOG_RUNS: Final = 60 * SECOND


class SimulatedScheduler:
    """Fair shares; while there are faults, a scheduler that at times raises, invents a lane or lets nothing start."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._fair = FairShare()
        self.running: Counter[str] = Counter()
        """By lane, the jobs that it was told of and that have not stopped."""
        self.wrong = ""
        """What it was asked that no scheduler is to be asked."""

    def select_jobtype_to_run(self, jobtypes: Sequence[str], jobcounts: Mapping[str, int]) -> str | None:
        if not jobtypes or len(set(jobtypes)) < len(jobtypes) or any(jobcounts.get(lane, 0) < 1 for lane in jobtypes):
            self.wrong = f"offered were {jobtypes} with {jobcounts}"
        chance = self._world.chance
        mood = chance.choices(["", "raises", "invents", "rests"], [88, 4, 4, 4])[0] if self._world.faulty else ""
        if mood == "raises":
            raise ValueError("simulated")
        if mood:
            return "nobody/nothing" if mood == "invents" else None
        return self._fair.select_jobtype_to_run(jobtypes, jobcounts)

    def jobs_started(self, jobtype: str, count: int) -> None:
        self.running[jobtype] += count
        self._fair.jobs_started(jobtype, count)

    def jobs_stopped(self, jobtype: str, count: int) -> None:
        self.running[jobtype] -= count
        self._fair.jobs_stopped(jobtype, count)

    def check(self, in_flight: Iterable[Execution]) -> None:
        """What the scheduler was told of is what its engine has, after every turn."""
        running = Counter(execution.row.lane for execution in in_flight)
        if self.wrong or +self.running != running or any(count < 0 for count in self.running.values()):
            raise Broken(f"scheduler: told of {dict(self.running)}, in memory {dict(running)} {self.wrong}")


class DaemonExecutor(SimulatedExecutor):
    """Slots that tenants take turns at, and spare ones for tenants that have none, by the daemon's own queue."""

    def __init__(self, world: World, launcher: SimulatedLauncher, concurrency: int, life: Life) -> None:
        super().__init__(world, launcher, concurrency, life)
        self._fair = FairQueue(concurrency)

    def spare(self) -> Spare:
        return self._fair.spare()

    def _put(self, batch: Iterable[Execution]) -> None:
        for execution in batch:
            self._fair.put(execution)

    def _take(self) -> Execution | None:
        taken = self._fair.take(0)
        return taken[0] if taken else None

    def _give(self, execution: Execution) -> None:
        self._fair.give(execution.row.tenant)

    def unstarted(self) -> list[Execution]:
        return list(self._fair.clear())


def of_tenant(new: New, data: Any) -> New:
    """A new job as a daemon stores it."""
    tenant = data["tenant"]
    return replace(new, tenant=tenant, lane=f"{tenant}{BETWEEN}{new.job_type}")
