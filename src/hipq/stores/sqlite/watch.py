"""Noticing that another process wrote to the database: the kernel says the WAL changed, SQLite says it is committed."""

from __future__ import annotations

import os
from typing import Final

_IN_MODIFY: Final = 0x2
_IN_CREATE: Final = 0x100
_CLOSE_ON_EXEC: Final = os.O_CLOEXEC | os.O_NONBLOCK


class Watch:
    """An inotify descriptor on the folder of a file. `fd` is -1 where the kernel has none: then only polls remain."""

    def __init__(self, path: str) -> None:
        self.fd = -1
        self._name = os.path.basename(path).encode() + b"-wal"
        try:
            import ctypes

            libc = ctypes.CDLL(None, use_errno=True)
            fd = libc.inotify_init1(_CLOSE_ON_EXEC)
            folder = os.path.dirname(os.path.abspath(path)).encode()
            if fd >= 0 and libc.inotify_add_watch(fd, folder, _IN_MODIFY | _IN_CREATE) >= 0:
                self.fd = fd
        except (ImportError, OSError, AttributeError):
            pass

    def heard(self) -> bool:
        """Drain the news; whether any was about the WAL file."""
        found = False
        while True:
            try:
                found |= self._name in os.read(self.fd, 65536)
            except BlockingIOError:
                return found

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
