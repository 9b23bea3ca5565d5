"""Structured logs: the first subscriber of `hipq.events`. One event, one record, on the standard logger "hipq".

A run that failed is one ERROR record, with its traceback and with attributes that say which job it was. Of repeated
warnings a few are written, and then one a minute with a `count`, unless the level is DEBUG. Whatever runs jobs
subscribes by itself, at the levels that are on then; `subscribe` is for programs that want more.

A line is `event key=value ...`; a handler with `Formatter("json")` writes JSON instead. Payloads, results and answers
are never logged; control characters are escaped, so a job key cannot forge a line. The message of an exception is
logged. `JobFilter` says of what a handler logs itself to which job that belongs.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final
from weakref import WeakKeyDictionary

from hipq.events import ALL_EVENTS, ENGINE_EVENTS, LISTENER_EVENTS, Event, Events
from hipq.executors.current import current
from hipq.job.answer import Answered
from hipq.job.event_names import EngineEvent, JobEvent, ListenerEvent
from hipq.job.fault import Fault
from hipq.job.model import Ran, Row
from hipq.job.states import NONE, Code
from hipq.job.when import to_datetime

LOGGER: Final = logging.getLogger("hipq")
ATTRIBUTES: Final = ("job_id", "job_queue", "job_type", "job_key", "job_attempt")
"""What records say of the job that they are about; those of a run have `job_duration` too, in seconds."""
ERROR_LIMIT: Final = 300
"""Characters of an error in a line; the job has the whole error."""
FEW: Final = 5
"""Warnings of one kind that are written as they happen, within SECONDS."""
SECONDS: Final = 60.0
KINDS: Final = ("queue", "type", "listener", "schedule")
"""The fields by which warnings are told apart that concern no tenant. A tenant's are not: it can make up types."""
SHOWN: Final = ("type", "error")
"""The fields of the last event that a line with a count shows."""

_FAILED_RUNS: Final = frozenset({
    JobEvent.ERROR, JobEvent.GAVE_UP, JobEvent.CRASHED, JobEvent.LIFETIME_OVER, JobEvent.LOST, JobEvent.AGAIN,
    JobEvent.ANSWER_FAILED, JobEvent.CANCEL_HANDLER_FAILED,
})  # fmt: skip
"""Events that a run which failed can lead to; what leads to them otherwise is a warning."""
_WARNINGS: Final = frozenset({
    JobEvent.FAILED, JobEvent.TIMED_OUT, JobEvent.RESCUED, JobEvent.UNSTORABLE, JobEvent.REJECTED,
    Answered.CONFLICT, Answered.LATE, Answered.UNREADABLE,
    EngineEvent.LEASE_LOST, EngineEvent.STORE_DOWN, EngineEvent.QUEUE_LOCKED, EngineEvent.HANDLER_STUCK,
    EngineEvent.TICK_SKIPPED, EngineEvent.TICK_FAILED, EngineEvent.THROTTLER_SLOW, EngineEvent.THROTTLER_FAILED,
    EngineEvent.CLOCK_SET_BACK, ListenerEvent.DOWN, ListenerEvent.WEBHOOK_REFUSED,
})  # fmt: skip


_subscribed: Final[WeakKeyDictionary[Events, set[str]]] = WeakKeyDictionary()
"""By name those that the logger "hipq" hears of."""


def level(name: str, successes: bool = False) -> int:
    """The highest level an event is logged at."""
    if name in _FAILED_RUNS:
        return logging.ERROR
    if name == JobEvent.OK and successes:
        return logging.INFO
    if name in _WARNINGS:
        return logging.WARNING
    chatty = name == ListenerEvent.REPORT
    return logging.INFO if name in (*ENGINE_EVENTS, *LISTENER_EVENTS) and not chatty else logging.DEBUG


