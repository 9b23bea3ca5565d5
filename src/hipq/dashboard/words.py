"""Filters of the templates: how times, spans, numbers and states are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from markupsafe import Markup

from hipq.job.model import Brief
from hipq.job.states import (
    ANSWERED,
    CANCELLING,
    DECIDING,
    ERROR,
    EXECUTING,
    FINAL,
    PARKED,
    READY,
    RETRY,
    SCHEDULED,
    WAITING,
    Code,
)
from hipq.job.when import SECOND, lasting, moment, to_datetime

_SAID: Final = {
    SCHEDULED: "scheduled", READY: "ready", PARKED: "held back", EXECUTING: "running", WAITING: "waiting",
    ANSWERED: "answered", CANCELLING: "cancelling", DECIDING: "deciding",
}  # fmt: skip


def said(row: Brief) -> str:
    """What a job is doing, in one word that has a shape and a colour (`state` in _parts.html)."""
    if row.state == FINAL:
        return ERROR if row.code == Code.RETRY else row.code  # its time was over before it could be tried again
    return "retrying" if row.state == RETRY and row.phase != PARKED else _SAID[row.phase]


def exact(moment: int) -> str:
    """A moment to the millisecond, in UTC."""
    return to_datetime(moment).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")


def ago(moment: int, now: int) -> Markup:
    """A moment relative to now, with the exact one where it is pointed at. The browser moves it on by itself."""
    if not moment:
        return Markup("")
    seconds = (now - moment) / SECOND
    text = f"{lasting(seconds)} ago" if seconds >= 0 else f"in {lasting(-seconds)}"
    machine = to_datetime(moment).isoformat(timespec="milliseconds")
    return Markup(f'<time datetime="{machine}" title="{exact(moment)}" data-relative>{text}</time>')


def clock(moment: int) -> Markup:
    """The time of day of a moment, in UTC, with the exact one where it is pointed at."""
    found = to_datetime(moment)
    machine = found.isoformat(timespec="milliseconds")
    return Markup(f'<time datetime="{machine}" title="{exact(moment)}">{found:%H:%M:%S}</time>')


def count(value: int, most: int = 0) -> str:
    """A number of things; counting has stopped at `most`."""
    return f"{value:,}+" if most and value >= most else f"{value:,}"


def compact(value: Any) -> str:
    """JSON in one line, for attributes of elements."""
    return msgspec.json.encode(value).decode()


def units(value: float) -> str:
    """Units of limits: 3 and not 3.0, 0.5, 1,000."""
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def micros(value: datetime) -> int:
    """A moment as the store counts it."""
    return moment(value)


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "ago": ago, "clock": clock, "compact": compact, "count": count, "exact": exact, "lasting": lasting,
    "micros": micros, "said": said, "units": units,
}  # fmt: skip
