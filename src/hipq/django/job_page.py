"""What the admin's page of one job shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from hipq.app import Hipq
from hipq.django.results import MIDDLE, as_django, is_task
from hipq.job.event_names import JobEvent
from hipq.job.states import FINAL
from hipq.job.view import Job

LONGEST: Final = 20_000
"""Characters of data, result or traceback on a page."""


def fields_of(app: Hipq, job: Job[Any]) -> Iterator[tuple[str, Any, bool]]:
    """Name, value, and whether the value is a text of several lines."""
    yield "Queue", app.declared.of_job(job.id).name, False
    yield "Type", job.type, False
    yield "Key", job.key, False
    yield "State", f"{job.state} ({job.code if job.state == FINAL else job.phase})", False
    if job.state != FINAL:
        yield "Why", app.why(job.id).sentence, False
    yield "Attempt", job.attempt, False
    yield "Priority", MIDDLE - job.priority if is_task(job.data) else job.priority, False
    if job.lane:
        yield "Lane", job.lane, False
    yield "Added", as_django(job.create_time), False
    yield "Scheduled run time", as_django(job.scheduled_run_time), False
    yield "Changed", as_django(job.update_time), False
    yield "Data", _json(job.data), True
    if job.result is not None:
        yield "Result", _json(job.result), True
    if job.fault is not None:
        yield "Error", _cut(job.fault.traceback or str(job.fault)), True


def history_of(job: Job[Any]) -> list[dict[str, Any]]:
    """Oldest first, each with what is special about it as a text."""
    return [
        {"at": as_django(job.create_time), "event": JobEvent.ADDED, "about": ""},
        *(
            {
                "at": as_django(entry["at"]),
                "event": entry["event"],
                "about": ", ".join(f"{name} {value}" for name, value in entry.items() if name not in ("at", "event")),
            }
            for entry in job.history
        ),
    ]


def _json(value: Any) -> str:
    return _cut(json.dumps(value, indent=2, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"
