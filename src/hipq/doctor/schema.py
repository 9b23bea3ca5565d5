"""Whether the database's schema is one this program works on, and whether each queue's tables are migrated."""

from __future__ import annotations

from typing import Final

from hipq.doctor.finding import NOTE, OK, PROBLEM, WARNING, Finding, View
from hipq.stores.health.facts import Health

CHECK: Final = "schema"


def schema(health: Health, view: View) -> list[Finding]:
    level = health.level
    if level is None:
        return []
    facts = level._asdict()
    migrate = f"run {view.command('migrate')} once"
    if level.found == 0:
        return [Finding(CHECK, PROBLEM, "the database has no hipq tables yet", migrate, facts=facts)]
    if level.found < level.mine:
        sentence = f"the database is at schema {level.found}, and this program needs {level.mine}"
        return [Finding(CHECK, PROBLEM, sentence, migrate, facts=facts)]
    if level.mine < level.accepts:
        sentence = (
            f"the database is at schema {level.found} and takes programs of schema {level.accepts} or later; "
            f"this one is {level.mine}"
        )
        return [Finding(CHECK, PROBLEM, sentence, "upgrade hipq here", facts=facts)]
    found = []
    if level.found > level.mine:
        sentence = f"the database is at schema {level.found}, this program at {level.mine}: that works"
        found.append(Finding(CHECK, NOTE, sentence, "upgrade hipq here when you can", facts=facts))
    else:
        found.append(Finding(CHECK, OK, f"at schema {level.found}, as this program", facts=facts))
    return found + _behind(health, level.mine, migrate) + _undeclared(health, view)


def _behind(health: Health, mine: int, migrate: str) -> list[Finding]:
    """Queues with older tables: a program older than the schema adds queues at its own version."""
    return [
        Finding(
            CHECK,
            WARNING,
            f"the tables of this queue are at schema {queue.level}, and this program needs {mine}",
            migrate,
            queue.name,
            {"level": queue.level, "mine": mine},
        )
        for queue in health.queues
        if queue.level < mine
    ]


def _undeclared(health: Health, view: View) -> list[Finding]:
    """Queues that the program declares and the database lacks: a queue is created when it is first used."""
    there = {queue.name for queue in health.queues}
    return [
        Finding(CHECK, NOTE, "the program declares this queue, and the database has no tables for it yet",
                f"nothing, if it is new: its first use makes them, or {view.command('migrate')}", name)
        for name in view.code if name not in there
    ]  # fmt: skip
