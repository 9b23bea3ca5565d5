"""How a page of jobs is asked for, so that PostgreSQL finds it without reading what is not on it.

Plans of other statements are made without the values (see `session`). Which one is good for a list depends on them:
jobs of a common type are soon found in the order of their ids, and those of a rare one are not.

What a tenant has is not left to that: whatever the statistics say, no list may read the jobs of others. So it is
asked for as a range of an index, sorted by its columns; and sorting is made dear, or a vacuum that found the table
empty would make it look cheap. So is what went wrong, which is rare among ten million jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hipq.job.states import NONE, Code
from hipq.job.when import SECOND
from hipq.stores.filters import CHILD, Filter
from hipq.stores.postgres.connection import Connection

_LAST: Final = (1 << 63) - 1
_AHEAD: Final = 86_400 * SECOND
"""Microseconds by which the clock of a program that adds jobs may be ahead: no job has ended longer than that before it
was added."""
_WITH_VALUES: Final = b"SET LOCAL plan_cache_mode = force_custom_plan"
_UNSORTED: Final = b"; SET LOCAL enable_sort = off; SET LOCAL enable_incremental_sort = off"


def page(wanted: Filter, table: str) -> dict[str, str]:
    """How a page is found in the "live" or the "final" table: parts of find.sql."""
    index = _index(wanted)
    if wanted.tenant and wanted.job_key and table == "live" and not wanted.parent:
        return _live_by_key(wanted)
    if wanted.until and not wanted.few:
        return _window(wanted, table, index)
    if not index:
        where = wanted.condition()
        if wanted.since and table == "final":
            where += f" AND update_time >= :since - {_AHEAD}"  # by the index _time, if little has ended since
        return {"where": where, "order": f"{wanted.id}{wanted.order}", "limit": ":limit", "by": ""}
    where = f"{_within(wanted, index)} AND {_rest(wanted, index).condition()}"
    return {"where": where, "order": _order(wanted, index), "limit": ":limit", "by": ""}


def _window(wanted: Filter, table: str, index: dict[str, str]) -> dict[str, str]:
    """Read what is between two ids by this index and test the rest: OFFSET 0 keeps the other conditions out, which
    might be looked for by their own indexes, and be true of all other jobs."""
    order = _order(wanted, index)
    some = f"(SELECT * FROM {{{table}}} WHERE {_within(wanted, index)} ORDER BY {order} OFFSET 0)"
    return {"table": some, "where": _rest(wanted, index).condition(), "order": order, "limit": ":limit", "by": ""}


def _within(wanted: Filter, index: dict[str, str]) -> str:
    """A range of an index, from one id to another."""
    first, last = (":after", ":until" if wanted.until else _LAST)
    if wanted.newest:
        first = ":until - 1" if wanted.until else "0"
        last = ":after - 1" if wanted.after else _LAST
    columns, place = ", ".join((*index, "id")), "".join(f"{value}, " for value in index.values())
    found = [f"({columns}) > ({place}{first}) AND ({columns}) <= ({place}{last})"]
    found += ["tenant <> ''"] if "tenant" in index else []
    found += [CHILD] if wanted.parent else []
    if "code" in index:  # and no code = '...': the order would be that of ids, which another index has, too
        found += [f"error <> '{NONE}'" if wanted.code == NONE else f"code <> '{NONE}' AND code <> '{Code.OK}'"]
    return " AND ".join(found)


def _rest(wanted: Filter, index: dict[str, str]) -> Filter:
    """The conditions that the range of the index does not cover."""
    tenant, key, code = ("" if name in index else getattr(wanted, name) for name in ("tenant", "job_key", "code"))
    return wanted._replace(tenant=tenant, job_key=key, code=code, parent=0, after=0, until=0)


def _order(wanted: Filter, index: dict[str, str]) -> str:
    return ", ".join(f"{name}{wanted.order}" for name in (*index, "id"))


def _index(wanted: Filter) -> dict[str, str]:
    """The columns of the index, before the id, along which a page must be looked for, and their values: of the index
    _parent, _named, _tenant, or _code and _retry, which are sorted alike."""
    if wanted.parent:
        return {"{parent}": ":parent"}
    if wanted.tenant:
        return {"tenant": ":tenant"} | ({"job_key": ":job_key"} if wanted.job_key else {})
    if wanted.code in ("", Code.OK) or wanted.few or wanted.job_key or (wanted.phase and not wanted.until):
        return {}
    return {"code": f"'{wanted.code}'"}


def _live_by_key(wanted: Filter) -> dict[str, str]:
    """Find jobs by the index _key. They do not come in the order of their ids, so all are read: of each type there is
    one at most."""
    start = "(:job_key, :job_type)"
    end = f"(job_key, job_type) <= {start}" if wanted.job_type else "job_key <= :job_key"
    rest = wanted._replace(job_key="", job_type="").condition()
    where = f"(job_key, job_type) >= {start} AND {end} AND {rest}"
    return {"where": where, "order": "job_key, job_type", "limit": "ALL", "by": ""}


@contextmanager
def planned(conn: Connection, wanted: Filter) -> Iterator[None]:
    """A context for reading the page."""
    with conn.transaction():
        conn.execute(_WITH_VALUES + (_UNSORTED if any(_index(part) for _, part in wanted.parts) else b""))
        yield
