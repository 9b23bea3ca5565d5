"""Operations on many jobs. Each works in a thread of its own, step by step, whether or not somebody looks at its page;
what it has done is kept in memory, and it stops when this process ends."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.dashboard.looking import Search, look
from hipq.errors import Conflict, HipqError, NotFound
from hipq.job.event_names import JobEvent
from hipq.job.model import Row, queue_of
from hipq.job.states import FINAL
from hipq.operate import Changed, Moved

if TYPE_CHECKING:
    from hipq.dashboard.site import Site
    from hipq.operate import Move, Operator
    from hipq.stores.protocols import Store

KEPT: Final = 20
"""Operations that are remembered."""
AT_ONCE: Final = 4
STEP: Final = 100
"""Jobs that are changed in one transaction: engines wait for no longer than that takes."""
UNDONE: Final = 10_000
"""Jobs of an operation that can be put back."""
_WHY: Final = 5
"""Reasons that are shown for jobs that were left alone."""
_log = logging.getLogger("hipq.dashboard")


class Was(NamedTuple):
    """A job that an operation changed, as it was before."""

    id: int
    at: int
    priority: int
    token: int = 0
    """Each write of the job makes it greater by one."""


class Step(NamedTuple):
    """What an operation did to some jobs."""

    counted: Changed
    was: Sequence[Was] = ()
    why: Sequence[str] = ()


Do = Callable[["Operator", list[Row]], Step]
"""What is to be done to some jobs of one instance."""


def moving(move: Callable[[Operator], Move], event: str) -> Do:
    """A move of jobs that are not final."""

    def do(operator: Operator, rows: list[Row]) -> Step:
        live = [row for row in rows if row.state != FINAL]
        moved: Moved = operator.all_of(live, move(operator), event)
        ended = [f"job {row.id} is final ({row.code}) and stays so" for row in rows if row.state == FINAL]
        return Step(
            Changed(len(moved.changed), moved.left + len(moved.refused) + len(ended)),
            [Was(row.id, row.scheduled_run_time, row.priority, row.token) for row in moved.changed],
            [*moved.refused, *ended],
        )

    return do


def cancelling(reason: str) -> Do:
    return moving(lambda operator: operator.cancel(reason), JobEvent.CANCELLED)


def running_now() -> Do:
    return moving(lambda operator: operator.run_now, JobEvent.HURRIED)


def changing(at: int | None, priority: int | None) -> Do:
    return moving(lambda operator: operator.change(at, priority), JobEvent.CHANGED)


def putting_back(was: Sequence[Was], *, priorities: bool = True) -> Do:
    """Jobs that nothing has happened to since get the time and the priority that they had."""
    before = {one.id: one for one in was}

    def move(operator: Operator) -> Move:
        def back(row: Row, now: int) -> Row | None:
            one = before[row.id]
            if row.token != one.token + 1:
                raise Conflict(f"job {row.id} has started or was changed since, and stays as it is")
            return operator.change(one.at, one.priority if priorities else None)(row, now)

        return back

    return moving(move, JobEvent.CHANGED)


def requeueing() -> Do:
    def do(operator: Operator, rows: list[Row]) -> Step:
        ended = [row for row in rows if row.state == FINAL]
        added = operator.again(ended)
        why = [f"job {row.id} is {row.state} ({row.phase}): it has not ended" for row in rows if row.state != FINAL]
        taken = len(ended) - len(added)
        why += [f"{taken} of the jobs have keys that live jobs have, too"] if taken else []
        return Step(Changed(len(added), len(rows) - len(added)), [Was(job_id, 0, 0) for job_id in added], why)

    return do


class Chosen(NamedTuple):
    """The jobs that an operation is about: these, or all that searches find."""

    ids: Sequence[int] = ()
    searches: Sequence[Search] = ()

    def rows(self, store: Store) -> Iterator[list[Row | int]]:
        """Step by step; of jobs that are no more, the ids. A step may be empty: looking for jobs takes time, too."""
        for start in range(0, len(self.ids), STEP):
            some = self.ids[start : start + STEP]
            yield [store.get(job_id) or job_id for job_id in some]
        for search in self.searches:
            after, is_more = 0, True
            while is_more:
                found = look(store, search, after, STEP, time.monotonic(), whole=True)
                yield [row for row in found.rows if isinstance(row, Row)]
                after, is_more = found.after, found.after > 0


class Operation:
    """One operation: what it does, how far it is."""

    def __init__(self, site: Site, name: str, title: str, chosen: Chosen, do: Do, by: str, of: int) -> None:
        """`title`: like "Cancel 17 jobs". `of`: how many it is about, as far as that is known; 0 = it is not."""
        self.id = secrets.token_hex(6)
        self.name, self.title, self.by, self.of = name, title, by, of
        self._site, self._chosen, self._do = site, chosen, do
        self._stop, self._lock = threading.Event(), threading.Lock()
        self.started, self.ended = site.store.now(), 0
        self.counted = Changed()
        self.why: list[str] = []
        self.was: list[Was] = []
        self.failure = ""
        self.thread = threading.Thread(target=self._run, name=f"hipq-dashboard-{self.id}", daemon=True)

    @property
    def is_over(self) -> bool:
        return bool(self.ended)

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def done(self) -> int:
        return self.counted.changed + self.counted.skipped

    def taken(self) -> list[Was]:
        """What can be put back, once only: of two who ask, one gets nothing."""
        with self._lock:
            was, self.was = self.was, []
        return was

    def stop(self) -> None:
        """After the step that it is at."""
        self._stop.set()

    def _run(self) -> None:
        try:
            for rows in self._chosen.rows(self._site.store):
                if self.is_stopped:
                    break
                self._one(rows)
        except HipqError as error:
            self.failure = str(error)
        except Exception as error:
            _log.exception("operation %s (%s) failed", self.id, self.title)
            self.failure = f"it failed with {type(error).__name__}; the log says more"
        finally:
            self.ended = self._now()  # else it would be at work for ever

    def _now(self) -> int:
        try:
            return max(self._site.store.now(), 1)
        except HipqError:  # the database is away
            return time.time_ns() // 1000

    def _one(self, found: list[Row | int]) -> None:
        gone = [f"there is no job {one} any more" for one in found if isinstance(one, int)]
        rows = [one for one in found if isinstance(one, Row)]
        self.counted += Changed(0, len(gone))
        self.why = [*self.why, *gone][:_WHY]
        for operator, some in self._by_app(rows):
            step = self._do(operator, some)
            self.counted += step.counted
            self.was = [*self.was, *step.was][:UNDONE]
            self.why = [*self.why, *step.why][:_WHY]

    def _by_app(self, rows: list[Row]) -> Iterator[tuple[Operator, list[Row]]]:
        apps = {queue.number: queue.app for queue in self._site.queues.values()}
        for app in self._site.apps:
            some = [row for row in rows if apps.get(queue_of(row.id)) is app]
            if some:
                yield app.jobs.operator, some


class Operations:
    """The operations of a site."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Operation] = {}

    def start(self, operation: Operation) -> None:
        with self._lock:
            if sum(not one.is_over for one in self._known.values()) >= AT_ONCE:
                raise Conflict(f"{AT_ONCE} operations are at work already: wait for one, or stop one")
            self._known[operation.id] = operation
            over = [one.id for one in self._known.values() if one.is_over]
            for old in over[: max(len(self._known) - KEPT, 0)]:
                del self._known[old]
        operation.thread.start()

    def get(self, operation_id: str) -> Operation:
        found = self._known.get(operation_id)
        if found is None:
            raise NotFound(
                "this operation is not known here: it was long ago, or the dashboard has been started again since, "
                "and with it an operation stops"
            )
        return found

    @property
    def all(self) -> list[Operation]:
        """The newest first."""
        return list(self._known.values())[::-1]
