"""What is measured, once for Prometheus and OpenTelemetry: what events say, and what a look at the database says.

Labels are bounded: queues and codes are few, and job types beyond TYPES count together, as "other". Units are seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from hipq.answers.reports import streams
from hipq.errors import HipqError
from hipq.events import Event, Events
from hipq.job.answer import Answered
from hipq.job.event_names import EngineEvent, JobEvent, ListenerEvent
from hipq.job.model import Row
from hipq.job.states import EXECUTING, FINAL, READY, SCHEDULED, Code
from hipq.job.units import UNIT
from hipq.observe.counts import BOUNDS
from hipq.stores.protocols import Store

TYPES: Final = 200
OTHER: Final = "other"
DEPTH: Final = 1000
"""Where counting jobs of a phase stops."""
SELDOM: Final = 5.0
"""Seconds between looks at the database, at least; and not sooner than after SHARE times as long as a look took."""
SHARE: Final = 20
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"
GAUGE: Final = "gauge"
SHORT: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Measured(Protocol):
    """What is needed of an app to measure it."""

    name: str
    events: Events

    @property
    def store(self) -> Store: ...
    @property
    def queues(self) -> list[Any]: ...


class Measure(NamedTuple):
    name: str
    kind: str
    about: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    bounds: tuple[float, ...] = ()
    standard: str = ""
    """Its name by OpenTelemetry's conventions for messaging, if they have one."""


class Sample(NamedTuple):
    measure: Measure
    labels: tuple[str, ...]
    value: float = 1


_JOB: Final = ("queue", "type")
ADDED: Final = Measure("hipq_jobs_added", COUNTER, "Jobs added by this process.", _JOB,
                       standard="messaging.client.sent.messages")  # fmt: skip
ENDED: Final = Measure("hipq_jobs_ended", COUNTER, "Jobs that ended.", (*_JOB, "code"))
RETRIED: Final = Measure("hipq_jobs_retried", COUNTER, "Jobs that are to run again: after an error, or as they asked.",
                         (*_JOB, "code"))  # fmt: skip
RESCUED: Final = Measure("hipq_jobs_rescued", COUNTER, "Jobs taken back from engines that died.", _JOB)
LOST: Final = Measure("hipq_jobs_lost", COUNTER, "Runs whose outcome was not kept: others had taken the job.", _JOB)
UNREAD: Final = Measure("hipq_answer_failures", COUNTER, "Failures of answer handlers, which are called again.", _JOB)
RUN: Final = Measure("hipq_run_duration", HISTOGRAM, "How long code of jobs ran.", _JOB, "seconds", SHORT,
                     "messaging.process.duration")  # fmt: skip
DELAY: Final = Measure("hipq_start_delay", HISTOGRAM, "From when a job was due until it was claimed.", _JOB, "seconds",
                       SHORT)  # fmt: skip
ANSWERS: Final = Measure("hipq_answers", COUNTER, "Answers that arrived in this process.", ("queue", "outcome"))
WAIT: Final = Measure("hipq_answer_wait", HISTOGRAM, "From the claim of a job until its answer.", ("queue",),
                      "seconds", BOUNDS)  # fmt: skip
REFUSED: Final = Measure("hipq_webhooks_refused", COUNTER, "Webhooks whose signature was not good.", ("listener",))
LEASES: Final = Measure("hipq_leases_lost", COUNTER, "How often an engine here was silent for longer than its lease.")
STORE: Final = Measure("hipq_store_up", GAUGE, "1 if the database could be read; 0 = what follows is missing.")
ENGINES: Final = Measure("hipq_engines", GAUGE, "Engines that are alive, in all processes.", ("queue",))
JOBS: Final = Measure("hipq_queue_jobs", GAUGE, f"Jobs that are not final, up to {DEPTH} of each phase and type.",
                      ("queue", "type", "phase"))  # fmt: skip
OLDEST: Final = Measure("hipq_queue_oldest_due", GAUGE, "How long the first job that could start has been due.",
                        ("queue",), "seconds")  # fmt: skip
HELD: Final = Measure("hipq_limit_held", GAUGE, "Units that jobs hold, in a queue with limits.", ("queue",))
LIMIT: Final = Measure("hipq_limit_units", GAUGE, "Units that the limit of a whole queue has.", ("queue",))
LAG: Final = Measure("hipq_listener_lag", GAUGE, "Messages behind a listener.", ("listener", "stream"))
MEASURES: Final = (
    ADDED, ENDED, RETRIED, RESCUED, LOST, UNREAD, RUN, DELAY, ANSWERS, WAIT, REFUSED, LEASES,
    STORE, ENGINES, JOBS, OLDEST, HELD, LIMIT, LAG,
)  # fmt: skip

_OUTCOMES: Final = tuple(map(str, Answered))
_ENDS: Final = (
    JobEvent.OK, JobEvent.FAILED, JobEvent.GAVE_UP, JobEvent.LIFETIME_OVER, JobEvent.CANCELLED, JobEvent.REJECTED,
    JobEvent.UNSTORABLE, JobEvent.ERROR, JobEvent.TIMED_OUT, JobEvent.CRASHED, JobEvent.CANCEL_HANDLER_ENDED,
    JobEvent.CANCEL_HANDLER_FAILED,
)  # fmt: skip
_COUNTED: Final = {JobEvent.ADDED: ADDED, JobEvent.RESCUED: RESCUED, JobEvent.LOST: LOST,
                   JobEvent.ANSWER_FAILED: UNREAD}  # fmt: skip
