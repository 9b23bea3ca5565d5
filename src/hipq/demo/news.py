"""The run's events, counted, and in words as far as they are worth showing."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

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

    def __str__(self) -> str:
        return f"{self.seconds:5.1f} s  {self.who:<10} {self.text}"


class News:
    """The last items. The listener gets each item in the thread in which it happened."""

    def __init__(self, events: Events) -> None:
        self.began = time.monotonic()
        self.counts: Counter[str] = Counter()
        """Of all events, by name."""
        self.latest: deque[Item] = deque(maxlen=40)
        self.listener: Callable[[Item], None] = lambda _item: None
        self._lock = threading.Lock()
        events.subscribe(self._note)

    def _note(self, event: Event) -> None:
        found = _PLAIN.get(event.name) or (event.job and _about(event, event.job))
        with self._lock:
            self.counts[event.name] += 1
        if found:
            kind, text = found
            item = Item(time.monotonic() - self.began, kind, _called(event), text)
            self.latest.append(item)
            self.listener(item)


def _called(event: Event) -> str:
    if event.job is None:
        return str(event.details.get("key", ""))
    return event.job.job_type if event.job.job_key == str(event.job.id) else event.job.job_key


def _about(event: Event, row: Row) -> tuple[str, str] | None:
    """The kind and the words of an event that depend on its job; None if it is nothing new."""
    match event.name, row.job_type:
        case JobEvent.CLAIMED, "report":
            return "window", "its window has opened: it starts"
        case JobEvent.CLAIMED, "reconcile" if row.attempt > 1:
            return "apart", "starts again, in a process of its own"
        case JobEvent.OK, "freeze":
            return "critical", "critical: it has run, whatever the limit says"
        case Answered.MATCHED, _ if not row.held and "waited" in event.details:
            return "slow", "answered after its time-out: it need not be tried again"
        case JobEvent.AGAIN, _:
            pause = max(row.scheduled_run_time - event.at, 0) / 1e6
            return f"again: {_fault(row)}", f"{_fault(row)}; again in {pause:.1f} s"
        case JobEvent.FAILED, _:
            return f"failed: {_fault(row)}", f"failed for good: {_fault(row)}"
        case JobEvent.GAVE_UP, _:
            return "gave up", f"given up after {row.attempt} attempts" if row.state == FINAL else "given up"
    return None


def _fault(row: Row) -> str:
    fault = Job[Any](row).fault
    return fault.message if fault else ""


_PLAIN: Final[dict[str, tuple[str, str]]] = {
    JobEvent.CRASHED: ("crashed", "has killed its process; nobody else is hurt"),
    JobEvent.TIMED_OUT: ("timed out", "no answer in time: the bank is told to stop"),
    JobEvent.CANCELLED: ("cancelled", "cancelled before its time"),
    Answered.BUFFERED: ("early", "answered before the bank's own reply: kept for it"),
    Answered.DUPLICATE: ("duplicate", "the same answer again: counted, nothing else"),
    Answered.CONFLICT: ("conflict", "another answer after the first: kept, flagged"),
    Answered.LATE: ("late", "an answer after its end: kept, changes nothing"),
}
