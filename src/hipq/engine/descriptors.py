"""Handlers that close file descriptors which are not theirs, as `os.closerange(3, 60)` does."""

from __future__ import annotations

import os


class Descriptors:
    """A descriptor that only the engine has any business with. Once it is closed, those of the database may be, too:
    their numbers are given to the next files that are opened, and what is written to the database would go there."""

    def __init__(self) -> None:
        self._descriptor, other = os.pipe2(os.O_CLOEXEC)
        os.close(other)
        self._inode = os.fstat(self._descriptor).st_ino

    @property
    def intact(self) -> bool:
        try:
            return os.fstat(self._descriptor).st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        os.close(self._descriptor)
