"""Jobs by filter, and the box that finds one by its id or key."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.dashboard import job_filter
from hipq.dashboard.looking import QUEUES, Counted, Page, Search, count
from hipq.dashboard.looking import page as page_of
from hipq.dashboard.visit import PageRoute, Reply, Role, Visit, redirect
from hipq.errors import Invalid, NotFound
from hipq.job.fault import Fault
from hipq.job.model import Brief, queue_of
from hipq.job.states import FINAL, NONE
from hipq.job.when import SECOND
from hipq.stores.large import PAYLOAD_LIMIT

if TYPE_CHECKING:
    from hipq.dashboard.site import Site

LIMIT: Final = 50
"""Jobs on a page."""
MOST: Final = 10_000
"""Counting stops here."""
_ERROR: Final = 200
"""Characters of an error in the list."""


class Line(NamedTuple):
    """A job, as a row of the list has it."""

    row: Brief
    queue: str
    error: str
    """Its first line."""
    took: float | None
    """Seconds from when it was due to its end."""


def page(site: Site, visit: Visit) -> Reply:
    if wanted := visit.asked("find").strip():
        return redirect(_found(site, visit, wanted))
    if any(not values[-1] for values in visit.query.values()):
        return redirect(visit.linked())  # without the fields of the form that were left empty
    began = time.monotonic()
    asked, oldest = job_filter.asked_in(visit.asked), visit.asked("order") == "oldest"
    queues = sorted(job_filter.queues_of(site, asked), key=lambda queue: queue.number)
    part = min(_part(visit.asked("part")), max(-(-len(queues) // QUEUES), 1))
    searches = job_filter.searches(site, asked, queues[(part - 1) * QUEUES : part * QUEUES], oldest=oldest)
    after = job_filter.places(visit.asked("after"))
    found = page_of(site.store, searches, after, LIMIT, began=began)
    names = {queue.number: name for name, queue in site.queues.items()}
    lines = [_line(site, row, names) for row in found.rows]
    return site.render(
        "jobs.html",
        visit,
        now=site.store.now(),
        asked=asked,
        chips=_chips(visit, asked),
        lines=lines,
        counted=_counted(site, searches, found, is_all=not (after or found.after)),
        most=MOST,
        looked=found.looked,
        unsearched=PAYLOAD_LIMIT,
        following=visit.linked(after=",".join(map(str, found.after.values()))) if found.after else "",
        is_first=not after,
        part=part,
        some_queues=QUEUES,
        all_queues=len(queues),
        oldest=oldest,
        states=job_filter.STATES,
        codes=job_filter.CODES,
        types=sorted({one.name for queue in site.queues.values() for one in queue.job_types}),
        has=_filled(lines, len(searches) > 1),
        at_work=[one for one in site.operations.all if not one.is_over],
        may_act=visit.visitor.role >= Role.OPERATE and not site.read_only,
    )


def _line(site: Site, row: Brief, names: Mapping[int, str]) -> Line:
    told = "" if row.error == NONE else str(site.shown(Fault.load(row.error).told))
    error = told.strip().partition("\n")[0][:_ERROR]
    took = (row.update_time - max(row.create_time, row.scheduled_run_time)) / SECOND if row.state == FINAL else None
    return Line(row, names.get(queue_of(row.id), ""), error, None if took is None else max(took, 0.0))


def _counted(site: Site, searches: Sequence[Search], found: Page, *, is_all: bool) -> Counted:
    """How many jobs there are; those on the page at least, though some may have gone meanwhile."""
    shown = len(found.rows)
    counted = Counted(shown, not found.looked) if found.looked or is_all else count(site.store, searches, MOST)
    return counted._replace(jobs=max(counted.jobs, shown))


def _chips(visit: Visit, asked: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """What is asked for, each with the page that asks for the rest."""
    said = job_filter.SAID
    return [(said[name], value, visit.linked(**{name: "", "after": "", "part": ""})) for name, value in asked.items()]


def _part(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and 0 < len(text) < 6 and int(text) else 1


def _filled(lines: list[Line], several: bool) -> frozenset[str]:
    """Columns that most lists do without."""
    filled = {"queue": several, "tenant": any(one.row.tenant for one in lines), "lane": any(x.row.lane for x in lines)}
    return frozenset(name for name, is_filled in filled.items() if is_filled)


def _found(site: Site, visit: Visit, wanted: str) -> str:
    """Where the search box leads: to the job with this id, to the only job with this key, or to a list."""
    try:
        job_id = job_filter.whole_id(wanted)
        site.queue_of(job_id)
        if site.store.get(job_id):
            return visit.link(f"/jobs/{job_id}")
    except (Invalid, NotFound):
        pass  # it is a key
    for name in ("key", "prefix"):
        some = [search.wanted._replace(few=True, limit=2) for search in job_filter.searches(site, {name: wanted})]
        counts = [site.store.count(one) for one in some]
        if sum(counts) == 1:
            only = site.store.find(some[counts.index(1)], brief=True)
            return visit.link(f"/jobs/{only[0].id}" if only else "/jobs", **({} if only else {name: wanted}))
        if any(counts):
            return visit.link("/jobs", **{name: wanted})
    return visit.link("/jobs", key=wanted)


ROUTES: Final = (PageRoute("GET", "/jobs", Role.VIEW, page),)
