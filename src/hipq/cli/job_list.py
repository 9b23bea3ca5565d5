"""`hipq job list`: a page of the jobs of several queues, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

from hipq import Hipq, Job, Queue
from hipq.cli.show import described, outlined, print_table, with_filled
from hipq.errors import NotFound
from hipq.job.states import FINAL, NONE, RUNNING, SCHEDULED
from hipq.job.when import lasting, to_datetime
from hipq.jobs import JobFilters

_COLUMNS: Final = (
    "id", "queue", "tenant", "type", "key", "lane", "state", "phase", "code", "attempt", "age", "duration",
    "scheduled_run_time", "error",
)  # fmt: skip
_SOMETIMES: Final = ("tenant", "lane", "scheduled_run_time", "error")
_SPARE: Final = ("scheduled_run_time", "attempt", "lane", "queue", "tenant")
_ERROR: Final = 40
"""Characters of an error that a table has; `hipq job show` has all of them."""


class Listed(NamedTuple):
    app: Hipq
    queue: str
    job: Job[Any]


class Page(NamedTuple):
    jobs: list[Listed]
    after: Mapping[int, int]
    """Where the next page begins: by queue, the last id that has been shown. Empty: there is no next page."""


def page(
    queues: Sequence[tuple[Hipq, Queue]], wanted: JobFilters, after: Mapping[int, int], limit: int, oldest: bool
) -> Page:
    """Those of one queue in the order of their ids, which is that of its pages; queues are merged by time."""

    places = {queue.number: last for _, queue in queues for number, last in after.items() if number in queue.numbers}

    def of(app: Hipq, queue: Queue) -> list[Listed]:
        jobs = app.jobs(queue.name, oldest=oldest, after=places.get(queue.number, 0), limit=limit + 1, **wanted)
        return [Listed(app, queue.name, job) for job in jobs]

    def when(one: Listed) -> float:
        return one.job.create_time.timestamp() * (1 if oldest else -1)

    found = list(islice(merge(*(of(*each) for each in queues), key=when), limit + 1))
    more, shown = len(found) > limit, found[:limit]
    places |= {one.app.declared.find(one.queue).number: one.job.id for one in shown}
    return Page(shown, places if more else {})


def whole(jobs: list[Listed]) -> Iterator[dict[str, Any]]:
    """Each is read when it is its turn, and forgotten then: with all they carry, a list might not fit into memory."""
    times = _times(jobs)
    jobs.reverse()
    while jobs:
        app, queue, job = jobs.pop()
        try:
            yield described(app.name, queue, job) | times[job.id]
        except NotFound:
            pass  # it has been deleted since


def print_list(jobs: Sequence[Listed]) -> None:
    times = _times(jobs)
    rows = [outlined(app.name, queue, job) | times[job.id] for app, queue, job in jobs]
    for row in rows:
        row["code"], row["error"] = _said(row["code"]), _said(row["error"])
        if row["state"] == RUNNING:  # what its attempt before came to
            row["code"] = ""
        if len(row["error"]) > _ERROR:
            row["error"] = row["error"][: _ERROR - 1] + "…"
        row["age"] = lasting(row["age"])
        row["duration"] = "" if row["duration"] is None else lasting(row["duration"])
        row["scheduled_run_time"] = row["scheduled_run_time"] if row["phase"] == SCHEDULED else None
    print_table(with_filled(_COLUMNS, rows, _SOMETIMES), rows, none="jobs", spare=_SPARE)


def _said(value: str) -> str:
    return "" if value == NONE else value


def _times(jobs: Sequence[Listed]) -> dict[int, dict[str, float | None]]:
    """By id, in seconds: how long ago a job was added, and how long it took from when it was due to its end."""
    now = {app.name: to_datetime(app.store.now()) for app in {one.app.name: one.app for one in jobs}.values()}
    return {
        job.id: {
            "age": max((now[app.name] - job.create_time).total_seconds(), 0.0),
            "duration": _duration(job) if job.state == FINAL else None,
        }
        for app, _, job in jobs
    }


def _duration(job: Job[Any]) -> float:
    due = max(job.create_time, job.scheduled_run_time)
    return max((job.update_time - due).total_seconds(), 0.0)
