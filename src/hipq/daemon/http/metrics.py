"""What a daemon says of itself, for Prometheus. Counting is adding to a number; the text is made when asked."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from hipq.daemon.ready import HEALTH
from hipq.observe.measures import COUNTER, GAUGE, Bounded, Measure, Sample

if TYPE_CHECKING:
    from hipq.daemon.http.api import Api

Usage = Mapping[str, tuple[int, int]]
SELDOM: Final = 5.0
SHARE: Final = 20
TENANTS: Final = 200
"""Tenants that have figures of their own, the first that were seen; the others count together, as "other"."""

_TENANT: Final = ("tenant",)
REQUESTS: Final = Measure("hipq_http_requests", COUNTER, "Requests replied to.", ("route", "status"))
ACCEPTED: Final = Measure("hipq_jobs_accepted", COUNTER, "Jobs accepted over HTTP.", _TENANT)
BYTES: Final = Measure("hipq_job_bytes_accepted", COUNTER, "Payload bytes of jobs accepted over HTTP.", _TENANT)
LIVE: Final = Measure("hipq_jobs_live", GAUGE, "Jobs that are not final, at all daemons.", _TENANT)
LIVE_BYTES: Final = Measure("hipq_job_bytes_live", GAUGE, "Payload bytes of those.", _TENANT)
RUNNING: Final = Measure("hipq_jobs_running", GAUGE, "Jobs that this daemon has in hand.", _TENANT)
READERS: Final = Measure("hipq_http_readers", GAUGE, "Open event streams and long polls.")
CONNECTIONS: Final = Measure("hipq_http_connections", GAUGE, "Open connections.")
STATUS: Final = Measure("hipq_health", GAUGE, "1 for what /health says.", ("status",))
BACKLOG: Final = Measure("hipq_journal_jobs", GAUGE, "Jobs in the journal that the database has not got yet.")
BACKLOG_BYTES: Final = Measure("hipq_journal", GAUGE, "Bytes of those.", (), "bytes")
ROOM: Final = Measure("hipq_journal_limit", GAUGE, "What may wait there.", (), "bytes")
CONTEXTS: Final = Measure("hipq_contexts", GAUGE, "Processes that run handlers: idle ones, and those at work.",
                          ("state",))  # fmt: skip
KILLS: Final = Measure("hipq_context_kills", COUNTER, "Contexts that died or were killed while a job ran, by the "
                       "status of that.", ("status",))  # fmt: skip
MEASURES: Final = (
    REQUESTS, ACCEPTED, BYTES, LIVE, LIVE_BYTES, RUNNING, READERS, CONNECTIONS, STATUS, BACKLOG, BACKLOG_BYTES, ROOM,
    CONTEXTS, KILLS,
)  # fmt: skip
"""What a daemon has beside what a worker has."""


class Counts:
    """Lives on one event loop, so it needs no lock."""

    def __init__(self) -> None:
        self.tenants = Bounded(TENANTS)
        self.requests: Counter[tuple[str, int]] = Counter()
        """Requests that were replied to, by route and status."""
        self.jobs: Counter[str] = Counter()
        """Accepted jobs, by tenant."""
        self.bytes: Counter[str] = Counter()
        """Payload bytes of accepted jobs, by tenant."""

    def added(self, tenant: str, jobs: int, size: int) -> None:
        label = self.tenants.label(tenant)
        self.jobs[label] += jobs
        self.bytes[label] += size


class Seldom:
    """What all tenants have, which takes as long as it is much: counted again after some seconds, and not sooner than
    after twenty times as long as that took."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._one = asyncio.Lock()
        self._found: Usage = {}
        self._again = -1e9

    async def of(self, count: Callable[[], Awaitable[Usage]]) -> Usage:
        async with self._one:
            if self._steady() >= self._again:
                began = self._steady()
                self._found = await count()
                now = self._steady()
                self._again = now + max(SELDOM, SHARE * (now - began))
            return self._found


def page(api: Api, usage: Usage) -> bytes:
    """All of it in Prometheus's text format, with what a worker says of its jobs, and what the process uses. This looks
    at the database."""
    from prometheus_client import ProcessCollector, generate_latest

    from hipq.observe.prometheus import family

    families = {measure: family(measure) for measure in MEASURES}
    for sample in _summed(_samples(api, usage)):
        families[sample.measure].add_metric(sample.labels, sample.value)
    process = ProcessCollector(registry=None).collect()
    jobs = api.collector.collect()
    return generate_latest(SimpleNamespace(collect=lambda: [*families.values(), *jobs, *process]))


def _samples(api: Api, usage: Usage) -> Iterator[Sample]:
    counts, service = api.counts, api.service
    label = counts.tenants.label
    for (route, status), requests in list(counts.requests.items()):
        yield Sample(REQUESTS, (route, str(status)), requests)
    for measure, counted in ((ACCEPTED, counts.jobs), (BYTES, counts.bytes)):
        yield from (Sample(measure, (tenant,), value) for tenant, value in list(counted.items()))
    for tenant, (jobs, size) in usage.items():
        yield Sample(LIVE, (label(tenant),), jobs)
        yield Sample(LIVE_BYTES, (label(tenant),), size)
    for execution in list(service.engine.in_flight.values()):
        yield Sample(RUNNING, (label(execution.row.tenant),))
    yield Sample(READERS, (), api.readers.now)
    yield Sample(CONNECTIONS, (), api.connections.now)
    health = service.health()
    yield from (Sample(STATUS, (word,), float(word == health)) for word in HEALTH)
    yield Sample(BACKLOG, (), service.journal.waiting_jobs)
    yield Sample(BACKLOG_BYTES, (), service.journal.waiting_bytes)
    yield Sample(ROOM, (), service.journal_bytes)
    contexts, idle = service.contexts.count()
    yield Sample(CONTEXTS, ("idle",), idle)
    yield Sample(CONTEXTS, ("busy",), contexts - idle)
    yield from (Sample(KILLS, (str(status),), count) for status, count in list(service.kills.items()))


def _summed(samples: Iterator[Sample]) -> Iterator[Sample]:
    """Several tenants may be "other"."""
    found: Counter[tuple[Any, tuple[str, ...]]] = Counter()
    for one in samples:
        found[one.measure, one.labels] += one.value  # type: ignore[assignment]
    return (Sample(*key, value) for key, value in found.items())
