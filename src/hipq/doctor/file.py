"""A SQLite file: whether it can be written, where it is, how full its disk is, and what it consists of."""

from __future__ import annotations

import shlex
from typing import Final

from hipq.doctor.finding import NOTE, OK, PROBLEM, WARNING, Finding, View
from hipq.doctor.words import size
from hipq.stores.health.facts import FileHealth, Health, PagesHealth

CHECK: Final = "storage"
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


def file(health: Health, view: View) -> list[Finding]:
    if health.file is None:
        return []
    found = [*_writable(health.file), *_exposed(health.file), *_file_system(health.file, view), *_log(health.file)]
    found += _pages(health.pages, health.file) if health.pages else []
    if found:
        return found
    checked = ", and every page of it is whole" if health.pages and health.pages.damage == () else ""
    one = health.file
    sentence = f"{one.path} has {size(one.size)}, {size(one.disk_free)} of its disk are free{checked}"
    return [Finding(CHECK, OK, sentence, facts=one._asdict())]


def _writable(one: FileHealth) -> list[Finding]:
    found = []
    advice = "give this user the right to, or run everything as one user; SQLite writes files beside its own"
    if one.unwritable:
        sentence = f"this user may not write {', '.join(one.unwritable)}"
        found.append(Finding(CHECK, PROBLEM, sentence, advice, facts={"unwritable": list(one.unwritable)}))
    if one.moving:
        sentence = "its jobs are being moved to another database (`hipq move`): writers wait until that is done"
        found.append(Finding(CHECK, NOTE, sentence, "let it end; interrupted, it can be run again"))
    elif one.held_by:
        sentence = f"{one.path}-hipq is held by {one.held_by}: every other writer waits for that"
        advice = "if that process is stopped (state T in ps), let it go on (kill -CONT), or end it"
        found.append(Finding(CHECK, WARNING, sentence, advice, facts={"held_by": one.held_by}))
    return found


def _exposed(one: FileHealth) -> list[Finding]:
    """Whether others may open the files. Whoever reads the database has all payloads, and the secret that callback
    URLs are signed with; whoever opens the lock file can block every writer."""
    if not one.exposed:
        return []
    shown = ", ".join(f"{path} ({mode})" for path, mode in one.exposed)
    sentence = f"other users of this machine may read payloads and secrets, or hold up writers: {shown}"
    paths = " ".join(shlex.quote(path) for path, _ in one.exposed)
    advice = f"`chmod 600 {paths}`; if a group is meant to share the file, set $HIPQ_GROUP and `chmod 660`"
    return [Finding(CHECK, WARNING, sentence, advice, facts={"exposed": dict(one.exposed)})]


def _file_system(one: FileHealth, view: View) -> list[Finding]:
    found = []
    if one.file_system in NETWORK:
        sentence = f"{one.path} is on a network file system ({one.file_system}): SQLite's log does not work there"
        found.append(Finding(CHECK, PROBLEM, sentence, "move it to a local disk, or use PostgreSQL",
                             facts={"file_system": one.file_system}))  # fmt: skip
    if one.disk_free < DISK_LOW:
        level = PROBLEM if one.disk_free < DISK_FULL else WARNING
        sentence = f"{size(one.disk_free)} of {size(one.disk_size)} are free on the disk of {one.path}"
        prune = view.command("prune", "--older-than", "30d")
        advice = f"make room; {prune} makes free pages in the file, which are used before it grows"
        found.append(Finding(CHECK, level, sentence, advice, facts={"disk_free": one.disk_free}))
    return found


def _log(one: FileHealth) -> list[Finding]:
    if one.log_size < LOG_SIZE:
        return []
    sentence = f"the log {one.path}-wal has {size(one.log_size)}: somebody reads for so long that it cannot be emptied"
    advice = "end what has a transaction open on the file (a shell, a backup); the log is emptied by itself then"
    return [Finding(CHECK, WARNING, sentence, advice, facts={"log_size": one.log_size})]


def _pages(pages: PagesHealth, one: FileHealth) -> list[Finding]:
    found = []
    if pages.damage:
        sentence = f"the file is damaged: {pages.damage[0]}" + (" and more" if len(pages.damage) > 1 else "")
        advice = "stop everything that uses it, keep a copy with its -wal, and restore a backup"
        found.append(Finding(CHECK, PROBLEM, sentence, advice, facts={"damage": list(pages.damage)}))
    if pages.journal_mode != "wal":
        sentence = f"the journal mode is {pages.journal_mode}, not wal: readers and writers wait for each other"
        advice = "see who sets it; every hipq program that opens the file sets it back to wal"
        found.append(Finding(CHECK, WARNING, sentence, advice, facts={"journal_mode": pages.journal_mode}))
    free = pages.free_pages * pages.page_size
    if free >= FREE_SIZE and pages.free_pages * 2 > pages.pages:
        sentence = f"{size(free)} of {size(pages.pages * pages.page_size)} in the file are free pages"
        vacuum = f"sqlite3 {shlex.quote(one.path)} VACUUM"
        advice = f"nothing, if they fill again; else stop everything that uses it, and `{vacuum}`"
        found.append(Finding(CHECK, NOTE, sentence, advice, facts=pages._asdict() | {"sql": ["VACUUM"]}))
    return found
