"""Sandboxes that a killed daemon left half started.

bubblewrap's two processes wait for each other at their start. If a daemon is killed at just that moment, the outer one
dies with it, and the inner one waits for ever. It has run nothing yet, and the next daemon that starts ends it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

from hipq.sandbox.interpreters import INSIDE

_LAUNCHED: Final = f"\0{INSIDE}/launch.py\0".encode()


def end_orphans() -> None:
    """End the half-started sandboxes of this user. In a living context the inner process is a child of the outer
    one."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return  # there are no sandboxes here
    for pid in pids:
        try:
            if _is_sandbox(pid) and _is_first_inside(pid) and not _is_sandbox(_parent(pid)):
                os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError, IndexError):
            pass  # it has ended, or belongs to another user


def _is_sandbox(pid: int) -> bool:
    return _LAUNCHED in Path(f"/proc/{pid}/cmdline").read_bytes()


def _is_first_inside(pid: int) -> bool:
    """Whether the process has the number 1 in its namespace and another number here."""
    numbers = _status(pid, "NSpid:")
    return len(numbers) > 1 and numbers[-1] == 1


def _parent(pid: int) -> int:
    return _status(pid, "PPid:")[0]


def _status(pid: int, name: str) -> list[int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next([int(word) for word in line.split()[1:]] for line in lines if line.startswith(name))
