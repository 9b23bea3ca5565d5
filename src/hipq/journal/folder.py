"""The folder of a journal: its lock, its identity, its files. Symbolic links in it are never followed."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
import weakref
from typing import Final
from zlib import crc32

from hipq.errors import HipqError, JournalBroken, JournalFull, JournalRefused
from hipq.journal.position import Position
from hipq.journal.segment import SUFFIX, Segment, name_of, new_first_line, number_of, read_first_line

LOCK: Final = "lock"
IDENTITY: Final = "identity"
STORE: Final = "store"
LOCK_SECONDS: Final = 1.0
"""Seconds to try for the lock: a program that checks the lock holds it for a moment."""
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

# non-blocking, because opening a pipe would wait for its other end
_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_BLOCK: Final = 4096
_IDENTITY: Final = re.compile(rb"#:Identity journal=([0-9a-f]{32}),sum=([0-9a-f]{8})\n")
_STORE: Final = re.compile(rb"#:Store store=([0-9a-f]{32}),sum=([0-9a-f]{8})\n")
_open_here: weakref.WeakSet[Folder] = weakref.WeakSet()


def refusal(error: OSError, what: str) -> HipqError:
    """Why a file or folder cannot be used, in one sentence."""
    if error.errno in NO_ROOM:
        return JournalFull(f"there is no room on the disk for {what}")
    if error.errno == errno.ELOOP:
        return JournalRefused(f"{what} is a symbolic link, which a journal does not follow")
    return JournalRefused(f"{what} cannot be used: {os.strerror(error.errno or 0).lower()}")


def new_identity() -> str:
    return secrets.token_hex(16)


def synced(descriptor: int, what: str) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise JournalBroken(f"{what} could not be synced: {os.strerror(error.errno or 0).lower()}") from None


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Bytes of a file; fewer only at its end. Blocks that the disk cannot read become zeros, which invalidate a
    batch's sums."""
    pieces: list[bytes] = []
    while length > 0:
        try:
            piece = os.pread(descriptor, length, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            piece = _readable(descriptor, offset, min(length, _BLOCK - offset % _BLOCK))
        if not piece:
            break
        pieces.append(piece)
        offset, length = offset + len(piece), length - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _readable(descriptor: int, offset: int, length: int) -> bytes:
    try:
        return os.pread(descriptor, length, offset)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return bytes(max(0, min(length, os.fstat(descriptor).st_size - offset)))


class Folder:
    def __init__(self, path: str | os.PathLike[str], *, make: bool) -> None:
        self.path = os.fspath(path)
        self._lock: int | None = None
        try:
            if make:
                self._make()
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
        """Create the folder and those above it, each synced into its parent: otherwise a power cut takes the journal
        with it."""
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
            above = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                synced(above, f"the folder {os.path.dirname(path)}")
            finally:
                os.close(above)

    def where(self, name: str) -> str:
        return f"{name} in the journal {self.path}"

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a regular file, and nothing else."""
        try:
            descriptor = os.open(name, flags | _SAFE, 0o600, dir_fd=self.descriptor)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            raise refusal(error, self.where(name)) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise JournalRefused(f"{self.where(name)} is not a file")
        return descriptor

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

    def sync(self) -> None:
        synced(self.descriptor, f"the folder {self.path}")

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
            descriptor = self.open(LOCK)
        except OSError:
            return ""
        text = os.pread(descriptor, 20, 0).strip()
        os.close(descriptor)
        return f" ({text.decode()})" if text.isdigit() else ""

    def is_locked(self) -> bool:
        """Whether a process writes to the journal."""
        try:
            descriptor = self.open(LOCK)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # -- who it is, and whose ----------------------------------------------------------------------------------------
    def identity(self) -> str | None:
        """The journal's identity; None if there is none, or it is damaged."""
        return self._said(IDENTITY, _IDENTITY)

    def set_identity(self, identity: str) -> None:
        self._say(IDENTITY, b"#:Identity journal=", identity)

    def store(self) -> str | None:
        """The identity of the store that gets the jobs; None if it is not known yet, or damaged."""
        return self._said(STORE, _STORE)

    def set_store(self, identity: str) -> None:
        self._say(STORE, b"#:Store store=", identity)

    def forget_store(self) -> None:
        try:
            os.unlink(STORE, dir_fd=self.descriptor)
        except FileNotFoundError:
            return
        self.sync()

    def _said(self, name: str, pattern: re.Pattern[bytes]) -> str | None:
        try:
            descriptor = self.open(name)
        except FileNotFoundError:
            return None
        try:
            match = pattern.fullmatch(read_at(descriptor, 0, 200))
        finally:
            os.close(descriptor)
        return match[1].decode() if match and crc32(match[1]) == int(match[2], 16) else None

    def _say(self, name: str, before: bytes, identity: str) -> None:
        text = identity.encode()
        self.write(name, b"%b%b,sum=%08x\n" % (before, text, crc32(text)))

    def write(self, name: str, data: bytes) -> None:
        """Write a file, all of it or nothing; it is on disk when this returns."""
        try:
            descriptor = self.open(f"{name}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                write_all(descriptor, data, 0)
                synced(descriptor, self.where(name))
            finally:
                os.close(descriptor)
            os.rename(f"{name}.new", name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except OSError as error:
            raise refusal(error, self.where(name)) from None
        self.sync()

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
        descriptor = os.open(name_of(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600,
                             dir_fd=self.descriptor)  # fmt: skip
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


def write_all(descriptor: int, data: bytes, offset: int) -> None:
    """Write all bytes. A disk that is nearly full takes a part, and the next write raises the reason."""
    done = os.pwrite(descriptor, data, offset)
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], offset + done)


def _abandon() -> None:
    """Close the lock in a forked child: it is the parent's, and must not live on in the child when the parent has
    died."""
    for folder in list(_open_here):
        folder.unlock()


os.register_at_fork(after_in_child=_abandon)
