"""The engines of one program over several databases: one for each shard, in a thread of its own, so that a shard which
is slow or away holds up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from hipq.engine.executor import LocalExecutor
from hipq.engine.loop import Engine
from hipq.errors import StoreUnavailable
from hipq.events import Events
from hipq.executors.execution import Execution
from hipq.shards.shard import AGAIN, Shard

LOOK: Final = 0.05
"""Seconds between two looks whether all engines have run out of work."""


ToMake = tuple[Shard, LocalExecutor, Callable[[], Engine]]
"""A shard, what executes its jobs in this program, and what makes its engine."""


class _OfShard:
    """The engine of one shard, which is made when its database is there."""

    def __init__(self, shard: Shard, executor: LocalExecutor, make: Callable[[], Engine]) -> None:
        self.shard = shard
        self.executor = executor
        self.engine: Engine | None = None
        self.failed: BaseException | None = None
        self._make = make
        self._stops = 0
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stops += 1
        self._stopped.set()
        if self.engine:
            self.engine.stop()

    def run(self, awaited: bool) -> None:
        """Work until asked to stop. `awaited`: somebody waits for the queues to be empty."""
        try:
            while not self._stopped.is_set():
                if self.engine is None and not self._made():
                    self._stopped.wait(AGAIN)
                elif self.engine:
                    self.engine.timetable.awaited = awaited
                    self.engine.run()
                    return
        except BaseException as error:
            self.failed = error

    def _made(self) -> bool:
        try:
            self.engine = self._make()
        except StoreUnavailable:
            return False
        for _ in range(self._stops):
            self.engine.stop()
        return True

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do, or nobody can know."""
        return bool(self.shard.away) or bool(self.engine and self.engine.idle and self.engine.is_empty)


class ShardEngines:
    def __init__(self, events: Events, shards: Sequence[ToMake], tend: Callable[[], None]) -> None:
        """`tend`: what has to be done for all shards together every so often."""
        self.events = events
        self._parts = [_OfShard(*one) for one in shards]
        self._tend = tend
        self._stops = 0

    def stop(self) -> None:
        """Ask all engines to stop; ask twice to stop at once."""
        self._stops += 1
        for part in self._parts:
            part.stop()

    def run(self, until_empty: bool = False) -> None:
        threads = [
            threading.Thread(target=part.run, args=(until_empty,), name=f"hipq-{part.shard.name}", daemon=True)
            for part in self._parts
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(LOOK)
            if not self._stops:
                self._tend()
                if any(part.failed for part in self._parts) or (until_empty and self._is_empty()):
                    self.stop()
        if failed := next((part.failed for part in self._parts if part.failed), None):
            raise failed

    def _is_empty(self) -> bool:
        """Whether nothing is left, seen twice: a job that has just ended may have added one to another shard."""
        if not all(part.is_idle for part in self._parts):
            return False
        time.sleep(LOOK)
        return all(part.is_idle for part in self._parts)

    @property
    def stopping(self) -> int:
        return self._stops

    @property
    def unfit(self) -> str:
        return next((engine.unfit for engine in self._engines if engine.unfit), "")

    @property
    def torn(self) -> bool:
        return any(engine.torn for engine in self._engines)

    @property
    def in_flight(self) -> dict[int, Execution]:
        return {job: execution for engine in self._engines for job, execution in engine.in_flight.items()}

    @property
    def _engines(self) -> list[Engine]:
        return [part.engine for part in self._parts if part.engine]

    def close(self) -> None:
        for part in self._parts:
            if part.engine:
                part.engine.close()
            else:
                part.executor.close()