EVENTS: Final = (
    *_ENDS, *_OUTCOMES, *_COUNTED, JobEvent.AGAIN, JobEvent.WAITS, JobEvent.PROGRESS,
    JobEvent.CLAIMED, EngineEvent.LEASE_LOST, ListenerEvent.WEBHOOK_REFUSED,
)  # fmt: skip
"""The events that say something here."""


class Bounded:
    """The first so many values of a label: those that come later count together, as "other"."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[tuple[str, ...]] = set()

    def knows(self, *value: str) -> bool:
        if value not in self._known:
            if len(self._known) >= self._most:
                return False
            self._known.add(value)
        return True

    def label(self, value: str) -> str:
        return value if self.knows(value) else OTHER


class Measuring:
    """The samples of events, with bounded labels. Thread-safe. With `tenants`, what is about a job has its tenant as
    its first label."""

    def __init__(self, tenants: Bounded | None = None) -> None:
        self._types = Bounded(TYPES)
        self._tenants = tenants
        jobs = {one: one._replace(labels=("tenant", *one.labels)) for one in MEASURES if one.labels[:2] == _JOB}
        self._by_job = jobs if tenants else {}
        self.measures = tuple(self._by_job.get(one, one) if one.kind != GAUGE else one for one in MEASURES)
        """All that there are, as they are labelled here."""

    def of(self, event: Event) -> Iterator[Sample]:
        name, row = event.name, event.job
        if name in _OUTCOMES:
            yield Sample(ANSWERS, (event.queue, name))
            if "waited" in event.details:
                yield Sample(WAIT, (event.queue,), event.details["waited"])
        if name == EngineEvent.LEASE_LOST:
            yield Sample(LEASES, ())
        if name == ListenerEvent.WEBHOOK_REFUSED:
            yield Sample(REFUSED, (event.details["listener"].partition(" ")[0],))
        if row is None or name in _OUTCOMES:
            return
        for sample in self._of_job(event, row, self._job(event.queue, row)):
            yield sample._replace(measure=self._by_job.get(sample.measure, sample.measure))

    def _of_job(self, event: Event, row: Row, job: tuple[str, ...]) -> Iterator[Sample]:
        name = event.name
        if measure := _COUNTED.get(name):
            yield Sample(measure, job)
        if event.ran is not None:
            yield Sample(RUN, job, event.ran.seconds)
        if name in _ENDS and row.state == FINAL:
            yield from _ended(name, row, job)
        elif name == JobEvent.AGAIN:
            yield Sample(RETRIED, (*job, row.code))
        elif name == JobEvent.CLAIMED and row.phase == EXECUTING and row.deadline >= event.at + (row.timeout - 1) * 1e6:
            yield Sample(DELAY, job, max(event.at - max(row.scheduled_run_time, row.create_time), 0) / 1e6)

    def _job(self, queue: str, row: Row) -> tuple[str, ...]:
        """The labels of a job."""
        tenant = () if self._tenants is None else (self._tenants.label(row.tenant),)
        known = self._types.knows(*tenant, queue, row.job_type)
        return (*tenant, queue, row.job_type if known else OTHER)


class Looks:
    """What a look at the database says: bounded counts, the heads of indexes, the engines. Not too often."""

    def __init__(self, app: Measured, steady: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._steady = steady
        self._lock = threading.Lock()
        self._found: list[Sample] = []
        self._again = -1e9

    def samples(self) -> list[Sample]:
        with self._lock:
            began = self._steady()
            if began >= self._again:
                try:
                    self._found = [Sample(STORE, (), 1), *self._look()]
                except HipqError:
                    self._found = [Sample(STORE, (), 0)]
                now = self._steady()
                self._again = now + max(SELDOM, SHARE * (now - began))
            return self._found

    def _look(self) -> Iterator[Sample]:
        store, now = self._app.store, self._app.store.now()
        engines = store.engines()
        for queue in self._app.queues:
            yield Sample(ENGINES, (queue.name,), sum(str(queue.number) in one.serves for one in engines))
            due = []
            types = [one.name for one in queue.job_types][:TYPES] or store.waiting_types(queue.number, TYPES)
            for one in store.depth(queue.number, types, DEPTH):
                yield Sample(JOBS, (queue.name, one.job_type, one.phase), one.jobs)
                due += [one.due] if one.due and one.phase in (READY, SCHEDULED) else []
            yield Sample(OLDEST, (queue.name,), max(now - min(due, default=now), 0) / 1e6)
            if store.rules(queue.number).in_force:
                limits = store.limits(queue.number)
                yield Sample(HELD, (queue.name,), sum(limits.held.values()) / UNIT)
                if limits.rules.most:
                    yield Sample(LIMIT, (queue.name,), float(limits.rules.most))
        for name, stream in streams(store, self._app.name).items():
            lags = [one.lag for one in stream.members.values() if one.lag is not None]
            if lags:
                yield Sample(LAG, (name.partition(" ")[0], stream.url), max(lags))


def _ended(name: str, row: Row, job: tuple[str, ...]) -> Iterator[Sample]:
    """A cancelled job is counted once, although a cancel handler may have an end of its own."""
    if row.code != Code.CANCELLED or name == JobEvent.CANCELLED:
        yield Sample(ENDED, (*job, row.code))
