"""The job that a path names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipq.dashboard.visit import Refused, Visit
from hipq.job.model import Row

if TYPE_CHECKING:
    from hipq.dashboard.site import Site
    from hipq.queue import Queue


def number_in(visit: Visit, what: str) -> int:
    """The id in the path. A page that is not there is all that other texts can be."""
    text = visit.params["id"]
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise Refused(404, f"{what} is a number")
    return int(text)


def row_of(site: Site, visit: Visit) -> tuple[Queue, Row]:
    """The job in the path, and its queue."""
    job_id = number_in(visit, "the id of a job")
    queue = site.queue_of(job_id)
    row = site.store.get(job_id)
    if row is None:
        raise Refused(404, f"there is no job {job_id}: if there was one, it has been deleted since it ended")
    return queue, row
