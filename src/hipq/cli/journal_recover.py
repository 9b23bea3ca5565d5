"""`hipq journal recover`: mend a journal by hand, or store what is in that of a daemon that does not come back."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from hipq.cli.audited import did
from hipq.cli.commands import command, quiet_option, yes_option
from hipq.cli.progress import confirm, progress
from hipq.cli.quarantine import opened
from hipq.cli.show import say, some
from hipq.cli.target import database, given_db, shown
from hipq.journal.folder import new_identity
from hipq.journal.quarantine import JournalFinding
from hipq.journal.recover import recover
from hipq.observe.logs import escaped
from hipq.stores.open import open_store


@command(
    "recover",
    "hipq journal recover /var/lib/hipq/journal",
    "hipq journal recover /var/lib/hipq/journal --as-new --yes",
    "hipq journal recover --from /mnt/lost/journal --db postgresql://ann@localhost/hipq",
)
@click.argument("folder", metavar="[FOLDER]", required=False)
@click.option("--from", "lost", metavar="FOLDER", help="The journal of a daemon that does not come back, or a copy of "
              "it: store what is in it.")  # fmt: skip
@click.option("--db", metavar="URL", callback=given_db, help="With --from: the daemon's database; else "
              "$HIPQ_DATABASE_URL.")  # fmt: skip
@click.option("--as-new", is_flag=True, help="Let the store take all of it, as if it had never seen it.")
@yes_option
@quiet_option
def recover_journal(folder: str | None, lost: str | None, db: str | None, as_new: bool) -> int:
    """Repair a journal, as a daemon does when it starts: cut off a batch that was not written whole, put damaged bytes
    into quarantine, and say so. Refused while a daemon has the journal open.

    With --from, store everything that a lost daemon had accepted. No job is stored twice, so this may be interrupted
    and run again, and the daemon may even come back. Refused while that daemon lives. Exit 1: some of it is in
    quarantine.

    With --as-new the journal gets a new identity and can be used with any database, such as when the database has more
    than an old copy of the journal. Jobs in the journal that the database has already may run a second time.
    """
    if lost is not None:
        if folder is not None or as_new:
            raise click.UsageError("--from FOLDER stands alone: leave out the other folder, and --as-new")
        return _take_over(lost, database(db))
    if folder is None:
        raise click.UsageError("say which journal: FOLDER, or --from FOLDER to store what is in it")
    if db is not None:
        raise click.UsageError("--db goes with --from FOLDER: a journal is mended without a database")
    _mend(folder, as_new)
    return 0


def _mend(folder: str, as_new: bool) -> None:
    with opened(folder) as found:
        found.lock()
        if as_new:
            confirm("Jobs in it that the store has already may run a second time. Go on?")
        done = recover(found)
        identity = done.identity
        if as_new:
            identity = new_identity()
            found.set_identity(identity)
            found.set_store("")
    jobs = sum(segment.jobs for segment in done.segments)

    def printed() -> None:
        print_findings(done.found)
        click.echo(f"{some(jobs, 'job')} can be read, {_wrong(done.found)}")
        if as_new:
            click.echo(f"the journal is {identity} now")

    say({"folder": folder, "journal": identity, "jobs": jobs, "found": done.found}, printed)


def _take_over(folder: str, db: str) -> int:
    from hipq.daemon.take_over import take_over  # only this command needs it

    with opened(folder):
        pass  # it is one
    with progress("storing") as bar:
        done = take_over(folder, db, bar.advance)
    with closing(open_store(db)) as store:
        did(store, journal=done.journal, jobs=done.jobs)

    def printed() -> None:
        print_findings(done.found)
        click.echo(f"{some(done.jobs, 'job')} taken over, {_wrong(done.found)}; all others were in {shown(db)} already")

    found: dict[str, Any] = {"folder": folder, "journal": done.journal, "jobs": done.jobs, "found": done.found}
    say(found, printed)
    return 1 if any(one.kind in ("damage", "missing", "refused") for one in done.found) else 0


def print_findings(findings: list[JournalFinding]) -> None:
    for finding in findings:
        click.echo(escaped(f"{finding.kind:<8}{finding}"))


def _wrong(findings: list[JournalFinding]) -> str:
    kinds = [finding.kind for finding in findings]
    damage = f"{some(kinds.count('damage'), 'place')} with damage, in quarantine" if "damage" in kinds else "no damage"
    missing = f", {kinds.count('missing')} missing" if "missing" in kinds else ""
    refused = f", {kinds.count('refused')} refused by the database" if "refused" in kinds else ""
    return damage + missing + refused
