"""Noticing that another process wrote to the database: the kernel says the WAL changed, SQLite says it is committed."""

from __future__ import annotations

import os
import time
from typing import Final

from hipq.job.model import QUEUE_BITS
from hipq.stores.sqlite.connection import Connection
from hipq.stores.waker import ELSEWHERE, NO_NEWS, NOTIFIED, News, Waker

SYNC_SECONDS: Final = 1.0
"""The longest wait, in seconds, for a commit whose pages were seen to be written."""

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
        """Read all events. Returns whether one was about the WAL file."""
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


def _elsewhere() -> News:
    """A number in place of a job's id, on which all processes agree, and another one a second later."""
    return {ELSEWHERE: ("", int(time.time()) << QUEUE_BITS)}


class FileWaker(Waker):
    """Wakes an engine when another process has committed something to the file."""

    def __init__(self, db: Connection) -> None:
        super().__init__()
        self._db = db
        self._watch: Watch | None = None
        self._version_seen = 0

    def wait(self, seconds: float) -> News:
        if self._watch is None and self._db.path:
            self._watch = Watch(self._db.path)
            self._version_seen = self._version()
            return NOTIFIED  # what was written between the last look and this moment would not show: look again
        if self._watch is None or self._watch.fd < 0:
            return super().wait(seconds)
        self._watch.heard()  # our own writes; whatever another process wrote meanwhile shows in the version
        if self._changed():
            return _elsewhere()
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            notified, news = self.sleep(left, (self._watch.fd,))
            if notified:
                return NOTIFIED
            if not news:
                return NO_NEWS
            if self._watch.heard() and self._committed(min(left, SYNC_SECONDS)):
                return _elsewhere()
        return NO_NEWS

    def _version(self) -> int:
        with self._db.reading() as conn:
            return int(conn.execute("PRAGMA data_version").fetchone()[0])

    def _changed(self) -> bool:
        version = self._version()
        changed = version != self._version_seen
        self._version_seen = version
        return changed

    def _committed(self, seconds: float) -> bool:
        """The kernel reports the write before SQLite shows the commit, which comes after the disk's sync: look again
        soon, and less often the longer it takes; but a handler that ended need not wait for that."""
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds and not self.has_done:
            if self._changed() or self.has_news:  # a write of our own makes no new version
                return True
            time.sleep(min(max(0.0002, passed / 5), 0.005))
        return False

    def close(self) -> None:
        super().close()
        if self._watch:
            self._watch.close()
