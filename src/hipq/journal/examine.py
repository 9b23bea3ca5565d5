"""Examining a journal's folder: its segments and what is wrong with them. Nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from hipq.errors import JournalRefused
from hipq.journal.finding import JournalFinding
from hipq.journal.folder import Folder, read_at
from hipq.journal.scan import Cut, Damage, Found, Record, scan
from hipq.journal.segment import (
    FIRST_LINE_MOST,
    Segment,
    begins_a_first_line,
    name_of,
    other_version,
    read_first_line,
)

Remedy = Literal["quarantine copy", "quarantine whole", "cut off", "remove", "report"]


@dataclass
class SegmentProblem:
    """A problem of a segment, and what opening the journal does about it."""

    number: int
    remedy: Remedy
    finding: JournalFinding


@dataclass
class Examined:
    segments: list[Segment] = field(default_factory=list)
    """The readable segments, in order. Their length is where the readable part ends."""
    problems: list[SegmentProblem] = field(default_factory=list)
    last: int = 0
    """The greatest number of a segment, readable or not."""

    def problem(self, number: int, remedy: Remedy, kind: Literal["cut", "damage", "missing", "note"],
                offset: int, length: int, why: str) -> None:  # fmt: skip
        self.problems.append(SegmentProblem(number, remedy, JournalFinding(kind, name_of(number), offset, length, why)))


def examine(folder: Folder) -> Examined:
    """Read all segments."""
    found = outline(folder)
    for segment in found.segments:
        for one in contents(folder, segment):
            _note(segment, one, found)
        tail = found.problems[-1] if found.problems else None
        if tail and tail.number == segment.number and tail.remedy == "cut off":
            segment.length = tail.finding.offset
    return found


def outline(folder: Folder) -> Examined:
    """List the segments without reading their batches."""
    found = Examined()
    numbers = folder.segments()
    found.last = max(numbers, default=0)
    for number in numbers:
        _first_line(folder, number, found)
    for name in folder.strangers():
        finding = JournalFinding("note", name, 0, 0, "this is not the name of a segment: it is left alone")
        found.problems.append(SegmentProblem(0, "report", finding))
    _check_sequence(found)
    return found


def contents(folder: Folder, segment: Segment) -> Iterator[Found]:
    try:
        descriptor = folder.open(name_of(segment.number))
    except FileNotFoundError:
        return  # a writer removed it meanwhile
    try:

        def read(offset: int, length: int) -> bytes:
            return read_at(descriptor, offset, length)

        yield from scan(read, segment.salt, segment.start, segment.length)
    finally:
        os.close(descriptor)


def _first_line(folder: Folder, number: int, found: Examined) -> None:
    try:
        descriptor = folder.open(name_of(number))
    except FileNotFoundError:
        found.segments.clear()  # a writer removed it meanwhile: earlier ones are gone too, or about to be
        return
    try:
        length = os.fstat(descriptor).st_size
        line = read_at(descriptor, 0, FIRST_LINE_MOST)
    finally:
        os.close(descriptor)
    if (version := other_version(line)) is not None:
        raise JournalRefused(f"{folder.where(name_of(number))} has the version {version}, which this hipq cannot read")
    segment = read_first_line(line, number, length)
    if segment:
        found.segments.append(segment)
    elif number == found.last and begins_a_first_line(line):
        found.problem(number, "remove", "cut", 0, length, "the segment had only been begun, and holds nothing")
    else:
        found.problem(
            number, "quarantine whole", "damage", 0, length, "its first line is damaged, so nothing can be read"
        )


def _check_sequence(found: Examined) -> None:
    """Check that each segment begins where its first line says the one before ended."""
    damaged = {problem.number for problem in found.problems}
    for before, segment in zip(found.segments, found.segments[1:], strict=False):
        number, end = segment.after
        if number != before.number:
            if number not in damaged:
                why = f"it is not there, nor is any other between {before.number} and {segment.number}"
                found.problem(number, "report", "missing", 0, end, why)
        elif end > before.length:
            found.problem(number, "report", "missing", before.length, end - before.length, "its end is not there")
        elif end < before.length:
            why = "this is behind the end of the segment, so none of it was acknowledged"
            found.problem(number, "quarantine copy", "damage", end, before.length - end, why)
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
                found.problem(number, "report", "note", one.offset, length, why)
        case Damage():
            found.problem(number, "quarantine copy", "damage", one.offset, length, one.why)
        case Cut() if number == found.last:
            why = "a batch was being written when it stopped, so it was not acknowledged"
            found.problem(number, "cut off", "cut", one.offset, length, why)
        case Cut():
            found.problem(number, "quarantine copy", "damage", one.offset, length, "the end of a batch is not there")
