"""One event for every change. Logs, metrics, traces and dashboards only subscribe; the core only emits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from hipq.job.answer import Answered
from hipq.job.event_names import EngineEvent, InboxEvent, JobEvent, ListenerEvent, names_in
from hipq.job.model import Ran, Row

JOB_EVENTS: Final = names_in(JobEvent)
ANSWER_EVENTS: Final = (*map(str, Answered), *names_in(InboxEvent))
"""About answers. `details` has the number and the key of an answer that arrived, `answer` and `key`; and, when the
answer found its job, `waited`: the seconds since that job was claimed."""
LISTENER_EVENTS: Final = names_in(ListenerEvent)
ENGINE_EVENTS: Final = names_in(EngineEvent)
ALL_EVENTS: Final = (*JOB_EVENTS, *ANSWER_EVENTS, *LISTENER_EVENTS, *ENGINE_EVENTS)


class Event(NamedTuple):
    name: str
    at: int
    """Microseconds since 1970, on the store's clock."""
    queue: str = ""
    job: Row | None = None
    """The job as it is after the change (as far as it is known: `staged` and `pruned` only count)."""
    details: dict[str, Any] = {}  # noqa: RUF012 - never written to
    ran: Ran | None = None
    """The run that made the change, if one did."""


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

    def emit(
        self, name: str, at: int, queue: str = "", job: Row | None = None, ran: Ran | None = None, **details: Any
    ) -> None:
        for subscriber in self._subscribers.get(name, ()):
            try:
                subscriber(Event(name, at, queue, job, details, ran))
            except Exception:  # an observer's bug must not stop the work it observes
                import logging

                logging.getLogger("hipq").exception("a subscriber of %r raised", name)
