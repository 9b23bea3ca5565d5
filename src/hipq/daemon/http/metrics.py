"""What a daemon's HTTP front has done, for Prometheus. Counting is adding to a number; the text is made when asked."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from hipq.daemon.ready import HEALTH

Usage = Mapping[str, tuple[int, int]]
SELDOM: Final = 5.0
SHARE: Final = 20


class Counts:
    """Lives on one event loop, so it needs no lock."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By route and status."""
        self.jobs: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        """Of jobs that were accepted, by tenant."""

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


def page(counts: Counts, readers: int, usage: Usage, health: str) -> bytes:
    """All of it in Prometheus's text format."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(counts, readers, usage, health))
    return generate_latest(registry)


class _Collector:
    def __init__(self, counts: Counts, readers: int, usage: Usage, health: str) -> None:
        self._counts, self._readers, self._usage, self._health = counts, readers, usage, health

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        counts = self._counts
        requests = CounterMetricFamily("hipq_http_requests", "Requests replied to.", labels=["route", "status"])
        for (route, status), count in counts.requests.items():
            requests.add_metric([route, str(status)], count)
        yield requests
        for name, about, by_tenant in (
            ("hipq_jobs_accepted", "Jobs accepted over HTTP.", counts.jobs),
            ("hipq_job_bytes_accepted", "Payload bytes of jobs accepted over HTTP.", counts.bytes),
        ):
            accepted = CounterMetricFamily(name, about, labels=["tenant"])
            for tenant, count in by_tenant.items():
                accepted.add_metric([tenant], count)
            yield accepted
        waiting = GaugeMetricFamily("hipq_jobs_live", "Jobs that are not final, at all daemons.", labels=["tenant"])
        size = GaugeMetricFamily("hipq_job_bytes_live", "Payload bytes of those.", labels=["tenant"])
        for tenant, (jobs, bytes_) in self._usage.items():
            waiting.add_metric([tenant], jobs)
            size.add_metric([tenant], bytes_)
        yield waiting
        yield size
        yield GaugeMetricFamily("hipq_http_readers", "Open event streams and long polls.", value=self._readers)
        states = GaugeMetricFamily("hipq_health", "1 for what /health says.", labels=["status"])
        for word in HEALTH:
            states.add_metric([word], float(word == self._health))
        yield states
