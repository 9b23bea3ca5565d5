"""The front of the journal: batches read back from its files. Bytes that were damaged meanwhile go into quarantine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from hipq.errors import JournalRefused
from hipq.journal.batch import Batch, decode
from hipq.journal.directory import read_at
from hipq.journal.folder import Folder
from hipq.journal.quarantine import JournalFinding, quarantine_copy
from hipq.journal.scan import Found, Record, scan
from hipq.journal.segment import BEGINNING, Position, Segment, name_of

Readable = Sequence[tuple[Segment, int]]
"""Segments in order, and how far each may be read."""


@dataclass
class FrontRead:
    after: Position
    jobs: int = 0
    bytes: int = 0
    batches: list[Batch] = field(default_factory=list)


class Front:
    """Reads the front, for one thread at a time."""

    def __init__(self, folder: Folder, found: list[JournalFinding]) -> None:
        self._folder, self._found = folder, found
        self._known = {(finding.file, finding.offset) for finding in found if finding.is_damage}
        self._number, self._descriptor = 0, -1

    def next(self, segments: Readable, start: Position, count: int, most_bytes: int) -> FrontRead:
        """Batches with about `count` jobs in all, but at least one batch if there is any."""
        taken = FrontRead(start)
        for after, size, batch in self._batches(segments, start):
            jobs = len(batch.payloads)
            if taken.batches and (taken.jobs + jobs > count or taken.bytes + size > most_bytes):
                return taken
            taken.batches.append(batch)
            taken.after, taken.jobs, taken.bytes = after, taken.jobs + jobs, taken.bytes + size
        if not taken.batches and segments:
            last, length = segments[-1]
            # nothing here but damage, which is not to be read twice
            taken.after = max(start, Position(last.number, length))
        return taken

    def again(self, segments: Readable, start: Position, end: Position) -> list[Batch]:
        """All batches between two positions."""
        return [batch for _, _, batch in takewhile(lambda one: one[0] <= end, self._batches(segments, start))]

    def _batches(self, segments: Readable, start: Position) -> Iterator[tuple[Position, int, Batch]]:
        """The batches behind a position: where each ends, its bytes, and itself. What is none goes into quarantine."""
        for segment, length in segments:
            if segment.number < start.segment:
                continue
            at = max(start.offset if segment.number == start.segment else 0, segment.start)
            for one in self._scanned(segment, at, length):
                if not isinstance(one, Record):
                    self._quarantine(segment.number, one, "this was damaged after it was written")
                    continue
                try:
                    batch = decode(one.header, one.body)
                except ValueError:
                    self._quarantine(segment.number, one, "its sums are right, but no hipq has written this")
                else:
                    yield Position(segment.number, one.end), one.end - one.offset, batch

    def _scanned(self, segment: Segment, start: int, end: int) -> Iterator[Found]:
        if start >= end:
            return
        try:
            descriptor = self._open(segment.number)
        except FileNotFoundError:
            self._miss(name_of(segment.number), start, end - start, "it was removed before the store had it")
            return
        at = start
        for one in scan(partial(read_at, descriptor), segment.salt, start, end):
            at = one.end
            yield one
        if at < end:
            self._miss(name_of(segment.number), at, end - at, "its end is not there any more")

    def _open(self, number: int) -> int:
        """Open a segment, and keep it open while it is read."""
        if self._number != number:
            descriptor = self._folder.open(name_of(number))
            self.close()
            self._number, self._descriptor = number, descriptor
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._number, self._descriptor = 0, -1

    def delete(self, segment: Segment) -> None:
        if segment.number == self._number:
            self.close()
        self._folder.remove(segment.number)

    # -- what is wrong -----------------------------------------------------------------------------------------------
    def _quarantine(self, number: int, one: Found, why: str) -> None:
        name = name_of(number)
        if (name, one.offset) not in self._known:
            kept = quarantine_copy(self._folder, number, one.offset, one.end)
            self._known.add((name, one.offset))
            self._found.append(JournalFinding("damage", name, one.offset, one.end - one.offset, why, kept))

    def _miss(self, name: str, offset: int, length: int, why: str) -> None:
        if (name, offset) not in self._known:
            self._known.add((name, offset))
            self._found.append(JournalFinding("missing", name, offset, length, why))

    # -- where the store is ------------------------------------------------------------------------------------------
    def passed(self, segments: Sequence[Segment], position: Position | None, end: Position, first: int) -> FrontRead:
        """How much lies before the store's position, which must be one that the store can have from this journal.
        `end` is where the journal ended when it was opened, or where the last reservation since then ends; `first`
        is the segment that this process writes to first."""
        oldest = segments[0]
        if position is None:
            if oldest.after != BEGINNING:
                why = "what was before it is gone, and the store knows nothing of this journal"
                self._miss(name_of(oldest.number), 0, 0, why)
            return FrontRead(BEGINNING)
        if position > end and position.segment >= first:
            raise JournalRefused(
                f"the store has the journal {self._folder.path} up to {position}, but it had only {end} to give: "
                "files are missing, or it is an old copy; bring them back, or see `hipq journal recover --help`"
            )
        if position < oldest.after:
            why = f"what was between the store's position {position} and its beginning is not there"
            self._miss(name_of(oldest.number), 0, 0, why)
        passed = FrontRead(position)
        for segment in segments:
            if segment.number < position.segment:
                passed.jobs, passed.bytes = passed.jobs + segment.jobs, passed.bytes + segment.bytes
            elif segment.number == position.segment:
                self._passed_in(segment, position, passed)
        return passed

    def _passed_in(self, segment: Segment, position: Position, passed: FrontRead) -> None:
        for one in self._scanned(segment, segment.start, segment.length):
            if one.offset >= position.offset:
                return
            if isinstance(one, Record):
                if one.end > position.offset:
                    raise JournalRefused(
                        f"the store's position {position} is in the midst of a batch of the journal "
                        f"{self._folder.path}, so it is not the one that the store knows"
                    )
                passed.jobs += int(one.header["count"])
                passed.bytes += one.end - one.offset
