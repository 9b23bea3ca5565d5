"""The run's events in words, as far as they are worth showing."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from hipq import Job
from hipq.events import Event, Events
from hipq.job.answer import Answered
from hipq.job.event_names import JobEvent
from hipq.job.model import Row
from hipq.job.states import FINAL


class Item(NamedTuple):
    seconds: float
    """Seconds since the start."""
    kind: str
    who: str
    text: str


class News:
    """The last items. Listeners get each item in the thread in which it happened."""

    def __init__(self, events: Events) -> None:
        self.began = time.monotonic()
        self._lock = threading.Lock()
        self._latest: deque[Item] = deque(maxlen=40)
        self.listener: Callable[[Item], None] = lambda _item: None
        events.subscribe(self._note, *_KINDS)

    def latest(self, count: int) -> list[Item]:
        with self._lock:
            return list(self._latest)[-count:] if count > 0 else []

    def _note(self, event: Event) -> None:
        found = _KINDS[event.name](event)
        if found is None:
            return
        kind, text = found
        who = event.job.job_key if event.job else event.details.get("key", "")
        item = Item(time.monotonic() - self.began, kind, _called(event.job, who), text)
        with self._lock:
            self._latest.append(item)
        self.listener(item)


Told = tuple[str, str] | None


def _called(row: Row | None, key: str) -> str:
    return row.job_type if row and key == str(row.id) else key


def _fault(row: Row) -> str:
    fault = Job[Any](row).fault
    return fault.message if fault else ""


def _claimed(event: Event) -> Told:
    row = event.job
    assert row is not None
    if row.job_type == "report":
        return "window", "its window has opened: it starts"
    if row.job_type == "reconcile" and row.attempt > 1:
        return "apart", "starts again, in a process of its own"
    return None


def _ok(event: Event) -> Told:
    row = event.job
    assert row is not None
    if row.job_type == "freeze":
        return "critical", "critical: it has run, whatever the limit says"
    return None


def _matched(event: Event) -> Told:
    row = event.job
    if row is None or row.held or "waited" not in event.details:
        return None
    return "slow", "answered after its time-out: it need not be tried again"


def _again(event: Event) -> Told:
    row = event.job
    assert row is not None
    pause = max(row.scheduled_run_time - event.at, 0) / 1e6
    return f"again after {row.exitcode}", f"{_fault(row)}; again in {pause:.1f} s"


def _failed(event: Event) -> Told:
    assert event.job is not None
    return "failed", f"failed for good: {_fault(event.job)}"


def _gave_up(event: Event) -> Told:
    row = event.job
    assert row is not None
    return "gave up", f"given up after {row.attempt} attempts" if row.state == FINAL else "given up"


_KINDS: dict[str, Callable[[Event], Told]] = {
    JobEvent.CLAIMED: _claimed,
    JobEvent.OK: _ok,
    Answered.MATCHED: _matched,
    JobEvent.AGAIN: _again,
    JobEvent.CRASHED: lambda _: ("crashed", "has killed its process; nobody else is hurt"),
    JobEvent.FAILED: _failed,
    JobEvent.GAVE_UP: _gave_up,
    JobEvent.TIMED_OUT: lambda _: ("timed out", "no answer in time: the bank is told to stop"),
    JobEvent.CANCELLED: lambda _: ("cancelled", "cancelled before its time"),
    Answered.BUFFERED: lambda _: ("early", "answered before the bank's own reply: kept for it"),
    Answered.DUPLICATE: lambda _: ("duplicate", "the same answer again: counted, nothing else"),
    Answered.CONFLICT: lambda _: ("conflict", "another answer after the first: kept, flagged"),
    Answered.LATE: lambda _: ("late", "an answer after its end: kept, changes nothing"),
}
