"""Whether somebody is moving the jobs of a file elsewhere: a lock on a file beside it, which the kernel frees if that
process dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from hipq.errors import Conflict, StoreUnavailable


@contextmanager
def only_mover(path: str) -> Iterator[None]:
    """One at a time; and while there is one, `is_moving` says so. The kernel forgets it if it dies."""
    descriptor = os.open(_file(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"{path} is being moved already, by another process") from None
        yield
        os.unlink(_file(path))
    finally:
        os.close(descriptor)


def is_moving(path: str) -> bool:
    try:
        descriptor = os.open(_file(path), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreUnavailable(f"cannot open {_file(path)}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _file(path: str) -> str:
    return f"{path}-hipq-move"
