"""What a daemon's HTTP front has done, for Prometheus. Counting is adding to a number; the text is made when asked."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Final

from hipq.daemon.ready import HEALTH

Usage = Mapping[str, tuple[int, int]]
SELDOM: Final = 5.0
SHARE: Final = 20


class Counts:
    """Lives on one event loop, so it needs no lock."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """Requests that were replied to, by route and status."""
        self.jobs: Counter[str] = Counter()
        """Accepted jobs, by tenant."""
        self.bytes: Counter[str] = Counter()
        """Payload bytes of accepted jobs, by tenant."""

    def added(self, tenant: str, jobs: int, size: int) -> None:
        self.jobs[tenant] += jobs
        self.bytes[tenant] += size


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


def page(counts: Counts, readers: int, usage: Usage, health: str, jobs: Iterable[Any]) -> bytes:
    """All of it in Prometheus's text format; `jobs`: what a worker says of its jobs, too."""
    from prometheus_client import generate_latest
    from prometheus_client.core import CounterMetricFamily as Count
    from prometheus_client.core import GaugeMetricFamily as Gauge

    one = ["tenant"]
    figures: list[tuple[Any, dict[tuple[str, ...], float]]] = [
        (Count("hipq_http_requests", "Requests replied to.", labels=["route", "status"]),
         {(route, str(status)): count for (route, status), count in counts.requests.items()}),
        (Count("hipq_jobs_accepted", "Jobs accepted over HTTP.", labels=one),
         {(tenant,): count for tenant, count in counts.jobs.items()}),
        (Count("hipq_job_bytes_accepted", "Payload bytes of jobs accepted over HTTP.", labels=one),
         {(tenant,): size for tenant, size in counts.bytes.items()}),
        (Gauge("hipq_jobs_live", "Jobs that are not final, at all daemons.", labels=one),
         {(tenant,): jobs for tenant, (jobs, _) in usage.items()}),
        (Gauge("hipq_job_bytes_live", "Payload bytes of those.", labels=one),
         {(tenant,): size for tenant, (_, size) in usage.items()}),
        (Gauge("hipq_http_readers", "Open event streams and long polls."), {(): readers}),
        (Gauge("hipq_health", "1 for what /health says.", labels=["status"]),
         {(word,): float(word == health) for word in HEALTH}),
    ]  # fmt: skip
    for family, samples in figures:
        for labels, value in samples.items():
            family.add_metric(labels, value)
    return generate_latest(SimpleNamespace(collect=lambda: [*(family for family, _ in figures), *jobs]))
