"""Whether the database can be reached, whether hipq can work on it and on its schema, and whether it has room for
another connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hipq.doctor.finding import Finding, View, note, ok, problem, warning
from hipq.doctor.server import server
from hipq.stores.health.facts import MARIADB, MYSQL, SQLITE, Health
from hipq.stores.password import without_password
from hipq.stores.sqlite.connection import OLDEST_VERSION, SAFE_VERSION

OLDEST: Final = {"SQLite": OLDEST_VERSION[:2], "PostgreSQL": (13,), MARIADB: (10, 6), MYSQL: (8, 0)}


def database(health: Health, view: View) -> Iterator[Finding]:
    if health.error:
        yield _unreachable(health, view)
        return
    if health.moved:
        there = without_password(health.moved)
        use = "use that address: in HIPQ_DATABASE_URL, hipq.toml or the code; programs with the old one find their way"
        advice = f"look there: `hipq doctor --db {there}`; {use}"
        yield warning(f"the jobs of this file have moved to {there}", advice, facts={"moved": there})
    elif health.incoming:
        sentence = "this is a copy of jobs that are still elsewhere, and no program may use it"
        advice = "run the same `hipq move SOURCE TARGET` again"
        yield problem(f"a move to here was not finished: {sentence}", advice)
    yield _version(health)
    yield from _copied(health, view)
    if health.kind == SQLITE and health.version < SAFE_VERSION:  # two processes that write at once can damage a file
        yield note(
            "below SQLite 3.51.3 all hipq processes write one at a time, by a lock file beside the database; a "
            "program's own connection (conn=, the sqlite3 shell) does not know of it",
            "let only one process write so, by conn= or in its handlers, and no shell beside workers; or use a Python "
            "with a later SQLite",
        )
    if health.server:
        yield from server(health, health.server)


def _unreachable(health: Health, view: View) -> Finding:
    advice = "see that the server runs, and that host, port, user, password and database name are right"
    if health.kind == SQLITE and health.file is None:
        advice = f"look at the path; if it is right, {view.command('migrate')} makes the database"
    elif health.kind == SQLITE and "locked" in health.error:
        advice = "end the program that has the file to itself (`fuser` names it), and look again"
    elif health.kind == SQLITE:
        advice = "see that this is hipq's file, and what is said of it below; if it is damaged, restore a backup"
    return problem(f"the database cannot be read: {health.error}", advice, facts={"error": health.error})


def _version(health: Health) -> Finding:
    text, oldest = ".".join(map(str, health.version)), OLDEST[health.kind]
    facts = {"kind": health.kind, "version": text}
    if health.version >= oldest:
        return ok(f"{health.kind} {text}", facts=facts)
    sentence = f"hipq needs {health.kind} {'.'.join(map(str, oldest))}, and this is {text}"
    advice = "upgrade the server" if health.kind != SQLITE else "use a Python that is built with a later SQLite"
    return problem(sentence, advice, facts=facts)


def _copied(health: Health, view: View) -> Iterator[Finding]:
    """Whether the database is a copy. A copy counts from where it was when it was made, and cannot tell what was
    added since."""
    here, noted = health.place, health.noted_place
    changed = {name for name in here.keys() & noted.keys() if here[name] != noted[name]}
    if not changed or not health.queues:
        return
    what = "this database is a copy: it was restored from a backup, or moved to another place by copying"
    complete = "nothing was added after the copy was made"
    if changed == {"timeline"}:
        what = "the server was restored to an earlier point in time, or is a standby that was promoted"
        complete = "the standby had everything (a synchronous one has)"
    yield warning(
        f"{what}; ids of jobs that are missing here, which callers may hold, would be given to other jobs",
        f"if jobs may be missing, stop all programs and run {view.command('restored')}; "
        f"if {complete}, run {view.command('restored', '--margin', '0')}",
        facts={"changed": sorted(changed)},
    )


# -- schema ----------------------------------------------------------------------------------------------------------
def schema(health: Health, view: View) -> Iterator[Finding]:
    """Whether the database's schema is one this program works on, and whether each queue's tables are migrated."""
    level = health.level
    if level is None:
        return
    facts, migrate = level._asdict(), f"run {view.command('migrate')} once"
    at = f"the database is at schema {level.found}"
    if level.found == 0:
        yield problem("the database has no hipq tables yet", migrate, facts=facts)
    elif level.found < level.mine:
        yield problem(f"{at}, and this program needs {level.mine}", migrate, facts=facts)
    elif level.mine < level.accepts:
        sentence = f"{at} and takes programs of schema {level.accepts} or later; this one is {level.mine}"
        yield problem(sentence, "upgrade hipq here", facts=facts)
    else:
        if level.found > level.mine:
            sentence = f"{at}, this program at {level.mine}: that works"
            yield note(sentence, "upgrade hipq here when you can", facts=facts)
        else:
            yield ok(f"at schema {level.found}, as this program", facts=facts)
        yield from _queues(health, level.mine, view)


def _queues(health: Health, mine: int, view: View) -> Iterator[Finding]:
    """Queues with older tables: a program older than the schema adds queues at its own version. And queues that the
    program declares and the database lacks: a queue is created when it is first used."""
    for queue in health.queues:
        if queue.level < mine:
            sentence = f"the tables of this queue are at schema {queue.level}, and this program needs {mine}"
            facts = {"level": queue.level, "mine": mine}
            yield warning(sentence, f"run {view.command('migrate')} once", queue.name, facts)
    there = {queue.name for queue in health.queues}
    for name in filter(lambda name: name not in there, view.code):
        sentence = "the program declares this queue, and the database has no tables for it yet"
        yield note(sentence, f"nothing, if it is new: its first use makes them, or {view.command('migrate')}", name)
