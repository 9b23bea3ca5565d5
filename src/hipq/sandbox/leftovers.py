"""What contexts have outside of their sandboxes, and what a killed daemon leaves of it for the next one to remove.

A daemon holds a lock on each of its folders while it lives, so that the next daemon can tell. bubblewrap's two
processes wait for each other at their start: if a daemon is killed at just that moment, the outer one dies with it, and
the inner one, which has run nothing yet, waits for ever.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Final

from hipq.sandbox.interpreters import INSIDE

HELD: Final = "hipq-context-held-"
_NEW: Final = "hipq-new-context-"
_LAUNCHED: Final = f"\0{INSIDE}/launch.py\0".encode()
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Scratch:
    """The scratch folders of one daemon. Thread-safe."""

    def __init__(self) -> None:
        self._locks: dict[str, int] = {}

    def folder(self) -> str:
        """A new folder, named after it is locked: otherwise a daemon that starts just now would remove it."""
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
    """Remove the folders that dead daemons of this user have left, and end their half-started sandboxes."""
    for place, clean in ((tempfile.gettempdir(), _remove_if_left), ("/proc", _end_if_orphan)):
        try:
            names = os.listdir(place)
        except OSError:
            continue  # there are none here
        for name in names:
            try:
                clean(os.path.join(place, name))
            except (OSError, ValueError, LookupError):
                pass  # it is gone by now, its daemon lives, or it belongs to another user


def _remove_if_left(folder: str) -> None:
    if not os.path.basename(folder).startswith(HELD):
        return
    lock = os.open(folder, _OPEN)
    try:
        if os.fstat(lock).st_uid == os.getuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _end_if_orphan(process: str) -> None:
    """End a process that has the number 1 in its sandbox and another number here, unless it is a child of the outer
    one, as it is in a living context."""
    if not os.path.basename(process).isdigit() or not _is_sandbox(process):
        return
    lines = Path(process, "status").read_text(errors="replace").splitlines()
    said = {name: words.split() for name, _, words in (line.partition(":") for line in lines)}
    if len(said["NSpid"]) > 1 and said["NSpid"][-1] == "1" and not _is_sandbox(f"/proc/{said['PPid'][0]}"):
        os.kill(int(os.path.basename(process)), signal.SIGKILL)


def _is_sandbox(process: str) -> bool:
    return _LAUNCHED in Path(process, "cmdline").read_bytes()
