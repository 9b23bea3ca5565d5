"""What a job carries and what came of it, as files: all of it, where a page shows only the beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hipq.dashboard.bodies import download
from hipq.dashboard.pages.job_row import number_in, row_of
from hipq.dashboard.visit import PageRoute, Refused, Reply, Role, Visit
from hipq.stores.filters import AnswerFilter

if TYPE_CHECKING:
    from hipq.dashboard.site import Site


def data(site: Site, visit: Visit) -> Reply:
    _, row = row_of(site, visit)
    return download(f"job-{row.id}-data", row.job_data, site.mask, of_daemon=bool(row.tenant))


def result(site: Site, visit: Visit) -> Reply:
    _, row = row_of(site, visit)
    if not row.result:
        raise Refused(404, f"job {row.id} has no result")
    return download(f"job-{row.id}-result", row.result, site.mask, of_daemon=bool(row.tenant))


def answer(site: Site, visit: Visit) -> Reply:
    answer_id = number_in(visit, "the number of an answer")
    found = site.store.answers(AnswerFilter(id=answer_id)) if 0 < answer_id < 1 << 63 else []
    if not found or all(queue.number != found[0].queue for queue in site.queues.values()):
        raise Refused(404, f"there is no answer {answer_id}")
    return download(f"answer-{answer_id}", found[0].data, site.mask)


ROUTES: Final = (
    PageRoute("GET", "/jobs/{id}/data", Role.VIEW, data),
    PageRoute("GET", "/jobs/{id}/result", Role.VIEW, result),
    PageRoute("GET", "/answers/{id}/data", Role.VIEW, answer),
)
