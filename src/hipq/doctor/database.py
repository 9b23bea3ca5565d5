"""Whether the database can be reached, whether hipq can work on it, and whether it has room for another connection."""

from __future__ import annotations

from typing import Final

from hipq.doctor.finding import NOTE, OK, PROBLEM, WARNING, Finding, View
from hipq.stores.health.facts import SQLITE, Health, ServerHealth
from hipq.stores.password import without_password
from hipq.stores.sqlite.connection import OLDEST_VERSION, SAFE_VERSION

CHECK: Final = "database"
OLDEST: Final = {"SQLite": OLDEST_VERSION[:2], "PostgreSQL": (13,)}
NEARLY_FULL: Final = 0.80
FULL: Final = 0.95
"""The part of the connections that may be open."""
_SAFE: Final = {"fsync": "on", "full_page_writes": "on"}


def database(health: Health, view: View) -> list[Finding]:
    if health.error:
        return [_unreachable(health, view)]
    moving = [_moved(health)] if health.moved else [_incoming()] if health.incoming else []
    server = _server(health.server) if health.server else []
    return [*moving, _version(health), *_copied(health, view), *_lock_file(health), *server]


def _moved(health: Health) -> Finding:
    there = without_password(health.moved)
    advice = "use that address: in HIPQ_DATABASE_URL, hipq.toml or the code; programs with the old one find their way"
    sentence = f"the jobs of this file have moved to {there}"
    return Finding(
        CHECK, WARNING, sentence, f"look there: `hipq doctor --db {there}`; {advice}", facts={"moved": there}
    )


def _incoming() -> Finding:
    sentence = (
        "a move to here was not finished: this is a copy of jobs that are still elsewhere, and no program may use it"
    )
    return Finding(CHECK, PROBLEM, sentence, "run the same `hipq move SOURCE TARGET` again")


def _unreachable(health: Health, view: View) -> Finding:
    if health.kind == SQLITE and health.file is None:
        advice = f"look at the path; if it is right, {view.command('migrate')} makes the database"
    elif health.kind == SQLITE and "locked" in health.error:
        advice = "end the program that has the file to itself (`fuser` names it), and look again"
    elif health.kind == SQLITE:
        advice = "see that this is hipq's file, and what is said of it below; if it is damaged, restore a backup"
    else:
        advice = "see that the server runs, and that host, port, user, password and database name are right"
    sentence = f"the database cannot be read: {health.error}"
    return Finding(CHECK, PROBLEM, sentence, advice, facts={"error": health.error})


def _version(health: Health) -> Finding:
    text = ".".join(map(str, health.version))
    facts = {"kind": health.kind, "version": text}
    oldest = OLDEST[health.kind]
    if health.version < oldest:
        wanted = ".".join(map(str, oldest))
        advice = "upgrade the server" if health.kind != SQLITE else "use a Python that is built with a later SQLite"
        return Finding(CHECK, PROBLEM, f"hipq needs {health.kind} {wanted}, and this is {text}", advice, facts=facts)
    return Finding(CHECK, OK, f"{health.kind} {text}", facts=facts)


def _copied(health: Health, view: View) -> list[Finding]:
    """Whether the database is a copy. A copy counts from where it was when it was made, and cannot tell what was
    added since."""
    here, noted = health.place, health.noted_place
    changed = {name for name in here.keys() & noted.keys() if here[name] != noted[name]}
    if not changed or not health.queues:
        return []
    if changed == {"timeline"}:
        what = "the server was restored to an earlier point in time, or is a standby that was promoted"
        complete = "the standby had everything (a synchronous one has)"
    else:
        what = "this database is a copy: it was restored from a backup, or moved to another place by copying"
        complete = "nothing was added after the copy was made"
    sentence = f"{what}; ids of jobs that are missing here, which callers may hold, would be given to other jobs"
    advice = (
        f"if jobs may be missing, stop all programs and run {view.command('restored')}; "
        f"if {complete}, run {view.command('restored', '--margin', '0')}"
    )
    return [Finding(CHECK, WARNING, sentence, advice, facts={"changed": sorted(changed)})]


def _lock_file(health: Health) -> list[Finding]:
    """With a SQLite older than this, two processes that write or checkpoint at once can damage a file."""
    if health.kind != SQLITE or health.version >= SAFE_VERSION:
        return []
    sentence = (
        "below SQLite 3.51.3 all hipq processes write one at a time, by a lock file beside the database; a program's "
        "own connection (conn=, the sqlite3 shell) does not know of it"
    )
    advice = "let only one process write by conn=, and no shell beside workers; or use a Python with a later SQLite"
    return [Finding(CHECK, NOTE, sentence, advice)]


def _server(server: ServerHealth) -> list[Finding]:
    found = [_connections(server)]
    if server.standby:
        advice = "connect to the primary server; or promote this one, if that is what should have happened"
        found.append(Finding(CHECK, PROBLEM, "this is a standby server: nothing can be written here", advice))
    unsafe = [name for name, safe in _SAFE.items() if server.settings.get(name) != safe]
    if server.settings.get("synchronous_commit") == "off":
        unsafe.append("synchronous_commit")
    if unsafe:
        sentence = f"{' and '.join(unsafe)} off: a crash of the server can lose what was acknowledged"
        found.append(Finding(CHECK, WARNING, sentence, "turn that on in the server's settings", facts=server.settings))
    if not server.sees_all:
        sentence = "this user is not shown what others do in the database: long transactions may go unnoticed"
        found.append(Finding(CHECK, NOTE, sentence, "`GRANT pg_read_all_stats TO` this user, to have them checked"))
    return found


def _connections(server: ServerHealth) -> Finding:
    part = server.connections / max(server.max_connections, 1)
    facts = {"connections": server.connections, "max_connections": server.max_connections}
    sentence = f"{server.connections} of {server.max_connections} connections are open"
    if part < NEARLY_FULL:
        return Finding(CHECK, OK, sentence, facts=facts)
    advice = "end what is idle, or raise max_connections; each hipq process opens up to ten, and one to listen"
    level = PROBLEM if part >= FULL else WARNING
    return Finding(CHECK, level, f"{sentence}: soon nobody can connect", advice, facts=facts)
