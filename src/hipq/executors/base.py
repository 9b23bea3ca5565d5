"""Where handlers run. A runner is fed batches and takes the next job itself when a hand is free: no future per job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

Task = Any
"""A job in memory. A runner reads its `started`, `stopped` and `bears_until`, writes its `abandoned` and `handle`."""


class Runner(Protocol):
    def launch(self, tasks: Iterable[Task]) -> None:
        """Run these as soon as hands are free, in this order."""

    def unstarted(self) -> list[Task]:
        """Take back what has not been started."""

    def abandon(self, task: Task) -> None:
        """Nobody waits for this one any more: stop it if that is possible, and do not count it."""

    def stuck(self, steady: int) -> int:
        """Abandoned tasks that still run when they should not any more, because nothing can stop a thread."""

    def close(self) -> None: ...
