"""Step 3, admit, where a queue has a code throttler: ask it, in a thread of its own, which due jobs may start.

User code runs in no transaction and holds nothing up: one engine at a time takes the queue's ticket, reads a page of
the due jobs and all running jobs, and asks. A job that the throttler admits is claimed only while the ticket is held; a
job that it defers or rejects is written like any other change. The other jobs are parked: they are out of the way of
jobs that nobody has asked about yet, and are asked about again, page by page, whenever something changes, or after a
second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from hipq.engine.queues import EngineQueue
from hipq.events import Events
from hipq.job import transitions
from hipq.job.event_names import EngineEvent, JobEvent
from hipq.job.fault import Fault
from hipq.job.model import Change, Row
from hipq.job.states import PARKED, READY
from hipq.job.windows import is_open
from hipq.limits.code import Verdict, verdict
from hipq.stores.asking import BESIDE_NEW
from hipq.stores.claims import Asked, Claim
from hipq.stores.protocols import Store

MOST_DUE: Final = 500
"""Due jobs that a throttler sees at a time."""
PAGE: Final = MOST_DUE - BESIDE_NEW
"""Of these, how many are jobs that nobody has asked about yet, or, where there are none of those, parked jobs."""
TICKET_SECONDS: Final = 60.0
"""Seconds a throttler may take. After that another engine may ask its own, and this one asks again, in another
thread."""
MANY_HUNG: Final = 5
"""Threads whose question was never answered, at which the process is useless."""
SLOW: Final = 1_000_000
"""Microseconds after which an event says that a throttler is slow."""
LAP: Final = 50_000
"""Microseconds between two pages if no job has ended in between."""
OCCUPIED: Final = 250_000
"""Microseconds until another look, while another engine has the ticket."""
FEW_FAILURES: Final = 3
"""Failures in a row after which a program that runs until its queues are empty no longer waits for the throttler."""
LONGEST_BACKOFF: Final = 30_000_000
HEAD: Final = ("", 0)

Spawn = Callable[[Callable[[], None]], None]
"""Runs something in another thread."""


def spawn(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="hipq-throttler", daemon=True).start()


class Throttling:
    """One queue's throttler in this engine: when to ask it, and what to do with its answer."""

    def __init__(self, store: Store, queue: EngineQueue, events: Events, run_spawned: Spawn) -> None:
        assert queue.throttler is not None
        self._store = store
        self._queue = queue
        self._throttler = queue.throttler
        self._events = events
        self._aside = run_spawned
        self._asked: Asked | None = None
        self._answer: list[Verdict | BaseException] = []
        """The answer to the question under way, once there is one. Each question has a list of its own."""
        self._hung: set[int] = set()
        """The tickets of questions that nobody waits for any more, and that have no answer yet."""
        self._asked_at = 0
        self._said_slow = False
        self._lap = HEAD
        """How far the round through all parked jobs has come."""
        self._ended = False
        """Whether a job has ended. Then the first parked jobs are asked about in between: they may be admitted now."""
        self._was_head = False
        """Whether the last question was about the first parked jobs. The next one is not, or the round would stand
        still where jobs end all the time."""
        self._more = False
        """Whether there may be ready jobs that nobody has asked about."""
        self._again = 0
        """Microseconds after the last question until a rate lets more jobs start; 0 = no rate holds any up."""
        self._shut: list[Row] = []
        """Parked jobs whose window was closed when they were read."""
        self._failures = 0
        self.fruitless = False
        """Whether every job was asked about, none was admitted, and nothing has happened since."""
        self._woken = False
        """Whether something happened while a question was under way."""
        self._in_vain = 0
        """Questions since something last happened that had no ready job in them."""
        self.may_have_work = True
        """Whether there may be something to ask about."""
        self._next_ask = 0
        """When to ask next, on the steady clock, if there is something to ask about."""
        self._failed_until = 0
        """Until when, on the steady clock, a throttler that failed is left alone."""

    @property
    def asking(self) -> bool:
        return self._asked is not None

    @property
    def next_ask(self) -> int:
        """When to ask, on the steady clock; 0 = when something happens."""
        if not self.may_have_work or self.asking or not self._queue.types:
            return 0
        return max(self._next_ask, self._failed_until, 1)

    @property
    def busy(self) -> bool:
        return (
            self.asking or bool(self._shut) or (self.may_have_work and not self.fruitless and bool(self._queue.types))
        )

    @property
    def hung(self) -> bool:
        return len(self._hung) >= MANY_HUNG

    def leave(self) -> None:
        """The engine is stopping and will not use an answer: give the ticket back, so that others may ask."""
        if self._asked is not None:
            self._store.drop_ticket(self._queue.number, self._asked.ticket, "")
        self._asked, self.may_have_work = None, False

    def wake(self) -> None:
        """Something may have happened other than the throttler's own answer."""
        if self._asked is None:
            self.fruitless, self._in_vain = False, 0
        elif not self._answer:
            self._woken = True

    def work_available(self, *, ended: bool = False) -> None:
        """There is something new to ask about, or a job has ended: ask at once."""
        self.may_have_work, self.fruitless, self._in_vain = True, False, 0
        self._ended |= ended
        self._next_ask = min(self._next_ask, self._asked_at)

    def remind(self, fresh: bool, poll: int) -> None:
        """Jobs wait for the throttler. If there are ready ones, which may be new, ask soon. If two questions were in
        vain, or all jobs are parked, ask when a poll interval has passed."""
        if not self.asking:
            at = self._asked_at + (LAP if fresh and self._in_vain < 2 else poll)
            self._next_ask = min(self._next_ask, at) if self.may_have_work else at
            self.may_have_work = True

    def ask(self, engine_id: int, room: int, now: int, steady: int) -> None:
        """Ask, in another thread, if it is time and no other engine is asking."""
        if not 0 < self.next_ask <= steady or room <= 0:
            return
        claim = Claim(self._queue.number, self._queue.types, room, self._queue.critical)
        head = self._ended and not self._was_head
        asked = self._store.ask(engine_id, claim, HEAD if head else self._lap, TICKET_SECONDS, PAGE, now)
        if asked is None:
            self._next_ask = steady + OCCUPIED
            return
        self._read(asked, head, steady, now)
        if not asked.due:
            self.fruitless = self._all_asked and not self._again
            self._store.drop_ticket(claim.queue, asked.ticket, "")
            return
        self._asked, self._said_slow, self._woken = asked, False, False
        answer: list[Verdict | BaseException] = []
        self._answer = answer
        self._aside(lambda: self._consult(asked, answer, now))

    def _read(self, asked: Asked, head: bool, steady: int, now: int) -> None:
        """Note what is to be asked about, and when to ask about the jobs after that."""
        self._asked_at = steady
        self._was_head = head
        self._ended = self._ended and not head
        if not head or self._lap == HEAD:
            self._lap = asked.last_parked or HEAD
        self._more = asked.more
        self._again = max(asked.again - now, 0)
        self._shut = asked.shut
        self.may_have_work = not self._all_asked or self._again > 0
        self._in_vain = 0 if any(row.phase == READY for row in asked.due) else self._in_vain + 1
        self._next_ask = steady + (max(self._again, LAP) if self._all_asked else LAP)

    @property
    def _all_asked(self) -> bool:
        return self._lap == HEAD and not self._ended and not self._more

    def _consult(self, asked: Asked, answer: list[Verdict | BaseException], now: int) -> None:
        """Ask the throttler, in a thread of its own. The answer is handed over in one step."""
        try:
            answer.append(verdict(self._throttler, asked.due, asked.running, self._queue.specs, now))
        except BaseException as error:
            answer.append(error)
        self._hung.discard(asked.ticket)
        self._store.waker.notify()

    def answered(self, room: int, now: int, steady: int) -> tuple[list[Claim], list[Change]]:
        """What follows from the answer, once there is one: claims and changes."""
        asked = self._asked
        if asked is None:
            return [], self._rescheduled(now)
        if not self._answer:
            self._complain(asked, now, steady)
            return [], []
        self._asked, answer = None, self._answer[0]
        if isinstance(answer, BaseException):
            self._failed(asked.ticket, str(Fault.of(answer)), now, steady)
            return [], []
        self._failures = 0
        self.fruitless = not answer.admitted and self._settled
        if room <= 0:  # the hands are full by now: another engine may have more of them
            self.may_have_work = True
            self._store.drop_ticket(self._queue.number, asked.ticket, "")
            return [], self._changes(answer, now)
        return self._claims(asked, answer, room), self._changes(answer, now)

    @property
    def _settled(self) -> bool:
        """Whether asking again now would change nothing."""
        return self._all_asked and not self._woken and not self._again

    def claimed(self, count: int) -> None:
        """This many of the admitted jobs have started; limits may have kept others from it."""
        if not count:
            self.fruitless = self._settled

    def _rescheduled(self, now: int) -> list[Change]:
        shut, self._shut = [row for row in self._shut if not is_open(row.time_windows, now)], []
        return [
            Change(row, transitions.to_next_window(row, self._queue.order, now), (), JobEvent.WINDOW_CLOSED)
            for row in shut
        ]

    def _claims(self, asked: Asked, answer: Verdict, room: int) -> list[Claim]:
        ids = tuple(row.id for row in answer.admitted)
        queue = self._queue
        strategies = tuple(queue.strategies)
        return [Claim(queue.number, queue.types, room, queue.critical, asked.ticket, ids, strategies=strategies)]

    def _changes(self, answer: Verdict, now: int) -> list[Change]:
        order = self._queue.order
        later = [(row, until) for row, until in answer.deferred if until > now]
        parked = answer.parked + [row for row, until in answer.deferred if until <= now]
        return [
            *(Change(row, transitions.deferred(row, until, order, now), (), JobEvent.DEFERRED) for row, until in later),
            *(
                Change(row, transitions.rejected(row, reason, now), (), JobEvent.REJECTED)
                for row, reason in answer.rejected
            ),
            *(Change(row, transitions.parked(row, now), (), JobEvent.PARKED) for row in parked if row.phase != PARKED),
            *self._rescheduled(now),
        ]

    def _failed(self, ticket: int, note: str, now: int, steady: int) -> None:
        self._failures += 1
        self.may_have_work, self.fruitless = True, self._failures >= FEW_FAILURES
        self._failed_until = steady + min(SLOW << min(self._failures - 1, 10), LONGEST_BACKOFF)
        self._events.emit(EngineEvent.THROTTLER_FAILED, now, self._queue.name, error=note)
        self._store.drop_ticket(self._queue.number, ticket, note[:1000])

    def _complain(self, asked: Asked, now: int, steady: int) -> None:
        if not self._said_slow and steady - self._asked_at > SLOW:
            self._said_slow = True
            self._events.emit(EngineEvent.THROTTLER_SLOW, now, self._queue.name, seconds=SLOW / 1e6)
        if steady - self._asked_at > TICKET_SECONDS * 1e6:
            self._asked = None
            self._hung.add(asked.ticket)
            self._failed(asked.ticket, f"it has not answered for {TICKET_SECONDS:g} s", now, steady)
