"""What can be done to one job: cancel it, run it now, give it another time or priority, add it again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hipq.dashboard.pages.job_row import row_of
from hipq.dashboard.visit import PageRoute, Reply, Role, Visit, redirect
from hipq.errors import Invalid
from hipq.job import waiting
from hipq.job.fault import FaultKind
from hipq.job.model import Row
from hipq.job.states import CANCELLING, FINAL, PARKED, READY, RETRY, SCHEDULED, WAITING
from hipq.job.when import duration
from hipq.job.windows import is_open

if TYPE_CHECKING:
    from hipq.dashboard.site import Site

CANCEL: Final = "cancel"
RUN_NOW: Final = "run-now"
CHANGE: Final = "change"
REQUEUE: Final = "requeue"
SENTENCES: Final[Mapping[str, str]] = {
    CANCEL: "It is cancelled, or will be once its cancel handler has run.",
    RUN_NOW: "It runs as soon as it may.",
    CHANGE: "It is changed.",
    REQUEUE: "This is the new job: it is like the one that had ended.",
}
"""What the page says after each of them."""


def offered(row: Row, now: int) -> dict[str, str]:
    """What can be done to the job as it is, and what that is called."""
    if row.state == FINAL:
        return {REQUEUE: "Add it again"}
    found = {}
    if row.phase == SCHEDULED and _is_open(row, now):
        found[RUN_NOW] = "Retry now" if row.state == RETRY else "Run now"
    if row.phase == WAITING and waiting.to_show(row.wait).tries:
        found[RUN_NOW] = "Look at its answer now"
    if row.phase in (SCHEDULED, READY, PARKED):
        found[CHANGE] = "Change"
    cause = waiting.to_show(row.wait).cause
    if row.phase != CANCELLING or cause is None or cause.kind != FaultKind.CANCELLED:
        found[CANCEL] = "Cancel"
    return found


def _is_open(row: Row, now: int) -> bool:
    try:
        return is_open(row.time_windows, now)
    except Invalid:
        return False


# -- pages that ask first --------------------------------------------------------------------------------------------
def ask_cancel(site: Site, visit: Visit) -> Reply:
    return _ask(site, visit, CANCEL)


def ask_change(site: Site, visit: Visit) -> Reply:
    return _ask(site, visit, CHANGE)


def _ask(site: Site, visit: Visit, action: str, wrong: str = "") -> Reply:
    queue, row = row_of(site, visit)
    now = site.store.now()
    return site.render(
        "job_ask.html", visit, status=400 if wrong else 200, now=now, job=row, queue=site.name(queue), action=action,
        can=action in offered(row, now), wrong=wrong,
    )  # fmt: skip


# -- what they do ----------------------------------------------------------------------------------------------------
def cancel(site: Site, visit: Visit) -> Reply:
    queue, row = row_of(site, visit)
    try:
        queue.app.cancel(row.id, visit.sent("reason").strip() or "cancelled")
    except Invalid as error:
        return _ask(site, visit, CANCEL, str(error))
    return _back(visit, row.id, CANCEL)


def run_now(site: Site, visit: Visit) -> Reply:
    queue, row = row_of(site, visit)
    queue.app.retry_now(row.id)
    return _back(visit, row.id, RUN_NOW)


def change(site: Site, visit: Visit) -> Reply:
    queue, row = row_of(site, visit)
    at, delay, priority = (visit.sent(name).strip() for name in ("at", "delay", "priority"))
    try:
        queue.app.jobs.change(
            row.id,
            at=_moment(at) if at else None,
            delay=duration(delay, "the delay") if delay else None,
            priority=_whole(priority) if priority and priority != str(row.priority) else None,
        )
    except Invalid as error:
        return _ask(site, visit, CHANGE, str(error))
    return _back(visit, row.id, CHANGE)


def requeue(site: Site, visit: Visit) -> Reply:
    queue, row = row_of(site, visit)
    return _back(visit, queue.app.jobs.requeue(row.id), REQUEUE)


def _moment(text: str) -> datetime:
    """What a browser makes of a field for a time; in UTC, as all times of the dashboard."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid("the time is written like 2027-01-15T08:00") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _whole(text: str) -> int:
    try:
        return int(text[:20])
    except ValueError:
        raise Invalid("the priority is a whole number") from None


def _back(visit: Visit, job_id: int, done: str) -> Reply:
    return redirect(visit.link(f"/jobs/{job_id}", done=done))


ROUTES: Final = (
    PageRoute("GET", "/jobs/{id}/cancel", Role.OPERATE, ask_cancel),
    PageRoute("GET", "/jobs/{id}/change", Role.OPERATE, ask_change),
    PageRoute("POST", "/jobs/{id}/cancel", Role.OPERATE, cancel),
    PageRoute("POST", "/jobs/{id}/run-now", Role.OPERATE, run_now),
    PageRoute("POST", "/jobs/{id}/change", Role.OPERATE, change),
    PageRoute("POST", "/jobs/{id}/requeue", Role.OPERATE, requeue),
)
