"""What an operator does to jobs: end them, run them now, put them elsewhere in the order, add them again; one job, or
many by filter. Each is a move of a stored row like those of the engine, and like those it names the row's token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.engine.settle import save_apart
from hipq.errors import Conflict, NotFound, StoreBusy
from hipq.job import transitions, wait_transitions, waiting
from hipq.job.fault import Fault, FaultKind
from hipq.job.meta import with_parent
from hipq.job.model import Change, New, Row
from hipq.job.states import ANSWERED, CANCELLING, FINAL, PARKED, READY, SCHEDULED, WAITING
from hipq.job.when import to_datetime
from hipq.job.windows import is_open, opening
from hipq.stores.filters import Filter
from hipq.stores.values import Stored

if TYPE_CHECKING:
    from hipq.app import Hipq

PAGE: Final = 500
LARGE: Final = 4_000_000
"""Characters of payloads in a page: after one with more, pages are smaller."""
TRIES: Final = 10

Move = Callable[[Row, int], Row | None]
"""The row after it; None if there is nothing to do. Conflict, if it cannot be done to this one."""


class Changed(NamedTuple):
    """What became of many jobs."""

    changed: int = 0
    skipped: int = 0
    """Found, but left alone: they were at a point where it cannot be done, had come to it by themselves, or somebody's
    transaction held them."""

    def __add__(self, other: Changed) -> Changed:  # type: ignore[override]
        return Changed(self.changed + other.changed, self.skipped + other.skipped)


class Moved(NamedTuple):
    """What became of each of some jobs."""

    changed: list[Row]
    """As they were before."""
    left: int
    """Had come to it by themselves."""
    refused: list[str]
    """Why not, of each that it could not be done to."""

    @property
    def counted(self) -> Changed:
        return Changed(len(self.changed), self.left + len(self.refused))


class Operator:
    """Moves jobs of an instance by hand."""

    def __init__(self, app: Hipq) -> None:
        self._app, self._store = app, app.store

    # -- what can be done to a job -----------------------------------------------------------------------------------
    def cancel(self, reason: str) -> Move:
        """It ends. If its handler is running, that is told, and what it comes to is not kept. One that waits for its
        answer and has a cancel handler ends when an engine has run that."""

        def cancelled(row: Row, now: int) -> Row | None:
            cause = waiting.load(row.wait).cause
            if row.phase == CANCELLING and cause and cause.kind == FaultKind.CANCELLED:
                return None  # it is on its way
            if row.phase in (WAITING, ANSWERED) and waiting.load(row.wait).calls_off:
                return wait_transitions.cancelling(row, Fault(FaultKind.CANCELLED, reason), now)
            return transitions.cancelled(row, reason, now)

        return cancelled

    def run_now(self, row: Row, now: int) -> Row:
        """It waits for its time, first or again, and runs now instead; or it looks at its answer again, if its answer
        handler has failed."""
        if row.phase == WAITING and waiting.load(row.wait).tries:
            return wait_transitions.looks_again(row, now)
        if row.phase == WAITING:
            raise Conflict(
                f"job {row.id} has sent its request and waits for its answer until "
                f"{to_datetime(row.deadline).isoformat()}: bring its answer, or cancel it"
            )
        if row.phase != SCHEDULED:
            raise Conflict(f"job {row.id} is {row.state} ({row.phase}); only a scheduled job can be run now")
        if not is_open(row.time_windows, now):
            opens = to_datetime(opening(row.time_windows, now)).isoformat()
            raise Conflict(f"job {row.id} may not start now: its window opens at {opens}")
        return transitions.run_now(row, self._app.declared.of_job(row.id).order, now)

    def change(self, at: int | None, priority: int | None) -> Move:
        """It has not started, and is to start at another time, or before or after others."""

        def changed(row: Row, now: int) -> Row:
            if row.phase not in (SCHEDULED, READY, PARKED):
                raise Conflict(
                    f"job {row.id} is {row.state} ({row.phase}); time and priority are changed before a job starts"
                )
            return transitions.changed(row, self._app.declared.of_job(row.id).order, now, at=at, priority=priority)

        return changed

    # -- to one ------------------------------------------------------------------------------------------------------
    def one(self, job_id: int, move: Move, event: str) -> None:
        """Read, move, write if nobody was faster; after a few tries it is somebody else's turn."""
        for _ in range(TRIES):
            row, now = self._row(job_id), self._store.now()
            if row.state == FINAL:
                raise Conflict(
                    f"job {job_id} is final ({row.code}) and stays so; `hipq job requeue` adds another one like it"
                )
            after = move(row, now)
            if after is None:
                return
            change = Change(row, after, (), event)
            if not self._store.turn(0, [change], [], now).lost:
                self._store.waker.notify()
                self._tell(change, now)
                return
        raise Conflict(f"job {job_id} moved on while it was being changed; look at it again")

    def requeue(self, job_id: int) -> int:
        """Add a job like one that has ended; the new one's id."""
        row = self._row(job_id)
        if row.state != FINAL:
            raise Conflict(f"job {job_id} is {row.state} ({row.phase}): it has not ended")
        return self._stored([self.like(row)], all_or_nothing=True)[0].id

    # -- to many -----------------------------------------------------------------------------------------------------
    def many(self, wanted: Filter, move: Move, event: str) -> Iterator[Changed]:
        """The same to all that are live and found, page after page, each page in one transaction."""
        for rows in self._pages(wanted._replace(table="live")):
            yield self.all_of(rows, move, event).counted

    def all_of(self, rows: Sequence[Row], move: Move, event: str) -> Moved:
        """The same to each of these live jobs, in one transaction."""
        changes, left, why, now = list[Change](), 0, list[str](), self._store.now()
        for row in rows:
            try:
                after = move(row, now)
            except Conflict as error:
                why.append(str(error))
            else:
                left += after is None
                changes += [Change(row, after, (), event)] if after else []
        saved, turned, blocked = save_apart(self._store, 0, changes, now)
        made = [change for change in saved if change.before.id not in turned.lost]
        for change in made:
            self._tell(change, now)
        done = {change.before.id for change in made}
        for job_id in {*turned.lost, *blocked}:  # they moved meanwhile: each by itself
            try:
                self.one(job_id, move, event)
                done.add(job_id)
            except (Conflict, NotFound, StoreBusy) as error:
                why.append(str(error))
        self._store.waker.notify()
        return Moved([row for row in rows if row.id in done], left, why)

    def all_again(self, wanted: Filter) -> Iterator[Changed]:
        """Add a job like each that has ended and is found. A live job with the same key is left alone."""
        for rows in self._pages(wanted._replace(table="final")):
            added = len(self.again(rows))
            yield Changed(added, len(rows) - added)

    def again(self, rows: Sequence[Row]) -> list[int]:
        """Add a job like each of these, which have ended, unless a live one has its key: the ids of the new ones."""
        stored = self._stored([self.like(row) for row in rows])
        return [one.id for one in stored if not one.duplicate]

    def _stored(self, news: list[New], all_or_nothing: bool = False) -> list[Stored]:
        stored = self._store.enqueue(news, all_or_nothing=all_or_nothing)
        self._app.added(news, stored)
        return stored

    def _pages(self, wanted: Filter) -> Iterator[list[Row]]:
        """What is there now: what is added meanwhile is not meant, and with a fast producer there would be no end."""
        now = self._store.now() + 1
        wanted = wanted._replace(before=now if wanted.before is None else min(wanted.before, now))
        size, after = PAGE // 10, wanted.after
        while rows := self._store.find(wanted._replace(after=after, limit=size)):
            yield rows
            after, large = rows[-1].id, sum(len(row.job_data) for row in rows) > LARGE
            size = max(size // 4, 1) if large else min(size * 2, PAGE)

    def like(self, row: Row) -> New:
        """A job like this one, which has ended, to be added now."""
        queue, now = self._app.declared.of_job(row.id), self._store.now()
        at = opening(row.time_windows, now)
        return New(
            queue=queue.number, job_type=row.job_type, job_key="" if row.job_key == str(row.id) else row.job_key,
            job_data=row.job_data, phase=READY if at <= now else SCHEDULED, rank=queue.order.rank(at, row.priority),
            scheduled_run_time=at, create_time=now, priority=row.priority, throttle_factor=row.throttle_factor,
            timeout=row.timeout, lane=row.lane, tenant=row.tenant, time_windows=row.time_windows,
            meta=with_parent(row.meta, 0),
        )  # fmt: skip

    def _tell(self, change: Change, now: int) -> None:
        name = CANCELLING if change.after.phase == CANCELLING else change.event
        self._app.events.emit(name, now, self._app.declared.of_job(change.before.id).name, change.after)

    def _row(self, job_id: int) -> Row:
        row = self._store.get(job_id)
        if row is None:
            raise NotFound(f"there is no job {job_id} any more")
        return row
