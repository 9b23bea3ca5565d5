"""The jobs that belong to a job: the one that added it, and those that had its key before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.job import meta
from hipq.job.model import Brief, Row
from hipq.stores.filters import Filter

if TYPE_CHECKING:
    from hipq.dashboard.site import Site

NEAR: Final = 5
"""Jobs with the same key that are shown before it, and after it."""


class Relatives(NamedTuple):
    parent: int
    """The job whose handler added it; 0 = none did."""
    before: list[Brief]
    """The last ones that had the same key, the oldest first."""
    after: list[Brief]
    more_before: bool
    more_after: bool


def relatives(site: Site, row: Row) -> Relatives:
    parent = meta.to_show(row.meta).parent
    if row.job_key == str(row.id):  # its own id: no other job has that key
        return Relatives(parent, [], [], False, False)
    same = Filter(
        site.queue_of(row.id).number, job_type=row.job_type, job_key=row.job_key, tenant=row.tenant, after=row.id,
        limit=NEAR + 1,
    )  # fmt: skip
    before = _of_nobody_else(row, site.store.find(same._replace(newest=True), brief=True))
    after = _of_nobody_else(row, site.store.find(same, brief=True))
    return Relatives(parent, before[:NEAR][::-1], after[:NEAR], len(before) > NEAR, len(after) > NEAR)


def _of_nobody_else(row: Row, found: list[Brief]) -> list[Brief]:
    """A filter without a tenant finds the jobs of all of them."""
    return [one for one in found if one.tenant == row.tenant]
