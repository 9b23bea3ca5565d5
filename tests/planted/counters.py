"""Bugs in the counters of what has happened."""

from __future__ import annotations

from typing import Final

from tests.planted.bug import Bug

_COUNTERS: Final = "counters"
_CONTRACT: Final = "tests/contract/test_{}.py::TestActivity"

COUNTER_BUGS: Final = (
    Bug(
        "counted before the tokens are compared",
        _COUNTERS,
        (("stores/sql/settle.py", "self._count(conn, saved)", "self._count(conn, list(changes.values()))"),),
    ),
    Bug(
        "a run that was given back has started",
        _COUNTERS,
        (("job/tally.py", "is_attempt = after.attempt == before.attempt", "is_attempt = True"),),
    ),
    Bug(
        "folded and not deleted",
        _COUNTERS,
        (("stores/sqlite/store.py", 'return sql.changed("activity_delete", **values)', "return 0"),),
    ),
    Bug(
        "counted though PostgreSQL has not saved it",
        "test_nothing_that_is_lost_is_counted",
        (("stores/postgres/sql/finish.sql", "HAVING count(*) = :jobs", "HAVING count(*) <= :jobs"),),
        _CONTRACT.format("postgres"),
    ),
)
