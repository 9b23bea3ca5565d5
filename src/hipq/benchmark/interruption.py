"""Ctrl-C, SIGTERM and a terminal that closes: a run ends, but not before it has removed what it made."""

from __future__ import annotations

import signal
from typing import Final

from hipq.engine.loop import Engine

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE: Final = 2


class Interrupted(Exception):
    """Somebody asked this run to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


class Interruption:
    """Signals are noted, and heeded between two rounds: an exception in the midst of a transaction, or of a turn, would
    leave connections and engines behind in a state nobody knows. Who asks a third time does not want to wait for that.
    """

    def __init__(self) -> None:
        self.engine: Engine | None = None
        """What runs just now, and can be stopped."""
        self._number = 0
        self._count = 0

    def __enter__(self) -> Interruption:
        self._before = {number: signal.signal(number, self._signalled) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _signalled(self, number: int, _frame: object) -> None:
        self._number = self._number or number
        self._count += 1
        if self._count > _PATIENCE:
            raise KeyboardInterrupt
        if self.engine is not None:
            self.engine.stop()

    def heed(self) -> None:
        if self._number:
            raise Interrupted(self._number)
