"""A cron schedule as the database has it. The code gives the defaults; what an operator says instead is stored beside
them, and wins. Pure: what moves a schedule from tick to tick is in `hipq.job.ticks`."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import msgspec

from hipq.job.model import New

OPTIONS: Final = ("priority", "throttle_factor", "timeout", "windows", "lane", "meta")
"""The settings that are columns of a schedule's jobs."""
MISSED: Final = ("one", "all", "skip")
"""The choices for ticks that no engine was there for: one job for all of them, one for each, or none."""


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the code or an operator says about a schedule. None = nothing."""

    expression: str | None = None
    tz: str | None = None
    data: str | None = None
    """The data of its jobs, as JSON."""
    missed: str | None = None
    """One of `MISSED`."""
    overlap: bool | None = None
    """Whether a tick adds a job while the job of the tick before is not final."""
    priority: int | None = None
    throttle_factor: int | None = None
    timeout: float | None = None
    windows: str | None = None
    lane: str | None = None
    meta: str | None = None
    tenant: str | None = None
    """The tenant that the jobs belong to, in a daemon."""

    @property
    def said(self) -> dict[str, Any]:
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    def over(self, other: Settings) -> Settings:
        """This, with what `other` says where this says nothing."""
        return msgspec.structs.replace(other, **self.said)

    @property
    def options(self) -> dict[str, Any]:
        """The settings of its jobs, as columns."""
        return {name: value for name, value in self.said.items() if name in OPTIONS}


NOTHING: Final = Settings()
USUAL: Final = Settings(tz="UTC", data="null", missed="one", overlap=False)
"""The settings of a schedule about which nobody says anything."""


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    code: Settings | None = None
    """What the code says; None = an operator has added the schedule."""
    changed: Settings = NOTHING
    """What an operator says. For a schedule in code this overrides the code; for another schedule it is all there
    is."""
    paused: bool = False

    @property
    def in_force(self) -> Settings:
        return self.changed.over((self.code or NOTHING).over(USUAL))

    def dump(self) -> str:
        return msgspec.json.encode(self).decode()


class Schedule(NamedTuple):
    """A row of hipq_crons. Moments are microseconds; 0 = never."""

    name: str
    job_type: str
    definition: Definition
    since: int
    """When ticks began to count: when the schedule was added or resumed, or its expression changed."""
    last: int
    """The tick that was looked at last, whether it added a job or was skipped; 0 = there was none."""
    next: int
    """The tick after that; 0 = it is paused."""
    version: int = 0
    """The number of the change, among those of its queue, that made it what it is. Ticks do not count."""

    @property
    def origin(self) -> Literal["code", "operator"]:
        return "operator" if self.definition.code is None else "code"

    def key(self, tick: int) -> str:
        """The key of a tick's job. Without overlap all ticks have the same key, so that there is one live job at
        most."""
        return f"cron:{self.name}@{tick}" if self.definition.in_force.overlap else f"cron:{self.name}"


class ScheduleChange(NamedTuple):
    """One write of a schedule, with the jobs that are added with it or not at all. It happens only if the schedule
    still has the version and the next tick of `before`; None = there must be none of its name."""

    before: Schedule | None
    after: Schedule | None
    """None = it is removed."""
    jobs: tuple[New, ...] = ()

    @property
    def name(self) -> str:
        one = self.before or self.after
        assert one is not None
        return one.name

    @property
    def redefines(self) -> bool:
        """Whether engines that know the schedule must read it again: not after a mere tick."""
        if self.before is None or self.after is None:
            return True
        return self.before[1:3] != self.after[1:3]


class DeclaredSchedule(NamedTuple):
    """A schedule in this program's code."""

    name: str
    job_type: str
    settings: Settings


_decoder = msgspec.json.Decoder(Definition)


def loaded(rows: list[Any]) -> list[Schedule]:
    """What a store reads."""
    return [Schedule(name, of, _decoder.decode(text), *rest) for name, of, text, *rest in rows]
