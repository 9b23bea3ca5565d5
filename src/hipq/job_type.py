"""`JobType`: a kind of job, and where jobs of it are handed in."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, Unpack, overload

from hipq.engine.accept import UNTRACED, Adding, accept, raises
from hipq.errors import Invalid
from hipq.in_thread import async_twin, awaitable, in_thread
from hipq.job import names
from hipq.job.answer import Answer, Answered
from hipq.job.codec import ANY
from hipq.job.fault import Fault
from hipq.job.model import New
from hipq.job.options import JobOptions, TickOptions, checked, given
from hipq.job.outcome import UNSET, Failed, Ok, Progress, Retry, Wait
from hipq.job.retries import Strategy
from hipq.job.schedule import DeclaredSchedule
from hipq.job.spec import Spec, data_of, ends, plain, result_of, retry_handler, same_job
from hipq.job.typevars import H, R, T, V
from hipq.job.view import Job
from hipq.job.windows import Window
from hipq.job_id import JobId

if TYPE_CHECKING:
    from hipq.queue import Queue

Outcome = Ok | Failed | Retry | Wait
"""What a handler returns beside a result of its job, or in the place of one."""
Looked = Outcome | Progress | None
"""What an answer handler returns beside a result of its job, or in the place of one."""
OnDuplicate = Literal["raise", "return"]
_NO_DATA: Final[Any] = None
"""Fits any type of data that is left out; a type that needs data refuses it when the job is added."""


class JobType(Generic[T, R]):
    """A kind of job: its code and its defaults. Calling it calls the function, plain and undecorated."""

    def __init__(self, queue: Queue, spec: Spec) -> None:
        self.queue = queue
        self.spec = spec

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def fn(self) -> Callable[[Job[T]], Any]:
        """The undecorated function."""
        if self.spec.fn is None:
            raise Invalid(f"job type {self.name} has no handler in this program")
        return self.spec.fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def retry(self, handler: Callable[[Job[T], Fault], V]) -> Callable[[Job[T], Fault], V]:
        """Decorator: this function decides what becomes of a failed job. It gets a copy of the job, and the fault."""
        same_job(retry_handler(handler), Job, self.spec)
        self.spec.retry = handler
        return handler

    def answered(
        self, handler: Callable[[Job[T], Answer], R | Looked | Coroutine[Any, Any, R | Looked]]
    ) -> Callable[[Job[T], Answer], Any]:
        """Decorator: this function looks at the answer of a job that waits, and returns what a handler does, or
        `Progress` if more answers will come. If it raises, it is called again with the same answer. It is not called
        with an answer that does not fit its type, if it has one: `Answer[Paid]`; that is as if it had raised."""
        same_job(ends(handler, "an answer handler", "job, answer"), Job, self.spec)
        self.spec.answer = data_of(handler, Answer, 1)
        self.spec.answered = handler
        if self.spec.result is ANY:
            self.spec.result = result_of(handler)
        return handler

    def cancelled(self, handler: Callable[[Job[T]], H]) -> Callable[[Job[T]], H]:
        """Decorator: this function tells whoever works on a job that waits that it is given up: it timed out, or was
        cancelled. What it returns is not looked at."""
        same_job(ends(handler, "a cancel handler", "job"), Job, self.spec)
        self.spec.cancelled = handler
        return handler

    def on_late(self, handler: Callable[[Job[T], Answer], H]) -> Callable[[Job[T], Answer], H]:
        """Decorator: this function is shown answers that came too late, by the program they came to."""
        same_job(plain(handler), Job, self.spec)
        self.spec.on_late = handler
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
        return self.queue.app.answer(
            self.queue.name, self.name, key, data, answer_id=answer_id, error=error, attempt=attempt
        )

    aanswer = awaitable(answer)

    def enqueue(
        self,
        data: T = _NO_DATA,
        *,
        key: str | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        throttle_factor: float | None = None,
        windows: Iterable[Window] | None = None,
        timeout: float | timedelta | None = None,
        lane: str | None = None,
        retry: Strategy | str | None = UNSET,
        on_duplicate: OnDuplicate = "raise",
        conn: Any = None,
    ) -> JobId[R]:
        """Add a job and return its id. It is stored when this returns; with `conn`, when your transaction commits.

        `data`: what the handler finds in `job.data`. `key`: your name for the job, by which answers find it; without
        one, its id. `on_duplicate`: while another live job of this type has that key, "raise" `DuplicateKey`, or
        "return" the id of that job. `conn`: your own open connection, in whose transaction the job is stored.

        What is left out of the other options is as the job type says.
        """
        options = given(
            retry, at=at, delay=delay, priority=priority, throttle_factor=throttle_factor, windows=windows,
            timeout=timeout, lane=lane,
        )  # fmt: skip
        app = self.queue.app
        data, key, options = self._wanted(data, key, options)
        with self.adding(key) as adding:
            new = self._new(data, key, options, adding.trace)
            stored = app.store.enqueue([new], all_or_nothing=raises(on_duplicate), conn=conn)
            adding.added(stored)
            app.added([new], stored)
            return JobId.of(app, stored[0].id)

    def enqueue_many(
        self,
        data: Iterable[T],
        *,
        keys: Sequence[str] | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        throttle_factor: float | None = None,
        windows: Iterable[Window] | None = None,
        timeout: float | timedelta | None = None,
        lane: str | None = None,
        retry: Strategy | str | None = UNSET,
        on_duplicate: OnDuplicate = "raise",
        conn: Any = None,
    ) -> list[JobId[R]]:
        """Add many jobs in one transaction: all of them, or, if a key is taken, none (`on_duplicate="raise"`).

        `data`: one item for each job. `keys`: as many keys, in the same order. `conn`: your own open connection, in
        whose transaction they are stored. The other options are the same for all of them, as in `enqueue`.
        """
        options = given(
            retry, at=at, delay=delay, priority=priority, throttle_factor=throttle_factor, windows=windows,
            timeout=timeout, lane=lane,
        )  # fmt: skip
        app, make = self.queue.app, self._many(data, keys, options)
        with self.adding() as adding:
            news = make(adding.trace)
            stored = app.store.enqueue(news, all_or_nothing=raises(on_duplicate), conn=conn)
            adding.added(stored)
            app.added(news, stored)
            return [JobId.of(app, one.id) for one in stored]

    @async_twin(enqueue)
    async def aenqueue(
        self,
        data: Any = None,
        *,
        key: str | None = None,
        on_duplicate: OnDuplicate = "raise",
        conn: Any = None,
        **options: Unpack[JobOptions],
    ) -> JobId[R]:
        """`enqueue` for async code. Calls made at the same time share one transaction; with `conn`, which may be async,
        the job is part of yours."""
        if conn is not None:
            return await _lent(conn, partial(self.enqueue, data, key=key, on_duplicate=on_duplicate, **options))
        app = self.queue.app
        data, key, options = self._wanted(data, key, options)
        with self.adding(key) as adding:
            stored = await app.database.coalescer.enqueue(
                lambda: [self._new(data, key, options, adding.trace)], raises(on_duplicate)
            )
            adding.added(stored)
            return JobId.of(app, stored[0].id)

    @async_twin(enqueue_many)
    async def aenqueue_many(
        self,
        data: Iterable[Any],
        *,
        keys: Sequence[str] | None = None,
        on_duplicate: OnDuplicate = "raise",
        conn: Any = None,
        **options: Unpack[JobOptions],
    ) -> list[JobId[R]]:
        if conn is not None:
            return await _lent(conn, partial(self.enqueue_many, data, keys=keys, on_duplicate=on_duplicate, **options))
        app, make = self.queue.app, self._many(data, keys, options)
        with self.adding() as adding:
            stored = await app.database.coalescer.enqueue(lambda: make(adding.trace), raises(on_duplicate))
            adding.added(stored)
            return [JobId.of(app, one.id) for one in stored]

    def cron(
        self,
        expression: str,
        data: T = _NO_DATA,
        *,
        tz: str = "UTC",
        name: str | None = None,
        missed: str = "one",
        overlap: bool = False,
        **options: Unpack[TickOptions],
    ) -> None:
        """Add a job of this type, with this `data`, at every tick of a cron `expression` in the time zone `tz`, once
        for all engines.

        `missed`: what becomes of ticks that no engine was there for: "one" job for all of them, "all", or "skip".
        `overlap`: whether a tick adds a job while that of the tick before is not final; else that tick is skipped.
        `name` tells several schedules of one type apart. Other options are those of `enqueue`.
        """
        from hipq.cron import settings_of  # most programs have no schedule

        settings = settings_of(self, options, data, expression=expression, tz=tz, missed=missed, overlap=overlap)
        self.queue.add_schedule(DeclaredSchedule(names.job_type(name or self.name), self.name, settings))

    def adding(self, key: str | None = None) -> Adding:
        """To be entered while jobs are added."""
        traces = self.queue.app.traces
        return UNTRACED if traces is None else traces.adding(self.queue.name, self.name, key)

    def _wanted(self, data: Any, key: str | None, options: JobOptions) -> tuple[Any, str | None, JobOptions]:
        """What the middlewares make of a job: here and now, for they may go by what is true for the caller only."""
        middlewares = self.queue.app.middlewares
        if middlewares.see_jobs_added and isinstance(data, dict):
            data = self.spec.typed(data)
        return middlewares.enqueue(self.queue.name, self.name, data, key, options)

    def _new(self, data: Any, key: str | None, options: JobOptions, trace: str = "") -> New:
        wanted = checked(self.spec, options, trace)
        return accept(self.queue, self.spec, wanted, data, self.queue.app.store.now(), key)

    def _many(self, data: Iterable[Any], keys: Sequence[str] | None, options: JobOptions) -> Callable[[str], list[New]]:
        """What makes jobs of these, perhaps in another thread; what middlewares make of them is made now."""
        items = list(data)
        if keys is not None and len(keys) != len(items):
            raise Invalid(f"{len(items)} jobs and {len(keys)} keys: give each job one key, or none at all")
        pairs = zip(items, keys if keys is not None else repeat(None), strict=False)
        if self.queue.app.middlewares.see_jobs_added:
            every = [self._wanted(item, key, options) for item, key in pairs]
            return lambda trace: [self._new(*one, trace) for one in every]

        def make(trace: str) -> list[New]:
            wanted, now = checked(self.spec, options, trace, keys="keys"), self.queue.app.store.now()
            return [accept(self.queue, self.spec, wanted, item, now, key) for item, key in pairs]

        return make

    def __repr__(self) -> str:
        return f"<JobType {self.queue.name}.{self.name}>"


class Declare(Protocol):
    """A decorator that makes a handler a job type: its data is the T of `Job[T]`, its result what the handler returns,
    or Any where it returns outcomes only."""

    @overload
    def __call__(self, fn: Callable[[Job[T]], Coroutine[Any, Any, Outcome]], /) -> JobType[T, Any]: ...
    @overload
    def __call__(self, fn: Callable[[Job[T]], Coroutine[Any, Any, R | Outcome]], /) -> JobType[T, R]: ...
    @overload
    def __call__(self, fn: Callable[[Job[T]], Outcome], /) -> JobType[T, Any]: ...
    @overload
    def __call__(self, fn: Callable[[Job[T]], R | Outcome], /) -> JobType[T, R]: ...


async def _lent(conn: Any, enqueue: Callable[..., H]) -> H:
    """Adding inside a transaction of async code: the caller's event loop carries out what a thread asks for."""
    from hipq.stores.lent import async_connection  # most jobs are added in transactions of their own

    there = await async_connection(conn)
    if there is None:
        return enqueue(conn=conn)
    from hipq.stores.postgres.bridged import Bridged

    return await in_thread(partial(enqueue, conn=Bridged(there)))
