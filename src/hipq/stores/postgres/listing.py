"""How a page of jobs is asked for, so that PostgreSQL has one way to find it.

Plans are made without the values (see `connection`), so it cannot know that a tenant has few jobs, and would read the
jobs of all in the order of their ids until the page is full. So what a tenant has is asked for as a range of an index,
sorted by its columns; and sorting is made dear, or a vacuum that found the table empty would make it look cheap.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hipq.stores.filters import Filter
from hipq.stores.postgres.connection import Connection

_LAST: Final = (1 << 63) - 1


def page(wanted: Filter, table: str) -> dict[str, str]:
    """Condition, order and limit of a page from the "live" or the "final" table."""
    if not wanted.tenant:
        return {"where": wanted.condition(), "order": wanted.order(), "limit": ":limit", "by": ""}
    if wanted.job_key and table == "live":
        return _live_by_key(wanted)
    index = ("tenant", "job_key") if wanted.job_key else ("tenant",)  # the index _named, or _tenant
    order, start = ", ".join(index), ", ".join(f":{name}" for name in index)
    end = ":until" if wanted.until else _LAST
    within = f"({order}, id) > ({start}, :after) AND ({order}, id) <= ({start}, {end}) AND tenant <> ''"
    rest = wanted._replace(tenant="", job_key="", after=0, until=0).condition()
    return {"where": f"{within} AND {rest}", "order": wanted.order(*index), "limit": ":limit", "by": ""}


def _live_by_key(wanted: Filter) -> dict[str, str]:
    """By the index _key. They do not come in the order of their ids, so all are read: of each type one at most."""
    start = "(:job_key, :job_type)"
    end = f"(job_key, job_type) <= {start}" if wanted.job_type else "job_key <= :job_key"
    rest = wanted._replace(job_key="", job_type="").condition()
    where = f"(job_key, job_type) >= {start} AND {end} AND {rest}"
    return {"where": where, "order": "job_key, job_type", "limit": "ALL", "by": ""}


@contextmanager
def planned(conn: Connection, wanted: Filter) -> Iterator[None]:
    """While the page is asked for."""
    if not wanted.tenant:
        yield
        return
    with conn.transaction():
        conn.execute(b"SET LOCAL enable_sort = off")
        yield
