"""Engines turned by hand: everything that is due runs in the thread of the test, each thing at its own moment.

Time passes in jumps, from one moment at which something is due to the next, and never while a handler runs. A year with
one job a day is 365 jumps.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from hipq.app import Hipq
from hipq.engine.loop import Engine
from hipq.engine.queues import EngineQueue
from hipq.engine.setup import Setup
from hipq.engine.throttle import LAP
from hipq.errors import StoreBusy, StoreError
from hipq.executors.execution import Execution
from hipq.job.when import LONGEST, SECOND, to_datetime
from hipq.job_type import JobType
from hipq.testing.clock import HandClock
from hipq.testing.inline import InlineExecutor, InlineLauncher, Ran, called, is_for_the_test
from hipq.testing.replies import Replies
from hipq.testing.sent import Outbox, Sender

MINUTE: Final = 60 * SECOND
"""A throttler that says nothing of a job is asked again at every full minute; one in production, every second."""
HOUR: Final = 3600.0
"""Seconds after which the engine would ask by itself."""
LAPS: Final = 100
"""Pages of jobs that a throttler is asked about one after the other without any of them starting."""
RESTLESS: Final = 1_000
"""Turns at one moment in which nothing runs, and that are too many;"""
IN_VAIN: Final = 10
"""and times that something is due and cannot be had."""
A_DAY: Final = 86_400.0

Steps = Generator[tuple[InlineLauncher, Any], None, None]
"""Each step is a handler to be awaited, by whoever has an event loop."""


@dataclass
class Driven:
    """An app's engine, and what it serves."""

    app: Hipq
    engine: Engine
    hands: InlineExecutor
    serves: dict[str, tuple[str, ...]]
    calendar: int = 0
    """When it has something to do again; 0 = never,"""
    asks: int = 0
    """and when a throttler is to be asked, on the steady clock."""

    def job_type(self, execution: Execution) -> JobType:
        (queue,) = (queue for queue in self.app.queues if queue.name == execution.spec.queue)
        (found,) = (one for one in queue.job_types if one.name == execution.row.job_type)
        return found


