"""`app.cron`: cron schedules, listed and changed while engines run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, cast

import msgspec
from msgspec.structs import replace

from hipq.engine.accept import accept, made
from hipq.errors import Conflict, Invalid, StoreBusy, nearest, shown
from hipq.job import names, ticks
from hipq.job.cron import cron
from hipq.job.event_names import EngineEvent
from hipq.job.meta import to_show
from hipq.job.model import New
from hipq.job.options import JobOptions, TickOptions, checked
from hipq.job.outcome import UNSET
from hipq.job.schedule import MISSED, NOTHING, OPTIONS, Definition, Schedule, ScheduleChange, Settings
from hipq.job.units import number
from hipq.job.when import to_datetime
from hipq.job_id import JobId
from hipq.rules import check_known
from hipq.stores.values import EngineSeen

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.job_type import JobType
    from hipq.queue import Queue

TRIES: Final = 20
"""Writes of one change: an engine may tick between the look and the write, and it ticks once a minute."""
FEW: Final = 10


@dataclass(frozen=True)
class CronSchedule:
    """A cron schedule as it is in force."""

    queue: str
    name: str
    type: str
    expression: str
    tz: str
    data: Any
    missed: str
    overlap: bool
    options: dict[str, Any]
    """What its jobs have of their own, by the names of `enqueue`."""
    origin: Literal["code", "operator"]
    """Who made it."""
    changed: tuple[str, ...]
    """What an operator has changed of a schedule in code."""
    state: Literal["ticking", "paused", "code gone", "no engine"]
    """"code gone": engines with the code of its job type run, and the code of none has this schedule (any more).
    "no engine": none runs that has the code of its job type."""
    last: datetime | None
    """The last tick, whether it added a job or was skipped."""
    next: datetime | None
    """The next tick; None = it is paused."""


class CronSchedules:
    """The cron schedules of an instance: those in code, which operators may change, and those that they add."""

    def __init__(self, app: Hipq) -> None:
        self._app = app

    def list(self, queue: str | None = None) -> list[CronSchedule]:
        """The schedules of a queue, or of all queues, as the database has them: those in code from the first start of
        an engine on."""
        engines = self._app.store.engines()
        chosen = self._app.queues if queue is None else [self._app.declared.find(queue)]
        return [_shown(one, each, engines) for one in chosen for each in self._app.store.schedules(one.number)]

    def add(
        self, queue: str, job_type: str, expression: str, data: Any = None, *, name: str | None = None, tz: str = "UTC",
        missed: str = "one", overlap: bool = False, **options: Unpack[TickOptions],
    ) -> CronSchedule:  # fmt: skip
        """Add a schedule to a queue, as `JobType.cron` does in code. Every engine that serves the queue and has the
        code of the job type ticks it."""
        found = self._app.declared.find(queue)
        named = names.job_type(name or job_type, "a schedule's name")
        check_known(found, job_type)
        of = found.job_type(job_type)
        changed = settings_of(of, options, data, expression=expression, tz=tz, missed=missed, overlap=overlap)
        new = ticks.begun(named, job_type, Definition(changed=changed), self._app.store.now())
        if named in found.schedules or self._write(found, ScheduleChange(None, new)) is None:
            raise Invalid(f"queue {queue} has a schedule {named} already: change that, or give this one another name")
        return self._said(found, new)

    def change(
        self, queue: str, name: str, *, expression: str | None = None, data: Any = UNSET, tz: str | None = None,
        missed: str | None = None, overlap: bool | None = None, **options: Unpack[TickOptions],
    ) -> CronSchedule:  # fmt: skip
        """Change a schedule: what is left out stays. What is given for a schedule in code wins over the code, until
        `reset`. Where the expression or the time zone changes, ticks count from now."""

        def changed(found: Queue, before: Schedule, now: int) -> Schedule:
            new = settings_of(
                found.job_type(before.job_type), options, data, before.definition.in_force, expression=expression,
                tz=tz, missed=missed, overlap=overlap,
            )  # fmt: skip
            if new == NOTHING:
                raise Invalid(
                    "nothing is to change: give an expression, tz, data, missed, overlap or an option of its jobs"
                )
            definition = replace(before.definition, changed=new.over(before.definition.changed))
            return ticks.redefined(before, definition, now)

        return self._change(queue, name, changed)

    def reset(self, queue: str, name: str) -> CronSchedule:
        """Go back to what the code says about a schedule. One that is paused stays paused."""

        def back(_: Queue, before: Schedule, now: int) -> Schedule:
            if before.origin == "operator":
                raise Invalid(f"schedule {name} is not in code, an operator added it: change or remove it instead")
            return ticks.redefined(before, replace(before.definition, changed=NOTHING), now)

        return self._change(queue, name, back)

    def pause(self, queue: str, name: str) -> CronSchedule:
        """Let a schedule add nothing until `resume`."""
        return self._change(queue, name, lambda _, before, now: _paused(before, True, now))

    def resume(self, queue: str, name: str) -> CronSchedule:
        """Go on with the next tick: those that came while it was paused are skipped, whatever `missed` says."""
        return self._change(queue, name, lambda _, before, now: _paused(before, False, now))

    def remove(self, queue: str, name: str) -> None:
        """Delete a schedule that an operator added, or that no code has any more."""
        found = self._app.declared.find(queue)
        for _ in range(TRIES):
            before = self._find(found, name)
            if before.origin == "code":
                self._check_gone(found, before)
            if self._write(found, ScheduleChange(before, None)) is not None:
                return
        raise _busy(name)

    def run_now(self, queue: str, name: str) -> JobId[Any]:
        """Add one job of a schedule now. Its ticks stay as they are. Without overlap, Conflict if the job before is not
        final."""
        app, found = self._app, self._app.declared.find(queue)
        new = job_of(found, self._find(found, name), app.store.now())
        stored = app.store.enqueue([new])
        if stored[0].duplicate:
            raise Conflict(f"job {stored[0].id} of schedule {name} is not final yet, and its jobs do not overlap")
        app.added([new], stored)
        return JobId.of(app, stored[0].id)

    # -- how ---------------------------------------------------------------------------------------------------------
    def _change(self, queue: str, name: str, change: Callable[[Queue, Schedule, int], Schedule]) -> CronSchedule:
        found = self._app.declared.find(queue)
        for _ in range(TRIES):
            before = self._find(found, name)
            after = change(found, before, self._app.store.now())
            if after == before or self._write(found, ScheduleChange(before, after)) is not None:
                return self._said(found, after)
        raise _busy(name)

    def _write(self, queue: Queue, change: ScheduleChange) -> object:
        """None, if the schedule was changed meanwhile, or an engine has ticked it."""
        (written,) = self._app.store.change_schedules(queue.number, [change])
        if written is not None:
            now = self._app.store.now()
            self._app.events.emit(EngineEvent.SCHEDULE_CHANGED, now, queue.name, schedule=change.name)
        return written

    def _find(self, queue: Queue, name: str) -> Schedule:
        """One in this program's code is stored first, if no engine has done that yet."""
        store = self._app.store
        names.job_type(name, "a schedule's name")
        declared = queue.schedules.get(name)
        found = store.schedules(queue.number, names=[name])
        if not found and declared:
            store.change_schedules(queue.number, list(ticks.published([declared], {}, store.now())))
            found = store.schedules(queue.number, names=[name])
        if not found:
            others = _others(name, store.schedules(queue.number))
            raise Invalid(f"queue {queue.name} has no schedule {shown(name)}{others}")
        return found[0]

    def _said(self, queue: Queue, schedule: Schedule) -> CronSchedule:
        return _shown(queue, schedule, self._app.store.engines())

    def _check_gone(self, queue: Queue, schedule: Schedule) -> None:
        """Raise unless somebody has the code of its job type, and nobody's code has the schedule."""
        known = queue.known(schedule.job_type)
        mine = known is not None and known.fn is not None
        engines = [one for one in self._app.store.engines() if _serves(one, queue, schedule)]
        if schedule.name in queue.schedules or any(_has(one, queue, schedule) for one in engines):
            raise Invalid(f"schedule {schedule.name} is in the code, which would bring it back: pause it instead")
        if not mine and not engines:
            raise Invalid(
                f"schedule {schedule.name} was in the code, and no engine runs that could tell whether it still is: "
                "pause it instead, or name the application"
            )


