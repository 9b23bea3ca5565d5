"""Traces: one from the program that adds a job through its request and the wait to the answer, by OpenTelemetry.

    from hipq.observe.traces import trace
    trace(app)

The span in which a job is added is stored with it, so whichever process runs it, or brings its answer, goes on with
that trace. Spans say queue, type, id, key, attempt and outcome of a job: never its payload, its result or its answer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, Self, assert_never

from msgspec.structs import replace

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace as spans
except ModuleNotFoundError:
    raise ImportError("traces need OpenTelemetry: pip install 'hipq[otel]'") from None

from hipq.engine.accept import Adding
from hipq.events import Event, Events
from hipq.executors.execution import Execution
from hipq.job.answer import Answered
from hipq.job.event_names import JobEvent
from hipq.job.fault import Fault, FaultKind
from hipq.job.meta import is_traceparent, load, traceparent_in
from hipq.job.model import New, Row
from hipq.job.payload import decode
from hipq.job.run_result import (
    AnswerHandlerFailed,
    CancelHandled,
    Crashed,
    Decided,
    Errored,
    FailedRun,
    GivenBack,
    Progressed,
    Rerun,
    RunResult,
    Succeeded,
    Waits,
)
from hipq.job.states import ANSWERED, CANCELLING, EXECUTING, FINAL, Code
from hipq.job.view import Job
from hipq.stores.values import Stored

ERROR_LIMIT: Final = 300
"""Characters of an error in a span; the job has the whole error."""
PROMISED: Final = 10_000
"""Jobs on their way into the database that are remembered at most; the oldest of more get no span for being added."""
_VERBS: Final = {EXECUTING: "run", ANSWERED: "answer", CANCELLING: "cancel"}
_TYPES: Final = {"enqueue": "send", "wait": "receive"} | dict.fromkeys(("run", "answer", "cancel", "decide"), "process")
"""What OpenTelemetry's conventions call it."""
_WAIT_BEGINS: Final = (JobEvent.WAITS, JobEvent.PROGRESS, JobEvent.CLAIMED)
"""History entries since which a job may be waiting: it can get its answer before it ever said that it waits."""


class Traced(Protocol):
    """What is needed of an app to trace it."""

    events: Events
    traces: Traces | None


def trace(app: Traced, provider: spans.TracerProvider | None = None) -> None:
    """Trace an app from now on; call it before the app works. `provider` replaces the program's own."""
    if app.traces is None:
        app.traces = Traces(app.events, spans.get_tracer("hipq", tracer_provider=provider))


def traceparent_of(job: Job[Any]) -> str:
    """The header `traceparent` for a request of this job: the current span or, outside of any, the one in which the
    job was added; "" = neither is known."""
    return _text(spans.get_current_span()) or job.traceparent


