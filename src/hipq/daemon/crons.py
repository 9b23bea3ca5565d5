"""Cron schedules of tenants. They are rows like those of an application, made by an operator: `TENANT/NAME` is what one
is called there, and its tenant knows it as NAME. The engines of all daemons tick them, each tick once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from hipq.daemon import job_factory, payloads
from hipq.daemon.http.job_json import in_json
from hipq.daemon.job_factory import lane
from hipq.daemon.tenancy.tenants import jobtype_name
from hipq.errors import Conflict, Invalid, NotFound, StoreBusy, shown
from hipq.job import names, ticks
from hipq.job.cron import cron
from hipq.job.model import New
from hipq.job.schedule import MISSED, NOTHING, Definition, Schedule, ScheduleChange, Settings
from hipq.job.when import to_datetime
from hipq.job.windows import ALWAYS
from hipq.limits.tenants import BETWEEN, tenant_of

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.daemon.ids import Ids
    from hipq.daemon.tenancy.quotas import Chained
    from hipq.daemon.tenancy.tenants import Tenants
    from hipq.queue import Queue

MOST: Final = 1000
"""Schedules that a tenant may have."""
TRIES: Final = 20
"""Writes of one change: an engine may tick between the look and the write."""


class Crons:
    def __init__(self, app: Hipq, queue: Queue, ids: Ids, tenants: Tenants) -> None:
        self._store, self._queue, self._ids, self._tenants = app.store, queue, ids, tenants
        self._added = app.added

    # -- for tenants ------------------------------------------------------------------------------------------------
    def list(self, tenant: str) -> list[Schedule]:
        return [one for one in self._store.schedules(self._queue.number) if tenant_of(one.name) == tenant]

    def get(self, tenant: str, name: str) -> Schedule:
        found = self._store.schedules(self._queue.number, names=[_stored(tenant, name)])
        if not found:
            raise NotFound(f"there is no schedule {shown(name)}")
        return found[0]

    def add(self, tenant: str, name: str, job_type: str, settings: Settings, *, paused: bool = False) -> Schedule:
        if len(self.list(tenant)) >= MOST:
            raise Conflict(f"the tenant has {MOST:,} schedules already: remove those that are not needed")
        whole = replace(settings, lane=lane(tenant, jobtype_name(job_type)), tenant=tenant)
        definition = Definition(changed=_checked(whole), paused=paused)
        new = ticks.begun(_stored(tenant, name), job_type, definition, self._store.now())
        if self._write(ScheduleChange(None, new)) is None:
            raise Conflict(f"there is a schedule {shown(name)} already: change that, or give this one another name")
        return new

    def change(self, tenant: str, name: str, settings: Settings, paused: bool | None = None) -> Schedule:
        """What is not said stays as it is. If its ticks are others, they count from now."""
        if settings == NOTHING and paused is None:
            raise Invalid("say what is to change")

        def changed(before: Schedule) -> Schedule:
            now, old = before.definition.changed, before.definition.paused
            definition = Definition(changed=_checked(settings.over(now)), paused=old if paused is None else paused)
            return ticks.redefined(before, definition, self._store.now())

        after: Schedule = self._change(tenant, name, changed)
        return after

    def remove(self, tenant: str, name: str) -> None:
        self._change(tenant, name, lambda _: None)

    def size(self, schedule: Schedule) -> int:
        """Bytes of what each of its jobs carries."""
        return len(_payload(schedule))

    def run_now(self, tenant: str, name: str) -> int:
        """Add one job of it; its ticks stay as they are."""
        new = self._job(self.get(tenant, name), self._store.now())
        (stored,) = self._store.enqueue([new])
        if stored.duplicate:
            raise Conflict(f"the job {stored.id} of this schedule has not ended, and its jobs do not overlap")
        self._added([new], [stored])
        return stored.id

    def _change(self, tenant: str, name: str, change: Callable[[Schedule], Schedule | None]) -> Any:
        for _ in range(TRIES):
            before = self.get(tenant, name)
            after = change(before)
            if after == before or self._write(ScheduleChange(before, after)) is not None:
                return after
        raise StoreBusy(f"schedule {name} is being changed by others all the time: try again")

    def _write(self, change: ScheduleChange) -> object:
        return self._store.change_schedules(self._queue.number, [change])[0]

    # -- for the engine ---------------------------------------------------------------------------------------------
    def maker(self, quotas: Chained) -> Callable[[Schedule, int], New]:
        """The job of a tick, which counts for its tenant's quotas like one that a handler asks for. What this raises
        skips the tick, and is in the log."""

        def make(schedule: Schedule, tick: int) -> New:
            tenant = tenant_of(schedule.name)
            if schedule.definition.in_force.tenant != tenant:
                raise Invalid(f"schedule {schedule.name} is no tenant's: it was not added over HTTP")
            if tenant in self._tenants.removed:
                raise Invalid(f"tenant {tenant} was removed")
            new = self._job(schedule, tick)
            quotas.enter(tenant, 1, len(new.job_data), (0, 0))
            return new

        return make

    def _job(self, schedule: Schedule, tick: int) -> New:
        said, tenant = schedule.definition.in_force, tenant_of(schedule.name)
        options = job_factory.Options(
            key=schedule.key(tick), at=tick, priority=100 if said.priority is None else said.priority,
            timeout=said.timeout or 0.0, windows=said.windows or ALWAYS,
        )  # fmt: skip
        payload = _payload(schedule)
        (job_id,) = self._ids.for_store(tenant, 1)
        now = self._store.now()
        return job_factory.job(self._queue.number, tenant, schedule.job_type, payload, options, now, job_id)


def _payload(schedule: Schedule) -> bytes:
    return payloads.given(schedule.definition.in_force.data or '""')


def _stored(tenant: str, name: str) -> str:
    return f"{tenant}{BETWEEN}{jobtype_name(name)}"


def _checked(settings: Settings) -> Settings:
    """Whatever a tick would refuse is refused now."""
    if settings.expression is None:
        raise Invalid('a schedule has an expression, such as "0 9 * * MON-FRI"')
    made = cron(settings.expression, settings.tz or "UTC")
    missed = names.one_of(settings.missed or "one", "choice for missed ticks", MISSED)
    if missed == "all" and not settings.overlap:
        raise Invalid('missed "all" adds several jobs at once: it needs overlap true')
    if settings.priority is not None:
        names.priority(settings.priority)
    return replace(settings, expression=made.expression)


def cron_json(schedule: Schedule) -> dict[str, Any]:
    """A schedule as its tenant sees it."""
    said = schedule.definition.in_force
    return {
        "name": schedule.name.partition(BETWEEN)[2], "type": schedule.job_type, "expression": said.expression,
        "tz": said.tz or "UTC", **in_json("payload", payloads.given(said.data or '""')), "missed": said.missed or "one",
        "overlap": bool(said.overlap), "priority": 100 if said.priority is None else said.priority,
        "timeout": said.timeout or job_factory.TIMEOUT, "paused": schedule.definition.paused,
        "last": to_datetime(schedule.last) if schedule.last else None,
        "next": to_datetime(schedule.next) if schedule.next else None,
    }  # fmt: skip
