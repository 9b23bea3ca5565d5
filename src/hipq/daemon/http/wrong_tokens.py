"""Tokens that are nobody's, or are good no more: how many came, and from where, in the audit log.

Strangers send as many as they like, and are not to fill the database. So they are counted: while they keep coming, an
entry has those of a minute, the next of two, and so on up to an hour.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from hipq.daemon.http.reply import HttpError

SOON: Final = 1.0
"""Seconds after the first one in which others come into the same entry."""
LEAST: Final = 60.0
MOST: Final = 3600.0
"""Seconds between two entries."""
ADDRESSES: Final = 10
"""Addresses that an entry names; all others are counted together."""
OTHERS: Final = "others"


class NoToken(HttpError):
    """Whoever calls has none."""

    def __init__(self) -> None:
        text = "this needs a token that is good: Authorization: Bearer TOKEN"
        super().__init__(401, text, ((b"www-authenticate", b"Bearer"),))


class WrongToken(NoToken):
    """Whoever calls has one that is nobody's, or is good no more."""


class WrongTokens:
    """Any thread may tell of one. `write` stores an entry's details."""

    def __init__(
        self, write: Callable[[Mapping[str, Any]], None], steady: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        self._write, self._steady = write, steady
        self._lock = threading.Lock()
        self._from = Counter[str]()
        self._pause = LEAST
        self._written = steady() - MOST
        self._timer: threading.Timer | None = None
        self._closed = False

    def add(self, address: str) -> None:
        with self._lock:
            known = address in self._from or len(self._from) < ADDRESSES
            self._from[address if known else OTHERS] += 1
            if self._timer is None and not self._closed:
                self._timer = threading.Timer(self._wait(), self._tell)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """Tell of those that are left."""
        with self._lock:
            timer, self._timer, self._closed = self._timer, None, True
        if timer is not None:
            timer.cancel()
            self._tell()

    def _wait(self) -> float:
        """Seconds until those that come now are told of."""
        since = self._steady() - self._written
        self._pause = LEAST if since >= MOST else min(self._pause * 2, MOST)
        return max(SOON, self._pause - since)

    def _tell(self) -> None:
        with self._lock:
            counted, self._from, self._timer = self._from, Counter(), None
            self._written = self._steady()
        if counted:
            self._write({"times": counted.total(), "from": dict(counted)})
