"""Step 1, accept: turn what a caller hands in into a `New`, checked in full before anything is stored."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from msgspec.structs import replace

from hipq.errors import DuplicateKey, Invalid, ShardAway, shown
from hipq.job import names
from hipq.job.model import New, blank
from hipq.job.options import Checked
from hipq.job.order import Order
from hipq.job.spec import Spec
from hipq.job.states import READY, SCHEDULED
from hipq.job.view import Job
from hipq.limits.rules import Rules, refusal
from hipq.stores.protocols import Store
from hipq.stores.values import Stored

if TYPE_CHECKING:
    import asyncio

    _Future = asyncio.Future[list[Stored]]
    _Made = tuple[Sequence[New], bool, _Future]
    _Result = tuple[_Future, list[Stored] | Exception]

LaneBy = Callable[[Job[Any]], str]
"""Chooses the lane of a new job, which has no id yet."""


class Accepting(Protocol):
    """What accepting a job needs to know of its queue."""

    lane_by: LaneBy | None

    @property
    def number(self) -> int: ...
    @property
    def order(self) -> Order: ...
    @property
    def rules(self) -> Rules:
        """The queue's rules as this program knows them, which may be out of date."""

    def look_again(self) -> Rules:
        """The queue's rules as the database has them now."""


def accept(queue: Accepting, spec: Spec, options: Checked, data: Any, now: int, key: str | None = None) -> New:
    """A new job, ready to be stored. If the rules that this program knows would refuse the job, they are first read
    again: an operator may have changed them."""
    new = made(queue.number, queue, spec, options, data, now, key)
    rules = queue.rules
    if rules.in_force and not spec.critical and refusal(rules, new.lane, new.throttle_factor):
        why = refusal(queue.look_again(), new.lane, new.throttle_factor)
        if why:
            raise Invalid(why)
    return new


def made(
    number: int, queue: Accepting, spec: Spec, options: Checked, data: Any, now: int, key: str | None = None
) -> New:
    """A new job, checked without a look at the database: everything but the limits of its queue."""
    start = options.start(now)
    new = New(
        queue=number,
        job_type=spec.name,
        job_key="" if key is None else names.key(key),
        job_data=spec.dump(data),
        phase=READY if start <= now else SCHEDULED,
        rank=queue.order.rank(start, options.priority),
        scheduled_run_time=start,
        create_time=now,
        priority=options.priority,
        throttle_factor=options.throttle_factor,
        timeout=options.timeout,
        lane=options.lane or "",
        time_windows=options.windows,
        meta=options.meta,
    )
    if queue.lane_by is None or options.lane is not None:
        return new
    return replace(new, lane=names.lane(called(queue.lane_by, "lane_by", new, spec)))


def called(choose: LaneBy, name: str, new: New, spec: Spec) -> str:
    """What a function of the user's, which the code calls by this name, says of a new job."""
    try:
        return choose(Job(blank(new, 0), spec))
    except Exception as error:
        raise Invalid(f"{name} raised {type(error).__name__}: {error}") from error


def raises(on_duplicate: str) -> bool:
    if on_duplicate not in ("raise", "return"):
        raise Invalid(f'on_duplicate must be "raise" or "return", not {shown(on_duplicate)}')
    return on_duplicate == "raise"


class Adding:
    """A context around the adding of jobs. This one does nothing; `hipq.observe.traces` has one that opens a span."""

    trace = ""
    """The traceparent that is stored with the jobs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Called when the jobs have been added, or adding them raised an exception."""

    def added(self, stored: Sequence[Stored]) -> None:
        """Called with the ids under which the jobs were stored."""


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
        except ShardAway as error:
            if len(batch) == 1:
                _resolve([(batch[0][2], error)])
            else:  # others' jobs belong to other shards
                for one in batch:
                    self._store_batch([one], all_or_nothing)
            return
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
    """Resolve futures, with one wake-up per event loop: each wake-up costs a system call."""

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
