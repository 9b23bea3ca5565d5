"""One job: its conversation with the service outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hipq.dashboard.visit import PageRoute, Refused, Reply, Role, Visit

if TYPE_CHECKING:
    from hipq.dashboard.site import Site


def page(site: Site, visit: Visit) -> Reply:
    text = visit.params["id"]
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise Refused(404, "the id of a job is a number")
    job_id = int(text)
    return site.render("job.html", visit, now=site.store.now(), job=site.queue_of(job_id).app.job(job_id))


ROUTES: Final = (PageRoute("GET", "/jobs/{id}", Role.VIEW, page),)
