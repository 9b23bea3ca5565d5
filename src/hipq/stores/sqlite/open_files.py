"""Whether the files of an open database are still at their paths.

SQLite goes on writing to a file that was deleted, renamed or replaced, and acknowledges what nobody will ever find. The
kernel gives the inode of an open file to no other file, so device and inode say for certain whether a path still leads
to the file that is open.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Final

from hipq.errors import StoreBroken

Inode = tuple[int, int]
_TWO_SECONDS: Final = 3_000_000_000
_TICK: Final = 50_000_000
_COARSE: Final = 10_000_000


def settles_in(changed: int) -> int:
    """Nanoseconds after which a folder that was changed then is certain to have another time of change at its next
    change. Some file systems know it to two seconds, or to hundredths, only; others, whose times have more digits, to
    the ticks of the kernel's clock, which are 10 ms at most."""
    return _TICK if changed % _COARSE else _TWO_SECONDS


def inode(file: str | int) -> Inode | None:
    """The device and inode of the file at a path, or of a descriptor; None if there is none. A file without a name
    (deleted, and still mounted at this path) counts as none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found.st_nlink else None


def _entry(name: str) -> Inode | None:
    """What is in a folder under this name: the file itself, or a link to it."""
    try:
        found = os.lstat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class OpenFiles:
    """The database, its log, the log's index and hipq's lock file, as they were right after SQLite opened them. Nobody
    removes or makes one of them while a connection is open.

    `name` is the database's path as it was given: a link on the way that points elsewhere now counts as a replacement.
    `path` is where that led to, beside which SQLite keeps the others. `lock`: the lock file's descriptor, or -1."""

    def __init__(self, name: str, path: str, lock: int) -> None:
        self._database = (name, inode(name))
        self._entry = _entry(name)
        self._beside = [(path + suffix, inode(path + suffix)) for suffix in ("-wal", "-shm")]
        if lock >= 0:
            self._beside.append((f"{path}-hipq", inode(lock)))
        folder = os.path.dirname(name)
        is_link = os.path.join(os.path.realpath(folder), os.path.basename(name)) != path
        self._folder = "" if is_link or _is_mounted(path) else folder  # "": the files come and go in another one
        self._quiet: tuple[int, int, int] | None = None
        """The folder, and its time of change once the files were looked at and that time was settled."""

    @property
    def moved(self) -> bool:
        """Whether the database is no longer at its path, or a link leads elsewhere now: whoever opens that keeps other
        files beside it."""
        return _is_other(*self._database) or _entry(self._database[0]) != self._entry

    @property
    def changed(self) -> str:
        """The first of the paths that leads to another file now, or to none; "" if all are as they were.

        This is asked before and after every transaction, and four files are a lot to look at. A folder's time of change
        is another after any file in it was made, deleted or renamed: as long as it stays the same, so do the files."""
        try:
            seen = os.stat(self._folder)  # which there is none of, if it is ""
            folder = seen.st_dev, seen.st_ino, seen.st_ctime_ns
        except OSError:
            folder = None
        if folder is not None and folder == self._quiet:
            return ""
        found = next((path for path, opened in self._beside if _is_other(path, opened)), "")
        if self.moved:
            found = self._database[0]
        is_settled = folder is not None and time.time_ns() - folder[2] > settles_in(folder[2])
        self._quiet = folder if is_settled and not found else None
        return found

    @property
    def log_is_ours(self) -> bool:
        """Whether nobody who opens the database from now on needs the log that is open here."""
        return self.moved or inode(self._beside[0][0]) is None

    def delete_log(self) -> None:
        """Delete the log and its index. The next database at the path would share them with those who still have this
        one open: the last of them to notice would write this database's jobs into that one."""
        for path, opened in self._beside[:2]:
            if not _is_other(path, opened):
                with suppress(OSError):
                    os.unlink(path)


def _is_mounted(path: str) -> bool:
    """Whether the file itself is mounted here, as into a container: then it is deleted in a folder that is not seen."""
    try:
        with open("/proc/self/mountinfo", errors="replace") as mounts:
            return f" {path} " in mounts.read()
    except OSError:
        return False


def _is_other(path: str, opened: Inode | None) -> bool:
    return inode(path) != opened


def replaced(path: str) -> StoreBroken:
    return StoreBroken(
        f"{path} was deleted, renamed or replaced while this program had it open, so no job or result is "
        "acknowledged any more: put it back, or restart this program"
    )
