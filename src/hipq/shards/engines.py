"""The engines of one program over several databases: one for each shard, in a thread of its own, so that a shard which
is slow or away holds up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from hipq.engine.executor import LocalExecutor
from hipq.engine.loop import Engine
from hipq.errors import StoreUnavailable
from hipq.events import Events
from hipq.executors.execution import Execution
from hipq.shards.lending import Lender
from hipq.shards.shard import AGAIN, Shard
from hipq.shards.shard_set import ShardSet

AWAY: Final = 3.0
"""Seconds after which work that is to end when nothing is left does not wait for a shard that is away."""
LOOK: Final = 0.05
"""Seconds between two looks whether all engines have run out of work."""


class _OfShard:
    """The engine of one shard, which is made when its database is there."""

    shard: Shard

    def __init__(self, executor: LocalExecutor, make: Callable[[], Engine]) -> None:
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
        """Whether it has nothing to do; or its database is away for longer than a moment, and nothing is under way."""
        if self.engine is None or (self.engine.is_empty and self.shard.away_for > AWAY):
            return self.shard.away_for > AWAY
        return self.engine.idle and self.engine.is_empty


class ShardEngines:
    def __init__(self, events: Events) -> None:
        self.events = events
        self._parts: dict[str, _OfShard] = {}
        """By the name of the shard."""
        self._stops = 0
        self._stopped = threading.Event()

    def add(self, name: str, executor: LocalExecutor, make: Callable[[], Engine]) -> None:
        """What executes the jobs of a shard, and what makes its engine."""
        self._parts[name] = _OfShard(executor, make)

    def begin(self, shards: ShardSet, queues: Sequence[int]) -> None:
        """Work on these queues in these shards from `run` on."""
        for shard in shards.shards:
            if shard.name in self._parts:
                self._parts[shard.name].shard = shard
        self._shards, self._lender = shards, Lender(shards, queues)

    def taken_beside(self, name: str) -> int:
        """How many hands the engines of the other shards have."""
        beside = [part.engine for other, part in self._parts.items() if other != name and part.engine]
        return sum(one.run.is_under_way for engine in beside for one in list(engine.in_flight.values()))

    def stop(self) -> None:
        """Ask all engines to stop; ask twice to stop at once."""
        self._stops += 1
        self._stopped.set()
        for part in self._parts.values():
            part.stop()

    def run(self, until_empty: bool = False) -> None:
        threads = [
            threading.Thread(target=part.run, args=(until_empty,), name=f"hipq-{part.shard.name}", daemon=True)
            for part in self._parts.values()
        ]
        beside = threading.Thread(target=self._lender.run, args=(self._stopped,), name="hipq-lender", daemon=True)
        for thread in (beside, *threads):
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                time.sleep(LOOK)
                has_ended = not all(thread.is_alive() for thread in threads)  # failed, or of no use any more
                if not self._stops and (has_ended or (until_empty and self._is_empty())):
                    self.stop()
        finally:
            if not self._stops:
                self.stop()
            for thread in threads:
                thread.join()
            beside.join(LOOK)  # it may wait for a shard that is away
        if failed := next((part.failed for part in self._parts.values() if part.failed), None):
            raise failed

    def _is_empty(self) -> bool:
        """Whether nothing is left, seen twice: a job that has just ended may have added one to another shard. And no
        limit has room elsewhere for what could not start."""
        if not self._is_idle():
            return False
        time.sleep(LOOK)
        with suppress(StoreUnavailable):
            return self._is_idle() and not self._lender.look()
        return False

    def _is_idle(self) -> bool:
        return self._shards.fetcher.is_idle and all(part.is_idle for part in self._parts.values())

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
        return [part.engine for part in self._parts.values() if part.engine]

    def close(self) -> None:
        for part in self._parts.values():
            if part.engine:
                part.engine.close()
            else:
                part.executor.close()
