"""What has happened in queues over an hour, a day or a week: from the counters that engines keep as they settle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from hipq.job.activity import DAY, HOUR, MINUTE, Activity, series, total
from hipq.job.when import SECOND
from hipq.stores.protocols import Store

FOREVER: Final = 400 * DAY
"""Seconds after which counters are deleted."""


class Span(NamedTuple):
    seconds: int
    grain: int
    """The seconds for which there is a point;"""
    rough: int
    """and those by which job types are told apart, of which there may be many."""

    def since(self, now: int, grain: int) -> int:
        """Where it begins; the period that `now` is in is part of it."""
        return now - (self.seconds - grain) * SECOND


SPANS: Final = {
    "hour": Span(HOUR, MINUTE, MINUTE), "day": Span(DAY, HOUR, HOUR), "week": Span(7 * DAY, 3 * HOUR, DAY),
}  # fmt: skip


class Past(NamedTuple):
    """What has happened in some queues, in a span that ends now."""

    span: Span
    points: list[Activity]
    """One for each period, in order; the last has not ended."""
    whole: Activity
    """All of them together."""
    until: int

    def minutes(self, point: Activity) -> float:
        """How much of a period is over."""
        return min(self.span.grain, max((self.until - point.starts) / SECOND, MINUTE)) / MINUTE


def past(store: Store, queues: Sequence[int], span: Span, now: int) -> Past:
    since = span.since(now, span.grain)
    rows = store.activity(queues, span.grain, since, now)
    return Past(span, series(rows, span.grain, since, now), total(rows), now)


def by_type(store: Store, queue: int, span: Span, now: int) -> list[Activity]:
    """The same of one queue, summed up by job type, the busiest first."""
    found: dict[str, list[Activity]] = {}
    for row in store.activity([queue], span.rough, span.since(now, span.rough), now, "job_type"):
        found.setdefault(row.job_type, []).append(row)
    summed = [replace(total(rows), job_type=job_type) for job_type, rows in found.items()]
    return sorted(summed, key=lambda one: -one.started)


def busy(store: Store, queues: Sequence[int], now: int) -> dict[int, int]:
    """How many runs began in each of these queues in this hour and the last."""
    found = dict.fromkeys(queues, 0)
    for row in store.activity(queues, HOUR, now - HOUR * SECOND, now, "queue"):
        found[row.queue] += row.started
    return found


def newest(store: Store, queues: Sequence[int], now: int) -> int:
    """When the last minute began in which something was counted, as precisely as that is still known; 0 = nothing
    was."""
    for seconds, grain in ((HOUR, MINUTE), (7 * DAY, HOUR), (FOREVER, DAY)):
        if rows := store.activity(queues, grain, now - seconds * SECOND, now):
            return rows[-1].starts
    return 0
