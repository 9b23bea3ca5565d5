"""A page of the admin's list of jobs: the newest first, by filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, islice
from typing import Any, Final
from urllib.parse import urlencode

from hipq.app import Hipq
from hipq.django.backend import HipqBackend
from hipq.django.known_tasks import imported_tasks
from hipq.django.results import as_django
from hipq.errors import Invalid
from hipq.job.model import queue_of
from hipq.job.states import CODES, FINAL, NONE, PHASES, TRANSITIONS
from hipq.job.view import Job
from hipq.jobs import JobFilters, as_filter
from hipq.queue import Queue

PAGE: Final = 50
_TEXTS: Final = ("state", "phase", "type", "code")
_BY: Final = ("queue", *_TEXTS)
_HIGHEST: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Shown:
    """A queue of a backend. `label`: its name, with the backend's alias where there are several."""

    alias: str
    app: Hipq
    queue: Queue
    label: str


class JobList:
    def __init__(self, asked: Mapping[str, str], apps: Sequence[tuple[HipqBackend, Hipq]]) -> None:
        self._asked = {name: value for name, value in asked.items() if value and name in (*_BY, "q", "before")}
        several = len(apps) > 1
        self.queues = [
            Shown(backend.alias, app, queue, f"{backend.alias}:{queue.name}" if several else queue.name)
            for backend, app in apps
            for queue in app.queues
        ]

    def context(self, link: Callable[[str], str]) -> dict[str, Any]:
        """What the template wants. `link` makes the address of a job's page."""
        asked = self._asked.get("queue")
        chosen = [one for one in self.queues if asked in (None, one.label, one.queue.name)]
        if not chosen and self.queues:
            raise Invalid(f"there is no queue {asked}: there are {', '.join(one.label for one in self.queues)}")
        places = _places(self._asked.get("before", ""))
        found = list(islice(merge(*(self._jobs(one, places) for one in chosen), key=_newest_first), PAGE + 1))
        page = found[:PAGE]
        after = {**places, **{(one.alias, one.queue.number): job.id for one, job in page}}
        older = ",".join(f"{alias}:{job_id}" for (alias, _), job_id in after.items())
        return {
            "queues": self.queues,
            "rows": [_row(one, job, link) for one, job in page],
            "filters": list(self._filters(chosen, {job.type for _, job in page})) if chosen else [],
            "searched": self._asked.get("q", ""),
            "kept": [(name, value) for name, value in self._asked.items() if name in _BY],
            "newest": self._with(before=None) if "before" in self._asked else "",
            "older": self._with(before=older) if len(found) > PAGE else "",
        }

    def _jobs(self, one: Shown, places: Mapping[tuple[str, int], int]) -> list[tuple[Shown, Job[Any]]]:
        wanted = JobFilters()
        for name in _TEXTS:
            if name in self._asked:
                wanted[name] = self._asked[name]
        base = as_filter(one.queue.number, one.app.store.now(), wanted)
        after = places.get((one.alias, one.queue.number), 0)
        base = base._replace(limit=PAGE + 1, newest=True, after=after)
        searched = self._asked.get("q", "").strip()
        if not searched:
            return [(one, job) for job in one.app.jobs.find(base)]
        by_id = int(searched) if _is_id(searched) else 0
        found = one.app.jobs.find(base._replace(job_key=searched))
        if queue_of(by_id) == one.queue.number and all(job.id != by_id for job in found):
            found += one.app.jobs.find(base._replace(newest=False, after=by_id - 1, until=by_id))
        return [(one, job) for job in found]

    def _filters(self, chosen: Sequence[Shown], seen: set[str]) -> Iterator[dict[str, Any]]:
        """Without counts: those would read every job. Types are those that are known here, or on the page."""
        types = sorted({kind.name for one in chosen for kind in one.queue.job_types} | {*imported_tasks()} | seen)
        for name, values in (
            ("queue", [one.label for one in self.queues]),
            ("state", [*TRANSITIONS]),
            ("phase", [*chain(*PHASES.values())]),
            ("code", [*CODES[1:]]),
            ("type", types),
        ):
            given = self._asked.get(name)
            every = {"display": "All", "query_string": self._with(**{name: None}), "selected": given is None}
            yield {"title": name, "choices": [every, *(self._choice(name, one, one == given) for one in values)]}

    def _choice(self, name: str, value: str, selected: bool) -> dict[str, Any]:
        return {"display": value, "query_string": self._with(**{name: value}), "selected": selected}

    def _with(self, **changed: str | None) -> str:
        """The query of this page with some of it changed. Another filter begins with its first page."""
        kept = {name: value for name, value in self._asked.items() if name != "before"} | changed
        return "?" + urlencode({name: value for name, value in kept.items() if value is not None})


def _places(text: str) -> dict[tuple[str, int], int]:
    """Where a page begins: behind which job of each queue, by the backend's alias and the queue's number."""
    found = {}
    for place in filter(None, text.split(",")):
        alias, _, job_id = place.rpartition(":")
        if not _is_id(job_id):
            raise Invalid("before must have ids of jobs")
        found[alias, queue_of(int(job_id))] = int(job_id)
    return found


def _newest_first(listed: tuple[Shown, Job[Any]]) -> float:
    return -listed[1].create_time.timestamp()


def _is_id(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) < 20 and int(text) <= _HIGHEST


def _row(one: Shown, job: Job[Any], link: Callable[[str], str]) -> dict[str, Any]:
    key = f"{one.alias}:{job.id}"
    return {
        "key": key,
        "link": link(key),
        "id": job.id,
        "queue": one.label,
        "job_key": "" if job.key == str(job.id) else job.key,
        "type": job.type,
        "state": job.state,
        "step": job.code if job.state == FINAL else job.phase,
        "attempt": job.attempt,
        "added": as_django(job.create_time),
        "due": as_django(job.scheduled_run_time),
        "error": "" if job.error == NONE else str(job.fault),
    }
