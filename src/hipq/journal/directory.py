"""A directory of files that survive a power cut: what was written is synced, and symbolic links are never followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final
from zlib import crc32

from hipq.errors import HipqError, JournalBroken, JournalFull, JournalRefused

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
UNFINISHED: Final = ".part"
"""The end of the name of a file that is being written."""
# non-blocking, because opening a pipe would wait for its other end
SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_BLOCK: Final = 4096


def reason(error: OSError) -> str:
    return os.strerror(error.errno or 0).lower()


def refusal(error: OSError, what: str) -> HipqError:
    """Why a file or folder cannot be used, in one sentence."""
    if error.errno in NO_ROOM:
        return JournalFull(f"there is no room on the disk for {what}")
    if error.errno == errno.ELOOP:
        return JournalRefused(f"{what} is a symbolic link, which a journal does not follow")
    return JournalRefused(f"{what} cannot be used: {reason(error)}")


def synced(descriptor: int, what: str) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise JournalBroken(f"{what} could not be synced: {reason(error)}") from None


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Bytes of a file; fewer only at its end. Blocks that the disk cannot read become zeros, and sums wrong."""
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


def write_all(descriptor: int, data: bytes, offset: int) -> None:
    """Write all bytes. A disk that is nearly full takes a part, and the next write raises the reason."""
    done = os.pwrite(descriptor, data, offset)
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], offset + done)


class Directory:
    def __init__(self, descriptor: int, path: str, below: str = "") -> None:
        """The folder of a journal, `path`, or the directory `below` it, which ends with a slash."""
        self.descriptor, self.path, self._below = descriptor, path, below

    def where(self, name: str) -> str:
        return f"{self._below}{name} in the journal {self.path}"

    def sync(self) -> None:
        synced(self.descriptor, f"the folder {self.path}")

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a regular file, and nothing else."""
        try:
            descriptor = os.open(name, flags | SAFE, 0o600, dir_fd=self.descriptor)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            raise refusal(error, self.where(name)) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise JournalRefused(f"{self.where(name)} is not a file")
        return descriptor

    @contextmanager
    def opened(self, name: str, flags: int = os.O_RDONLY) -> Iterator[int]:
        descriptor = self.open(name, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def has(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str) -> bytes:
        with self.opened(name) as descriptor:
            return read_at(descriptor, 0, os.fstat(descriptor).st_size)

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file, all of it or nothing; it is on disk when this returns."""
        part, at = f"{name}{UNFINISHED}", 0
        try:
            with self.opened(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
                for piece in pieces:
                    write_all(descriptor, piece, at)
                    at += len(piece)
                synced(descriptor, self.where(name))
            os.rename(part, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except OSError as error:
            raise refusal(error, self.where(name)) from None
        self.sync()

    def keep(self, name: str, text: bytes) -> None:
        """Keep a text under its sum, in place of the previous one."""
        self.write(name, [b"%08x\n%b" % (crc32(text), text)])

    def kept(self, name: str) -> bytes:
        """The text that was kept; empty if there is none, or it is damaged."""
        try:
            total, _, text = self.read(name).partition(b"\n")
        except FileNotFoundError:
            return b""
        return text if total == b"%08x" % crc32(text) else b""
