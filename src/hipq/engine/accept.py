"""Step 1, accept: what a user hands in becomes a `New`, checked whole before anything is stored."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec.structs import replace

from hipq.errors import DuplicateKey, Invalid, shown
from hipq.job import names
from hipq.job.meta import PLAIN, Meta
from hipq.job.model import New, blank
from hipq.job.order import Order
from hipq.job.outcome import UNSET
from hipq.job.retries import Strategy, stored
from hipq.job.spec import Spec
from hipq.job.states import READY, SCHEDULED
from hipq.job.view import Job
from hipq.job.when import later, moment, seconds
from hipq.job.windows import ALWAYS, Window, dump, opening
from hipq.limits.rules import NO_RULES, Rules, refusal
from hipq.stores.protocols import Store
from hipq.stores.values import Stored

if TYPE_CHECKING:
    import asyncio

    _Future = asyncio.Future[list[Stored]]
    _Made = tuple[Sequence[New], bool, _Future]
    _Result = tuple[_Future, list[Stored] | Exception]

LaneBy = Callable[[Job[Any]], str]
"""Says which lane a new job belongs to. The job has no id yet."""


def accept(
    queue: int,
    order: Order,
    spec: Spec,
    data: Any,
    now: int,
    *,
    key: str | None = None,
    at: datetime | None = None,
    delay: float | timedelta | None = None,
    priority: int | None = None,
    throttle_factor: float | None = None,
    timeout: float | timedelta | None = None,
    windows: Iterable[Window] | None = None,
    lane: str | None = None,
    lane_by: LaneBy | None = None,
    rules: Rules = NO_RULES,
    look_again: Callable[[], Rules] | None = None,
    retry: Strategy | str | None = UNSET,
    trace: str = "",
) -> New:
    """`rules` are as this program knows them; before a job is refused by them, they are looked at again. `trace`: the
    traceparent of the span in which it is added."""
    if at is not None and delay is not None:
        raise Invalid("give at or delay, not both")
    text = spec.dump(data)
    start = moment(at) if at is not None else later(now, seconds(delay, "delay")) if delay is not None else now
    wanted = spec.priority if priority is None else names.priority(priority)
    hours = spec.windows if windows is None else dump(windows)
    if hours != ALWAYS:
        start = opening(hours, start)
    new = New(
        queue=queue,
        job_type=spec.name,
        job_key="" if key is None else names.key(key),
        job_data=text,
        phase=READY if start <= now else SCHEDULED,
        rank=order.rank(start, wanted),
        scheduled_run_time=start,
        create_time=now,
        priority=wanted,
        throttle_factor=spec.throttle_factor if throttle_factor is None else names.throttle_factor(throttle_factor),
        timeout=spec.timeout if timeout is None else seconds(timeout, "timeout", least=0.001),
        time_windows=hours,
        lane="" if lane is None else names.lane(lane),
        meta=PLAIN if retry is UNSET and not trace else _meta(spec, retry, trace),
    )
    if lane is None and lane_by:
        new = replace(new, lane=_lane(lane_by, new, spec))
    if rules.in_force and not spec.critical and refusal(rules, new.lane, new.throttle_factor):
        rules = look_again() if look_again else rules
        if why := refusal(rules, new.lane, new.throttle_factor):
            raise Invalid(why)
    return new


def _meta(spec: Spec, retry: Strategy | str | None, trace: str) -> str:
    # A program without the type's handler only adds its jobs: another one runs them, and has registered what they name.
    elsewhere = spec.fn is None and not spec.strategies
    return Meta(trace=trace, retry=None if retry is UNSET else stored(retry, spec.strategies, elsewhere)).dump()


def _lane(lane_by: LaneBy, new: New, spec: Spec) -> str:
    try:
        found = lane_by(Job(blank(new, 0), spec))
    except Exception as error:
        raise Invalid(f"lane_by raised {type(error).__name__}: {error}") from error
    return names.lane(found)


def raises(on_duplicate: str) -> bool:
    if on_duplicate not in ("raise", "return"):
        raise Invalid(f'on_duplicate must be "raise" or "return", not {shown(on_duplicate)}')
    return on_duplicate == "raise"


class Adding:
    """Jobs are being added, inside a span if adding is traced. Here it is not: see `hipq.observe.traces`."""

    trace = ""
    """The traceparent that is stored with the jobs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """The jobs are added, or an exception was raised instead."""

    def added(self, stored: Sequence[Stored]) -> None:
        """The jobs are stored under these ids."""


UNTRACED: Final = Adding()


class Coalescer:
    """Concurrent `aenqueue` calls share transactions: while one commits, the next batch gathers.

    One thread stores the batches, so the event loop never waits for the disk.
    """

    def __init__(self, store: Store, stored: Callable[[Sequence[New], Sequence[Stored]], None]) -> None:
        self._store = store
        self._stored = stored
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._gathering: list[tuple[Callable[[], Sequence[New]], bool, _Future]] = []
        self._storing = False

    async def enqueue(self, make: Callable[[], Sequence[New]], raising: bool) -> list[Stored]:
        """`make` runs in the storing thread too: the time of jobs is the database's, and asking for it may block."""
        import asyncio

        if self._pid != os.getpid():
            self._start()  # a fork does not bring the storing thread along
        future: _Future = asyncio.get_running_loop().create_future()
        with self._lock:
            self._gathering.append((make, raising, future))
            start, self._storing = not self._storing, True
        if start:
            threading.Thread(target=self._store_batches, name="hipq-aenqueue", daemon=True).start()
        return await future

    def _store_batches(self) -> None:
        while True:
            with self._lock:
                gathered, self._gathering = self._gathering, []
                if not gathered:
                    self._storing = False
                    return
            shared: list[_Made] = []
            apart: list[list[_Made]] = []
            for make, raising, future in gathered:
                try:
                    made = (make(), raising, future)
                except Exception as error:
                    _resolve([(future, error)])
                    continue
                if raising and len(made[0]) > 1:
                    apart.append([made])  # all or nothing: a transaction of their own
                else:
                    shared.append(made)
            self._store_batch(shared)
            for batch in apart:
                self._store_batch(batch, all_or_nothing=True)

    def _store_batch(self, batch: list[_Made], all_or_nothing: bool = False) -> None:
        jobs = [job for some, _, _ in batch for job in some]
        try:
            stored = self._store.enqueue(jobs, all_or_nothing=all_or_nothing) if jobs else []
            self._stored(jobs, stored)
        except Exception as error:
            _resolve([(future, error) for _, _, future in batch])
            return
        each = iter(stored)
        results: list[_Result] = []
        for some, raising, future in batch:
            mine = list(islice(each, len(some)))
            twice = next(((job, s) for job, s in zip(some, mine, strict=True) if s.duplicate), None)
            if raising and twice:
                results.append((future, DuplicateKey(twice[0].job_type, twice[0].job_key, twice[1].id)))
            else:
                results.append((future, mine))
        _resolve(results)


def _resolve(results: Sequence[_Result]) -> None:
    """Each event loop is woken once for all of its futures, since waking it costs a system call."""

    def done(loop: asyncio.AbstractEventLoop) -> None:
        for future, value in results:
            if future.get_loop() is not loop or future.cancelled():
                continue
            if isinstance(value, Exception):
                future.set_exception(value)
            else:
                future.set_result(value)

    for loop in {future.get_loop() for future, _ in results}:
        try:
            loop.call_soon_threadsafe(done, loop)
        except RuntimeError:
            pass  # the loop is closed: nobody waits for this any more
