"""Disk space, free pages, dead rows, and what keeps the database from removing them: of a SQLite file, and of a
PostgreSQL or MariaDB server."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from hipq.doctor.finding import Finding, View, lasting, note, ok, problem, queue_of, several, size, warning
from hipq.stores.health.facts import POSTGRESQL, FileHealth, Health, Holdback, PagesHealth, TableHealth

# -- a SQLite file ---------------------------------------------------------------------------------------------------
NETWORK: Final = frozenset({
    "nfs", "nfs4", "cifs", "smbfs", "smb3", "afs", "ncpfs", "9p", "ceph", "lustre", "gpfs", "glusterfs", "beegfs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.cephfs",
})  # fmt: skip
"""File systems on which processes do not share memory, or locks."""
DISK_LOW: Final = 1_000_000_000
DISK_FULL: Final = 100_000_000
"""Free bytes below which a disk counts as full."""
LOG_SIZE: Final = 256_000_000
"""Bytes that the write-ahead log may have: four times its size when it is checkpointed."""
FREE_SIZE: Final = 32_000_000
"""Bytes of free pages that are worth a note, if they are more than half of all."""


def file(health: Health, view: View) -> Iterator[Finding]:
    one = health.file
    if one is None:
        return
    yield from _writable(one)
    yield from _exposed(one)
    yield from _file_system(one, view)
    if one.log_size >= LOG_SIZE:
        sentence = f"the log {one.path}-wal has {size(one.log_size)}: somebody reads for so long that it cannot be"
        advice = "end what has a transaction open on the file (a shell, a backup); the log is emptied by itself then"
        yield warning(f"{sentence} emptied", advice, facts={"log_size": one.log_size})
    if health.pages:
        yield from _pages(health.pages, one)
    checked = ", and every page of it is whole" if health.pages and health.pages.damage == () else ""
    sentence = f"{one.path} has {size(one.size)}, {size(one.disk_free)} of its disk are free{checked}"
    yield ok(sentence, facts=one._asdict())


def _writable(one: FileHealth) -> Iterator[Finding]:
    if one.unwritable:
        advice = "give this user the right to, or run everything as one user; SQLite writes files beside its own"
        sentence = f"this user may not write {', '.join(one.unwritable)}"
        yield problem(sentence, advice, facts={"unwritable": list(one.unwritable)})
    if one.moving:
        sentence = "its jobs are being moved to another database (`hipq move`): writers wait until that is done"
        yield note(sentence, "let it end; interrupted, it can be run again")
    elif one.held_by:
        sentence = f"{one.path}-hipq is held by {one.held_by}: every other writer waits for that"
        advice = "if that process is stopped (state T in ps), let it go on (kill -CONT), or end it"
        yield warning(sentence, advice, facts={"held_by": one.held_by})


def _exposed(one: FileHealth) -> Iterator[Finding]:
    """Whether others may open the files. Whoever reads the database has all payloads, and the secret that callback
    URLs are signed with; whoever opens the lock file can block every writer."""
    if one.exposed:
        shown = ", ".join(f"{path} ({mode})" for path, mode in one.exposed)
        sentence = f"other users of this machine may read payloads and secrets, or hold up writers: {shown}"
        paths = " ".join(shlex.quote(path) for path, _ in one.exposed)
        advice = f"`chmod 600 {paths}`; if a group is meant to share the file, set $HIPQ_GROUP and `chmod 660`"
        yield warning(sentence, advice, facts={"exposed": dict(one.exposed)})


def _file_system(one: FileHealth, view: View) -> Iterator[Finding]:
    if one.file_system in NETWORK:
        sentence = f"{one.path} is on a network file system ({one.file_system}): SQLite's log does not work there"
        facts = {"file_system": one.file_system}
        yield problem(sentence, "move it to a local disk, or use PostgreSQL", facts=facts)
    if one.disk_free < DISK_LOW:
        sentence = f"{size(one.disk_free)} of {size(one.disk_size)} are free on the disk of {one.path}"
        prune = view.command("prune", "--older-than", "30d")
        advice = f"make room; {prune} makes free pages in the file, which are used before it grows"
        level = problem if one.disk_free < DISK_FULL else warning
        yield level(sentence, advice, facts={"disk_free": one.disk_free})


def _pages(pages: PagesHealth, one: FileHealth) -> Iterator[Finding]:
    if pages.damage:
        sentence = f"the file is damaged: {pages.damage[0]}" + (" and more" if len(pages.damage) > 1 else "")
        advice = "stop everything that uses it, keep a copy with its -wal, and restore a backup"
        yield problem(sentence, advice, facts={"damage": list(pages.damage)})
    if pages.journal_mode != "wal":
        sentence = f"the journal mode is {pages.journal_mode}, not wal: readers and writers wait for each other"
        advice = "see who sets it; every hipq program that opens the file sets it back to wal"
        yield warning(sentence, advice, facts={"journal_mode": pages.journal_mode})
    free = pages.free_pages * pages.page_size
    if free >= FREE_SIZE and pages.free_pages * 2 > pages.pages:
        sentence = f"{size(free)} of {size(pages.pages * pages.page_size)} in the file are free pages"
        vacuum = f"sqlite3 {shlex.quote(one.path)} VACUUM"
        advice = f"nothing, if they fill again; else stop everything that uses it, and `{vacuum}`"
        yield note(sentence, advice, facts=pages._asdict() | {"sql": ["VACUUM"]})


# -- a server --------------------------------------------------------------------------------------------------------
MANY_DEAD: Final = 10_000
"""Dead rows of a table that are worth a note, if they are more than DEAD_PART of the living ones."""
DEAD_PART: Final = 0.2
VACUUMED: Final = 600.0
"""Seconds without a vacuum after which dead rows are worth a note: a busy queue has many between two vacuums."""
EMPTY_SIZE: Final = 64_000_000
"""Bytes of a table that are worth a note, if they are more than EMPTY_ROW for each row."""
EMPTY_ROW: Final = 16_000
LONG_HISTORY: Final = 1_000_000
"""Changes that a MariaDB server keeps: a busy one has thousands."""
SLOT_SIZE: Final = 1_000_000_000
"""Bytes of log that an idle replication slot may keep."""
OPEN: Final = 10.0
"""Seconds that a transaction may be open in any case: a busy engine always has one."""


def server_storage(health: Health, view: View) -> Iterator[Finding]:
    if health.server is None:
        return
    settings = health.server.settings
    if off := [name for name in ("autovacuum", "track_counts") if settings.get(name) == "off"]:
        sentence = f"{' and '.join(off)} off: nobody removes dead rows, and queues make many"
        yield problem(sentence, "turn that on in the server's settings", facts=settings)
    if (history := int(settings.get("history", 0))) > LONG_HISTORY:
        sentence = f"{history:,} changes are kept for transactions that may still look at them: every look gets slower"
        advice = "end what this check names as open for long; if nothing is, let the server catch up"
        yield warning(sentence, advice, facts={"history": history})
    whole = "VACUUM FULL" if health.kind == POSTGRESQL else "OPTIMIZE TABLE"
    for table in health.tables:
        yield from _table(table, queue_of(health, table.table), whole)
    for holdback in health.holdbacks:
        yield from _holdback(holdback, view)
    if health.tables:
        total = size(sum(table.size for table in health.tables))
        dead = "few of their rows are dead, and nobody keeps those"
        rest = dead if health.kind == POSTGRESQL else "and no transaction is open for long"
        yield ok(f"hipq's tables have {total}, {rest}")


def _table(table: TableHealth, queue: str, whole: str) -> Iterator[Finding]:
    facts, named = table._asdict(), f"table {table.table}"
    if not table.autovacuum:
        sql = f"ALTER TABLE {table.table} RESET (autovacuum_enabled)"
        sentence = f"autovacuum is off for {named}: its dead rows stay for ever"
        yield warning(sentence, f"run this SQL: {sql}", queue, facts | {"sql": [sql]})
    is_old = table.vacuumed is None or table.vacuumed > VACUUMED
    if is_old and table.dead >= MANY_DEAD and table.dead > DEAD_PART * table.live:
        last = "it was never vacuumed"
        if table.vacuumed is not None:
            last = f"its last vacuum was {lasting(table.vacuumed)} ago"
        sql = f"VACUUM (ANALYZE) {table.table}"
        sentence = f"{named} has {table.dead:,} dead rows beside {table.live:,} others, and {last}"
        advice = f"see what else this check says keeps them; then run this SQL: {sql}"
        yield warning(sentence, advice, queue, facts | {"sql": [sql]})
    elif not is_old and table.size > EMPTY_SIZE and table.size > EMPTY_ROW * max(table.live, 1):
        sql = f"{whole} {table.table}"
        sentence = f"{named} has {size(table.size)} for {table.live:,} rows: most of that is empty"
        advice = f"nothing, if it fills again; else stop the workers and run this SQL: {sql}"
        yield note(sentence, advice, queue, facts | {"sql": [sql]})


def _holdback(one: Holdback, view: View) -> Iterator[Finding]:
    """Transactions that are open for long, and replication slots that nobody reads from: these keep all log since."""
    quoted = "'" + one.name.replace("'", "''") + "'"
    if one.kind == "slot":
        if one.active or (one.log_size < SLOT_SIZE and not one.transactions):
            return
        keeps = f"{size(one.log_size)} of log, and dead rows of the last {one.transactions:,} transactions"
        sentence = f"nobody reads from the replication slot {one.name} ({one.who}): it keeps {keeps}"
        sql = f"SELECT pg_drop_replication_slot({quoted})"
        advice = "start what reads from it; or, if that is gone for good,"
    elif one.age is None or one.age < (OPEN if one.blocks else max(view.patience, OPEN)):
        return
    else:
        keeps = "while it is open no dead row is removed that is younger, and queues get slower"
        if one.blocks:
            waits = "waits" if one.blocks == 1 else "wait"
            keeps = f"{several(one.blocks, 'other')} {waits} for its locks; {keeps}"
        sentence = f"a transaction has been open for {lasting(one.age)} (pid {one.name}: {one.who}): {keeps}"
        sql, advice = one.end or f"SELECT pg_terminate_backend({one.name})", "end that program's transaction; or"
        if one.kind == "prepared":
            sentence = f"the prepared transaction {one.name} ({one.who}) has waited for {lasting(one.age)}: {keeps}"
            sql, advice = one.end or f"ROLLBACK PREPARED {quoted}", "ask who prepared it; or"
    yield warning(sentence, f"{advice} run this SQL: {sql}", facts=one._asdict() | {"sql": [sql]})
