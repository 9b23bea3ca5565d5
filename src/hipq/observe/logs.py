"""Structured logs: the first subscriber of `hipq.events`. One event, one line, on the standard logger "hipq".

    from hipq.observe import logs
    logs.subscribe(app.events)

Of a tenant's trouble a few lines are written, and then one a minute with a `count`, unless the level is DEBUG.

A line is `event key=value ...`; a handler with `Formatter("json")` writes JSON instead. Payloads and results are never
logged; control characters are escaped, so a job key cannot forge a line. The message of an exception is logged.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from hipq.events import ALL_EVENTS, ENGINE_EVENTS, LISTENER_EVENTS, Event, Events
from hipq.job import payload
from hipq.job.answer import Answered
from hipq.job.event_names import EngineEvent, JobEvent, ListenerEvent
from hipq.job.fault import Fault
from hipq.job.states import NONE, Code

LOGGER: Final = logging.getLogger("hipq")
ERROR_LIMIT: Final = 300
"""Characters of an error in a line; the job has the whole error."""
FEW: Final = 5
"""Lines of one event of one tenant that are written as they happen, within SECONDS."""
SECONDS: Final = 60.0
SHOWN: Final = ("type", "error")
"""The fields of the last event that a line with a count shows."""

_WARNINGS: Final = frozenset({
    JobEvent.FAILED, JobEvent.ERROR, JobEvent.GAVE_UP, JobEvent.TIMED_OUT, JobEvent.RESCUED, JobEvent.CRASHED,
    JobEvent.LIFETIME_OVER, JobEvent.LOST, JobEvent.UNSTORABLE, JobEvent.AGAIN, JobEvent.REJECTED,
    JobEvent.ANSWER_FAILED, JobEvent.CANCEL_HANDLER_FAILED, Answered.CONFLICT, Answered.LATE, Answered.UNREADABLE,
    EngineEvent.LEASE_LOST, EngineEvent.STORE_DOWN, EngineEvent.QUEUE_LOCKED, EngineEvent.HANDLER_STUCK,
    EngineEvent.TICK_SKIPPED, EngineEvent.TICK_FAILED, EngineEvent.THROTTLER_SLOW, EngineEvent.THROTTLER_FAILED,
    EngineEvent.CLOCK_SET_BACK, ListenerEvent.DOWN,
})  # fmt: skip


def level(name: str) -> int:
    """The highest level an event is logged at."""
    if name in _WARNINGS:
        return logging.WARNING
    chatty = name == ListenerEvent.REPORT
    return logging.INFO if name in (*ENGINE_EVENTS, *LISTENER_EVENTS) and not chatty else logging.DEBUG


def subscribe(events: Events, logger: logging.Logger = LOGGER) -> None:
    """Log these events. Events whose level is off at this moment are not subscribed to, so they cost nothing."""

    repeated = Repeated(lambda name, found: logger.log(logging.WARNING, LogLine(name, found)))

    def write(event: Event) -> None:
        weight = level(event.name)
        if event.name == JobEvent.AGAIN and event.job is not None and event.job.code != Code.ERROR:
            weight = logging.DEBUG  # its handler asked for it: nothing went wrong
        if not logger.isEnabledFor(weight):
            return
        found = fields(event)
        if weight == logging.WARNING and "tenant" in found and not logger.isEnabledFor(logging.DEBUG):
            repeated.tell(event.name, found)
        else:
            logger.log(weight, LogLine(event.name, found))
        if event.name == EngineEvent.STOPPED:
            repeated.flush()

    wanted = [name for name in ALL_EVENTS if logger.isEnabledFor(level(name))]
    if wanted:
        events.subscribe(write, *wanted)


def fields(event: Event) -> dict[str, Any]:
    """The fields of an event's line: never the payload, never the result."""
    found: dict[str, Any] = {"queue": event.queue} if event.queue else {}
    if job := event.job:
        found |= {"tenant": job.tenant} if job.tenant else {}
        found |= {"job": job.id, "type": job.job_type, "key": job.job_key, "state": job.state, "phase": job.phase,
                  "attempt": job.attempt, "failures": job.failures}  # fmt: skip
        if job.error != NONE:
            found["error"] = str(Fault.load(job.error))[:ERROR_LIMIT]
        elif event.name in (JobEvent.ANSWER_FAILED, JobEvent.CANCEL_HANDLER_FAILED):  # these are no errors of the job
            failed = [entry for entry in payload.decode(job.history) if entry["event"] == event.name]
            found["error"] = failed[-1]["error"][:ERROR_LIMIT] if failed else ""
    return found | event.details


class LogLine:
    """A log message; its text `event key=value ...` is made only if a log handler writes it."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: Mapping[str, Any]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{name}={_value(value)}" for name, value in self.fields.items())])


def escaped(text: str) -> str:
    """Text that stays on its line and can be trusted: no control characters, no reversed writing."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _value(value: Any) -> str:
    text = escaped(str(value))
    if text and not set(text) & set(" =\"'\\"):
        return text
    return '"' + text.replace('"', '\\"') + '"'


class _Kind:
    """One event of one tenant, since a moment."""

    __slots__ = ("count", "last", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.last: Mapping[str, Any] = {}


class Repeated:
    """Repeated warnings about tenants: a few lines of each kind in a minute, and then one with a count. Twenty thousand
    jobs without a handler are one thing to know, and no tenant fills a daemon's log. Thread-safe."""

    def __init__(self, write: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._timer: threading.Timer | None = None

    def tell(self, event: str, fields: Mapping[str, Any]) -> None:
        """Write this line now, or count it."""
        with self._lock:
            now, key = time.monotonic(), (event, fields["tenant"])
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._kinds[key] = _Kind(now)
            kind.count += 1
            kind.last = fields
            is_written = kind.count <= FEW
            if self._timer is None:
                self._timer = threading.Timer(SECONDS, self.flush)
                self._timer.daemon = True
                self._timer.start()
        if is_written:
            self._write(event, fields)

    def flush(self) -> None:
        """Write the counted lines."""
        with self._lock:
            kinds, self._kinds = self._kinds, {}
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
        now = time.monotonic()
        for (event, tenant), kind in kinds.items():
            if kind.count > FEW:
                shown = {name: kind.last[name] for name in SHOWN if name in kind.last}
                more = {"tenant": tenant, "count": kind.count - FEW, "seconds": round(now - kind.since)}
                self._write(event, more | shown)


class Formatter(logging.Formatter):
    """Formats a record as one line: text, or JSON."""

    def __init__(self, form: str = "text") -> None:
        super().__init__()
        self._json = form == "json"

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        found: dict[str, Any] = {"at": at, "level": record.levelname, "pid": record.process}
        if not self._json:
            return escaped(" ".join(map(str, [*found.values(), record.getMessage(), *self._trace(record)])))
        if isinstance(record.msg, LogLine):
            return json.dumps({**found, "event": record.msg.event, **record.msg.fields}, default=str)
        return json.dumps({**found, "event": "message", "text": " ".join([record.getMessage(), *self._trace(record)])})

    def _trace(self, record: logging.LogRecord) -> list[str]:
        return [self.formatException(record.exc_info)] if record.exc_info else []


def configure(to_level: str = "info", form: str = "text") -> None:
    """Write hipq's log to standard error, as `hipq worker` does."""
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter(form))
    LOGGER.handlers[:] = [handler]
    LOGGER.propagate = False  # an application with its own logging would write each line twice
    LOGGER.setLevel(to_level.upper())
