"""A page of the admin's list of jobs: the newest first, by filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from hipq.app import Hipq
from hipq.django.backend import HipqBackend
from hipq.django.known_tasks import imported_tasks
from hipq.django.results import as_django
from hipq.errors import Invalid
from hipq.job.states import CODES, FINAL, NONE, TRANSITIONS
from hipq.job.view import Job
from hipq.jobs import JobFilters, as_filter
from hipq.queue import Queue

PAGE: Final = 50
_BY: Final = ("queue", "state", "type", "code")
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
        self._queues = [
            Shown(backend.alias, app, queue, f"{backend.alias}:{queue.name}" if several else queue.name)
            for backend, app in apps
            for queue in app.queues
        ]

    def context(self, link: Callable[[str], str]) -> dict[str, Any]:
        """What the template wants. `link` makes the address of a job's page."""
        if not self._queues:
            return {"queues": self._queues}
        chosen = next((one for one in self._queues if one.label == self._asked.get("queue")), self._queues[0])
        found = self._jobs(chosen)
        page, more = found[:PAGE], len(found) > PAGE
        return {
            "queues": self._queues,
            "rows": [_row(job, f"{chosen.alias}:{job.id}", link) for job in page],
            "filters": list(self._filters(chosen, {job.type for job in page})),
            "searched": self._asked.get("q", ""),
            "kept": [(name, value) for name, value in self._asked.items() if name in _BY],
            "newest": self._with(before=None) if "before" in self._asked else "",
            "older": self._with(before=str(page[-1].id)) if more else "",
        }

    def _jobs(self, chosen: Shown) -> list[Job[Any]]:
        wanted = JobFilters()
        for name in ("state", "type", "code"):
            if name in self._asked:
                wanted[name] = self._asked[name]
        base = as_filter(chosen.queue.number, chosen.app.store.now(), wanted)
        base = base._replace(limit=PAGE + 1, newest=True, after=_id(self._asked.get("before", "0")))
        searched = self._asked.get("q", "").strip()
        if not searched:
            return chosen.app.jobs.find(base)
        by_id = int(searched) if _is_id(searched) else 0
        found = chosen.app.jobs.find(base._replace(job_key=searched))
        if by_id and all(job.id != by_id for job in found):
            found += chosen.app.jobs.find(base._replace(newest=False, after=by_id - 1, until=by_id))
        return found

    def _filters(self, chosen: Shown, seen: set[str]) -> Iterator[dict[str, Any]]:
        """Without counts: those would read every job. Types are those that are known here, or on the page."""
        types = sorted({one.name for one in chosen.queue.job_types} | {*imported_tasks()} | seen)
        yield {"title": "queue", "choices": [
            self._choice("queue", one.label, one is chosen) for one in self._queues]}  # fmt: skip
        for name, values in (("state", [*TRANSITIONS]), ("code", [*CODES[1:]]), ("type", types)):
            given = self._asked.get(name)
            every = {"display": "All", "query_string": self._with(**{name: None}), "selected": given is None}
            yield {"title": name, "choices": [every, *(self._choice(name, one, one == given) for one in values)]}

    def _choice(self, name: str, value: str, selected: bool) -> dict[str, Any]:
        return {"display": value, "query_string": self._with(**{name: value}), "selected": selected}

    def _with(self, **changed: str | None) -> str:
        """The query of this page with some of it changed. Another filter begins with its first page."""
        kept = {name: value for name, value in self._asked.items() if name != "before"} | changed
        return "?" + urlencode({name: value for name, value in kept.items() if value is not None})


def _id(text: str) -> int:
    if not _is_id(text):
        raise Invalid("before must be the id of a job")
    return int(text)


def _is_id(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) < 20 and int(text) <= _HIGHEST


def _row(job: Job[Any], key: str, link: Callable[[str], str]) -> dict[str, Any]:
    return {
        "key": key,
        "link": link(key),
        "id": job.id,
        "job_key": "" if job.key == str(job.id) else job.key,
        "type": job.type,
        "state": job.state,
        "step": job.code if job.state == FINAL else job.phase,
        "attempt": job.attempt,
        "added": as_django(job.create_time),
        "due": as_django(job.scheduled_run_time),
        "error": "" if job.error == NONE else str(job.fault),
    }
