"""`app.jobs`: the jobs of an instance by filter, to list, count, change, add again and delete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from hipq.engine.prune import prune
from hipq.errors import Invalid, NotFound, shown
from hipq.in_thread import awaitable
from hipq.job import names
from hipq.job.event_names import JobEvent
from hipq.job.model import Brief, Row, queue_of
from hipq.job.names import whole
from hipq.job.progress import Reported
from hipq.job.states import CODES, FINAL, PHASES, TRANSITIONS
from hipq.job.view import Job
from hipq.job.when import later, moment, seconds
from hipq.job.why import Why
from hipq.job_id import JobId
from hipq.stores.filters import Filter
from hipq.stores.values import EARLIEST

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.operate import Changed, Operator

Progress = Callable[["Changed"], None] | None
"""Called after every page of jobs, with what became of the jobs of that page."""


class JobFilters(TypedDict, total=False):
    """Filters; those left out do not filter."""

    type: str
    """The name of its job type."""
    key: str
    """Its key."""
    state: str
    """initial, running, error, retry or final."""
    phase: str
    """scheduled, ready, executing, waiting, ...: what its engine is about to do with it."""
    lane: str
    """Its lane."""
    tenant: str
    """The tenant of a daemon whose job it is."""
    code: str
    """ok, failed, retry, error or cancelled: how it ended, or went wrong the last time."""
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


_TEXTS: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "error": ("error", str), "key": ("job_key", names.key), "lane": ("lane", names.lane), "tenant": ("tenant", str),
    "type": ("job_type", names.job_type), "state": ("state", partial(names.one_of, what="state", known=TRANSITIONS)),
    "phase": ("phase", partial(names.one_of, what="phase", known=[*chain(*PHASES.values())])),
    "code": ("code", partial(names.one_of, what="code", known=CODES[1:])),
}  # fmt: skip
"""The filters that are texts: the column that each is about, and what checks it."""


def as_filter(queue: int, now: int, wanted: JobFilters) -> Filter:
    if unknown := wanted.keys() - JobFilters.__annotations__.keys():
        raise Invalid(
            f"jobs have no {', '.join(sorted(unknown))} to filter by: there are {', '.join(JobFilters.__annotations__)}"
        )
    texts = dict[str, Any]()
    for name, (column, checked) in _TEXTS.items():
        if name in wanted:
            value = wanted.get(name)
            if not isinstance(value, str) or not value:
                raise Invalid(f"{name} must be a text that is not empty, not {shown(value)}; or leave it out")
            texts[column] = checked(value)
    before = _moments(now, "before", wanted.get("before"), "older_than", wanted.get("older_than"))
    since = _moments(now, "since", wanted.get("since"), "newer_than", wanted.get("newer_than"))
    return Filter(queue, since=max([0, *since]), before=min(before, default=None), **texts)


def _moments(now: int, name: str, at: datetime | None, ago: str, age: float | timedelta | None) -> list[int]:
    found = [] if at is None else [moment(at, name)]
    return found if age is None else [*found, now - round(seconds(age, ago) * 1e6)]


class Jobs:
    """The jobs of an instance. Calling it lists jobs of a queue: `app.jobs("orders", state="error")`."""

    def __init__(self, app: Hipq) -> None:
        self._app = app

    def __call__(
        self, queue: str, *, oldest: bool = False, after: int = 0, limit: int = 100, **wanted: Unpack[JobFilters]
    ) -> list[Job[Any]]:
        """Jobs of a queue, the newest first, or with `oldest` in the order they were added; `after` the last id of one
        page gives the next. `wanted`: see `JobFilters`. Data, result and history of each are read when they are asked
        for, and are as they are then."""
        whole(limit, "limit", 1, 10_000)
        whole(after, "after", 0, (1 << 63) - 1)
        if not isinstance(oldest, bool):
            raise Invalid(f"oldest must be True or False, not {shown(oldest)}")
        return self.find(self._filter(queue, after, limit, **wanted)._replace(newest=not oldest))

    alist = awaitable(__call__)

    def find(self, wanted: Filter) -> list[Job[Any]]:
        return [Job(row, look=self) for row in self._app.store.find(wanted, brief=True)]

    def count(self, queue: str, *, most: int = 10_000, live: bool | None = None, **wanted: Unpack[JobFilters]) -> int:
        """The number of jobs of a `queue` that `app.jobs` would find; counting stops at `most`. `live`: only jobs
        that are not final, or only final ones."""
        whole(most, "most", 1, (1 << 31) - 1)
        table = "" if live is None else "live" if live else "final"
        return self._app.store.count(self._filter(queue, 0, most, **wanted)._replace(table=table))

    acount = awaitable(count)

    def row(self, job_id: int) -> Row:
        whole(job_id, "a job id", 1, (1 << 63) - 1)
        if any(queue_of(job_id) in queue.numbers for queue in self._app.queues):
            row = self._app.store.get(job_id)
            if row is not None:
                return row
        added = ": it is there once the transaction commits in which it was added" if type(job_id) is not int else ""
        raise NotFound(f"there is no job {job_id} in {self._app.name}{added}")  # a JobId is what adding it returned

    def progress(self, row: Brief) -> Reported | None:
        """What a handler of this job has said of its progress: nothing, if the job has ended."""
        return None if row.state == FINAL else self._app.store.progress(row.id, row.attempt)

    def result(self, row: Row) -> Any:
        """The result in the row of a job that succeeded, by the type that its handler's annotation gives it."""
        known = self._app.declared.of_job(row.id).known(row.job_type)
        return known.load_result(row.result or "null") if known else Job(row).result

    def get(self, job_id: int) -> JobId:
        """A handle on a job by its id, as adding the job returned; see `JobId`."""
        return JobId.of(self._app, self.row(job_id).id)

    def why(self, job_id: int) -> Why:
        """See `Hipq.why`."""
        from hipq.engine.why import passed, why  # a program that only adds jobs need not load it

        queue, number = self._app.declared.of_job(self.row(job_id).id), queue_of(job_id)
        store = self._app.database.store_of(job_id)
        limits, engines = store.limits(number), store.engines()
        row = self.row(job_id)  # read last: a job that was claimed meanwhile would be found to stand in its own way
        heavy = [found for other in passed(row, limits) if (found := store.get(other))]
        served = [one.critical.get(str(number), []) for one in engines]
        declared = [one.name for one in queue.job_types if one.spec.critical]
        critical = any(row.job_type in names for names in (*served, declared))
        return why(row, limits, engines, store.now(), critical, heavy)

    def change(
        self,
        job_id: int,
        *,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
    ) -> None:
        """Give a job that has not started another time, or another priority."""
        self.operator.one(self.row(job_id).id, self._changing(at, delay, priority), JobEvent.CHANGED)

    def requeue(self, job_id: int) -> int:
        """Add a job like one that has ended, with the same type, data, key, lane and priority, and return its id. The
        ended job stays as it is."""
        return self.operator.requeue(self.row(job_id).id)

    def cancel_all(
        self, queue: str, reason: str = "cancelled", *, progress: Progress = None, **wanted: Unpack[JobFilters]
    ) -> Changed:
        """`cancel` for all jobs of a queue that are not final and that `jobs` would find with these filters."""
        names.reason(reason)
        move = self.operator.cancel(reason)
        return _total(self.operator.many(self._filter(queue, **wanted), move, JobEvent.CANCELLED), progress)

    def retry_all(self, queue: str, *, progress: Progress = None, **wanted: Unpack[JobFilters]) -> Changed:
        """`retry_now` for all jobs of a queue that `jobs` would find with these filters."""
        found = self._filter(queue, **wanted)
        return _total(self.operator.many(found, self.operator.run_now, JobEvent.HURRIED), progress)

    def change_all(
        self,
        queue: str,
        *,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        progress: Progress = None,
        **wanted: Unpack[JobFilters],
    ) -> Changed:
        """`change` for all jobs of a queue that `jobs` would find with these filters."""
        move = self._changing(at, delay, priority)
        return _total(self.operator.many(self._filter(queue, **wanted), move, JobEvent.CHANGED), progress)

    def requeue_all(self, queue: str, *, progress: Progress = None, **wanted: Unpack[JobFilters]) -> Changed:
        """`requeue` for all jobs of a queue that have ended and that `jobs` would find with these filters. No job
        is added whose key a live job has."""
        return _total(self.operator.all_again(self._filter(queue, **wanted)), progress)

    def _changing(
        self, at: datetime | None, delay: float | timedelta | None, priority: int | None
    ) -> Callable[[Row, int], Row | None]:
        if at is None and delay is None and priority is None:
            raise Invalid("say what to change: at=, delay= or priority=")
        if at is not None and delay is not None:
            raise Invalid("give at= or delay=, not both")
        when = None if at is None else moment(at, "at")
        if delay is not None:
            when = later(self._app.store.now(), seconds(delay, "delay"))
        return self.operator.change(when, None if priority is None else names.priority(priority))

    def prune(
        self,
        older_than: float | timedelta | None = None,
        queue: str | None = None,
        *,
        keep: int | None = None,
        type: str | None = None,
        code: str | None = None,
        tenant: str | None = None,
        progress: Callable[[int], None] = lambda _count: None,
    ) -> int:
        """Delete jobs that have been final for longer than `older_than`, and of each queue all final jobs but the last
        `keep`; with `type`, `code` or `tenant`, only such jobs of these. Returns the number of deleted jobs."""
        if older_than is None and keep is None:
            raise Invalid("say what to delete: jobs that ended longer ago than older_than=, or all but the last keep=")
        only = (
            "" if type is None else names.job_type(type),
            "" if code is None else names.one_of(code, "code", CODES[1:]),
            "" if tenant is None else names.tenant(tenant),
        )
        age = None if older_than is None else round(seconds(older_than, "older_than") * 1e6)
        most = None if keep is None else whole(keep, "keep", 0, (1 << 31) - 1)
        total = 0
        for one in [self._app.declared.find(queue)] if queue else self._app.queues:
            before = EARLIEST if age is None else (self._app.store.now() - age, 0)
            numbers = one.numbers
            kept = None if most is None else -(-most // len(numbers))
            for count in chain.from_iterable(prune(self._app.store, n, before, *only, keep=kept) for n in numbers):
                total += count
                progress(count)
                if count:
                    self._app.events.emit(JobEvent.PRUNED, self._app.store.now(), one.name, count=count)
        return total

    def _filter(self, queue: str, after: int = 0, limit: int = 100, **wanted: Unpack[JobFilters]) -> Filter:
        number = self._app.declared.find(queue).number
        return as_filter(number, self._app.store.now(), wanted)._replace(after=after, limit=limit)

    @property
    def operator(self) -> Operator:
        from hipq.operate import Operator  # a program that only adds jobs need not load it

        return Operator(self._app)


def _total(steps: Iterator[Changed], progress: Progress) -> Changed:
    from hipq.operate import Changed

    total = Changed()
    for step in steps:
        total += step
        if progress:
            progress(step)
    return total
