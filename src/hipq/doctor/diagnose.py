"""All findings about a database, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hipq.doctor.answers import answers
from hipq.doctor.clock import clock
from hipq.doctor.database import database
from hipq.doctor.engines import engines
from hipq.doctor.file import file
from hipq.doctor.finding import OK, PROBLEM, WARNING, Finding, View
from hipq.doctor.indexes import indexes
from hipq.doctor.jobs import jobs
from hipq.doctor.rules import rules
from hipq.doctor.schema import schema
from hipq.doctor.storage import server_storage
from hipq.stores.health.facts import Health

CHECKS: Final = ("database", "schema", "indexes", "clock", "engines", "jobs", "answers", "storage")
SEVERAL: Final = ("database", "schema", "engines")
"""Checks of several things, some of which may be well when others are not. The other checks are ok as a whole or
not."""
Judge = Callable[[Health, View], list[Finding]]
SUBJECTS: Final[tuple[tuple[str, Judge], ...]] = (
    ("database", database),
    ("schema", schema),
    ("indexes", indexes),
    ("clock", clock),
    ("engines", engines),
    ("jobs", jobs),
    ("jobs", rules),
    ("answers", answers),
    ("storage", file),
    ("storage", server_storage),
)
WITHOUT_A_LOOK: Final = (database, file)
"""Checks that are possible for a database that could not be read."""


def diagnose(health: Health, view: View) -> list[Finding]:
    """All findings. If the database could not be read, or its jobs are elsewhere, only those that are known all the
    same."""
    subjects = [one for one in SUBJECTS if not (health.error or health.moved) or one[1] in WITHOUT_A_LOOK]
    found = [finding for check, subject in subjects for finding in _decided(check, subject, health, view)]
    found += _unread(health)
    bad = {finding.check for finding in found if finding.level != OK}
    found = [one for one in found if one.level != OK or one.check not in bad or one.check in SEVERAL]
    return sorted(found, key=lambda finding: CHECKS.index(finding.check))


def _decided(check: str, subject: Judge, health: Health, view: View) -> list[Finding]:
    try:
        return subject(health, view)
    except Exception as error:  # the rows of a damaged database may say anything: that must not hide other findings
        sentence = f"what was read makes no sense ({type(error).__name__}: {error})"
        advice = "on SQLite look again with --deep; if the database is not damaged, report this as a bug of hipq"
        return [Finding(check, PROBLEM, sentence, advice, facts={"error": repr(error)})]


def _unread(health: Health) -> list[Finding]:
    """Findings for the parts that could not be read: nobody knows that all is well there."""
    findings: dict[tuple[str, str, str], Finding] = {}
    for check, queue, reason in health.unread:
        damaged = "malformed" in reason or "not a database" in reason
        advice = "restore a backup: the file is damaged" if damaged else "mend what else is found, and look again"
        sentence = f"this could not be checked: {reason}"
        level = PROBLEM if damaged else WARNING
        findings[check, queue, reason] = Finding(check, level, sentence, advice, queue, {"error": reason})
    return list(findings.values())
