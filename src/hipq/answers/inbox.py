"""`app.answers`: delivers every answer, and lists, replays, moves and drops those that arrived."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from hipq.answers.arrive import AnyQueue
from hipq.engine.prune import STEP
from hipq.errors import Conflict, Invalid, NotFound, shown
from hipq.events import Events
from hipq.job import names, payload
from hipq.job.answer import LATE, MATCHED, STATES, UNREADABLE, Answer, Answered, Kept, NewAnswer, waited
from hipq.job.event_names import InboxEvent, JobEvent
from hipq.job.fault import clean
from hipq.job.model import Row
from hipq.job.spec import Spec, data_of
from hipq.job.states import FINAL
from hipq.job.view import Job
from hipq.stores.filters import AnswerFilter
from hipq.stores.inbox_transaction import KEYS_AT_ONCE
from hipq.stores.protocols import Store
from hipq.stores.values import Delivered

BATCH_SIZE: Final = 64 << 20
"""Characters of data in one transaction."""


class Count(NamedTuple):
    answers: int
    copies: int
    """How often the answers arrived, counting repeats."""


class Replayed(NamedTuple):
    outcome: Answered
    id: int
    """The number of the answer in the inbox from now on."""
    job: int


class Inbox:
    """The answers to jobs of these queues, by their numbers."""

    def __init__(self, store: Store, events: Events, queues: Mapping[int, AnyQueue]) -> None:
        self._store = store
        self._events = events
        self._queues = queues

    # -- delivering -----------------------------------------------------------------------------------------------
    def deliver(self, news: Sequence[NewAnswer], *, instead_of: int = 0, hooks: bool = True) -> Sequence[Delivered]:
        """Keep answers, match them and emit the events, up to a thousand answers in one transaction."""
        delivered: builtins.list[Delivered] = []
        for some in _batches(news):
            now = self._store.now()
            done = self._store.answer(some, now, instead_of=instead_of, patient=hooks)
            for new, one in zip(some, done, strict=True):
                self._announce(new, one, now)
                if hooks and one.late:
                    self._show_late(self._queues[new.queue].known(new.job_type), *one.late)
            delivered += done
        return delivered

    def deliver_inserted(self, kept: Kept) -> None:
        """Match an answer that another program inserted in plain SQL (docs/tables.md); one that no answer may look like
        becomes unreadable. Engines call this, so `on_late`, which may take long, is not called."""
        queue, named = self._queues[kept.queue], kept.answer_id or None
        try:
            data, attempt = payload.parse(kept.data, "an answer's data"), kept.attempt or None
            new = queue.arrived(
                kept.job_type, kept.job_key, data, answer_id=named, error=bool(kept.error), attempt=attempt
            )
        except Invalid as error:
            new = queue.arrived("unknown", "unknown", clean(kept.data))
            given = f"it came as answer_id {shown(kept.answer_id)} for the key {shown(kept.job_key)}"
            new = replace(new, job_type=clean(kept.job_type), job_key="", unreadable=f"{error}; {given}")
        self.deliver([replace(new, tenant=clean(kept.tenant), shows_late=False)], instead_of=kept.id, hooks=False)

    def _announce(self, new: NewAnswer, delivered: Delivered, now: int) -> None:
        queue, change = self._queues[new.queue], delivered.change
        if self._events.wanted(delivered.outcome):
            details: dict[str, Any] = {"answer": delivered.id, "key": new.job_key}
            details |= {"tenant": new.tenant} if new.tenant else {}
            if change:
                details["waited"] = waited(change.before, now)
            if new.unreadable:
                details["error"] = new.unreadable
            self._events.emit(delivered.outcome, now, queue.name, change.after if change else None, **details)
        for one in delivered.placed:
            if one.state in (MATCHED, LATE) and self._events.wanted(one.state):
                row = change.after if change else None
                self._events.emit(one.state, now, queue.name, row, answer=one.id, key=new.job_key)
        if change:
            self._events.emit(
                JobEvent.OK if change.after.state == FINAL else JobEvent.ANSWERED, now, queue.name, change.after
            )

    def _show_late(self, spec: Spec | None, row: Row, kept: Kept) -> None:
        if spec is None or spec.on_late is None:
            return
        try:
            spec.on_late(Job(row, spec), Answer(kept, data_of(spec.on_late, Answer, 1)))
        except (Exception, SystemExit):  # the answer is kept: to its sender this must not look like a failure
            import logging

            logging.getLogger("hipq").exception("on_late of %s raised", spec.name)

    # -- looking ----------------------------------------------------------------------------------------------------
    def list(
        self,
        queue: str | None = None,
        *,
        type: str = "",
        key: str = "",
        state: str = "",
        job: int = 0,
        tenant: str = "",
        after: int = 0,
        limit: int = 100,
    ) -> Sequence[Answer]:
        """Answers in the order in which they arrived; `after` the last number of one page gives the next."""
        names.whole(limit, "limit", 1, 10_000)
        names.whole(after, "after", 0, (1 << 63) - 1)
        names.whole(job, "a job id", 0, (1 << 63) - 1)
        for value, check in ((type, names.job_type), (key, names.key)):
            if value:
                check(value)
        if state:
            names.one_of(state, "state of answers", STATES)
        found: builtins.list[Kept] = []
        for number in self._of(queue):
            found += self._store.answers(
                AnswerFilter(number, type, key, state, job, after=after, limit=limit, tenant=tenant)
            )
        return [Answer(one) for one in sorted(found, key=lambda one: one.id)[:limit]]

    def show(self, answer_id: int) -> Answer:
        return Answer(self._kept(answer_id))

    def counts(self, queue: str | None = None, *, tenant: str = "") -> dict[str, Count]:
        """The number of answers in each state: of all, or of those to jobs of one tenant of a daemon."""
        total: dict[str, Count] = {}
        for number in self._of(queue):
            for state, (count, copies) in self._store.count_answers(number, tenant).items():
                before = total.get(state, Count(0, 0))
                total[state] = Count(before.answers + count, before.copies + copies)
        return total

    # -- changing ---------------------------------------------------------------------------------------------------
    def replay(self, answer_id: int) -> Replayed:
        """Deliver an answer anew, as if it arrived now and named no attempt: to the job that has its key now."""
        kept = self._kept(answer_id)
        if kept.state == UNREADABLE:
            raise Conflict(f"answer {answer_id} names no job: `rekey` gives it a key")
        return self._redeliver(kept, kept.job_type, kept.job_key)

    def rekey(self, answer_id: int, key: str, *, type: str | None = None) -> Replayed:
        """Deliver an answer anew that named the wrong key, or the wrong job type."""
        kept = self._kept(answer_id)
        return self._redeliver(kept, kept.job_type if type is None else names.job_type(type), names.key(key))

    def drop(self, answer_id: int) -> None:
        """Delete an answer."""
        kept = self._kept(answer_id)
        if not self._store.drop_answer(answer_id):
            kept = self._kept(answer_id)  # or it has gone meanwhile
            raise Conflict(f"answer {answer_id} cannot be dropped: job {kept.job} has it, and has not looked at it yet")
        name = self._queues[kept.queue].name
        self._events.emit(InboxEvent.ANSWER_DROPPED, self._store.now(), name, answer=answer_id, key=kept.job_key)

    def prune(self) -> int:
        """Delete answers that need not be kept any longer, as engines do every minute; returns how many."""
        total = 0
        while count := self._store.maintain([], self._store.now(), STEP).answers:
            total += count
        if total:
            self._events.emit(InboxEvent.ANSWERS_PRUNED, self._store.now(), count=total)
        return total

    def _redeliver(self, kept: Kept, job_type: str, key: str) -> Replayed:
        named = kept.answer_id or None
        new = self._queues[kept.queue].arrived(
            job_type, key, Answer(kept).data, answer_id=named, error=bool(kept.error)
        )
        (delivered,) = self.deliver([replace(new, tenant=kept.tenant)], instead_of=kept.id)
        return Replayed(delivered.outcome, delivered.id, delivered.job)

    def _kept(self, answer_id: int) -> Kept:
        names.whole(answer_id, "the number of an answer", 1, (1 << 63) - 1)
        found = self._store.answers(AnswerFilter(id=answer_id))
        if not found or found[0].queue not in self._queues:
            raise NotFound(f"there is no answer {answer_id}")
        return found[0]

    def _of(self, name: str | None) -> Sequence[int]:
        one_each = {queue.name: number for number, queue in self._queues.items()}  # a queue has a number in each shard
        found = [number for queue, number in one_each.items() if name in (None, queue)]
        if name is not None and not found:
            there = ", ".join(queue.name for queue in self._queues.values()) or "none"
            raise Invalid(f"no such queue: {name!r:.60}; there are {there}")
        return found


def _batches(news: Sequence[NewAnswer]) -> Iterator[Sequence[NewAnswer]]:
    """The answers in batches for one transaction each: by the number of locks, and by the size of the data."""
    start = size = 0
    for number, new in enumerate(news):
        if number > start and (number - start == KEYS_AT_ONCE or size + len(new.data) > BATCH_SIZE):
            yield news[start:number]
            start, size = number, 0
        size += len(new.data)
    if news:
        yield news[start:]