def settings_of(
    job_type: JobType, options: TickOptions, data: Any = UNSET, before: Settings = NOTHING, *,
    expression: str | None = None, tz: str | None = None, missed: str | None = None, overlap: bool | None = None,
) -> Settings:  # fmt: skip
    """What is given, checked together with what was said before. Whatever a tick would refuse is refused now."""
    _check_options(options)
    spec = job_type.spec
    own = checked(spec, options)
    given = Settings(
        expression=expression, tz=tz, data=None if data is UNSET else spec.dump(data), missed=missed,
        overlap=None if overlap is None else bool(overlap), meta=own.meta if "retry" in options else None,
        **{name: getattr(own, name) for name in OPTIONS[:-1] if options.get(name) is not None},
    )  # fmt: skip
    whole = given.over(before)
    made_of = cron(whole.expression, whole.tz)  # type: ignore[arg-type]
    names.one_of(whole.missed, "choice for missed ticks", MISSED)  # type: ignore[arg-type]
    if whole.missed == "all" and not whole.overlap:
        raise Invalid('missed="all" adds several jobs at once: it needs overlap=True')
    made(0, job_type.queue, spec, replace(own, **whole.options), spec.load(whole.data or "null"), 0)
    return given if expression is None else replace(given, expression=made_of.expression)