def subscribe(events: Events, logger: logging.Logger = LOGGER, *, successes: bool = False) -> None:
    """Log these events. Events whose level is off at this moment are not subscribed to, so they cost nothing; call this
    again when the level has changed. `successes`: jobs that succeed are INFO, with how long they ran. The logger
    "hipq" is subscribed to each event once."""
    before = _subscribed.setdefault(events, set()) if logger is LOGGER else set()
    repeated = Repeated(lambda name, found: logger.log(logging.WARNING, LogLine(name, found)))

    def write(event: Event) -> None:
        weight, found = _level_of(event, successes), fields(event)
        if not logger.isEnabledFor(weight):
            return
        if weight == logging.WARNING and not logger.isEnabledFor(logging.DEBUG):
            repeated.tell(event.name, found)
        else:
            ran, row = event.ran, event.job
            extra = {} if row is None else _attributes(event.queue, row)
            if ran is not None:
                extra["job_duration"] = ran.seconds
            logger.log(weight, LogLine(event.name, found), exc_info=_exc_info(ran) if ran else None, extra=extra)
        if event.name == EngineEvent.STOPPED:
            repeated.flush()

    levels = {name: level(name, successes) for name in ALL_EVENTS if name not in before}
    wanted = [name for name, one in levels.items() if logger.isEnabledFor(one)]
    before.update(wanted)
    if wanted:
        events.subscribe(write, *wanted)


def _level_of(event: Event, successes: bool) -> int:
    row, weight = event.job, level(event.name, successes)
    if event.name == JobEvent.AGAIN and row is not None and row.code != Code.ERROR:
        return logging.DEBUG  # its handler asked for it: nothing went wrong
    if weight == logging.ERROR and (event.ran is None or not event.ran.failed or (row is not None and row.tenant)):
        return logging.WARNING  # it was told of before, or a tenant's own code failed
    return weight


def _exc_info(ran: Ran) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    """What the handler raised. Of another process only its name, its message and the text of its traceback are known,
    and of an exception whose text no file takes (lone surrogates) that is used too: one that has these says them."""
    fault, raised = ran.fault, ran.raised
    if not ran.failed or fault is None:
        return None
    if raised is None or not _is_writable(raised, fault):
        module, _, name = fault.type.rpartition(".")
        raised = type(name or "Error", (Exception,), {"__module__": module or "builtins"})(fault.message)
        if fault.traceback:
            raised.add_note(fault.traceback)
    return type(raised), raised, raised.__traceback__


def _is_writable(raised: BaseException, fault: Fault) -> bool:
    try:
        str(raised).encode()
    except Exception:
        return False
    return "\\ud" not in fault.traceback  # nor has one from which it was raised such a text


def _attributes(queue: str, row: Row) -> dict[str, Any]:
    return {
        "job_id": row.id, "job_queue": queue, "job_type": row.job_type, "job_key": row.job_key,
        "job_attempt": row.attempt,
    }  # fmt: skip


def current_job() -> dict[str, Any]:
    """Which job the code that asks belongs to, as attributes of records say it; {} outside of any."""
    execution = current()
    return {} if execution is None else _attributes(execution.spec.queue, execution.row)


class JobFilter(logging.Filter):
    """Gives each record the attributes `job_id`, `job_queue`, `job_type`, `job_key` and `job_attempt`: those of the
    job that the code which logs belongs to; outside of any they are ""."""

    def filter(self, record: logging.LogRecord) -> bool:
        found = current_job()
        for name in ATTRIBUTES:
            if name not in record.__dict__:  # hipq's own records have theirs
                record.__dict__[name] = found.get(name, "")
        return True


def fields(event: Event) -> dict[str, Any]:
    """The fields of an event's line: never the payload, the result or the answer."""
    found: dict[str, Any] = {"queue": event.queue} if event.queue else {}
    ran = event.ran
    if job := event.job:
        found |= {"tenant": job.tenant} if job.tenant else {}
        found |= {"job": job.id, "type": job.job_type, "key": job.job_key, "state": job.state, "phase": job.phase,
                  "attempt": job.attempt, "failures": job.failures}  # fmt: skip
        fault = ran.fault if ran else None
        if fault is None and job.error != NONE:
            fault = Fault.load(job.error)
        if fault is not None:
            found["error"] = fault.told[:ERROR_LIMIT]
        if event.name == JobEvent.AGAIN:
            found["next_run"] = _moment(job.scheduled_run_time)
    if ran is not None:
        found["duration"] = round(ran.seconds, 6)
    details = event.details
    return found | (details | {"tick": _moment(details["tick"])} if "tick" in details else details)


