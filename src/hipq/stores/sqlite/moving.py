"""Whether somebody is moving the jobs of a file elsewhere: a lock on a file beside it, which the kernel frees if that
process dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hipq import files
from hipq.errors import Conflict

_TRIES: Final = 20


@contextmanager
def only_mover(path: str) -> Iterator[None]:
    """Held by the process that moves the jobs. There is one at a time, and meanwhile `is_moving` says so."""
    descriptor = files.make(_file(path))
    try:
        for left in reversed(range(_TRIES)):  # somebody may just be asking whether there is one
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not left:
                    raise Conflict(f"{path} is being moved already, by another process") from None
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)  # the file stays: were it removed, two could each have one of that name


def is_moving(path: str) -> bool:
    try:
        descriptor = os.open(_file(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # there is none, or it is not for us to see
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _file(path: str) -> str:
    return f"{os.path.realpath(path)}-hipq-move"
