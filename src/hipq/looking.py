"""Looking at jobs: one, many by filter, why one does not run; the filters that changing many jobs goes by, too."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from hipq.errors import Invalid, NotFound, shown
from hipq.events import Events
from hipq.job import names
from hipq.job.model import New, Row, queue_of
from hipq.job.names import whole
from hipq.job.states import CODES, PHASES, TRANSITIONS
from hipq.job.view import Job
from hipq.job.when import moment, seconds
from hipq.job.why import Why
from hipq.stores.claims import Claim
from hipq.stores.filters import Filter
from hipq.stores.protocols import Store
from hipq.stores.values import Stored

if TYPE_CHECKING:
    from hipq.limits.code import DryRun, Throttler
    from hipq.queue import Queue


class Wanted(TypedDict, total=False):
    """Filters; those left out do not filter."""

    type: str
    key: str
    state: str
    phase: str
    lane: str
    tenant: str
    code: str
    """ok, failed, retry or error: how it ended, or went wrong the last time."""
    error: str
    """Part of the text of its error, as "ConnectionError"."""
    since: datetime | None
    """Added at this moment or later."""
    before: datetime | None
    """Added before this moment."""
    older_than: float | timedelta | None
    """Added longer ago than this."""
    newer_than: float | timedelta | None
    """Added not longer ago than this."""


def as_filter(queue: int, now: int, wanted: Wanted) -> Filter:
    if unknown := wanted.keys() - Wanted.__annotations__.keys():
        raise Invalid(
            f"jobs have no {', '.join(sorted(unknown))} to filter by: there are {', '.join(Wanted.__annotations__)}"
        )
    for name in ("error", "key", "lane", "tenant", "type", "state", "phase", "code"):
        if name in wanted and not (isinstance(wanted.get(name), str) and wanted.get(name)):
            raise Invalid(f"{name} must be a text that is not empty, not {shown(wanted.get(name))}; or leave it out")
    choices = {
        "state": list(TRANSITIONS),
        "phase": [name for some in PHASES.values() for name in some],
        "code": CODES[1:],
    }
    for name, allowed in choices.items():
        if value := wanted.get(name):
            names.one_of(str(value), name, allowed)
    before = moment(at, "before") if (at := wanted.get("before")) is not None else None
    if (age := wanted.get("older_than")) is not None:
        oldest = now - round(seconds(age, "older_than") * 1e6)
        before = oldest if before is None else min(before, oldest)
    since = moment(at, "since") if (at := wanted.get("since")) is not None else 0
    if (age := wanted.get("newer_than")) is not None:
        since = max(since, now - round(seconds(age, "newer_than") * 1e6))
    return Filter(
        queue,
        job_type=names.job_type(value) if (value := wanted.get("type")) else "",
        job_key=names.key(value) if (value := wanted.get("key")) else "",
        state=wanted.get("state", ""),
        phase=wanted.get("phase", ""),
        lane=names.lane(value) if (value := wanted.get("lane")) else "",
        tenant=wanted.get("tenant", ""),
        code=wanted.get("code", ""),
        error=wanted.get("error", ""),
        since=since,
        before=before,
    )


class Looking:
    """The part of `Hipq` that looks, and changes nothing."""

    name: str
    events: Events
    _queues: dict[str, Queue]

    @property
    @abstractmethod
    def store(self) -> Store: ...

    @abstractmethod
    def added(self, news: Sequence[New], stored: Sequence[Stored]) -> None: ...

    @property
    def queues(self) -> list[Queue]:
        return list(self._queues.values())

    def job(self, job_id: int) -> Job[Any]:
        """A job by its id, live or final."""
        return Job(self._row(job_id))

    def jobs(self, queue: str, *, after: int = 0, limit: int = 100, **wanted: Unpack[Wanted]) -> list[Job[Any]]:
        """Jobs of a queue, in the order they were added; `after` the last id of one page gives the next. `wanted`: see
        `Wanted`. Data, result and history of each are read when they are asked for, and are as they are then."""
        whole(limit, "limit", 1, 10_000)
        whole(after, "after", 0, (1 << 63) - 1)
        return self.listed(self._filter(queue, after, limit, **wanted))

    def listed(self, wanted: Filter) -> list[Job[Any]]:
        return [Job(row, look=self._row) for row in self.store.find(wanted, brief=True)]

    def count(self, queue: str, *, most: int = 10_000, live: bool | None = None, **wanted: Unpack[Wanted]) -> int:
        """How many jobs `jobs` would find; counting stops at `most`. `live`: only those that are, or are not, final."""
        whole(most, "most", 1, (1 << 31) - 1)
        table = "" if live is None else "live" if live else "final"
        return self.store.count(self._filter(queue, 0, most, **wanted)._replace(table=table))

    def _filter(self, queue: str, after: int = 0, limit: int = 100, **wanted: Unpack[Wanted]) -> Filter:
        number = self._queue(queue).number
        return as_filter(number, self.store.now(), wanted)._replace(after=after, limit=limit)

    def why(self, job_id: int) -> Why:
        """Why a job does not run now, or what it is doing: a reason, a sentence, and the facts. Nothing is changed."""
        from hipq.engine.why import passed, why  # a program that only adds jobs need not load it

        queue = self._by_number(self._row(job_id).id)
        limits, engines = self.store.limits(queue.number), self.store.engines()
        row = self._row(job_id)  # read last: a job that was claimed meanwhile would be found to stand in its own way
        heavy = [found for other in passed(row, limits) if (found := self.store.get(other))]
        served = [one.critical.get(str(queue.number), []) for one in engines]
        declared = [one.name for one in queue.job_types if one.spec.critical]
        critical = any(row.job_type in names for names in (*served, declared))
        return why(row, limits, engines, self.store.now(), critical, heavy)

    def dry_run(self, queue: str, throttler: Throttler, *, limit: int = 1000) -> DryRun:
        """What a throttler would do now with the first jobs of a queue that may start as far as its other rules go:
        ready ones and parked ones, up to `limit` of each. Nothing is changed. What it raises is raised here."""
        from hipq.engine.throttle import HEAD
        from hipq.limits.code import DryRun, verdict

        whole(limit, "limit", 1, 10_000)
        chosen, now = self._queue(queue), self.store.now()
        critical = tuple(one.name for one in chosen.job_types if one.spec.critical)
        claim = Claim(chosen.number, tuple(one.name for one in chosen.job_types), limit, critical)
        asked = self.store.ask(0, claim, HEAD, 0, limit, now)
        assert asked is not None
        specs = {one.name: one.spec for one in chosen.job_types}
        return DryRun.of(verdict(throttler, asked.due, asked.running, specs, now), len(asked.running))

    def _row(self, job_id: int) -> Row:
        whole(job_id, "a job id", 1, (1 << 63) - 1)
        for queue in self.queues:
            if queue.number == queue_of(job_id):
                row = self.store.get(job_id)
                if row is not None:
                    return row
        raise NotFound(f"there is no job {job_id} in {self.name}")

    def _by_number(self, job_id: int) -> Queue:
        return next(queue for queue in self.queues if queue.number == queue_of(job_id))

    def _queue(self, name: str) -> Queue:
        if not isinstance(name, str) or name not in self._queues:
            raise Invalid(f"no such queue: {shown(name)}; there are {', '.join(self._queues) or 'none'}")
        return self._queues[name]