class Traces:
    """The spans of an app's jobs: spans around code are made where it runs, the others when an event is published."""

    def __init__(self, events: Events, tracer: spans.Tracer) -> None:
        self._tracer = tracer
        self._promised: dict[str, spans.Span] = {}
        """Spans of jobs that are not stored yet, by traceparent. The span of a job that is never stored is dropped."""
        self._lock = threading.Lock()
        events.subscribe(self._added, JobEvent.ADDED)
        events.subscribe(self._matched, Answered.MATCHED)
        events.subscribe(self._timed_out, JobEvent.TIMED_OUT)

    def current(self) -> str:
        """The traceparent of the caller's span; "" = none."""
        return _text(spans.get_current_span())

    # -- jobs are added ---------------------------------------------------------------------------------------------
    def adding(self, queue: str, job_type: str, key: str | None) -> Adding:
        return _Adding(self, queue, job_type, key)

    def promised(self, new: New) -> New:
        """Give a span to a job that is stored a moment later, if at all: one that a handler adds with its outcome,
        or a tick. The span ends when the job is stored."""
        span = self.start("enqueue", "", spans.SpanKind.PRODUCER, traceparent_in(new.meta))
        text = _text(span)
        if not text:
            return new
        if span.is_recording():
            with self._lock:
                self._promised[text] = span
                if len(self._promised) > PROMISED:
                    del self._promised[next(iter(self._promised))]
        return replace(new, meta=replace(load(new.meta), trace=text).dump())

    def _added(self, event: Event) -> None:
        if not self._promised or event.job is None:
            return
        with self._lock:
            span = self._promised.pop(traceparent_in(event.job.meta), None)
        if span is not None:
            span.update_name(f"enqueue {event.queue}")
            span.set_attributes(_attributes(event.queue, event.job) | {"hipq.outcome": JobEvent.ADDED})
            _end(span)

    # -- their code runs --------------------------------------------------------------------------------------------
    @contextmanager
    def around(self, execution: Execution, under: str | None = None) -> Iterator[None]:
        """See `hipq.engine.launch.Around`. For a child process the span is the engine's and current there too: a
        child may be killed at any moment, and unsent spans would be lost."""
        row = execution.row
        if under is not None:
            span: spans.Span = spans.NonRecordingSpan(_context(under))
        else:
            verb = "decide" if execution.only_decides else _VERBS.get(row.phase, "run")
            parent, attributes = traceparent_in(row.meta), _attributes(execution.spec.queue, row)
            span = self.start(verb, execution.spec.queue, spans.SpanKind.CONSUMER, parent, attributes)
        execution.run.trace = self.current
        token = contexts.attach(spans.set_span_in_context(span))
        try:
            yield
        finally:
            contexts.detach(token)
            if under is None:
                self._ran(span, execution)

    def _ran(self, span: spans.Span, execution: Execution) -> None:
        if execution.abandoned:
            span.set_attribute("hipq.outcome", "abandoned")
        else:
            execution.run.children = [self.promised(new) for new in execution.run.children]
            outcome, fault = _outcome(execution.run.result)
            span.set_attribute("hipq.outcome", outcome)
            # a run that only decides on a retry has not failed: its job did, before
            if fault is not None and not execution.only_decides:
                _failed(span, fault.type or fault.kind, _said(fault))
        _end(span)

    # -- their answers come -----------------------------------------------------------------------------------------
    def _matched(self, event: Event) -> None:
        self._waited(event, Answered.MATCHED)
        if event.job is not None and event.job.state == FINAL:  # no code looks at the answer: it is the job's result
            self._span("answer", spans.SpanKind.CONSUMER, event, event.at, JobEvent.OK)

    def _timed_out(self, event: Event) -> None:
        self._waited(event, JobEvent.TIMED_OUT)

    def _waited(self, event: Event, outcome: str) -> None:
        if event.job is not None:
            history: list[dict[str, Any]] = decode(event.job.history)
            began = (entry["at"] for entry in reversed(history) if entry["event"] in _WAIT_BEGINS)
            self._span("wait", spans.SpanKind.INTERNAL, event, next(began, event.at), outcome)

    def _span(self, verb: str, kind: spans.SpanKind, event: Event, began: int, outcome: str) -> None:
        """A span that is over when its event is published, linked to the span that the answer came with. A job that
        was not traced when it was added has no trace that this could belong to."""
        row = event.job
        parent = traceparent_in(row.meta) if row is not None else ""
        if row is None or not parent:
            return
        here = spans.get_current_span().get_span_context()
        links = [spans.Link(here)] if here.is_valid else []
        attributes = _attributes(event.queue, row) | {"hipq.outcome": outcome}
        span = self.start(verb, event.queue, kind, parent, attributes, links, began * 1000)
        if outcome == JobEvent.TIMED_OUT and row.code != Code.OK:  # a time-out may be what its handler chose it to mean
            _failed(span, "TimeoutError", "no answer came in time")
        _end(span, max(event.at, began) * 1000)

    def start(
        self,
        verb: str,
        queue: str,
        kind: spans.SpanKind,
        parent: str | None,
        attributes: Mapping[str, str | int] | None = None,
        links: Sequence[spans.Link] = (),
        at: int | None = None,
    ) -> spans.Span:
        """A span below the one that `parent` names ("" = below none, None = below the current one). Its name and its
        attributes are those of OpenTelemetry's conventions for messaging, where the key is the conversation."""
        named = f"{verb} {queue}"
        attributes = {**(attributes or {}), "messaging.operation.name": verb, "messaging.operation.type": _TYPES[verb]}
        under = None if parent is None else contexts.Context()
        if parent:
            under = spans.set_span_in_context(spans.NonRecordingSpan(_context(parent)), under)
        try:
            return self._tracer.start_span(named, under, kind, attributes, links, at)
        except Exception:  # a sampler's or an exporter's error must not stop the work
            logging.getLogger("hipq").exception("no span could be started for %s", named)
            return spans.INVALID_SPAN