def _moment(at: int) -> str:
    return to_datetime(at).isoformat()


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
    if isinstance(value, float):
        value = f"{value:.6f}".rstrip("0").rstrip(".")
    text = escaped(",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))
    if text and not set(text) & set(" =\"'\\"):
        return text
    return '"' + text.replace('"', '\\"') + '"'


class _Kind:
    """Warnings that are alike, since a moment."""

    __slots__ = ("count", "last", "since", "told")

    def __init__(self, since: float, told: Mapping[str, Any]) -> None:
        self.since = since
        self.told = told
        """The fields that they have in common."""
        self.count = 0
        self.last: Mapping[str, Any] = {}


class Repeated:
    """Repeated warnings: a few lines of each kind in a minute, and then one with a count. Twenty thousand late answers
    are one thing to know, and no tenant fills a daemon's log. Thread-safe."""

    def __init__(self, write: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, ...], _Kind] = {}
        self._timer: threading.Timer | None = None

    def tell(self, event: str, fields: Mapping[str, Any]) -> None:
        """Write this line now, or count it."""
        told = {name: fields[name] for name in (("tenant",) if "tenant" in fields else KINDS) if name in fields}
        with self._lock:
            now, key = time.monotonic(), (event, *told, *map(str, told.values()))
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._kinds[key] = _Kind(now, told)
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
        for (event, *_), kind in kinds.items():
            if kind.count > FEW:
                shown = {name: kind.last[name] for name in SHOWN if name in kind.last}
                more = {"count": kind.count - FEW, "seconds": round(now - kind.since)}
                self._write(event, {**kind.told, **more, **shown})


_NAMES: Final = {"job": "job_id", "queue": "job_queue", "type": "job_type", "key": "job_key", "attempt": "job_attempt"}


def named(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a line by the names that attributes, tags and context variables have, too: text has short ones."""
    return {_NAMES.get(name, name): value for name, value in fields.items()}


def structlog_fields(_logger: Any, _method: str, line: dict[str, Any]) -> dict[str, Any]:
    """A processor for the `foreign_pre_chain` of structlog's ProcessorFormatter: hipq's lines with their fields."""
    record = line.get("_record")
    if record is not None and isinstance(record.msg, LogLine):
        line |= {**named(record.msg.fields), "event": record.msg.event}
    return line


class Formatter(logging.Formatter):
    """Formats a record as one line: text, or JSON. In text, the lines of a traceback follow, each indented: none of
    them can be taken for another record."""

    def __init__(self, form: str = "text") -> None:
        super().__init__()
        self._json = form == "json"

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        found: dict[str, Any] = {"at": at, "level": record.levelname, "pid": record.process}
        traceback = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
        if not self._json:
            lines: Sequence[str] = [escaped(f"    {line}") for line in traceback.splitlines()]
            return "\n".join([escaped(" ".join(map(str, [*found.values(), record.getMessage()]))), *lines])
        if isinstance(record.msg, LogLine):
            found |= {"event": record.msg.event, **named(record.msg.fields)}
        else:
            jobs = {name: record.__dict__.get(name, "") for name in ATTRIBUTES}
            found |= {"event": "message", "text": record.getMessage()}
            found |= {name: value for name, value in jobs.items() if value != ""}
        return json.dumps(found | ({"traceback": traceback} if traceback else {}), default=str)


def configure(to_level: str = "info", form: str = "text") -> None:
    """Write hipq's log to standard error, as `hipq worker` does; or, in the form "none", leave that to the handlers of
    the program's own logging."""
    LOGGER.setLevel(to_level.upper())
    if form == "none":
        return
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter(form))
    LOGGER.handlers[:] = [handler]
    LOGGER.propagate = False  # an application with its own logging would write each line twice
