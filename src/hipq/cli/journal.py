"""`hipq journal`: look into the journal of a daemon, and recover one by hand."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from hipq.cli.commands import asked, group
from hipq.cli.complain import note
from hipq.cli.inputs import Parsed, number_option
from hipq.cli.journal_recover import print_findings, recover_journal
from hipq.cli.quarantine import folder_argument, opened, quarantine, repost
from hipq.cli.show import clock, print_json, print_lines, print_table, say, some
from hipq.job.when import to_datetime
from hipq.journal.batch import Batch, decode
from hipq.journal.folder import IDENTITY, Folder
from hipq.journal.quarantine import JournalFinding, kept_refused
from hipq.journal.recover import Examined, contents, examine, outline
from hipq.journal.scan import Record
from hipq.journal.segment import BEGINNING, Position, Segment, name_of
from hipq.observe.logs import escaped

LOOKS: Final = 3
"""How often to look at a journal that is written to: what is cut back as we look is not damage."""


@group(
    "journal",
    "hipq journal check /var/lib/hipq/journal",
    "hipq journal show /var/lib/hipq/journal --limit 10",
    "hipq journal recover /var/lib/hipq/journal",
)
def journal() -> None:
    """Check, show and repair a daemon's journal: the files in which jobs are safe until the database has them."""


@journal.command("check", "hipq journal check /var/lib/hipq/journal", "hipq journal check /var/lib/hipq/journal --json")
@folder_argument
def check(folder: str) -> int:
    """Check whether all of a journal can be read. This changes nothing, and may be run while a daemon writes. Exit 1:
    jobs that were acknowledged may be lost."""
    with opened(folder) as found:
        in_use, examined, findings = _looked(found)
        identity = found.identity()
    rows = [_described(segment) for segment in examined.segments]

    def printed() -> None:
        print_lines({"folder": folder, "journal": identity or "damaged", "in use": "yes" if in_use else "no"})
        print_table(("segment", "bytes", "batches", "jobs"), rows, none="segments")
        print_findings(findings)

    whole = {"folder": folder, "journal": identity, "in_use": in_use, "segments": rows, "found": findings}
    say(whole, printed)
    return 1 if any(finding.is_damage for finding in findings) else 0


class _Place(Parsed):
    name = "position"

    @staticmethod
    def parse(value: Any) -> Position:
        return value if isinstance(value, Position) else Position.of(value)


@journal.command(
    "show",
    "hipq journal show /var/lib/hipq/journal",
    "hipq journal show /var/lib/hipq/journal --limit 1000 --json",
    "hipq journal show /var/lib/hipq/journal --after 3:1200",
)
@folder_argument
@click.option("--after", type=_Place(), default=BEGINNING, help="The next page: batches behind this position.")
@number_option("--limit", 1, 100_000, 100, "List at most this number.")
@click.option("--refused", is_flag=True, help="Those that the store would not take, and that were put into quarantine.")
@click.option("--tenant", help="Only batches of this tenant.")
def show(folder: str, after: Position, limit: int, refused: bool, tenant: str | None) -> None:
    """The batches in a journal that can be read, and their payloads. The store may have some of them already. It
    changes nothing, and may be run while a daemon writes."""
    rows: list[dict[str, Any]] = []
    count = 0
    with opened(folder) as found:
        for place, end, batch in _refused(found, after) if refused else _batches(found, after):
            if tenant not in (None, batch.tenant):
                continue
            if count >= limit and end > after:  # what was refused of one batch is at one place, and on one page
                note(f"there is more: add --after {after}")
                break
            after, count = end, count + 1
            if asked("json"):
                rows.append(_shown(place, batch))
            else:
                _print_batch(place, batch)
    if asked("json"):
        print_json(rows)
    elif not count:
        note("no batches found")


journal.add_command(recover_journal)
journal.add_command(quarantine)
journal.add_command(repost)


# -- looking ---------------------------------------------------------------------------------------------------------
def _looked(folder: Folder) -> tuple[bool, Examined, list[JournalFinding]]:
    for _ in range(LOOKS):
        in_use = folder.is_locked()
        examined = examine(folder)
        findings = list(examined.problems)
        if in_use:
            findings = [one for one in findings if one.kind != "cut"]  # it is being written
        if not in_use or not any(one.is_damage for one in findings):
            break
    findings += [one.finding for one in kept_refused(folder)]
    if folder.identity() is None:
        findings.append(JournalFinding("note", IDENTITY, 0, 0, "it is damaged or not there; the segments know it"))
    return in_use, examined, findings


def _batches(folder: Folder, after: Position) -> Iterator[tuple[Position, Position, Batch]]:
    for segment in outline(folder).segments:
        if segment.number < after.segment:
            continue
        for one in contents(folder, segment):
            place = Position(segment.number, one.offset)
            if isinstance(one, Record) and place >= after:
                try:
                    batch = decode(one.header, one.body)
                except ValueError:
                    note(f"{place}: the sums are right, but no hipq has written this")
                else:
                    yield place, Position(segment.number, one.end), batch


def _refused(folder: Folder, after: Position) -> Iterator[tuple[Position, Position, Batch]]:
    """By where their batches ended in the journal: their beginning is not known any more."""
    for one in kept_refused(folder):
        parts = one.finding.kept.rpartition("/")[2].split(".")
        if one.batch is None or len(parts) != 3 or not (parts[0] + parts[1]).isdecimal():
            note(f"{one.finding.kept} cannot be read, or has another name than it was given")
            continue
        end = Position(int(parts[0]), int(parts[1]))
        if end > after:
            yield end, end, one.batch


# -- printing --------------------------------------------------------------------------------------------------------
def _described(segment: Segment) -> dict[str, Any]:
    return {"segment": segment.number, "file": name_of(segment.number), "bytes": segment.length,
            "batches": segment.batches, "jobs": segment.jobs}  # fmt: skip


def _shown(place: Position, batch: Batch) -> dict[str, Any]:
    return {
        "position": str(place),
        "tenant": batch.tenant,
        "type": batch.jobtype,
        "date": to_datetime(batch.date),
        "options": _options(batch.options),
        "jobs": [{"number": number, **_payload(payload)} for number, payload in enumerate(batch.payloads, batch.first)],
    }


def _options(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _payload(payload: bytes) -> dict[str, str]:
    try:
        return {"text": payload.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}


def _print_batch(place: Position, batch: Batch) -> None:
    when, jobs = clock(to_datetime(batch.date)), some(len(batch.payloads), "job")
    options = "" if batch.options == "{}" else f"  {batch.options}"
    click.echo(escaped(f"{place}  {when}  {batch.tenant}-{batch.jobtype}  {jobs}{options}"))
    for number, payload in enumerate(batch.payloads, batch.first):
        click.echo(f"  {number}  {escaped(payload.decode(errors='backslashreplace'))}")
