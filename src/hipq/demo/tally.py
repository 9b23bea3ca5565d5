"""A tally of hipq's events: the phase of each job, the units of limits in use, the outcomes of answers."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from hipq.events import Event, Events
from hipq.job.answer import Answered
from hipq.job.event_names import JobEvent
from hipq.job.model import Row
from hipq.job.states import ANSWERED, CANCELLING, DECIDING, DONE, EXECUTING, FINAL, READY, SCHEDULED, WAITING
from hipq.job.units import Number, counted, number

PHASES: Final = (SCHEDULED, READY, EXECUTING, WAITING, ANSWERED, CANCELLING, DECIDING, DONE)
WORDS: Final = (Answered.MATCHED, Answered.BUFFERED, Answered.DUPLICATE, Answered.CONFLICT, Answered.LATE)


class SeenJob(NamedTuple):
    """A job as its last event had it."""

    queue: str
    row: Row


class Tally:
    """Counts events. Thread-safe: each look is consistent."""

    def __init__(self, events: Events) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[int, SeenJob] = {}
        self._held: Counter[tuple[str, str]] = Counter()
        self._most: Counter[tuple[str, str]] = Counter()
        self._events: Counter[str] = Counter()
        self._ended: deque[float] = deque()
        self._full: dict[str, int] = {}
        self.passed = 0
        """Critical jobs that started although the limit of their queue was used up."""
        events.subscribe(self._note)

    def limit(self, queue: str, units: int) -> None:
        """Set how many units of this queue may run at a time."""
        self._full[queue] = counted(units)

    def _note(self, event: Event) -> None:
        with self._lock:
            self._events[event.name] += 1
            row = event.job
            if row is None or event.name == JobEvent.LOST:  # it shows a change that was not saved
                return
            before = self._jobs.get(row.id)
            if before and row.token <= before.row.token:
                return  # two threads published, the later change first: each write of a job raises its token
            self._jobs[row.id] = SeenJob(event.queue, row)
            self._hold(event, row, before.row.held if before else 0)
            if row.state == FINAL and not (before and before.row.state == FINAL):
                self._ended.append(time.monotonic())

    def _hold(self, event: Event, row: Row, before: int) -> None:
        """Count the units in use. Only engines take and release units, each in its own thread, endings before
        claims: so every sum here was true in the database, too."""
        queue = event.queue
        critical = event.name == JobEvent.CLAIMED and row.phase == EXECUTING and not row.held
        if critical and self._held[queue, "all"] >= self._full.get(queue, 1 << 30):
            self.passed += 1
        for lane in ("all", row.lane):
            self._held[queue, lane] += row.held - before
            self._most[queue, lane] = max(self._most[queue, lane], self._held[queue, lane])

    # -- looking ----------------------------------------------------------------------------------------------------
    def all_final(self, ids: Collection[int], later: int) -> bool:
        """Whether these jobs have ended, and all others that are known, except one that is for later."""
        with self._lock:
            ended = {job_id for job_id, seen in self._jobs.items() if seen.row.state == FINAL}
            return self._jobs.keys() - ended <= {later} and ended.issuperset(set(ids) - {later})

    def ended(self, job_type: str) -> int:
        """How many jobs of this type have succeeded."""
        with self._lock:
            return sum(seen.row.job_type == job_type and seen.row.code == "ok" for seen in self._jobs.values())

    def held(self, queue: str) -> Mapping[str, Number]:
        """Units in use now, by lane and in all."""
        with self._lock:
            return {lane: number(units) for (name, lane), units in self._held.items() if name == queue}

    def most(self, queue: str) -> Mapping[str, Number]:
        """The most units that were ever in use."""
        with self._lock:
            return {lane: number(units) for (name, lane), units in self._most.items() if name == queue}

    def phases(self, now: int) -> dict[str, Counter[str]]:
        """The number of jobs in each phase, by queue. A scheduled job whose time has come counts as ready."""
        found: dict[str, Counter[str]] = {}
        with self._lock:
            jobs = list(self._jobs.values())
        for queue, row in jobs:
            due = row.phase == SCHEDULED and row.scheduled_run_time <= now
            found.setdefault(queue, Counter())[READY if due else row.phase] += 1
        return found

    def codes(self) -> Counter[str]:
        """How the finished jobs ended."""
        with self._lock:
            return Counter(seen.row.code for seen in self._jobs.values() if seen.row.phase == DONE)

    @property
    def events(self) -> Counter[str]:
        with self._lock:
            return Counter(self._events)

    def rate(self) -> float:
        """Jobs that ended in the last second."""
        with self._lock:
            while self._ended and self._ended[0] < time.monotonic() - 1:
                self._ended.popleft()
            return len(self._ended)