def job_of(queue: Queue, schedule: Schedule, tick: int) -> New:
    """The job of a tick. What middlewares change of its options counts more than what the schedule says."""
    app, spec, settings = queue.app, queue.spec(schedule.job_type), schedule.definition.in_force
    data, key, said = spec.load(settings.data or "null"), schedule.key(tick), _options(settings)
    data, _, wanted = app.middlewares.enqueue(queue.name, schedule.job_type, data, key, cast(JobOptions, said))
    changed = {name: value for name, value in wanted.items() if name not in said or value is not said[name]}
    own = {name: value for name, value in settings.options.items() if name.replace("meta", "retry") not in changed}
    whole = replace(checked(spec, cast(TickOptions, changed)), **own, at=tick)
    new = accept(queue, spec, whole, data, app.store.now(), key)
    new = replace(new, tenant=settings.tenant) if settings.tenant else new
    return app.traces.promised(new) if app.traces else new


def _check_options(options: TickOptions) -> None:
    if refused := options.keys() & {"key", "at", "delay", "conn", "on_duplicate"}:
        raise Invalid(f"a schedule gives its jobs their time and their key: {', '.join(sorted(refused))} is not its")
    if unknown := options.keys() - TickOptions.__annotations__.keys():
        known = ", ".join(["tz, name, missed, overlap", *sorted(TickOptions.__annotations__)])
        raise TypeError(f"cron has no option {', '.join(sorted(unknown))}; there are {known}")


def _paused(schedule: Schedule, paused: bool, now: int) -> Schedule:
    return ticks.redefined(schedule, replace(schedule.definition, paused=paused), now)


def _shown(queue: Queue, schedule: Schedule, engines: Sequence[EngineSeen]) -> CronSchedule:
    settings = schedule.definition.in_force
    assert settings.expression is not None
    return CronSchedule(
        queue.name, schedule.name, schedule.job_type, settings.expression, settings.tz or "UTC",
        msgspec.json.decode(settings.data or "null"), settings.missed or "one", bool(settings.overlap),
        _options(settings), schedule.origin,
        tuple(schedule.definition.changed.said) if schedule.origin == "code" else (),
        _state(queue, schedule, engines), _moment(schedule.last), _moment(schedule.next),
    )  # fmt: skip


def _options(settings: Settings) -> dict[str, Any]:
    found = settings.options
    if "throttle_factor" in found:
        found["throttle_factor"] = number(found["throttle_factor"])
    if "windows" in found:
        found["windows"] = msgspec.json.decode(found["windows"])
    if "meta" in found:
        found["retry"] = to_show(found.pop("meta")).retry
    return found


def _state(
    queue: Queue, schedule: Schedule, engines: Sequence[EngineSeen]
) -> Literal["ticking", "paused", "code gone", "no engine"]:
    if schedule.definition.paused:
        return "paused"
    serving = [one for one in engines if _serves(one, queue, schedule)]
    if any(schedule.origin == "operator" or _has(one, queue, schedule) for one in serving):
        return "ticking"
    return "code gone" if serving else "no engine"


def _serves(engine: EngineSeen, queue: Queue, schedule: Schedule) -> bool:
    return schedule.job_type in engine.serves.get(str(queue.number), ())


def _has(engine: EngineSeen, queue: Queue, schedule: Schedule) -> bool:
    return f"{queue.number}/{schedule.name}" in engine.crons


def _moment(micros: int) -> datetime | None:
    return to_datetime(micros) if micros else None


def _others(name: str, there: Sequence[Schedule]) -> str:
    known = [one.name for one in there]
    more = f" and {len(known) - FEW} more" if len(known) > FEW else ""
    return nearest(name, known) or f"; there are {', '.join(known[:FEW]) or 'none'}{more}"


def _busy(name: str) -> StoreBusy:
    return StoreBusy(f"schedule {name} is being changed by others all the time: try again")
