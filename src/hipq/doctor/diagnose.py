"""From a URL to the facts about its database, and from these to all findings, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from hipq.doctor.clock import clock
from hipq.doctor.database import database, schema
from hipq.doctor.engines import engines
from hipq.doctor.finding import OK, Finding, View, problem, warning
from hipq.doctor.indexes import indexes
from hipq.doctor.jobs import answers, jobs, rules
from hipq.doctor.outstanding import listeners, outstanding
from hipq.doctor.storage import file, server_storage
from hipq.errors import Invalid
from hipq.stores.health.facts import Health
from hipq.stores.open import MARIADB, open_store

SEVERAL: Final = ("database", "schema", "engines")
"""Checks of several things, some of which may be well when others are not. The other checks are ok as a whole or
not."""
Check = Callable[[Health, View], Iterable[Finding]]
SUBJECTS: Final[tuple[tuple[str, Check], ...]] = (
    ("database", database),
    ("schema", schema),
    ("indexes", indexes),
    ("clock", clock),
    ("engines", engines),
    ("jobs", jobs),
    ("jobs", rules),
    ("answers", answers),
    ("answers", outstanding),
    ("listeners", listeners),
    ("storage", file),
    ("storage", server_storage),
)
CHECKS: Final = tuple(dict.fromkeys(name for name, _ in SUBJECTS))
WITHOUT_A_LOOK: Final = (database, file)
"""Checks that are possible for a database that could not be read."""


def look(url: str, deep: bool) -> Health:
    """The facts about a database; only the store in question is loaded. Invalid if there is none to look at."""
    if url == "sqlite://":
        raise Invalid("a database in memory is its program's own: there is nothing to look at from here")
    if url.startswith("sqlite:///"):
        from hipq.stores.sqlite.health import health as of_sqlite

        return of_sqlite(url.removeprefix("sqlite:///"), deep)
    open_store(url).close()  # raises if its driver is missing; it does not connect
    if url.startswith(MARIADB):
        from hipq.stores.mariadb.health import health as of_mariadb

        return of_mariadb(url)
    from hipq.stores.postgres.health import health as of_postgres

    return of_postgres(url)


def diagnose(health: Health, view: View) -> list[Finding]:
    """All findings. If the database could not be read, or its jobs are elsewhere, only those that are known all the
    same."""
    found: list[Finding] = []
    for name, check in SUBJECTS:
        if not (health.error or health.moved) or check in WITHOUT_A_LOOK:
            found += [replace(finding, check=name) for finding in _checked(check, health, view)]
    found += _unread(health)
    bad = {finding.check for finding in found if finding.level != OK}
    found = [one for one in found if one.level != OK or one.check not in bad or one.check in SEVERAL]
    return sorted(found, key=lambda finding: CHECKS.index(finding.check))


def _checked(check: Check, health: Health, view: View) -> list[Finding]:
    try:
        return list(check(health, view))
    except Exception as error:  # the rows of a damaged database may say anything: that must not hide other findings
        sentence = f"what was read makes no sense ({type(error).__name__}: {error})"
        advice = "on SQLite look again with --deep; if the database is not damaged, report this as a bug of hipq"
        return [problem(sentence, advice, facts={"error": repr(error)})]


def _unread(health: Health) -> list[Finding]:
    """Findings for the parts that could not be read: nobody knows that all is well there."""
    found = []
    for check, queue, reason in dict.fromkeys(health.unread):
        damaged = "malformed" in reason or "not a database" in reason
        advice = "restore a backup: the file is damaged" if damaged else "mend what else is found, and look again"
        level = problem if damaged else warning
        found.append(level(f"this could not be checked: {reason}", advice, queue, {"error": reason}, check))
    return found
