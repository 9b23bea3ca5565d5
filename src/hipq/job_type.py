"""`JobType`: a kind of job, and where jobs of it are handed in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from hipq.engine.accept import accept, raises
from hipq.engine.queues import Schedule
from hipq.errors import Invalid, shown
from hipq.job import names
from hipq.job.answer import Answer, Answered
from hipq.job.model import New
from hipq.job.retries import RetryHandler, Strategy, backoff, fixed, schedule
from hipq.job.spec import Handler, Spec, ends
from hipq.job.when import to_datetime
from hipq.job.windows import Window
from hipq.stores.values import Stored

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.queue import Queue

AnswerHandler = Callable[[Any, Answer], Any]
_OF_A_TICK: Final = frozenset({"key", "at", "delay", "conn", "on_duplicate"})
"""What a schedule itself gives its jobs, or what nobody is there to be told."""


class JobOptions(TypedDict, total=False):
    """What a new job may have of its own, whatever its type says."""

    at: datetime | None
    delay: float | timedelta | None
    priority: int | None
    throttle_factor: float | None
    windows: Iterable[Window] | None
    timeout: float | timedelta | None
    lane: str | None
    retry: Strategy | str | None


_OPTIONS: Final = JobOptions.__annotations__.keys() | {"key"}


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
        self.spec.retry = retry_handler(handler)
        return handler

    def answered(self, handler: AnswerHandler) -> AnswerHandler:
        """Decorator: this function looks at the answer of a job that waits, and returns what a handler does, or
        `Progress` if more answers will come. If it raises, it is called again with the same answer."""
        self.spec.answered = ends(handler, "an answer handler", "job, answer")
        return handler

    def cancelled(self, handler: Handler) -> Handler:
        """Decorator: this function tells whoever works on a job that waits that it is given up: it timed out, or was
        cancelled. What it returns is not looked at."""
        self.spec.cancelled = ends(handler, "a cancel handler", "job")
        return handler

    def on_late(self, handler: AnswerHandler) -> AnswerHandler:
        """Decorator: this function is shown answers that came too late, by the program they came to."""
        self.spec.on_late = plain(handler)
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
        on_duplicate: str = "raise",
        conn: Any = None,
        **options: Unpack[JobOptions],
    ) -> int:
        """Add a job and return its id. It is stored when this returns; with `conn`, when your transaction commits.

        `retry`: what becomes of this job if it fails, whatever its type says: `backoff(...)`, `fixed(...)`,
        `schedule(...)`, the name of code that is registered (see `Hipq.retry_strategy`), or None for no retry.
        """
        with self._app.adding(self, key) as adding:
            new = self._new(data, adding.trace, key=key, **options)
            stored = self._app.store.enqueue([new], all_or_nothing=raises(on_duplicate), conn=conn)
            adding.added(stored)
            return self._ids([new], stored)[0]

    def enqueue_many(
        self,
        data: Iterable[Any],
        *,
        keys: Sequence[str] | None = None,
        on_duplicate: str = "raise",
        conn: Any = None,
        **options: Unpack[JobOptions],
    ) -> list[int]:
        """Add many jobs in one transaction: all of them, or, if a key is taken, none (`on_duplicate="raise"`)."""
        with self._app.adding(self) as adding:
            news = self._many(data, keys, adding.trace, options)
            stored = self._app.store.enqueue(news, all_or_nothing=raises(on_duplicate), conn=conn)
            adding.added(stored)
            return self._ids(news, stored)

    async def aenqueue(
        self, data: Any = None, *, key: str | None = None, on_duplicate: str = "raise", **options: Unpack[JobOptions]
    ) -> int:
        """`enqueue` for async code. Calls made at the same time share one transaction."""
        with self._app.adding(self, key) as adding:
            make = partial(self._new, data, adding.trace, key=key, **options)
            stored = await self._app.database.coalescer.enqueue(lambda: [make()], raises(on_duplicate))
            adding.added(stored)
            return stored[0].id

    async def aenqueue_many(
        self,
        data: Iterable[Any],
        *,
        keys: Sequence[str] | None = None,
        on_duplicate: str = "raise",
        **options: Unpack[JobOptions],
    ) -> list[int]:
        items = list(data)
        with self._app.adding(self) as adding:
            make = partial(self._many, items, keys, adding.trace, options)
            stored = await self._app.database.coalescer.enqueue(make, raises(on_duplicate))
            adding.added(stored)
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
        from hipq.job.cron import cron  # most programs have no schedule

        named = names.job_type(name or self.name)
        names.one_of(missed, "choice for missed ticks", ("one", "all", "skip"))
        if missed == "all" and not overlap:
            raise Invalid('missed="all" adds several jobs at once: it needs overlap=True')
        _check_tick_options(options)
        if options.get("windows") is not None:
            options["windows"] = list(options["windows"])  # for each tick: it may be an iterator
        queue = self.queue

        def make(tick: int) -> New:
            key = f"cron:{named}@{tick}" if overlap else f"cron:{named}"
            new = self._new(data, key=key, at=to_datetime(tick), **options)
            return self._app.traces.promised(new) if self._app.traces else new

        accept(0, queue.order, self.spec, data, 0, lane_by=queue.lane_by, **options)  # refused now, not at a tick
        queue.add_schedule(Schedule(named, cron(expression, tz), missed, make))

    def _new(self, data: Any, trace: str = "", /, **options: Any) -> New:
        _check_options(options)
        queue = self.queue
        return accept(
            queue.number, queue.order, self.spec, data, self._app.store.now(), lane_by=queue.lane_by,
            rules=queue.rules, look_again=queue.look_again, trace=trace, **options,
        )  # fmt: skip

    def _many(self, data: Iterable[Any], keys: Sequence[str] | None, trace: str, options: JobOptions) -> list[New]:
        _check_options(options)
        now, queue = self._app.store.now(), self.queue
        items = list(data)
        if keys is not None and len(keys) != len(items):
            raise Invalid(f"{len(items)} jobs and {len(keys)} keys: give each job one key, or none at all")
        every = keys if keys is not None else [None] * len(items)
        if (windows := options.get("windows")) is not None:
            options["windows"] = list(windows)  # for each job: it may be an iterator
        return [
            accept(
                queue.number, queue.order, self.spec, item, now, key=key, lane_by=queue.lane_by, rules=queue.rules,
                look_again=queue.look_again, trace=trace, **options,
            )
            for item, key in zip(items, every, strict=True)
        ]  # fmt: skip

    def _ids(self, news: Sequence[New], stored: Sequence[Stored]) -> list[int]:
        self._app.added(news, stored)
        return [one.id for one in stored]

    def __repr__(self) -> str:
        return f"<JobType {self.queue.name}.{self.name}>"


def retry_handler(handler: Any, what: str = "a retry handler") -> RetryHandler:
    if handler in (backoff, fixed, schedule) or not callable(handler):
        raise Invalid(
            f"retry takes a policy, like retry=backoff(attempts=3), or a function (job, fault); not {shown(handler)}"
        )
    if inspect.iscoroutinefunction(handler):
        raise Invalid(f"{what} must be a plain function: write def, not async def")
    if isinstance(handler, type):
        example = f"backoff(on={handler.__name__})" if issubclass(handler, BaseException) else "backoff(attempts=3)"
        raise Invalid(f"retry takes a policy, like retry={example}, or a function (job, fault); not a class")
    found: RetryHandler = ends(handler, what, "job, fault")
    return found


def plain(handler: AnswerHandler) -> AnswerHandler:
    if inspect.iscoroutinefunction(ends(handler, "on_late", "job, answer")):
        raise Invalid("on_late must be a plain function: it is called by whoever brings the answer, and not awaited")
    return handler


def _check_options(options: Mapping[str, Any]) -> None:
    if unknown := options.keys() - _OPTIONS:
        raise TypeError(f"enqueue has no option {', '.join(sorted(unknown))}; there are {', '.join(sorted(_OPTIONS))}")


def _check_tick_options(options: Mapping[str, Any]) -> None:
    known = JobOptions.__annotations__.keys() - _OF_A_TICK
    if unknown := options.keys() - known - _OF_A_TICK:
        raise Invalid(
            f"cron has no option {', '.join(sorted(unknown))}; there are tz, name, missed, overlap, "
            f"{', '.join(sorted(known))}"
        )
    if refused := _OF_A_TICK & options.keys():
        raise Invalid(f"a schedule gives its jobs their time and their key: {', '.join(sorted(refused))} is not its")
