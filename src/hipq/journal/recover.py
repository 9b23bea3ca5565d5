"""Opening a journal: whole batches are kept, a cut end is cut off, damage goes into quarantine. Every finding is
reported. `examine` finds the same, and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from hipq.errors import JournalError, JournalRefused
from hipq.journal.directory import read_at, refusal, synced
from hipq.journal.folder import IDENTITY, Folder, new_identity
from hipq.journal.quarantine import JournalFinding, kept_refused, quarantine_copy, quarantine_move
from hipq.journal.scan import Cut, Damage, Found, Record, scan
from hipq.journal.segment import (
    BEGINNING,
    FIRST_LINE_MOST,
    Segment,
    begins_a_first_line,
    name_of,
    number_of,
    other_version,
    read_first_line,
)

Kind = Literal["cut", "damage", "missing", "note"]


@dataclass
class Examined:
    segments: list[Segment] = field(default_factory=list)
    """The readable segments, in order. Their length is where the readable part ends."""
    problems: list[JournalFinding] = field(default_factory=list)
    """What is wrong: at the offset 0 with a whole file."""
    last: int = 0
    """The greatest number of a segment, readable or not."""

    def problem(self, number: int, kind: Kind, offset: int, length: int, why: str) -> None:
        self.problems.append(JournalFinding(kind, name_of(number), offset, length, why))


# -- examining -------------------------------------------------------------------------------------------------------
def examine(folder: Folder) -> Examined:
    """Read all segments."""
    found = outline(folder)
    for segment in found.segments:
        for one in contents(folder, segment):
            _note(segment, one, found)
        tail = found.problems[-1] if found.problems else None
        if tail and tail.file == name_of(segment.number) and tail.kind == "cut":
            segment.length = tail.offset
    return found


def outline(folder: Folder) -> Examined:
    """List the segments without reading their batches."""
    found = Examined()
    numbers = folder.segments()
    found.last = max(numbers, default=0)
    for number in numbers:
        _first_line(folder, number, found)
    for name in folder.strangers():
        why = "this is not the name of a segment: it is left alone"
        found.problems.append(JournalFinding("note", name, 0, 0, why))
    _check_sequence(found)
    return found


def contents(folder: Folder, segment: Segment) -> Iterator[Found]:
    try:
        with folder.opened(name_of(segment.number)) as descriptor:
            yield from scan(partial(read_at, descriptor), segment.salt, segment.start, segment.length)
    except FileNotFoundError:
        pass  # a writer removed it meanwhile


def _first_line(folder: Folder, number: int, found: Examined) -> None:
    try:
        with folder.opened(name_of(number)) as descriptor:
            length = os.fstat(descriptor).st_size
            line = read_at(descriptor, 0, FIRST_LINE_MOST)
    except FileNotFoundError:
        found.segments.clear()  # a writer removed it meanwhile: earlier ones are gone too, or about to be
        return
    if (version := other_version(line)) is not None:
        raise JournalRefused(f"{folder.where(name_of(number))} has the version {version}, which this hipq cannot read")
    if segment := read_first_line(line, number, length):
        found.segments.append(segment)
    elif number == found.last and begins_a_first_line(line):
        found.problem(number, "cut", 0, length, "the segment had only been begun, and holds nothing")
    else:
        why = "its first line is damaged, so nothing can be read"
        found.problem(number, "damage", 0, length, why)


def _check_sequence(found: Examined) -> None:
    """Check that each segment begins where its first line says the one before ended."""
    damaged = {problem.file for problem in found.problems}
    for before, segment in zip(found.segments, found.segments[1:], strict=False):
        number, end = segment.after
        if number != before.number:
            if name_of(number) not in damaged:
                why = f"it is not there, nor is any other between {before.number} and {segment.number}"
                found.problem(number, "missing", 0, end, why)
        elif end > before.length:
            found.problem(number, "missing", before.length, end - before.length, "its end is not there")
        elif end < before.length:
            why = "this is behind the end of the segment, so none of it was acknowledged"
            found.problem(number, "damage", end, before.length - end, why)
            before.length = end


def _note(segment: Segment, one: Found, found: Examined) -> None:
    number, length = segment.number, one.end - one.offset
    match one:
        case Record():
            segment.batches += 1
            segment.jobs += int(one.header["count"])
            segment.bytes += length
            if not one.is_marked:
                why = "the mark behind this batch is damaged; the batch is whole, and read"
                found.problem(number, "note", one.offset, length, why)
        case Damage():
            found.problem(number, "damage", one.offset, length, one.why)
        case Cut() if number == found.last:
            why = "a batch was being written when it stopped, so it was not acknowledged"
            found.problem(number, "cut", one.offset, length, why)
        case Cut():
            found.problem(number, "damage", one.offset, length, "the end of a batch is not there")


# -- recovering ------------------------------------------------------------------------------------------------------
class Recovered(NamedTuple):
    identity: str
    segments: list[Segment]
    """The segments in order, at least one; all that they hold is synced. No segment ever had a greater number than
    the last."""
    found: list[JournalFinding]


def recover(folder: Folder) -> Recovered:
    """Recover a folder whose lock is held."""
    examined = examine(folder)
    segments, known = examined.segments, folder.identity()
    identity, found = known, list[JournalFinding]()
    if not examined.last:
        # Segments are numbered from 1 again: under the old identity the store might think that it has what is written
        # from now on.
        identity = new_identity()
        if known:
            why = "the journal had segments, and has none; it has a new identity now"
            found.append(JournalFinding("missing", IDENTITY, 0, 0, why))
    elif not identity:
        identity = segments[-1].journal if segments else new_identity()
        why = "it was damaged or not there; it is as the segments have it"
        found.append(JournalFinding("note", IDENTITY, 0, 0, why))
    assert identity
    if not segments or segments[-1].number < examined.last:
        # Before anything is moved: a segment's number must never be used again.
        segments.append(_begun(folder, identity, examined))
    if known != identity:
        folder.set_identity(identity)
    found += [_remedied(folder, problem) for problem in examined.problems]
    found += [one.finding for one in kept_refused(folder)]
    for segment in segments:
        _sync(folder, segment)
    folder.sync()
    return Recovered(identity, segments, found)


def _begun(folder: Folder, identity: str, examined: Examined) -> Segment:
    number = examined.last + 1
    try:
        after = examined.segments[-1].end if examined.segments else BEGINNING
        descriptor, segment = folder.create(identity, number, after)
    except OSError as error:
        raise refusal(error, folder.where(name_of(number))) from None
    os.close(descriptor)
    return segment


def _remedied(folder: Folder, finding: JournalFinding) -> JournalFinding:
    """Do what opening a journal does about a problem."""
    number, change = number_of(finding.file) or 0, dict[str, str]()
    match finding.kind, finding.offset:
        case "damage", 0:
            change["kept"] = quarantine_move(folder, number)
        case "damage", offset:
            change["kept"] = quarantine_copy(folder, number, offset, offset + finding.length)
        case "cut", 0:
            folder.remove(number)
            change["why"] = f"{finding.why}; it was removed"
        case "cut", offset:
            try:
                with folder.opened(finding.file, os.O_WRONLY) as descriptor:
                    os.ftruncate(descriptor, offset)
            except OSError as error:
                raise refusal(error, folder.where(finding.file)) from None
            change["why"] = f"{finding.why}; they were cut off"
    return msgspec.structs.replace(finding, **change)


def _sync(folder: Folder, segment: Segment) -> None:
    """Sync a segment: what a killed writer wrote may not be on disk yet, and only synced bytes may be read."""
    where = folder.where(name_of(segment.number))
    try:
        with folder.opened(name_of(segment.number)) as descriptor:
            synced(descriptor, where)
    except FileNotFoundError:
        raise JournalError(f"{where} was removed while it was opened") from None
