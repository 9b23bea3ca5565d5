"""How a page of jobs is asked for: by which index, so that MariaDB finds it without reading what is not on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hipq.job.states import EXECUTING, NONE, PARKED, READY, SCHEDULED, WAITING, Code
from hipq.stores.filters import Filter

_SMALL: Final = {EXECUTING: "_owner", PARKED: "_parked"}
"""The indexes of phases that few jobs have."""
_PHASES: Final = {**_SMALL, READY: "_ready", SCHEDULED: "_due", WAITING: "_due"}
"""The indexes of all phases."""


_BY_KEY: Final = {"live": "_key", "final": "_named"}
_BY_CODE: Final = {"live": "_retry", "final": "_code"}


def page(wanted: Filter, table: str) -> Mapping[str, str]:
    """How a page is found in the "live" or the "final" table: the parts of find.sql but for its columns."""
    index = _index(wanted, table)
    by = " FORCE INDEX (PRIMARY)" if index == "id" else f" FORCE INDEX ({{{table}}}{index})" if index else ""
    return {"where": condition(wanted, index), "by": by, "order": f"{wanted.id}{wanted.order}", "limit": ":limit"}


def condition(wanted: Filter, index: str) -> str:
    """The words of a column that the index has are said of that column, too."""
    found = wanted.condition()
    if index in _BY_CODE.values():
        found += f" AND wrong = '{wanted.code}'" if wanted.code != NONE else " AND wrong = 'NONE'"
    if index == "_parked":
        found += " AND parked IS NOT NULL"
    if index == "_todo":
        found += " AND todo IS NOT NULL"
    return found


def _index(wanted: Filter, table: str) -> str:
    if wanted.tenant:
        return _BY_KEY[table] if wanted.job_key else "_tenant"
    if wanted.until and not wanted.few:
        return "id" if wanted.code in ("", Code.OK) else _BY_CODE[table]
    if wanted.job_key or wanted.prefix:
        return "_key"
    if wanted.code not in ("", Code.OK) and (table == "final" or wanted.code in (NONE, Code.RETRY, Code.ERROR)):
        return _BY_CODE[table] if _is_wrong(wanted, table) else ""
    if wanted.owned is not None:
        return "_owner" if wanted.owned else "_todo"
    return (_PHASES if wanted.few else _SMALL).get(wanted.phase, "")


def _is_wrong(wanted: Filter, table: str) -> bool:
    """Whether the filter wants nothing that has no entry there: a live job without a code may have no error."""
    return table == "final" or wanted.code != NONE or "error <> 'NONE'" in wanted.condition()
