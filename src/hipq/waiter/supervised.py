"""A thread that is started again whenever it dies. There are never two of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
HEALTHY: Final = 600.0
"""Seconds after which a thread's death does not count as a repeated failure."""

_log: Final = logging.getLogger("hipq")


class Supervised:
    def __init__(self, name: str, work: Callable[[threading.Event], None]) -> None:
        """`work` runs until its event is set. If it returns or raises before, it has died."""
        self._name = name
        self._work = work
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._began = 0.0
        self._pause = FIRST_PAUSE

    def ensure_running(self, now: float) -> None:
        """Start the thread if it does not run. One thread calls this regularly, with the monotonic clock's time."""
        if self._stop.is_set() or self.is_alive:
            return
        if self._thread is not None:
            if now - self._began < self._pause:
                return
            self._pause = FIRST_PAUSE if now - self._began > HEALTHY else min(self._pause * 2, LONGEST_PAUSE)
        self._began = now
        self._thread = threading.Thread(target=self._run, name=f"hipq-waiter-{self._name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work(self._stop)
        except BaseException:
            _log.exception("the %s died, another one follows", self._name)
        else:
            if not self._stop.is_set():
                _log.warning("the %s ended by itself, another one follows", self._name)

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()
