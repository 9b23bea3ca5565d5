"""The end of the journal: the segment that is written to. Every error here is either temporary or final."""

from __future__ import annotations

import errno
import os

from hipq.errors import HipqError, JournalBroken, JournalError, JournalFull
from hipq.journal.directory import NO_ROOM, reason, write_all
from hipq.journal.folder import Folder
from hipq.journal.reserve import JournalReader
from hipq.journal.segment import Segment, name_of


class Tail:
    """Writes the last segment, for one thread."""

    def __init__(self, folder: Folder, identity: str, last: Segment, reader: JournalReader) -> None:
        self._folder, self._identity, self._reader = folder, identity, reader
        self.segment = last
        self.first = last.number if last.length == last.start else last.number + 1
        """The segment that the first batch goes to. It is a new one, unless the last is empty: after a crash nothing
        is written behind what is there, so that positions the store knows never change their meaning."""
        self.is_full = False
        """Whether the file cannot grow any further."""
        self.has_room = True
        """Whether the last write found room on the disk."""
        self.broken: JournalBroken | None = None
        self.syncs = 0
        self._descriptor = -1

    def check(self) -> None:
        if self.broken:
            raise JournalBroken(str(self.broken))

    def open(self) -> None:
        """Open the segment before the first write."""
        self.check()
        if self._descriptor >= 0:
            return
        if self.segment.number < self.first:
            self.begin()
            return
        try:
            self._descriptor = self._folder.open(name_of(self.segment.number), os.O_WRONLY)
        except FileNotFoundError:
            self.begin()  # somebody removed the empty segment
        except HipqError as error:
            raise JournalError(str(error)) from None

    def append(self, data: bytes, jobs: int) -> None:
        """Append bytes; they are on disk when this returns. If it raises, none of them are in the file, or nothing
        is ever written again."""
        segment = self.segment
        try:
            write_all(self._descriptor, data, segment.length)
        except OSError as error:
            raise self._cut_back(error) from None
        self._sync()
        if not os.fstat(self._descriptor).st_nlink:  # the bytes are on disk, but in a file without a name
            raise self.fail(f"{self._name()} was removed by somebody else")
        self.has_room = True
        self._reader.arrived(segment, segment.length + len(data), jobs)

    def begin(self) -> None:
        """Begin a new segment, after the old one is synced to its end."""
        if self._descriptor >= 0:
            self._sync()  # it may have been truncated
        number = self.segment.number + 1
        try:
            descriptor, segment = self._folder.create(self._identity, number, self.segment.end)
        except FileExistsError:
            raise self.fail(f"{self._name(number)} is there already: somebody else writes to this journal") from None
        except JournalBroken as error:
            raise self.fail(str(error)) from None
        except OSError as error:
            if error.errno in NO_ROOM:
                self.has_room = False
                raise JournalFull from None
            raise JournalError(f"{self._name(number)} could not be made: {reason(error)}") from None
        self.close()
        self._descriptor, self.segment, self.is_full = descriptor, segment, False
        self._reader.began(segment)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def look(self) -> None:
        """Check that the folder is where it was: otherwise nobody finds what is written there."""
        if self.broken is None and not self._folder.is_there():
            self.fail(f"the folder {self._folder.path} of the journal was removed, or is another now")

    # -- when it goes wrong ------------------------------------------------------------------------------------------
    def _sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self.fail(f"{self._name()} could not be synced: {reason(error)}") from None
        self.syncs += 1

    def _cut_back(self, error: OSError) -> JournalError:
        """Truncate a partial write: otherwise the next batch would follow half a batch."""
        try:
            os.ftruncate(self._descriptor, self.segment.length)
        except OSError as second:
            return self.fail(f"{self._name()} could not be cut back to what was acknowledged: {reason(second)}")
        if error.errno not in NO_ROOM:
            return self.fail(f"{self._name()} could not be written: {reason(error)}")
        self.has_room, self.is_full = False, error.errno == errno.EFBIG
        return JournalFull()

    def fail(self, why: str) -> JournalBroken:
        """Fail for good: a failed sync may have dropped bytes, and the kernel says so only once."""
        self.broken = self.broken or JournalBroken(f"{why}; nothing is accepted any more: restart, and check the disk")
        return JournalBroken(str(self.broken))

    def _name(self, number: int | None = None) -> str:
        return self._folder.where(name_of(number or self.segment.number))
