"""Metrics by OpenTelemetry, by its conventions for messaging where those have a name.

from hipq.observe.meters import meter
meter(app)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

try:
    from opentelemetry import metrics
except ModuleNotFoundError:
    raise ImportError("metrics need OpenTelemetry: pip install 'hipq[otel]'") from None

from hipq.events import Event
from hipq.observe.measures import (
    ADDED,
    COUNTER,
    EVENTS,
    GAUGE,
    HISTOGRAM,
    MEASURES,
    RUN,
    Looks,
    Measure,
    Measured,
    Measuring,
)

_UNITS: Final = {"seconds": "s", "": "1"}
_OPERATIONS: Final = {ADDED: "enqueue", RUN: "run"}


def meter(app: Measured, provider: metrics.MeterProvider | None = None) -> None:
    """Measure an app from now on. `provider` replaces the program's own."""
    made = metrics.get_meter("hipq", meter_provider=provider)
    measuring, looks = Measuring(), Looks(app)
    record: dict[Measure, Callable[..., None]] = {}
    for one in MEASURES:
        name, unit = one.standard or one.name.replace("_", "."), _UNITS[one.unit]
        if one.kind == COUNTER:
            record[one] = made.create_counter(name, unit, one.about).add
        elif one.kind == HISTOGRAM:
            bounds = one.bounds
            histogram = made.create_histogram(name, unit, one.about, explicit_bucket_boundaries_advisory=bounds)
            record[one] = histogram.record
        else:
            made.create_observable_gauge(name, [partial(_observed, looks, one)], unit, one.about)

    def heard(event: Event) -> None:
        for measure, labels, value in measuring.of(event):
            record[measure](value, _attributes(measure, labels))

    app.events.subscribe(heard, *EVENTS)


def _observed(looks: Looks, wanted: Measure, _options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
    assert wanted.kind == GAUGE
    return [metrics.Observation(value, _attributes(wanted, labels)) for one, labels, value in looks.samples()
            if one is wanted]  # fmt: skip


def _attributes(measure: Measure, labels: tuple[str, ...]) -> dict[str, str]:
    found = {"messaging.system": "hipq"}
    found |= {"messaging.destination.name" if name == "queue" else f"hipq.{name}": value
              for name, value in zip(measure.labels, labels, strict=True) if value}  # fmt: skip
    return found | ({"messaging.operation.name": _OPERATIONS[measure]} if measure in _OPERATIONS else {})
