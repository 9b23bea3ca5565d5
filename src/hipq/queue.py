"""`Queue` and `JobType`: what a user declares, and where jobs are handed in."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from msgspec.structs import replace

from hipq.engine.accept import LaneBy, accept, raises
from hipq.engine.queues import EngineQueue, Schedule
from hipq.errors import Invalid, StoreUnavailable, shown
from hipq.job import names
from hipq.job.answer import DEFAULT_KEEPING, Answer, Answered, Keeping, NewAnswer
from hipq.job.model import New
from hipq.job.order import AnyOrder
from hipq.job.retries import RetryHandler
from hipq.job.spec import Handler, Spec, payload_of
from hipq.job.view import Job
from hipq.job.when import seconds, to_datetime
from hipq.job.windows import Window, dump
from hipq.stores.base import Filter, Stored
from hipq.throttlers.code import Throttler
from hipq.throttlers.rules import NO_RULES, Rules

if TYPE_CHECKING:
    from hipq.app import Hipq

AnswerHandler = Callable[[Any, Answer], Any]
AnyCode = TypeVar("AnyCode", bound=Callable[..., Any])

RELEARN: Final = 5_000_000
"""Microseconds after which a program that adds jobs looks whether a queue's rules were changed."""


class JobType:
    """A kind of job: its code and its defaults. Calling it calls the function, plain and undecorated."""

    def __init__(self, queue: Queue, spec: Spec) -> None:
        self.queue = queue
        self.spec = spec

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def fn(self) -> Handler:
        """The undecorated function."""
        if self.spec.fn is None:
            raise Invalid(f"job type {self.name} has no handler in this program")
        return self.spec.fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def retry(self, handler: RetryHandler) -> RetryHandler:
        """Decorator: this function decides what becomes of a failed job. It gets a copy of the job, and the fault."""
        self.spec.retry = handler
        return handler

    def answered(self, handler: AnswerHandler) -> AnswerHandler:
        """Decorator: this function looks at the answer of a job that waits, and returns what a handler does, or
        `Progress` if more answers will come. If it raises, it is called again with the same answer."""
        self.spec.answered = _code(handler, "an answer handler")
        return handler

    def cancelled(self, handler: Handler) -> Handler:
        """Decorator: this function tells whoever works on a job that waits that it is given up: it timed out, or was
        cancelled. What it returns is not looked at."""
        self.spec.cancelled = _code(handler, "a cancel handler")
        return handler

    def on_late(self, handler: AnswerHandler) -> AnswerHandler:
        """Decorator: this function is shown answers that came too late, by the program they came to."""
        self.spec.on_late = _plain(handler)
        return handler

    def answer(
        self,
        key: str,
        data: Any = None,
        *,
        answer_id: str | None = None,
        error: bool = False,
        attempt: int | None = None,
    ) -> Answered:
        """Bring the answer of the job that has this key; see `Hipq.answer`."""
        return self._app.answer(
            self.queue.name, self.name, key, data, answer_id=answer_id, error=error, attempt=attempt
        )

    def enqueue(
        self,
        data: Any = None,
        *,
        key: str | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        throttle_factor: int | None = None,
        windows: Iterable[Window] | None = None,
        timeout: float | timedelta | None = None,
        lane: str | None = None,
        on_duplicate: str = "raise",
        conn: Any = None,
    ) -> int:
        """Add a job and return its id. It is stored when this returns; with `conn`, when your transaction commits."""
        new = self._new(
            data, key=key, at=at, delay=delay, priority=priority, throttle_factor=throttle_factor, windows=windows,
            timeout=timeout, lane=lane,
        )  # fmt: skip
        return self._ids([new], self._app.store.enqueue([new], all_or_nothing=raises(on_duplicate), conn=conn))[0]

    def enqueue_many(
        self,
        data: Iterable[Any],
        *,
        keys: Sequence[str] | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        throttle_factor: int | None = None,
        windows: Iterable[Window] | None = None,
        timeout: float | timedelta | None = None,
        lane: str | None = None,
        on_duplicate: str = "raise",
        conn: Any = None,
    ) -> list[int]:
        """Add many jobs in one transaction: all of them, or, if a key is taken, none (`on_duplicate="raise"`)."""
        options = {
            "at": at,
            "delay": delay,
            "priority": priority,
            "throttle_factor": throttle_factor,
            "windows": None if windows is None else list(windows),
            "timeout": timeout,
            "lane": lane,
        }
        news = self._many(data, keys, options)
        return self._ids(news, self._app.store.enqueue(news, all_or_nothing=raises(on_duplicate), conn=conn))

    async def aenqueue(self, data: Any = None, *, on_duplicate: str = "raise", **options: Any) -> int:
        """`enqueue` for async code. Calls made at the same time share one transaction."""
        stored = await self._app.coalescer.enqueue(lambda: [self._new(data, **options)], raises(on_duplicate))
        return stored[0].id

    async def aenqueue_many(
        self, data: Iterable[Any], *, keys: Sequence[str] | None = None, on_duplicate: str = "raise", **options: Any
    ) -> list[int]:
        items = list(data)
        stored = await self._app.coalescer.enqueue(lambda: self._many(items, keys, options), raises(on_duplicate))
        return [one.id for one in stored]

    @property
    def _app(self) -> Hipq:
        return self.queue.app

    def cron(
        self,
        expression: str,
        data: Any = None,
        *,
        tz: str = "UTC",
        name: str | None = None,
        missed: str = "one",
        overlap: bool = False,
        **options: Any,
    ) -> None:
        """Add a job of this type at every tick of a cron expression, once for all engines.

        `missed`: what becomes of ticks that no engine was there for: "one" job for all of them, "all", or "skip".
        `overlap`: whether a tick adds a job while that of the tick before is not final; else that tick is skipped.
        `name` tells several schedules of one type apart. Other options are those of `enqueue`.
        """
        self.queue.schedule(self, expression, data, tz, name or self.name, missed, overlap, options)

    def _new(self, data: Any, **options: Any) -> New:
        queue = self.queue
        return accept(
            queue.number, queue.order, self.spec, data, self._app.store.now(), lane_by=queue.lane_by,
            rules=queue.rules, look_again=queue.look_again, **options,
        )  # fmt: skip

    def _many(self, data: Iterable[Any], keys: Sequence[str] | None, options: dict[str, Any]) -> list[New]:
        now, queue = self._app.store.now(), self.queue
        items = list(data)
        if keys is not None and len(keys) != len(items):
            raise Invalid(f"{len(items)} jobs and {len(keys)} keys: give each job one key, or none at all")
        every = keys if keys is not None else [None] * len(items)
        options = options | {"lane_by": queue.lane_by, "rules": queue.rules, "look_again": queue.look_again}
        return [
            accept(queue.number, queue.order, self.spec, item, now, key=key, **options)
            for item, key in zip(items, every, strict=True)
        ]

    def _ids(self, news: Sequence[New], stored: Sequence[Stored]) -> list[int]:
        self._app.added(news, stored)
        return [one.id for one in stored]

    def __repr__(self) -> str:
        return f"<JobType {self.queue.name}.{self.name}>"


