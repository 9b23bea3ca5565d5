"""One event for every change. Logs, metrics, traces and dashboards only subscribe; the core only emits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from hipq.job.model import Row

JOB_EVENTS: Final = (
    "added", "staged", "claimed", "ok", "failed", "error", "gave up", "again", "waits", "timed out", "given back",
    "rescued", "crashed", "lifetime over", "cancelled", "told to stop", "hurried", "changed", "lost", "unstorable",
    "pruned", "window closed", "deferred", "rejected", "parked", "answered", "progress", "answer failed",
    "cancelling", "cancel handler ended", "cancel handler failed",
)  # fmt: skip
ANSWER_EVENTS: Final = (
    "matched", "buffered", "duplicate", "conflict", "late", "unreadable", "answer dropped", "answers pruned",
)  # fmt: skip
"""About answers. `details` has the number and the key of one that came, `answer` and `key`; and, when it found its job,
`waited`, the seconds since that was claimed."""
LISTENER_EVENTS: Final = ("listener started", "listener stopped", "listener down", "listener back", "listener report")
"""About what brings answers. `details` has its `listener`; and why it is down, `error`; a report, about every
second in which something came, has how many of each kind came since the last and, if that is known, the `lag`."""
ENGINE_EVENTS: Final = (
    "engine started", "engine stopping", "engine stopped", "lease lost", "store down", "store back", "queue locked",
    "queue free", "handler stuck", "tick", "tick skipped", "tick failed", "throttler slow", "throttler failed",
    "rules changed", "clock set back",
)  # fmt: skip
ALL_EVENTS: Final = (*JOB_EVENTS, *ANSWER_EVENTS, *LISTENER_EVENTS, *ENGINE_EVENTS)


class Event(NamedTuple):
    name: str
    at: int
    """Microseconds since 1970, on the store's clock."""
    queue: str = ""
    job: Row | None = None
    """The job as it is after the change (as far as it is known: `staged` and `pruned` only count)."""
    details: dict[str, Any] = {}  # noqa: RUF012 - never written to


Subscriber = Callable[[Event], None]


class Events:
    """Subscribers by event name. Emitting what nobody listens to costs a dictionary lookup."""

    def __init__(self) -> None:
        self._subscribers: dict[str, list[Subscriber]] = {}

    def subscribe(self, subscriber: Subscriber, *names: str) -> None:
        """Call `subscriber` for these events, or for all of them. In the thread that made the change: be quick."""
        unknown = set(names) - set(ALL_EVENTS)
        if unknown:
            raise ValueError(f"no such event: {', '.join(sorted(unknown))}")
        for name in names or ALL_EVENTS:
            self._subscribers.setdefault(name, []).append(subscriber)

    def wanted(self, name: str) -> bool:
        return name in self._subscribers

    def emit(self, name: str, at: int, queue: str = "", job: Row | None = None, **details: Any) -> None:
        for subscriber in self._subscribers.get(name, ()):
            try:
                subscriber(Event(name, at, queue, job, details))
            except Exception:  # an observer's bug must not stop the work it observes
                import logging

                logging.getLogger("hipq").exception("a subscriber of %r raised", name)
