"""What is wrong with the other side: said once, however often it is met, and how long to wait for it."""

from __future__ import annotations

import logging
import random
import threading
from typing import Final

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0

_log: Final = logging.getLogger("hipq")


class Outage:
    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._error = ""
        self._pause = FIRST_PAUSE

    def down(self, error: str) -> float:
        """It failed; the seconds until it is worth another try, twice as many each time."""
        with self._lock:
            is_news, self._error = error != self._error, error
            pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        if is_news:
            _log.warning("%s: trying again until it works: %s", self._name, error)
        return pause * random.uniform(0.75, 1.25)

    def up(self) -> None:
        with self._lock:
            was_down, self._error, self._pause = bool(self._error), "", FIRST_PAUSE
        if was_down:
            _log.info("%s: it works again", self._name)