def _code(handler: AnyCode, what: str) -> AnyCode:
    if not callable(handler):
        raise Invalid(f"{what} must be a function, not {shown(handler)}")
    return handler


def _plain(handler: AnswerHandler) -> AnswerHandler:
    if inspect.iscoroutinefunction(_code(handler, "on_late")):
        raise Invalid("on_late must be a plain function: it is called by whoever brings the answer, and not awaited")
    return handler


class Queue:
    """A queue: its job types, its order, and (in the database) its pair of tables."""

    def __init__(
        self,
        app: Hipq,
        name: str,
        order: AnyOrder | None,
        declared: Rules = NO_RULES,
        throttler: Throttler | None = None,
        lane_by: LaneBy | None = None,
    ) -> None:
        self.app = app
        self.name = names.name(name, "a queue's name")
        self._order = order
        self.declared = declared
        """The rules its code gives it; what is in force is in the database."""
        self.throttler = throttler
        self.lane_by = lane_by
        self._types: dict[str, JobType] = {}
        self._specs: dict[str, Spec] = {}
        self._crons: list[Schedule] = []
        self._number = 0
        self._rules: Rules | None = None
        self._learned = 0
        """When, on the steady clock."""

    @property
    def order(self) -> AnyOrder:
        """In which its jobs start. One that only the database knows goes by what its engines' code said."""
        return self._order or self.rules.order

    @property
    def number(self) -> int:
        """The number the database knows it by. Its tables are made at the first use, not at the declaration."""
        if not self._number:
            self._number = self.app.register(self.name)
        return self._number

    @property
    def rules(self) -> Rules:
        """The rules as this program knows them: new jobs are checked by these. An engine goes by what the database says
        at that moment."""
        if self._rules is None:
            return self.look_again()
        if self.app.steady() - self._learned >= RELEARN:
            self._learned = self.app.steady()
            with contextlib.suppress(StoreUnavailable):  # what is known will do
                return self.look_again()
        return self._rules

    def look_again(self) -> Rules:
        self.learn(self.app.store.rules(self.number))
        assert self._rules is not None
        return self._rules

    def learn(self, stored: Rules) -> None:
        """What the database says; but limits given in this program's code are newer than another's."""
        self._rules = replace(stored, limits=self.declared.limits) if self.declared.limits else stored
        self._learned = self.app.steady()

    def leave(self) -> Callable[[], None]:
        """Forget what the database said, since another one follows; what is returned brings it back."""
        before = self._number, self._rules, self._learned

        def back() -> None:
            self._number, self._rules, self._learned = before

        self._number, self._rules, self._learned = 0, None, 0
        return back

    @property
    def throttle_limit(self) -> int:
        """How many units may run at a time; 0 = no limit."""
        return self.rules.most

    @property
    def job_types(self) -> list[JobType]:
        return list(self._types.values())

    @property
    def running_jobs(self) -> list[Job[Any]]:
        """The jobs in state running, wherever they run."""
        return [Job(row) for row in self.app.store.find(Filter(self.number, state="running", limit=10_000))]

    @overload
    def job(self, name: Handler, /) -> JobType: ...
    @overload
    def job(
        self,
        name: str | None = None,
        *,
        timeout: float | timedelta = 86_400.0,
        run_timeout: float | timedelta | None = None,
        lifetime: float | timedelta | None = None,
        priority: int = 100,
        throttle_factor: int = 1,
        windows: Iterable[Window] = (),
        retry: RetryHandler | None = None,
        critical: bool = False,
        process: bool = False,
        fence: str | None = None,
        on_late: AnswerHandler | None = None,
    ) -> Callable[[Handler], JobType]: ...
    def job(
        self,
        name: str | Handler | None = None,
        *,
        timeout: float | timedelta = 86_400.0,
        run_timeout: float | timedelta | None = None,
        lifetime: float | timedelta | None = None,
        priority: int = 100,
        throttle_factor: int = 1,
        windows: Iterable[Window] = (),
        retry: RetryHandler | None = None,
        critical: bool = False,
        process: bool = False,
        fence: str | None = None,
        on_late: AnswerHandler | None = None,
    ) -> JobType | Callable[[Handler], JobType]:
        """Decorator: this function is the handler of a job type, named like it unless `name` says otherwise.

        `fence="attempt"`: an answer that names another attempt than the job is at is too late.
        """
        hours = dump(windows)

        def declare(fn: Handler) -> JobType:
            found = self._type(name if isinstance(name, str) else fn.__name__)
            spec = found.spec
            if spec.fn is not None:
                raise Invalid(f"queue {self.name} has a handler for {spec.name} already")
            spec.timeout = seconds(timeout, "timeout", least=0.001)
            spec.run_timeout = 0.0 if run_timeout is None else seconds(run_timeout, "run_timeout", least=0.001)
            spec.lifetime = 0.0 if lifetime is None else seconds(lifetime, "lifetime", least=0.001)
            spec.priority = names.priority(priority)
            spec.throttle_factor = names.throttle_factor(throttle_factor)
            spec.windows = hours
            spec.critical = critical
            spec.retry = retry
            spec.process = process
            if fence not in (None, "attempt"):
                raise Invalid(f'fence must be "attempt" or None, not {shown(fence)}')
            spec.fence = fence is not None
            spec.on_late = None if on_late is None else _plain(on_late)
            spec.payload = payload_of(fn, Job)
            spec.is_async = inspect.iscoroutinefunction(fn)
            spec.fn = fn
            return found

        if callable(name):
            return declare(name)
        return declare

    def cron(self, expression: str, data: Any = None, **options: Any) -> Callable[[Handler], JobType]:
        """Decorator: this function handles the jobs that a cron expression adds, tick by tick; see `JobType.cron`."""

        def declare(fn: Handler) -> JobType:
            found = self.job(fn)
            found.cron(expression, data, **options)
            return found

        return declare

    def schedule(
        self,
        job_type: JobType,
        expression: str,
        data: Any,
        tz: str,
        name: str,
        missed: str,
        overlap: bool,
        options: dict[str, Any],
    ) -> None:
        from hipq.job.cron import cron

        names.job_type(name)
        names.one_of(missed, "choice for missed ticks", ("one", "all", "skip"))
        if missed == "all" and not overlap:
            raise Invalid('missed="all" adds several jobs at once: it needs overlap=True')
        refused = {"key", "at", "delay", "conn", "on_duplicate"} & options.keys()
        if refused:
            raise Invalid(
                f"a schedule gives its jobs their time and their key: {', '.join(sorted(refused))} is not its"
            )
        if any(one.name == name for one in self._crons):
            raise Invalid(f"queue {self.name} has a schedule {name} already: give this one another name=")

        def make(tick: int) -> New:
            key = f"cron:{name}@{tick}" if overlap else f"cron:{name}"
            return job_type._new(data, key=key, at=to_datetime(tick), **options)

        accept(0, self.order, job_type.spec, data, 0, lane_by=self.lane_by, **options)  # refused now, not at a tick
        self._crons.append(Schedule(name, cron(expression, tz), missed, make))

    def enqueue(self, job_type: str, data: Any = None, **options: Any) -> int:
        """Add a job by the name of its type; a type unknown here is registered by it."""
        return self._type(job_type).enqueue(data, **options)

    def enqueue_many(self, job_type: str, data: Iterable[Any], **options: Any) -> list[int]:
        return self._type(job_type).enqueue_many(data, **options)

    def _type(self, name: str) -> JobType:
        names.job_type(name)
        if name not in self._types:
            self._specs[name] = Spec(name, self.name)
            self._types[name] = JobType(self, self._specs[name])
        return self._types[name]

    def chained(self, job_type: Any, data: Any, options: dict[str, Any]) -> New:
        """What `job.enqueue` inside a handler asks for: a job of another type object, or of a name in this queue."""
        target = job_type if isinstance(job_type, JobType) else self._type(job_type)
        return target._new(data, **options)

    def spec(self, job_type: str) -> Spec:
        return self._specs[job_type]

    @property
    def keeping(self) -> Keeping:
        """How long it keeps answers: what this program's code says or, if that says nothing, what others' did."""
        return self.declared.keeping if self.declared.keeping != DEFAULT_KEEPING else self.rules.keeping

    def arrived(self, job_type: str, key: str, data: Any, **options: Any) -> NewAnswer:
        """An answer to one of its jobs. The job type need not be known here."""
        from hipq.answers.arrive import arrive  # a program that only adds jobs need not load it

        known, now = self.known(names.job_type(job_type)), self.app.store.now()
        return arrive(self.number, job_type, key, data, now, spec=known, keeping=self.keeping, **options)

    def known(self, job_type: str) -> Spec | None:
        return self._specs.get(job_type)

    def for_engine(self) -> EngineQueue:
        """For an engine that works on it: from here on the database says what this program's code says."""
        declared = self.declared
        stored = self.app.store.change_rules(
            self.number,
            lambda rules: replace(
                rules,
                limits=declared.limits,
                order=self.order,
                lanes=declared.lanes,
                throttled=declared.throttled,
                keeping=declared.keeping,
            ),
        )
        self.learn(stored)
        return EngineQueue(self.number, self.name, self.order, self._specs, self.throttler, self._crons)

    def __repr__(self) -> str:
        return f"<Queue {self.app.name}.{self.name}>"
