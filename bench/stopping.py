"""An engine that stops after so many jobs, and claims without one: what is behind them stays where it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from bench.measure import seconds
from hipq import Hipq, Job, Queue, Wait
from hipq.engine.loop import Engine
from hipq.job import transitions
from hipq.job.model import Change
from hipq.stores.claims import Claim


class Counted:
    """A queue whose handlers are counted: `work` does nothing, `ask` waits for an answer."""

    def __init__(self, app: Hipq, name: str, **options: Any) -> None:
        self.app = app
        self.queue: Queue = app.queue(name, **options)
        self.worked = 0
        """Jobs of type `work` that have run, in all."""
        self._engine: Engine | None = None
        self._last = 0
        self._kind = ""
        self._numbers = count(1)

        @self.queue.job
        def work(_: Job[Any]) -> None:
            self._ran("work")

        @self.queue.job
        def ask(_: Job[Any]) -> Wait:
            self._ran("ask")
            return Wait()

        assert self.queue.number

    def run(self, wanted: int, kind: str = "work") -> tuple[int, float]:
        """Until so many of this type have run and are saved; how many in fact (more may have begun when the last of
        them ended), and the seconds from the first look at the queue to the last commit."""
        self._kind, self._last, self._numbers = kind, wanted, count(1)
        engine = self._engine = self.app.engine([self.queue.name])
        try:
            took = seconds(engine.run)
        finally:
            engine.executor.close()
        ran = next(self._numbers) - 1
        if kind == "work":
            self.worked += ran
        return ran, took

    def _ran(self, kind: str) -> None:
        if kind == self._kind:
            if next(self._numbers) == self._last:  # one step: no two threads get the same number
                assert self._engine is not None
                self._engine.stop()
        else:
            self.worked += 1  # while others are waited for, on a few hands at most


@contextmanager
def unsynced(app: Hipq) -> Iterator[Hipq]:
    """The same database from another process's point of view, not waiting for the disk where that can be asked for: to
    sync a claim of 100 takes two to seven milliseconds, and to find them one, which would not be seen."""
    mark = "&" if "?" in app.url else "?"
    options = "" if app.url.startswith("sqlite:") else f"{mark}options=-c%20synchronous_commit%3Doff"
    another = Hipq(app.name, app.url + options)
    try:
        yield another
    finally:
        another.close()


def claim_times(app: Hipq, queue: int, rounds: int, wanted: int = 100) -> list[float]:
    """Milliseconds of claims of so many jobs. What was claimed is finished at once, as an engine does."""
    store, found = app.store, []
    engine_id = store.take_lease(600, "bench")
    for _ in range(rounds):
        now = store.now()
        began = time.perf_counter()
        won = store.turn(engine_id, [], [Claim(queue, ("work", "ask"), wanted)], now).won
        found.append((time.perf_counter() - began) * 1000)
        assert len(won) == wanted
        assert not store.turn(
            engine_id, [Change(row, transitions.succeeded(row, "null", 0, now)) for row in won], [], now
        ).lost
    store.renew_lease(engine_id, 0)
    return found
