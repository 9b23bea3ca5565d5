"""Cron: what a schedule's ticks add, once for all engines.

The store keeps each schedule's last tick. Whoever finds the next one due adds its job and moves that on, in one
transaction, if nobody has: so each tick is added once, by one engine, or, after a crash, by another.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from hipq.engine.queues import EngineQueue, Schedule
from hipq.engine.setup import Setup
from hipq.errors import StoreError
from hipq.job.cron import after, between, latest
from hipq.job.event_names import EngineEvent
from hipq.job.when import SECOND

SET_BACK: Final = 86_400 * SECOND
"""A last tick further ahead than this is of a clock that was wrong: the schedule begins anew. Up to then the ticks
between now and the last one were added already: by this clock before it was set back, or by a process whose clock is
ahead."""
LATE: Final = 60 * SECOND
"""A tick found later than this was missed: nobody was there."""
AT_ONCE: Final = 100
"""Missed ticks added in one step, where all are wanted."""


@dataclass(slots=True)
class _Known:
    last: int
    next: int


class Ticks:
    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._store = setup.store
        self._known: dict[tuple[int, str], _Known] = {}

    def turn(self, now: int, without: Container[int] = ()) -> bool:
        """Add what is due; whether anything was."""
        found = False
        for queue in self._setup.queues:
            if queue.number in without:
                continue
            for schedule in list(queue.crons):
                known = self._known.get((queue.number, schedule.name)) or self._look(queue, schedule, now)
                if known.last > now + SET_BACK and known.last > self._store.now() + SET_BACK:  # `now` may be long ago
                    self._store.tick(queue.number, schedule.name, known.last, now, [])
                    known = self._look(queue, schedule, now)
                if 0 < known.next <= now:
                    found |= self._tick(queue, schedule, known.last, now)
        return found

    def next(self, without: Container[int] = ()) -> int:
        """When the next tick is due; 0 = never."""
        known = (one.next for (queue, _), one in self._known.items() if queue not in without)
        return min(filter(None, known), default=0)

    def _look(self, queue: EngineQueue, schedule: Schedule, now: int) -> _Known:
        last = self._store.cron(queue.number, schedule.name, now)
        known = self._known[queue.number, schedule.name] = _Known(last, after(schedule.cron, last))
        return known

    def _tick(self, queue: EngineQueue, schedule: Schedule, last: int, now: int) -> bool:
        ticks = between(schedule.cron, last, now, AT_ONCE) if schedule.missed == "all" else []
        ticks = ticks or [latest(schedule.cron, last, now)]
        wanted = [tick for tick in ticks if schedule.missed != "skip" or now - tick <= LATE]
        try:
            news = [schedule.make(tick) for tick in wanted]
        except StoreError:
            raise
        except Exception as error:  # a limit that was lowered, a lane_by that raises: it must not stop the engine
            self._setup.events.emit(EngineEvent.TICK_FAILED, now, queue.name, schedule=schedule.name, error=str(error))
            wanted, news = [], []
        stored = self._store.tick(queue.number, schedule.name, last, ticks[-1], news)
        self._look(queue, schedule, now)  # another engine may have been first
        if stored is None:
            return False
        self._setup.added(news, stored)
        for tick, one in zip(wanted, stored, strict=True):
            event = EngineEvent.TICK_SKIPPED if one.duplicate else EngineEvent.TICK
            self._setup.events.emit(event, now, queue.name, schedule=schedule.name, tick=tick, id=one.id)
        return True
