"""`hipq journal quarantine` and `hipq journal repost`: what was set aside from a journal, and how it is stored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from hipq.cli.audited import did
from hipq.cli.commands import command
from hipq.cli.show import say_table, some
from hipq.cli.target import database, given_db
from hipq.errors import HipqError, Invalid, NotFound
from hipq.job.model import New, numbered
from hipq.journal.directory import UNFINISHED
from hipq.journal.folder import Folder
from hipq.journal.quarantine import QUARANTINE, RefusedFile, kept_refused, open_quarantine
from hipq.observe.logs import escaped
from hipq.stores.open import open_store
from hipq.stores.protocols import Store

folder_argument = click.argument("folder", metavar="FOLDER")


@contextmanager
def opened(path: str) -> Iterator[Folder]:
    found = Folder(path, make=False)
    try:
        if not found.is_journal():
            raise Invalid(f"there is no journal in {path}")
        yield found
    finally:
        found.close()


@command(
    "quarantine",
    "hipq journal quarantine /var/lib/hipq/journal",
    "hipq journal quarantine /var/lib/hipq/journal 00000000000000000003.1200.refused",
)
@folder_argument
@click.argument("file", metavar="[FILE]", required=False)
def quarantine(folder: str, file: str | None) -> None:
    """List what was set aside from a journal: jobs that the database refused, and bytes that were damaged. With a FILE:
    print what is in it. It changes nothing, and may be run while a daemon writes."""
    with opened(folder) as found:
        refused = _refused(found)
        rows = [_described(found, name, refused.get(name, [])) for name in _names(found)]
        if file is None:
            say_table(rows, "file", "what", "bytes", "jobs", "why", none="files")
            return
        if file not in [row["file"] for row in rows]:
            raise NotFound(f"there is no {file!r:.80} in quarantine")
        click.echo(escaped(_bytes(found, file).decode(errors="backslashreplace")))


@command(
    "repost",
    "hipq journal repost /var/lib/hipq/journal --db postgresql://ann@localhost/hipq",
    "hipq journal repost /var/lib/hipq/journal 00000000000000000003.1200.refused --db sqlite:///daemon.db",
)
@folder_argument
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--db", metavar="URL", callback=given_db, help="The daemon's database; else $HIPQ_DATABASE_URL.")
def repost(folder: str, files: tuple[str, ...], db: str | None) -> int:
    """Store jobs that the database refused before, under their ids, to run now: those of all files in quarantine, or of
    these. What is stored leaves quarantine. A file whose jobs are refused again stays, and the exit status is 1. It may
    be run while a daemon writes, and again if it was interrupted: no job is stored twice."""
    with opened(folder) as found:
        by_file = _refused(found)
        for file in files:
            if file not in by_file:
                raise NotFound(f"there are no refused jobs in {file!r:.80}: see `hipq journal quarantine`")
        store = open_store(database(db))
        try:
            rows = [_reposted(found, store, file, by_file[file]) for file in files or by_file]
            did(store, jobs=sum(row["jobs"] for row in rows))
        finally:
            store.close()
    say_table(rows, "file", "jobs", "outcome", none="files")
    return 1 if any(row["outcome"] != "stored" for row in rows) else 0


def _reposted(folder: Folder, store: Store, file: str, some_kept: list[RefusedFile]) -> dict[str, Any]:
    """All jobs of a file, in one transaction with the note that they are stored; then the file goes."""
    said: dict[str, Any] = {"file": file, "jobs": 0, "outcome": "stored"}
    try:
        jobs = _jobs(store, some_kept)
        store.ingest(jobs, f"refused {folder.identity()} {file}", "", "stored")  # False: it was, before this ran
        said["jobs"] = len(jobs)
    except (HipqError, ValueError) as error:
        return said | {"outcome": f"refused: {error}"}
    with open_quarantine(folder) as place:
        os.unlink(file, dir_fd=place.descriptor)
    return said


def _jobs(store: Store, some_kept: list[RefusedFile]) -> list[tuple[int, New]]:
    from hipq.daemon import job_factory  # only this command needs it
    from hipq.daemon.options import APP, QUEUE

    queue = next((one.number for one in store.queues(APP) if one.name == QUEUE), 0)
    if not queue:
        raise Invalid("no daemon has used this database")
    now = store.now()
    jobs: list[tuple[int, New]] = []
    for one in some_kept:
        if one.batch is None:
            raise Invalid("the file is damaged")
        options = job_factory.loaded(one.batch.options)
        for number, payload in enumerate(one.batch.payloads, one.batch.first):
            new = job_factory.job(queue, one.batch.tenant, one.batch.jobtype, payload, options, now)
            jobs.append((numbered(number, queue), new))
    return jobs


# -- looking ---------------------------------------------------------------------------------------------------------
def _names(folder: Folder) -> list[str]:
    if not folder.has(QUARANTINE):
        return []
    with open_quarantine(folder) as place:
        return sorted(name for name in os.listdir(place.descriptor) if not name.endswith(UNFINISHED))


def _refused(folder: Folder) -> dict[str, list[RefusedFile]]:
    """The refused jobs in quarantine, by their file."""
    found: dict[str, list[RefusedFile]] = {}
    for one in kept_refused(folder):
        found.setdefault(one.finding.kept.removeprefix(f"{QUARANTINE}/"), []).append(one)
    return found


def _described(folder: Folder, name: str, refused: list[RefusedFile]) -> dict[str, Any]:
    jobs = sum(len(one.batch.payloads) for one in refused if one.batch)
    what, why = ("refused", refused[0].finding.why) if refused else ("damaged", "damaged")
    why += f" (and {some(len(refused) - 1, 'other')})" if len(refused) > 1 else ""
    return {"file": name, "what": what, "bytes": len(_bytes(folder, name)), "jobs": jobs, "why": why}


def _bytes(folder: Folder, name: str) -> bytes:
    with open_quarantine(folder) as place:
        return place.read(name)
