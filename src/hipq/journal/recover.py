"""Opening a journal: whole batches are kept, a cut end is cut off, damage goes into quarantine. Every finding is
reported."""

from __future__ import annotations

import os
from dataclasses import dataclass

import msgspec

from hipq.errors import JournalError
from hipq.journal.examine import SegmentProblem, examine
from hipq.journal.finding import JournalFinding
from hipq.journal.folder import IDENTITY, Folder, new_identity, refusal, synced
from hipq.journal.position import BEGINNING, Position
from hipq.journal.quarantine import quarantine_copy, quarantine_move
from hipq.journal.refused import kept
from hipq.journal.segment import Segment, name_of


@dataclass
class Recovered:
    identity: str
    segments: list[Segment]
    """The segments in order, at least one; all that they hold is synced. No segment ever had a greater number than
    the last."""
    found: list[JournalFinding]


def recover(folder: Folder) -> Recovered:
    """Recover a folder whose lock is held."""
    examined = examine(folder)
    segments, found = examined.segments, [] if examined.last else _wiped(folder)
    identity = (folder.identity() if examined.last else None) or (segments[-1].journal if segments else new_identity())
    if not segments or segments[-1].number < examined.last:
        # Before anything is moved: a segment's number must never be used again.
        segments.append(_begun(folder, identity, examined.last + 1, segments[-1].end if segments else BEGINNING))
    if folder.identity() != identity:
        if examined.last:
            found.append(
                JournalFinding("note", IDENTITY, 0, 0, "it was damaged or not there; it is as the segments have it")
            )
        folder.set_identity(identity)
    found += [_remedied(folder, problem) for problem in examined.problems]
    found += [one.finding for one in kept(folder)]
    for segment in segments:
        _sync(folder, segment)
    folder.sync()
    return Recovered(identity, segments, found)


def _wiped(folder: Folder) -> list[JournalFinding]:
    """Give a journal without segments a new identity. Their numbers begin again, and under the old identity the
    store might think that it has what is written from now on."""
    if folder.identity() is None:
        return []
    return [
        JournalFinding("missing", IDENTITY, 0, 0, "the journal had segments, and has none; it has a new identity now")
    ]


def _begun(folder: Folder, identity: str, number: int, after: Position) -> Segment:
    try:
        descriptor, segment = folder.create(identity, number, after)
    except OSError as error:
        raise refusal(error, folder.where(name_of(number))) from None
    os.close(descriptor)
    return segment


def _remedied(folder: Folder, problem: SegmentProblem) -> JournalFinding:
    finding = problem.finding
    match problem.remedy:
        case "quarantine copy":
            kept, _ = quarantine_copy(folder, problem.number, finding.offset, finding.offset + finding.length)
            return msgspec.structs.replace(finding, kept=kept)
        case "quarantine whole":
            return msgspec.structs.replace(finding, kept=quarantine_move(folder, problem.number))
        case "cut off":
            _cut_off(folder, problem.number, finding.offset)
            return msgspec.structs.replace(finding, why=f"{finding.why}; they were cut off")
        case "remove":
            folder.remove(problem.number)
            return msgspec.structs.replace(finding, why=f"{finding.why}; it was removed")
        case "report":
            pass
    return finding


def _cut_off(folder: Folder, number: int, length: int) -> None:
    descriptor = folder.open(name_of(number), os.O_WRONLY)
    try:
        os.ftruncate(descriptor, length)
    except OSError as error:
        raise refusal(error, folder.where(name_of(number))) from None
    finally:
        os.close(descriptor)


def _sync(folder: Folder, segment: Segment) -> None:
    """Sync a segment: a killed writer may have written bytes that are not on disk yet, and only synced bytes may be
    read."""
    try:
        descriptor = folder.open(name_of(segment.number))
    except FileNotFoundError:
        raise JournalError(f"{folder.where(name_of(segment.number))} was removed while it was opened") from None
    try:
        synced(descriptor, folder.where(name_of(segment.number)))
    finally:
        os.close(descriptor)
