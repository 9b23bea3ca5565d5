"""Folders that contexts need outside of a sandbox. A daemon holds a lock on each of its folders while it lives, so
that the next daemon can tell and remove what a killed one has left behind."""

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
    """The scratch folders of one daemon. Thread-safe."""

    def __init__(self) -> None:
        self._locks: dict[str, int] = {}

    def folder(self) -> str:
        """A new folder. It gets its name after it is locked: otherwise a daemon that starts at this moment would
        remove it."""
        new = Path(tempfile.mkdtemp(prefix=_NEW))
        lock = os.open(new, _OPEN)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        made = str(new.rename(new.with_name(HELD + new.name.removeprefix(_NEW))))
        self._locks[made] = lock
        return made

    def remove(self, folder: str) -> None:
        """Remove a folder, whether or not it still exists."""
        shutil.rmtree(folder, ignore_errors=True)
        lock = self._locks.pop(folder, -1)
        if lock >= 0:
            os.close(lock)


def sweep() -> None:
    """Remove the folders that dead daemons of this user have left."""
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
        return  # it is gone by now, or not ours
    try:
        if os.fstat(lock).st_uid == os.getuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        pass  # its daemon lives
    finally:
        os.close(lock)