class _Adding(Adding):
    def __init__(self, traces: Traces, queue: str, job_type: str, key: str | None) -> None:
        self._traces = traces
        self._queue = queue
        self._job_type = job_type
        self._key = key

    def __enter__(self) -> Self:
        attributes = _SYSTEM | {"messaging.destination.name": self._queue, "hipq.type": self._job_type}
        self._span = self._traces.start("enqueue", self._queue, spans.SpanKind.PRODUCER, None, attributes)
        self._token = contexts.attach(spans.set_span_in_context(self._span))
        self.trace = _text(self._span)
        return self

    def added(self, stored: Sequence[Stored]) -> None:
        if len(stored) != 1:
            self._span.set_attribute("messaging.batch.message_count", len(stored))
            return
        (one,) = stored
        self._span.set_attributes({
            "messaging.message.id": str(one.id),
            "messaging.message.conversation_id": str(one.id) if self._key is None else self._key,
            "hipq.outcome": Answered.DUPLICATE if one.duplicate else JobEvent.ADDED,
        })  # fmt: skip

    def __exit__(self, *raised: object) -> None:
        contexts.detach(self._token)
        if isinstance(raised[0], type):
            _failed(self._span, raised[0].__qualname__, "")  # the message may quote the payload
        _end(self._span)


_SYSTEM: Final[dict[str, str | int]] = {"messaging.system": "hipq"}


def _attributes(queue: str, row: Row) -> dict[str, str | int]:
    return _SYSTEM | {
        "messaging.destination.name": queue, "messaging.message.id": str(row.id),
        "messaging.message.conversation_id": row.job_key, "hipq.type": row.job_type, "hipq.attempt": row.attempt,
    }  # fmt: skip


def _text(span: spans.Span) -> str:
    """The traceparent of a span; "" if it has none."""
    found = span.get_span_context()
    text = f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags & 0xFF:02x}"
    return text if is_traceparent(text) else ""


def _context(traceparent: str) -> spans.SpanContext:
    if not is_traceparent(traceparent):
        return spans.INVALID_SPAN_CONTEXT
    _, trace_id, span_id, flags = traceparent.split("-")
    return spans.SpanContext(int(trace_id, 16), int(span_id, 16), True, spans.TraceFlags(int(flags, 16)))


_EVENTS: Final[Mapping[type, str]] = {
    Succeeded: JobEvent.OK, Rerun: JobEvent.AGAIN, Waits: JobEvent.WAITS, Progressed: JobEvent.PROGRESS,
    GivenBack: JobEvent.GIVEN_BACK, FailedRun: JobEvent.FAILED, AnswerHandlerFailed: JobEvent.ANSWER_FAILED,
    Errored: JobEvent.ERROR, Crashed: JobEvent.CRASHED,
}  # fmt: skip


def _outcome(ended: RunResult | None) -> tuple[str, Fault | None]:
    """How a run ended, and its error if it failed. Asking for another run is no failure."""
    match ended:
        case Succeeded() | Rerun() | Waits() | Progressed() | GivenBack():
            return _EVENTS[type(ended)], None
        case FailedRun() | AnswerHandlerFailed() | Errored() | Crashed():
            return _EVENTS[type(ended)], ended.fault
        case CancelHandled():
            return JobEvent.CANCEL_HANDLER_FAILED if ended.fault else JobEvent.CANCEL_HANDLER_ENDED, ended.fault
        case Decided():
            asked = ended.again is not None and ended.fault.kind == FaultKind.RETRY
            return JobEvent.AGAIN if ended.again else JobEvent.GAVE_UP, None if asked else ended.fault
        case None:  # its process died
            return JobEvent.CRASHED, Fault(FaultKind.CRASH, "the process that ran it died", "ChildProcessError")
        case _:
            assert_never(ended)


def _said(fault: Fault) -> str:
    if fault.type == "answer":  # then the message is the answer's data
        return "its answer says that the work failed"
    return fault.message[:ERROR_LIMIT]


def _failed(span: spans.Span, kind: str, message: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(spans.Status(spans.StatusCode.ERROR, message or kind))
    span.add_event("exception", {"exception.type": kind} | ({"exception.message": message} if message else {}))


def _end(span: spans.Span, at: int | None = None) -> None:
    try:
        span.end(at)
    except Exception:  # an exporter's error
        logging.getLogger("hipq").exception("a span could not be handed on")
