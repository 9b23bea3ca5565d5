"""Metrics for Prometheus: a collector for a registry of yours, and the small listener of `hipq worker --metrics`.

from prometheus_client import REGISTRY
from hipq.observe.prometheus import Collector
REGISTRY.register(Collector(app))
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

try:
    import prometheus_client
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
except ModuleNotFoundError:
    raise ImportError("metrics need prometheus-client: pip install 'hipq[metrics]'") from None

from hipq.errors import Invalid
from hipq.events import Event
from hipq.observe.counts import Times
from hipq.observe.measures import (
    COUNTER,
    EVENTS,
    GAUGE,
    HISTOGRAM,
    Bounded,
    Looks,
    Measure,
    Measured,
    Measuring,
    Sample,
)


class Collector:
    """What an app's jobs did in this process from now on, and how its queues are; `database=False`: only the first.
    With `tenants`, jobs are counted by their tenant, too."""

    def __init__(self, app: Measured, *, database: bool = True, tenants: Bounded | None = None) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[Measure, tuple[str, ...]], float] = {}
        self._times: dict[tuple[Measure, tuple[str, ...]], Times] = {}
        self._measuring = Measuring(tenants)
        self._looks = Looks(app) if database else None
        app.events.subscribe(self._add, *EVENTS)

    def _add(self, event: Event) -> None:
        with self._lock:
            for measure, labels, value in self._measuring.of(event):
                if measure.kind == COUNTER:
                    self._counts[measure, labels] = self._counts.get((measure, labels), 0) + value
                else:
                    self._times.setdefault((measure, labels), Times(measure.bounds)).add(value)

    def describe(self) -> Iterable[Metric]:
        """The names alone: to be registered costs no look at the database."""
        return [family(measure) for measure in self._measuring.measures]

    def collect(self) -> Iterable[Metric]:
        looked = self._looks.samples() if self._looks else []
        with self._lock:
            counts = [Sample(*key, value) for key, value in self._counts.items()]
            times = [(key, one.shown()) for key, one in self._times.items()]
        measures = self._measuring.measures
        families = {one: family(one) for one in measures if self._looks or one.kind != GAUGE}
        for sample in [*counts, *looked]:
            families[sample.measure].add_metric(sample.labels, sample.value)
        for (measure, labels), shown in times:
            buckets = [(str(bound), float(count)) for bound, count in shown.buckets.items()]
            families[measure].add_metric(labels, [*buckets, ("+Inf", float(shown.count))], shown.sum)
        return families.values()


def family(measure: Measure) -> Any:
    """What Prometheus knows a measure as."""
    kinds = {COUNTER: CounterMetricFamily, GAUGE: GaugeMetricFamily, HISTOGRAM: HistogramMetricFamily}
    return kinds[measure.kind](measure.name, measure.about, labels=measure.labels, unit=measure.unit)


def serve(app: Measured, host: str, port: int) -> AbstractContextManager[None]:
    """Measure an app from now on; within the block, answer scrapes: of hipq's metrics and the program's own."""
    prometheus_client.REGISTRY.register(Collector(app))
    return _served(host, port)


@contextmanager
def _served(host: str, port: int) -> Iterator[None]:
    try:
        server, thread = prometheus_client.start_http_server(port, host)
    except OSError as error:
        raise Invalid(f"metrics cannot be served on {host}:{port}: {error.strerror or error}") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
