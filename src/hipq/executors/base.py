"""Where handlers run. A runner is fed batches and takes the next execution itself when a hand is free: no future per
job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from hipq.executors.execution import Execution


class Runner(Protocol):
    def launch(self, executions: Iterable[Execution], /) -> None:
        """Run these as soon as hands are free, in this order."""

    def unstarted(self) -> list[Execution]:
        """Take back what has not been started."""

    def abandon(self, execution: Execution) -> None:
        """The execution was abandoned: stop its code if that is possible, and do not count its hand."""

    def stuck(self, steady: int) -> int:
        """Abandoned executions that still run when they should not any more, because nothing can stop a thread."""

    def close(self) -> None: ...
