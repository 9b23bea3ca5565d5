"""Folders that contexts need outside of a sandbox. A daemon holds a lock on each of its own while it lives: so the next
one can tell what a daemon that was killed has left behind, and takes it away."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

HELD: Final = "hipq-context-held-"
_NEW: Final = "hipq-new-context-"
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Scratch:
    """Of one daemon. Any thread may ask."""

    def __init__(self) -> None:
        self._locks: dict[str, int] = {}

    def folder(self) -> str:
        """A new one. It gets its name when it is locked: else a daemon that starts in this moment takes it away."""
        new = Path(tempfile.mkdtemp(prefix=_NEW))
        lock = os.open(new, _OPEN)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        made = str(new.rename(new.with_name(HELD + new.name.removeprefix(_NEW))))
        self._locks[made] = lock
        return made

    def remove(self, folder: str) -> None:
        """Whether or not it is there still. Once or more often."""
        shutil.rmtree(folder, ignore_errors=True)
        lock = self._locks.pop(folder, -1)
        if lock >= 0:
            os.close(lock)


def sweep() -> None:
    """Take away what daemons of this user have left that are no more."""
    try:
        found = [name for name in os.listdir(tempfile.gettempdir()) if name.startswith(HELD)]
    except OSError:
        return
    for name in found:
        _remove_if_left(os.path.join(tempfile.gettempdir(), name))


def _remove_if_left(folder: str) -> None:
    try:
        lock = os.open(folder, _OPEN)
    except OSError:
        return  # it is gone by now, or is none of ours
    try:
        if os.fstat(lock).st_uid == os.getuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        pass  # its daemon lives
    finally:
        os.close(lock)
