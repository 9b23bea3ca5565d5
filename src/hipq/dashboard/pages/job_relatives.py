"""The jobs that belong to a job: the one that added it, those that it added, and those that had its key before and
after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.dashboard import job_filter
from hipq.errors import NotFound
from hipq.job import meta
from hipq.job.model import Brief, Row
from hipq.stores.filters import Filter

if TYPE_CHECKING:
    from hipq.dashboard.site import Site

NEAR: Final = 5
"""Jobs with the same key that are shown before it, and after it."""
CHILDREN: Final = 10
"""Jobs it added that are shown."""


class Relatives(NamedTuple):
    parent: int
    """The job whose handler added it; 0 = none did."""
    parent_row: Brief | None
    """None: it was deleted since it ended."""
    children: list[Brief]
    before: list[Brief]
    """The last ones that had the same key, the oldest first."""
    after: list[Brief]
    more_children: bool
    more_before: bool
    more_after: bool


def relatives(site: Site, row: Row) -> Relatives:
    parent = meta.to_show(row.meta).parent
    children = _children(site, row)
    before, after = _same_key(site, row)
    return Relatives(
        parent, _brief(site, parent), children[:CHILDREN], before[:NEAR][::-1], after[:NEAR],
        len(children) > CHILDREN, len(before) > NEAR, len(after) > NEAR,
    )  # fmt: skip


def _brief(site: Site, job_id: int) -> Brief | None:
    """The job without what it carries, which may be large."""
    if not 0 < job_id < 1 << 63:
        return None
    try:
        wanted = Filter(site.queue_of(job_id).number, after=job_id - 1, until=job_id, limit=1)
    except NotFound:  # of an instance that is not shown here
        return None
    found = site.store.find(wanted, brief=True)
    return found[0] if found else None


def _children(site: Site, row: Row) -> list[Brief]:
    """One more than is shown, if there are more. A handler may have added jobs to any queue."""
    if not row.attempt:
        return []  # no handler of it has run
    found: list[Brief] = []
    for queue in job_filter.queues_of(site, {"parent": str(row.id)}):
        if len(found) <= CHILDREN:
            found += site.store.find(Filter(queue.number, parent=row.id, limit=CHILDREN + 1 - len(found)), brief=True)
    return found


def _same_key(site: Site, row: Row) -> tuple[list[Brief], list[Brief]]:
    """Those before it, the newest first, and those after it."""
    if row.job_key == str(row.id):  # its own id: no other job has that key
        return [], []
    same = Filter(
        site.queue_of(row.id).number, job_type=row.job_type, job_key=row.job_key, tenant=row.tenant, after=row.id,
        limit=NEAR + 1,
    )  # fmt: skip
    before = site.store.find(same._replace(newest=True), brief=True)
    return _of_nobody_else(row, before), _of_nobody_else(row, site.store.find(same, brief=True))


def _of_nobody_else(row: Row, found: list[Brief]) -> list[Brief]:
    """A filter without a tenant finds the jobs of all of them."""
    return [one for one in found if one.tenant == row.tenant]
