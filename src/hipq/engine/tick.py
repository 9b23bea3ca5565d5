"""Cron: add the jobs of schedules, once for all engines.

The store has each schedule: the definition in code and that of an operator, its last tick and its next. The engine that
finds the next tick due adds its job and moves the schedule on, in one transaction, unless another was faster. So each
tick is added once: by one engine or, after a crash, by another.

An engine reads a queue's schedules when it starts, and afterwards those that were changed, once a peek has said that
some were. What it remembers serves only to wake it in time: before it adds a tick it reads that schedule again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hipq.engine.queues import EngineQueue
from hipq.engine.setup import Setup
from hipq.errors import StoreError
from hipq.job import ticks
from hipq.job.event_names import EngineEvent
from hipq.job.model import New
from hipq.job.schedule import Schedule, ScheduleChange
from hipq.stores.claims import ANY_TYPE, Peek

AT_ONCE: Final = 100
"""Schedules, and ticks of them, in one step."""
PUBLISHED: Final = 1000
"""Schedules in code that are written in one transaction."""


@dataclass(slots=True)
class _Known:
    """What is known of a queue's schedules."""

    queue: EngineQueue
    version: int = 0
    """The version up to which changes were read."""
    published: int = 0
    """How many of the schedules in code are stored."""
    mine: dict[str, Schedule] = field(default_factory=dict)
    """The schedules that this engine ticks."""
    next: int = 0
    """When the first of them ticks next; 0 = never."""

    def learn(self, found: Iterable[Schedule]) -> None:
        """Note schedules, as far as this engine ticks them: those in code, if its code has them; those that an operator
        added, if it has their job type."""
        declared = self.queue.crons
        types = frozenset(self.queue.types)
        serves_all = ANY_TYPE in types
        for one in found:
            self.mine.pop(one.name, None)
            if one.name in declared if one.origin == "code" else serves_all or one.job_type in types:
                self.mine[one.name] = one
        self.look()

    def look(self) -> None:
        self.next = min((one.next for one in self.mine.values() if one.next), default=0)


class Ticks:
    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._store = setup.store
        self._known = {queue.number: _Known(queue) for queue in setup.queues if queue.make is not None}
        self._now = 0

    def turn(self, now: int, without: Container[int] = ()) -> bool:
        """Add the jobs of due ticks. Returns whether there were any."""
        is_back, self._now = now < self._now, now
        found = False
        for number, known in self._known.items():
            if number in without:
                continue
            if known.published != len(known.queue.crons):
                self._publish(known, now)
            if is_back:
                self._begin_anew(known, now)
            if 0 < known.next <= now:
                found |= self._tick(known, now)
        return found

    def peeked(self, peeks: Sequence[Peek], now: int) -> None:
        """Read the schedules that were changed."""
        for peek in peeks:
            known = self._known.get(peek.queue)
            if known is not None and peek.crons > known.version:
                self._read(known, now)
                known.version = max(known.version, peek.crons)  # a changed schedule may have been removed since

    def next(self, without: Container[int] = ()) -> int:
        """When the next schedule ticks; 0 = never."""
        return min((one.next for number, one in self._known.items() if one.next and number not in without), default=0)

    def _publish(self, known: _Known, now: int) -> None:
        """Write the schedules in this program's code to the database."""
        number, declared = known.queue.number, list(known.queue.crons.values())
        there = {one.name: one for one in self._store.schedules(number)}
        changes = list(ticks.published(declared, there, now))
        for start in range(0, len(changes), PUBLISHED):  # if another engine has written them meanwhile, that is as good
            self._store.change_schedules(number, changes[start : start + PUBLISHED])
        known.published, known.version = len(declared), 0
        known.mine.clear()
        self._read(known, now)

    def _read(self, known: _Known, now: int) -> None:
        found = self._store.schedules(known.queue.number, known.version)
        known.version = max((one.version for one in found), default=known.version)
        known.learn(found)
        self._begin_anew(known, now)

    def _begin_anew(self, known: _Known, now: int) -> None:
        ahead = [one for one in known.mine.values() if ticks.is_ahead(one, now)]
        if not ahead or not (ahead := [one for one in ahead if ticks.is_ahead(one, self._store.now())]):
            return  # `now` may be long past
        self._store.change_schedules(known.queue.number, [ScheduleChange(one, ticks.anew(one, now)) for one in ahead])
        known.learn(self._store.schedules(known.queue.number, names=[one.name for one in ahead]))

    def _tick(self, known: _Known, now: int) -> bool:
        number = known.queue.number
        names = sorted(one.name for one in known.mine.values() if 0 < one.next <= now)[:AT_ONCE]
        found = self._store.schedules(number, names=names)
        if len(found) < len(names):
            self._forget(known, set(names) - {one.name for one in found})
        known.learn(found)
        due = [known.mine[one.name] for one in found if one.name in known.mine and 0 < one.next <= now]
        looked = [(one, ticks.due(one, now, max(AT_ONCE // len(due), 1))) for one in due]
        added = [self._made(known.queue, one, each, now) for one, each in looked]
        changes = [
            ScheduleChange(one, ticks.ticked(one, each[-1]), tuple(news.values()))
            for (one, each), news in zip(looked, added, strict=True)
        ]
        if not changes:
            return False
        is_first = False
        for change, news, stored in zip(changes, added, self._store.change_schedules(number, changes), strict=True):
            if stored is None or change.after is None:
                continue  # another engine was first: the next turn reads what it has done
            is_first, known.mine[change.name] = True, change.after
            self._setup.added(change.jobs, stored)
            for tick, one in zip(news, stored, strict=True):
                event = EngineEvent.TICK_SKIPPED if one.duplicate else EngineEvent.TICK
                self._setup.events.emit(event, now, known.queue.name, schedule=change.name, tick=tick, id=one.id)
        known.look()
        return is_first

    def _forget(self, known: _Known, gone: set[str]) -> None:
        """Forget schedules that somebody has removed. One that this program's code has is stored anew."""
        for name in gone:
            del known.mine[name]
        if gone & known.queue.crons.keys():
            known.published = 0

    def _made(self, queue: EngineQueue, schedule: Schedule, each: Sequence[int], now: int) -> dict[int, New]:
        """The jobs of these ticks, by tick."""
        assert queue.make is not None
        try:
            return {tick: queue.make(schedule, tick) for tick in ticks.wanted(schedule, each, now)}
        except StoreError:
            raise
        except Exception as error:  # a limit that was lowered, a lane_by that raises: it must not stop the engine
            self._setup.events.emit(EngineEvent.TICK_FAILED, now, queue.name, schedule=schedule.name, error=str(error))
            return {}
