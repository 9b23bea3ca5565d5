"""What an operator does: change jobs, one or many, change the rules of queues, delete old jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, Unpack

from msgspec.structs import replace

from hipq.engine.prune import prune
from hipq.errors import Invalid, shown
from hipq.job import names
from hipq.job.event_names import EngineEvent, JobEvent
from hipq.job.model import Row
from hipq.job.names import whole
from hipq.job.states import CODES
from hipq.job.when import later, moment, seconds
from hipq.limits.limit import limit, without_limit
from hipq.limits.rules import AnyLimit, Rules, checked
from hipq.looking import Looking, Wanted

if TYPE_CHECKING:
    from hipq.operate import Changed, Operator

Progress = Callable[["Changed"], None] | None
"""Called after every page of jobs, with what became of the jobs of that page."""


class Changing(Looking):
    """The part of `Hipq` that changes jobs and rules."""

    def cancel(self, job_id: int, reason: str = "cancelled") -> None:
        """End a job that is not final. A running handler is told (`job.cancelled`, a cancelled task, a signal), and its
        result is not kept. A job that waits for its answer and has a cancel handler ends when an engine has run that
        handler."""
        names.reason(reason)
        self._operator.one(self._row(job_id).id, self._operator.cancel(reason), JobEvent.CANCELLED)

    def retry_now(self, job_id: int) -> None:
        """Let a job that waits for its time, first or again, run now."""
        self._operator.one(self._row(job_id).id, self._operator.run_now, JobEvent.HURRIED)

    def change(
        self,
        job_id: int,
        *,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
    ) -> None:
        """Give a job that has not started another time, or another priority."""
        self._operator.one(self._row(job_id).id, self._changing(at, delay, priority), JobEvent.CHANGED)

    def requeue(self, job_id: int) -> int:
        """Add a job like one that has ended, with the same type, data, key, lane and priority, and return its id. The
        ended job stays as it is."""
        return self._operator.requeue(self._row(job_id).id)

    def cancel_all(
        self, queue: str, reason: str = "cancelled", *, progress: Progress = None, **wanted: Unpack[Wanted]
    ) -> Changed:
        """`cancel` for all jobs of a queue that are not final and that `jobs` would find with these filters."""
        names.reason(reason)
        move = self._operator.cancel(reason)
        return _total(self._operator.many(self._filter(queue, **wanted), move, JobEvent.CANCELLED), progress)

    def retry_all(self, queue: str, *, progress: Progress = None, **wanted: Unpack[Wanted]) -> Changed:
        """`retry_now` for all jobs of a queue that `jobs` would find with these filters."""
        found = self._filter(queue, **wanted)
        return _total(self._operator.many(found, self._operator.run_now, JobEvent.HURRIED), progress)

    def change_all(
        self,
        queue: str,
        *,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        progress: Progress = None,
        **wanted: Unpack[Wanted],
    ) -> Changed:
        """`change` for all jobs of a queue that `jobs` would find with these filters."""
        move = self._changing(at, delay, priority)
        return _total(self._operator.many(self._filter(queue, **wanted), move, JobEvent.CHANGED), progress)

    def requeue_all(self, queue: str, *, progress: Progress = None, **wanted: Unpack[Wanted]) -> Changed:
        """`again` for all jobs of a queue that have ended and that `jobs` would find with these filters. No job
        is added whose key a live job has."""
        return _total(self._operator.all_again(self._filter(queue, **wanted)), progress)

    def _changing(
        self, at: datetime | None, delay: float | timedelta | None, priority: int | None
    ) -> Callable[[Row, int], Row | None]:
        if at is None and delay is None and priority is None:
            raise Invalid("say what to change: at=, delay= or priority=")
        if at is not None and delay is not None:
            raise Invalid("give at= or delay=, not both")
        when = None if at is None else moment(at, "at")
        if delay is not None:
            when = later(self.store.now(), seconds(delay, "delay"))
        return self._operator.change(when, None if priority is None else names.priority(priority))

    @property
    def _operator(self) -> Operator:
        from hipq.operate import Operator  # a program that only adds jobs need not load it

        return Operator(self.store, self.events, {queue.number: queue for queue in self.queues}, self.added)

    def set_limit(self, queue: str, to: float | Literal["none"] | Sequence[AnyLimit] | None) -> None:
        """Change a queue's limits while it runs: a number replaces its `limit`, "none" removes that, and both leave the
        others; a list replaces them all, None goes back to what the code says. Every engine's next claim
        goes by the new limits."""

        declared = self._queue(queue).declared.limits

        def change(rules: Rules) -> Rules:
            if to is None:
                return replace(rules, changed=None)
            if isinstance(to, bool):
                raise Invalid(f"a limit is a number or a list of limits, not {to}")
            if to == 0:
                raise Invalid(
                    f'a limit of 0 lets nothing run: set_limit({queue!r}, "none") removes the limit, '
                    f"pause({queue!r}) stops the queue"
                )
            if to == "none" or isinstance(to, (int, float)):
                before = rules.in_force if rules.changed is not None else declared or rules.limits
                others = without_limit(before)
                if to == "none":  # shares stay, for when there is a limit again
                    return replace(rules, changed=tuple(others))
                return replace(rules, changed=checked([limit(to), *others]))
            return replace(rules, changed=checked(to))

        self._change_rules(queue, change)

    def pause(self, queue: str, *, lane: str | None = None, type: str | None = None) -> None:
        """Start nothing more of a queue, of one of its lanes, or of one job type. What runs goes on."""
        if type is not None and lane is None:
            self._check_known(queue, type)
        self._change_rules(queue, lambda rules: _paused(rules, lane, type, True))

    def resume(self, queue: str, *, lane: str | None = None, type: str | None = None) -> None:
        """Take back the `pause` that was given with the same arguments."""
        if type is not None and lane is None and type not in self.store.rules(self._queue(queue).number).paused_types:
            self._check_known(queue, type)
        self._change_rules(queue, lambda rules: _paused(rules, lane, type, False))

    def _check_known(self, queue: str, job_type: str) -> None:
        found = self._queue(queue)
        if not found.is_known(job_type):
            raise Invalid(
                f"queue {queue} has no job type {shown(job_type)}, neither in this code nor in an engine's, and no job "
                f"of it; there are {', '.join(one.name for one in found.job_types) or 'none'}"
            )

    def _change_rules(self, queue: str, change: Callable[[Rules], Rules]) -> None:
        changed = self._queue(queue)
        changed.learn(self.store.change_rules(changed.number, change))
        self.events.emit(EngineEvent.RULES_CHANGED, self.store.now(), queue)

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
        for one in [self._queue(queue)] if queue else self.queues:
            ends = [] if age is None else [(self.store.now() - age, 0)]
            if most is not None and (last := self.store.newest(one.number, most)):
                ends.append((last[0], last[1] + 1))
            for count in prune(self.store, one.number, max(ends), *only) if ends else ():
                total += count
                progress(count)
                if count:
                    self.events.emit(JobEvent.PRUNED, self.store.now(), one.name, count=count)
        return total


def _total(steps: Iterator[Changed], progress: Progress) -> Changed:
    from hipq.operate import Changed

    total = Changed()
    for step in steps:
        total += step
        if progress:
            progress(step)
    return total


def _paused(rules: Rules, lane: str | None, job_type: str | None, wanted: bool) -> Rules:
    if lane is not None and job_type is not None:
        raise Invalid("pause a lane or a job type, not both at once")
    if lane is not None:
        return replace(rules, paused_lanes=_with(rules.paused_lanes, names.lane(lane), wanted))
    if job_type is not None:
        return replace(rules, paused_types=_with(rules.paused_types, names.job_type(job_type), wanted))
    return replace(rules, paused=wanted)


def _with(some: tuple[str, ...], one: str, wanted: bool) -> tuple[str, ...]:
    return tuple(sorted({*some, one} if wanted else {*some} - {one}))
