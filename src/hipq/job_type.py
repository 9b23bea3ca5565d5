"""`JobType`: a kind of job, and where jobs of it are handed in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from hipq.engine.accept import accept, raises
from hipq.errors import Invalid, shown
from hipq.job.answer import Answer, Answered
from hipq.job.model import New
from hipq.job.outcome import UNSET
from hipq.job.retries import RetryHandler, Strategy, backoff, fixed, schedule
from hipq.job.spec import Handler, Spec, ends
from hipq.job.windows import Window
from hipq.stores.values import Stored

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.queue import Queue

AnswerHandler = Callable[[Any, Answer], Any]


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
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        throttle_factor: float | None = None,
        windows: Iterable[Window] | None = None,
        timeout: float | timedelta | None = None,
        lane: str | None = None,
        retry: Strategy | str | None = UNSET,
        on_duplicate: str = "raise",
        conn: Any = None,
    ) -> int:
        """Add a job and return its id. It is stored when this returns; with `conn`, when your transaction commits.

        `retry`: what becomes of this job if it fails, whatever its type says: `backoff(...)`, `fixed(...)`,
        `schedule(...)`, the name of code that is registered (see `Hipq.retry_strategy`), or None for no retry.
        """
        with self._app.adding(self, key) as adding:
            new = self._new(
                data, adding.trace, key=key, at=at, delay=delay, priority=priority, throttle_factor=throttle_factor,
                windows=windows, timeout=timeout, lane=lane, retry=retry,
            )  # fmt: skip
            stored = self._app.store.enqueue([new], all_or_nothing=raises(on_duplicate), conn=conn)
            adding.added(stored)
            return self._ids([new], stored)[0]

    def enqueue_many(
        self,
        data: Iterable[Any],
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
            "retry": retry,
        }
        with self._app.adding(self) as adding:
            news = self._many(data, keys, adding.trace, options)
            stored = self._app.store.enqueue(news, all_or_nothing=raises(on_duplicate), conn=conn)
            adding.added(stored)
            return self._ids(news, stored)

    async def aenqueue(self, data: Any = None, *, on_duplicate: str = "raise", **options: Any) -> int:
        """`enqueue` for async code. Calls made at the same time share one transaction."""
        with self._app.adding(self, options.get("key")) as adding:
            make = partial(self._new, data, adding.trace, **options)
            stored = await self._app.database.coalescer.enqueue(lambda: [make()], raises(on_duplicate))
            adding.added(stored)
            return stored[0].id

    async def aenqueue_many(
        self, data: Iterable[Any], *, keys: Sequence[str] | None = None, on_duplicate: str = "raise", **options: Any
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
        self.queue.schedule(self, expression, data, tz, name or self.name, missed, overlap, options)

    def _new(self, data: Any, trace: str = "", /, **options: Any) -> New:
        queue = self.queue
        return accept(
            queue.number, queue.order, self.spec, data, self._app.store.now(), lane_by=queue.lane_by,
            rules=queue.rules, look_again=queue.look_again, trace=trace, **options,
        )  # fmt: skip

    def _many(self, data: Iterable[Any], keys: Sequence[str] | None, trace: str, options: dict[str, Any]) -> list[New]:
        now, queue = self._app.store.now(), self.queue
        items = list(data)
        if keys is not None and len(keys) != len(items):
            raise Invalid(f"{len(items)} jobs and {len(keys)} keys: give each job one key, or none at all")
        every = keys if keys is not None else [None] * len(items)
        options = options | {"lane_by": queue.lane_by, "rules": queue.rules, "look_again": queue.look_again}
        return [
            accept(queue.number, queue.order, self.spec, item, now, key=key, trace=trace, **options)
            for item, key in zip(items, every, strict=True)
        ]

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
