"""Ctrl-C, SIGTERM and a closing terminal: a run ends, but not before it has removed what it created."""

from __future__ import annotations

import signal
from typing import Final

from hipq.engine.loop import Engine

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE: Final = 2


class Interrupted(Exception):
    """The run was asked to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


class Interruption:
    """Notes signals and raises between two rounds: an exception inside a transaction or a turn would leave
    connections and engines in an unknown state. A third signal ends the process at once."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        """The engine that runs now and can be stopped."""
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
