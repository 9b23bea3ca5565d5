"""An outage of the other side: logged once, however often it is met, with growing pauses between tries."""

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
        """Note a failure; returns the seconds to wait before the next try, twice as many each time."""
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
