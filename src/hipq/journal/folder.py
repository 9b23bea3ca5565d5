"""The folder of a journal: its lock, its identity, its segments."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
import weakref
from typing import Final

from hipq.errors import JournalRefused
from hipq.journal.directory import SAFE, Directory, refusal, synced, write_all
from hipq.journal.segment import SUFFIX, Position, Segment, name_of, new_first_line, number_of, read_first_line

LOCK: Final = "lock"
IDENTITY: Final = "identity"
STORE: Final = "store"
LOCK_SECONDS: Final = 1.0
"""Seconds to try for the lock: a program that checks the lock holds it for a moment."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_open_here: weakref.WeakSet[Folder] = weakref.WeakSet()


def new_identity() -> str:
    return secrets.token_hex(16)


class Folder(Directory):
    def __init__(self, path: str | os.PathLike[str], *, make: bool) -> None:
        super().__init__(-1, os.fspath(path))
        self._lock: int | None = None
        try:
            if make:
                self._make()
            self.descriptor = os.open(self.path, _FOLDER)
        except FileNotFoundError:
            raise JournalRefused(f"there is no folder {self.path}") from None
        except (NotADirectoryError, FileExistsError):
            raise JournalRefused(f"{self.path} is not a folder, so it cannot be a journal") from None
        except ValueError:  # a NUL in the path
            raise JournalRefused(f"{self.path!r} is not the name of a folder") from None
        except OSError as error:
            raise refusal(error, f"the folder {self.path}") from None
        _open_here.add(self)

    def _make(self) -> None:
        """Create the folder and those above it, each synced into its parent: otherwise a power cut takes all."""
        missing = []
        path = os.path.abspath(self.path)
        while not os.path.exists(path):
            missing.append(path)
            path = os.path.dirname(path)
        for path in reversed(missing):
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                pass  # another process was faster
            above = os.open(os.path.dirname(path), _FOLDER)
            try:
                synced(above, f"the folder {os.path.dirname(path)}")
            finally:
                os.close(above)

    def is_there(self) -> bool:
        """Whether the path still leads to this folder, and its lock is the one that is held."""
        try:
            same = os.path.samestat(os.stat(self.path), os.fstat(self.descriptor))
            lock = os.stat(LOCK, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # it may be there: a passing error on the path is not a loss
        return same and (self._lock is None or os.path.samestat(lock, os.fstat(self._lock)))

    def close(self) -> None:
        _open_here.discard(self)
        self.unlock()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    # -- the lock ----------------------------------------------------------------------------------------------------
    def lock(self) -> None:
        """Take the lock: a journal has one writer. The kernel frees it when the process ends, however it ends."""
        until = time.monotonic() + LOCK_SECONDS
        while not self._locked():
            if time.monotonic() > until:
                raise JournalRefused(f"the journal {self.path} is in use by another process{self._holder()}")
            time.sleep(0.02)

    def _locked(self) -> bool:
        descriptor = self.open(LOCK, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.stat(LOCK, dir_fd=self.descriptor, follow_symlinks=False)
            if not os.path.samestat(there, os.fstat(descriptor)):
                raise BlockingIOError  # the file was removed before it was locked: the next try finds the new one
        except (BlockingIOError, FileNotFoundError):
            os.close(descriptor)
            return False
        self._lock = descriptor
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except OSError:
            pass  # the contents are for people only
        return True

    def _holder(self) -> str:
        try:
            text = self.read(LOCK).strip()
        except OSError:
            return ""
        return f" ({text.decode()})" if text.isdigit() else ""

    def is_locked(self) -> bool:
        """Whether a process writes to the journal."""
        try:
            with self.opened(LOCK) as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # -- who it is, and whose ----------------------------------------------------------------------------------------
    def identity(self) -> str | None:
        """The journal's identity; None if there is none, or it is damaged."""
        return self.kept(IDENTITY).decode() or None

    def set_identity(self, identity: str) -> None:
        self.keep(IDENTITY, identity.encode())

    def store(self) -> str | None:
        """The identity of the store that gets the jobs; None if it is not known yet, or damaged."""
        return self.kept(STORE).decode() or None

    def set_store(self, identity: str) -> None:
        """Name the store that gets the jobs; "": forget it."""
        self.keep(STORE, identity.encode())

    # -- its segments ------------------------------------------------------------------------------------------------
    def segments(self) -> list[int]:
        """The numbers of the segments, in order."""
        return sorted(number for name in os.listdir(self.descriptor) if (number := number_of(name)) is not None)

    def is_journal(self) -> bool:
        return IDENTITY in os.listdir(self.descriptor) or bool(self.segments())

    def strangers(self) -> list[str]:
        """Files that look like segments and are not."""
        return sorted(n for n in os.listdir(self.descriptor) if n.endswith(SUFFIX) and number_of(n) is None)

    def create(self, journal: str, number: int, after: Position) -> tuple[int, Segment]:
        """Create a segment, open for writing. A power cut leaves a whole segment or one that can be ignored."""
        line = new_first_line(journal, number, after)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE
        descriptor = os.open(name_of(number), flags, 0o600, dir_fd=self.descriptor)
        try:
            write_all(descriptor, line, 0)
            synced(descriptor, self.where(name_of(number)))
            self.sync()
        except BaseException:
            os.close(descriptor)
            self.remove(number)
            raise
        segment = read_first_line(line, number, len(line))
        assert segment
        return descriptor, segment

    def remove(self, number: int) -> None:
        try:
            os.unlink(name_of(number), dir_fd=self.descriptor)
        except OSError:
            pass  # it is tried again when the journal is opened: the store's position lies behind it


def _abandon() -> None:
    """Close the lock in a forked child: it must not live on there when the parent, whose it is, has died."""
    for folder in list(_open_here):
        folder.unlock()


os.register_at_fork(after_in_child=_abandon)
