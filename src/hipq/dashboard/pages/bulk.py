"""Something done to many jobs: a page that asks first, and one that shows how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.dashboard import job_filter
from hipq.dashboard.bulk import (
    UNDONE,
    Chosen,
    Do,
    Operation,
    cancelling,
    changing,
    putting_back,
    requeueing,
    running_now,
)
from hipq.dashboard.looking import Counted, Search, count
from hipq.dashboard.pages.jobs import MOST
from hipq.dashboard.visit import PageRoute, Reply, Role, Visit, redirect
from hipq.errors import Conflict, HipqError, Invalid
from hipq.job import names
from hipq.stores.filters import Filter

if TYPE_CHECKING:
    from hipq.dashboard.site import Site
    from hipq.stores.protocols import Store

_SELECTED: Final = 1_000
"""Jobs that can be selected one by one."""


class Action(NamedTuple):
    title: str
    """With the number of jobs in it."""
    table: str
    """Which jobs it can be done to: "live" or "final" ones."""
    explains: str
    is_grave: bool = False


ACTIONS: Final[Mapping[str, Action]] = {
    "run": Action(
        "Run {} now", "live",
        "Jobs that wait for their time or for another try start as soon as there is room. Others are left alone. "
        "Those that nothing has happened to since can be put back.",
    ),
    "cancel": Action(
        "Cancel {}", "live",
        "They end. A handler that is running is told to stop, and what it comes to is not kept. This cannot be undone; "
        "but the cancelled jobs can be added again.",
        is_grave=True,
    ),
    "requeue": Action(
        "Requeue {}", "final",
        "For each a new job with the same type, data, key, lane and priority is added, unless a live job has its key. "
        "Only jobs that have ended are added again, and they stay as they are. The new jobs can be cancelled.",
    ),
    "change": Action(
        "Change {}", "live",
        "Jobs that have not started get another time or priority. Others are left alone. "
        "It can be undone for those that nothing has happened to since.",
    ),
}  # fmt: skip
_FOLLOWING: Final[Mapping[str, tuple[str, str]]] = {
    "run": ("Put back", "Put back the time of {}"),
    "change": ("Put back", "Put back the time and priority of {}"),
    "cancel": ("Add them again", "Requeue {} that were cancelled"),
    "requeue": ("Cancel the new jobs", "Cancel {} that were added"),
}
"""What can be done after each action to the jobs that it has changed: its button, and its title."""


class Wanted(NamedTuple):
    """What a visit wants done, and to what."""

    name: str
    action: Action
    ids: list[int]
    asked: Mapping[str, str]
    searches: list[Search]
    """Instead of ids: all that these find."""
    counted: Counted

    @property
    def until(self) -> str:
        """The last jobs that are meant, for the form: what is added while somebody reads the question is not."""
        return ",".join(str(search.end) for search in self.searches)

    @property
    def title(self) -> str:
        jobs = _jobs(self.counted.jobs)
        return self.action.title.format(jobs if self.counted.is_all else f"at least {jobs}")


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number:,} jobs"


def _wanted(site: Site, visit: Visit) -> Wanted:
    sent, get = (visit.form, visit.sent) if visit.method == "POST" else (visit.query, visit.asked)
    name = names.one_of(get("do"), "action", ACTIONS)
    action, asked = ACTIONS[name], job_filter.asked_in(get)
    if get("all"):
        asked = job_filter.at_fixed_times(asked, site.store.now())
        searches = job_filter.searches(site, asked, oldest=True, table=action.table)
        searches = _until_now(site.store, searches, job_filter.places(get("until")))
        return Wanted(name, action, [], asked, searches, count(site.store, searches, MOST))
    ids = [*dict.fromkeys(job_filter.whole_id(text) for text in sent.get("job", ()))]
    if not ids or len(ids) > _SELECTED:
        raise Invalid(f"select 1 to {_SELECTED:,} jobs, or all that match")
    for job_id in ids:
        site.queue_of(job_id)
    return Wanted(name, action, ids, {}, [], Counted(len(ids), True))


def ask(site: Site, visit: Visit) -> Reply:
    return _asking(site, visit, _wanted(site, visit))


def _asking(site: Site, visit: Visit, wanted: Wanted, problem: str = "") -> Reply:
    return site.render(
        "bulk_ask.html",
        visit,
        status=400 if problem else 200,
        now=site.store.now(),
        wanted=wanted,
        said=job_filter.SAID,
        problem=problem,
    )


def start(site: Site, visit: Visit) -> Reply:
    wanted = _wanted(site, visit)
    try:
        do = _what(site, visit, wanted.name)
    except Invalid as error:
        return _asking(site, visit, wanted, str(error))
    chosen = Chosen(wanted.ids, wanted.searches)
    of = wanted.counted.jobs if wanted.counted.is_all else 0
    operation = Operation(site, wanted.name, wanted.title, chosen, do, visit.visitor.name, of)
    return _started(site, visit, operation, {"operation": operation.id, "what": wanted.title, **wanted.asked})


def _what(site: Site, visit: Visit, name: str) -> Do:
    match name:
        case "cancel":
            return cancelling(names.reason(visit.sent("reason").strip() or "cancelled in the dashboard"))
        case "requeue":
            return requeueing()
        case "run":
            return running_now()
        case _:
            at, priority = visit.sent("at").strip(), visit.sent("priority").strip()
            if not at and not priority:
                raise Invalid("say what to change: the time, the priority or both")
            when = job_filter.when(at, "the time", site.store.now(), ahead=True) if at else None
            return changing(when, _priority(priority) if priority else None)


def _priority(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 11):
        raise Invalid(f"the priority is a whole number, the lower the sooner, not {text!r:.40}")
    return names.priority(int(text))


def _until_now(store: Store, searches: Sequence[Search], known: Mapping[int, int]) -> list[Search]:
    """What is added from now on is not meant: with a fast producer there would be no end. `known`: the last jobs of the
    queues when somebody was asked; queues that are not in it had none."""
    found = []
    for search in searches:
        queue = search.wanted.queue
        rows = [] if known else store.find(Filter(queue, newest=True, limit=1), brief=True)
        if last := known.get(queue) or (rows[0].id if rows else 0):
            found.append(search._replace(end=min(search.end or last, last)))
    return found


def _started(site: Site, visit: Visit, operation: Operation, details: Mapping[str, object] | None = None) -> Reply:
    site.operations.start(operation)
    return redirect(visit.link(f"/bulk/{operation.id}"), details)


def progress(site: Site, visit: Visit) -> Reply:
    operation = site.operations.get(visit.params["id"])
    return site.render(
        "bulk.html",
        visit,
        now=site.store.now(),
        operation=operation,
        following=_FOLLOWING.get(operation.name, ("", ""))[0] if operation.is_over and operation.was else "",
        most=UNDONE,
        may_act=not site.read_only,
    )


def stop(site: Site, visit: Visit) -> Reply:
    operation = site.operations.get(visit.params["id"])
    operation.stop()
    return redirect(visit.link(f"/bulk/{operation.id}"))


def follow(site: Site, visit: Visit) -> Reply:
    """Undo it, as far as that can be done."""
    operation = site.operations.get(visit.params["id"])
    was = operation.taken() if operation.name in _FOLLOWING and operation.is_over else []
    if not was:
        raise Conflict("there is nothing in this operation that could be undone")
    do = {
        "run": putting_back(was, priorities=False),
        "change": putting_back(was),
        "cancel": requeueing(),
        "requeue": cancelling("cancelled in the dashboard: added again by mistake"),
    }[operation.name]
    title = _FOLLOWING[operation.name][1].format(_jobs(len(was)))
    chosen = Chosen([one.id for one in was])
    try:
        undo = Operation(site, "undo", title, chosen, do, visit.visitor.name, len(was))
        return _started(site, visit, undo, {"operation": undo.id, "what": title})
    except HipqError:
        operation.was = was
        raise


ROUTES: Final = (
    PageRoute("GET", "/bulk", Role.OPERATE, ask),
    PageRoute("POST", "/bulk", Role.OPERATE, start),
    PageRoute("GET", "/bulk/{id}", Role.OPERATE, progress),
    PageRoute("POST", "/bulk/{id}/stop", Role.OPERATE, stop),
    PageRoute("POST", "/bulk/{id}/undo", Role.OPERATE, follow),
)
