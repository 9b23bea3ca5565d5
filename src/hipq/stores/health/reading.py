"""Reading the facts that all databases have: each part for itself, so that one that fails costs only itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeVar

import msgspec

from hipq.stores import migrations
from hipq.stores.health.facts import Health, QueueHealth, Unread
from hipq.stores.health.jobs import Ask, Jobs, listeners, unclaimed
from hipq.stores.health.parts import expected
from hipq.stores.health.words import Words
from hipq.stores.values import QueueTables

T = TypeVar("T")


def noted(rows: Sequence[tuple[str]]) -> dict[str, str]:
    """Of a database's note of where it is: a row or none."""
    return {name: text for (facts,) in rows for name, text in msgspec.json.decode(facts, type=dict[str, str]).items()}


class Reading:
    """`errors`: what the database raises. `apart`: what a part is read in, lest its failure be that of the next."""

    def __init__(
        self,
        health: Health,
        ask: Ask,
        errors: type[Exception],
        words: Words,
        apart: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.health = health
        self._ask = ask
        self._errors = (errors, msgspec.MsgspecError, ValueError)
        self._words = words
        self._apart = apart

    def part(self, check: str, read: Callable[[], T], otherwise: T, queue: str = "") -> T:
        """What there is to read; if it cannot be read, that is a fact too."""
        try:
            with self._apart():
                return read()
        except self._errors as error:
            self.health.unread.append(Unread(check, queue, str(error).strip().partition("\n")[0]))
            return otherwise

    def queues(self, known: Sequence[migrations.Migration], note: Callable[[int], str]) -> None:
        """Each queue; `note` says why its throttler could not be asked. Engines have been read before."""
        health = self.health
        assert health.level
        nothing: list[tuple[QueueTables, int]] = []
        levels = self.part("schema", self._levels, nothing)
        health.expected = expected(known, health.level.found, levels)
        alive = {engine.engine_id for engine in health.alive}
        for tables, level in levels:
            queue = QueueHealth(tables, level)
            jobs = Jobs(self._ask, tables, self._words)
            health.queues.append(queue)
            self._jobs(queue, jobs, alive)
            said = self.part("jobs", partial(note, tables.number), "", queue.name)
            self._limits(queue, jobs, said)
        health.answers = self.part("answers", lambda: unclaimed(self._ask, health.now, self._words), [])
        health.listeners = self.part("listeners", lambda: listeners(self._ask), {})

    def _levels(self) -> list[tuple[QueueTables, int]]:
        query = 'SELECT number, app, name, "table", "schema" FROM hipq_queues ORDER BY number'
        return [(QueueTables(*row[:4]), row[4]) for row in self._ask(query, {})]

    def _jobs(self, queue: QueueHealth, jobs: Jobs, alive: set[int]) -> None:
        now, name = self.health.now, queue.name
        queue.ready = self.part("jobs", jobs.ready, [], name)
        queue.parked = self.part("jobs", jobs.parked, [], name)
        queue.scheduled = self.part("jobs", lambda: jobs.scheduled(now), [], name)
        queue.not_runnable = self.part("jobs", lambda: jobs.not_runnable(now), [], name)
        queue.waiting = self.part("jobs", lambda: jobs.waiting(now), [], name)
        queue.outstanding = self.part("jobs", lambda: jobs.outstanding(now), [], name)
        if queue.outstanding:
            queue.usual = self.part("jobs", lambda: jobs.usual(now), {}, name)
        queue.unread = self.part("answers", lambda: jobs.unread(now), [], name)
        queue.left = self.part("jobs", jobs.left, [], name)
        queue.orphans = self.part("engines", lambda: jobs.orphans(alive), [], name)
        queue.latest = self.part("clock", jobs.latest, 0, name)
        queue.crons = self.part("clock", jobs.crons, {}, name)

    def _limits(self, queue: QueueHealth, jobs: Jobs, note: str) -> None:
        queue.limits = limits = self.part("jobs", lambda: jobs.limits(note), None, queue.name)
        if limits:
            queue.heavy = self.part("jobs", lambda: jobs.heavy(limits), [], queue.name)