@dataclass
class Drive:
    apps: Sequence[Hipq]
    clock: HandClock
    replies: Replies
    outbox: Outbox
    max_jobs: int
    ran: list[Ran] = field(default_factory=list)
    _driven: dict[int, Driven] = field(default_factory=dict)
    _here: int = 0
    """Jobs that have run at this moment."""
    _thrown: list[BaseException] = field(default_factory=list)
    """What throttlers raised."""

    def steps(self, until: int, raise_errors: bool) -> Steps:
        """Everything that is due until then."""
        self.ran, self._thrown = [], []
        everybody = [driven for app in self.apps if (driven := self._current(app))]
        yield from self._rest(everybody, raise_errors, ask=True)  # what throttlers go by may be another by now
        while 0 < (moment := self._next(everybody)) <= until:
            self._pass(moment - self.clock.now())
            yield from self._rest(everybody, raise_errors, ask=moment % MINUTE == 0)
        self._pass(until - self.clock.now())

    def close(self) -> None:
        """The engines leave. Their stores are closed by the apps."""
        for driven in self._driven.values():
            with suppress(StoreError):  # the test may have closed it
                driven.app.store.renew_lease(driven.engine.engine_id, 0)
        self._driven.clear()

    # -- the moments ------------------------------------------------------------------------------------------------
    def _next(self, everybody: Sequence[Driven]) -> int:
        """The next moment at which something happens; 0 = never."""
        now, steady = self.clock.now(), self.clock.steady()
        times = [driven.calendar for driven in everybody] + [self.replies.next]
        for driven in everybody:
            if driven.asks:
                times += [now + max(driven.asks - steady, LAP), now - now % MINUTE + MINUTE]
        return min(filter(None, times), default=0)

    def _pass(self, micros: int) -> None:
        if micros > 0:
            self.clock.advance(seconds=micros // SECOND)  # whole ones apart: a float is not that exact
            self.clock.advance(seconds=micros % SECOND / SECOND)

    def _rest(self, everybody: Sequence[Driven], raise_errors: bool, ask: bool) -> Steps:
        """Until nothing is due at this moment. What one app does may give another work. `ask`: throttlers too, about
        jobs that they have said nothing of."""
        self._here = 0
        for driven in everybody:
            driven.engine.setup.poll = 0.0 if ask else HOUR
        while True:
            before = len(self.ran)
            for driven in everybody:
                yield from self._settle(driven, raise_errors)
            if self.replies.deliver(self.clock.now()):
                continue
            if len(everybody) == 1 or len(self.ran) == before:
                return

    def _settle(self, driven: Driven, raise_errors: bool) -> Steps:
        """Turn after turn, until this engine has nothing to do at this moment."""
        engine, laps, idle, in_vain = driven.engine, 0, 0, 0
        engine.wake()
        while True:
            pause = engine.turn()
            engine.setup.poll = HOUR
            if driven.hands.pending:
                yield from self._run(driven, raise_errors)
                idle = in_vain = 0
                continue
            idle += 1
            if raise_errors and self._thrown:
                raise self._thrown.pop()
            if (pause and engine.in_flight) or in_vain > IN_VAIN:
                self._step(5 * SECOND)  # when the engine tries again
                raise StoreBusy(
                    "a transaction that is still open holds a job that this test has to change: end it first"
                )
            if idle > RESTLESS:
                raise RuntimeError(f"the engine finds no rest: {RESTLESS} turns at one moment, in which nothing ran")
            if not pause:
                continue
            driven.calendar, driven.asks = engine.ahead()
            if 0 < driven.calendar <= self.clock.now():
                in_vain += 1
                continue
            if not 0 < driven.asks <= self.clock.steady() + LAP or laps >= LAPS:
                return
            laps += 1
            self._step(LAP)

    def _step(self, micros: int) -> None:
        """The engine's patience, and not the calendar: only the steady clock moves."""
        self.clock.advance(seconds=micros / SECOND)
        self.clock.step(-micros / SECOND)

    # -- the jobs ---------------------------------------------------------------------------------------------------
    def _run(self, driven: Driven, raise_errors: bool) -> Steps:
        hands, launcher = driven.hands, driven.hands.launcher
        while hands.pending:
            execution = hands.pending.pop(0)
            row, name, error = execution.row, called(execution), None
            self.outbox.sender = Sender(driven.app, execution)
            try:
                if execution.is_async and not execution.only_decides:
                    yield launcher, execution
                else:
                    launcher.run(execution)
                error = launcher.raised
            finally:
                self.outbox.sender = None
                if execution.run.result is None:
                    hands.pending.insert(0, execution)  # nobody could await it: it has not begun
                else:
                    hands.ended.append(execution)
                    if name:
                        at, said = to_datetime(self.clock.now()), execution.run.reported
                        self.ran.append(
                            Ran(name, row.job_key, row.id, at, row.attempt, error, said.fraction if said else None)
                        )
            if is_for_the_test(error):
                assert error
                raise error
            self.replies.asked(driven.job_type(execution), execution, self.clock.now())
            self._here += bool(name)
            if raise_errors and error:
                self._save(driven.engine)
                raise error
            if self._here > self.max_jobs:
                self._save(driven.engine)
                raise RuntimeError(self._endless())

    def _save(self, engine: Engine) -> None:
        """What has ended, without beginning anything else."""
        hands, engine.setup.concurrency = engine.setup.concurrency, 0
        try:
            engine.turn()
        finally:
            engine.setup.concurrency = hands

    def _endless(self) -> str:
        last = ", ".join(f"{run.name} {run.key!r}" for run in self.ran[-3:])
        return (
            f"{self._here} jobs have run at {to_datetime(self.clock.now()).isoformat()} and no time has passed: does "
            f"one add itself without a delay? The last were {last}. harness(..., max_jobs=) lets more run."
        )

    # -- the engines ------------------------------------------------------------------------------------------------
    def _current(self, app: Hipq) -> Driven | None:
        """The app's engine; another one, if the app has had queues or code added to it."""
        serves = {queue.name: tuple(one.name for one in queue.job_types if one.spec.fn) for queue in app.queues}
        driven = self._driven.get(id(app))
        if driven and driven.serves == serves:
            return driven
        if driven:
            driven.app.store.renew_lease(driven.engine.engine_id, 0)
        if not serves:
            return None
        self._driven[id(app)] = driven = self._new(app, serves)
        return driven

    def _new(self, app: Hipq, serves: dict[str, tuple[str, ...]]) -> Driven:
        chains = {queue.name: queue.chained for queue in app.queues}
        hands = InlineExecutor(InlineLauncher(self.clock.now, self.clock.steady, lambda queue: chains[queue]))
        real = app.database.kind != "sqlite"  # there leases go by real time, and must not long outlive a killed test
        setup = Setup(
            app.store,
            [self._observed(queue.for_engine()) for queue in app.queues],
            hands,
            app.events,
            self.clock.steady,
            concurrency=1,
            lease=A_DAY if real else LONGEST,
            chance=random.Random(0),
            added=app.added,
            deliver=lambda kept: app.answers.deliver_inserted(kept),
            run_spawned=lambda work: work(),
        )
        return Driven(app, Engine(setup), hands, serves)

    def _observed(self, queue: EngineQueue) -> EngineQueue:
        """The queue, with a throttler whose errors are kept."""
        throttler = queue.throttler
        if throttler is None:
            return queue

        def asked(*arguments: Any) -> Any:
            try:
                return list(throttler(*arguments) or ())  # all of it now: it may be a generator
            except BaseException as error:
                self._thrown.append(error)
                raise

        return replace(queue, throttler=asked)
