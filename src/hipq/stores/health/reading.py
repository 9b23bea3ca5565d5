"""Reading the facts about a database: each part for itself, so that one that fails costs only itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar, TypeVar

import msgspec

from hipq.stores.asking import ticket_note
from hipq.stores.health.facts import (
    EngineHealth,
    Health,
    Holdback,
    Level,
    Part,
    QueueHealth,
    ServerHealth,
    TableHealth,
    Unread,
)
from hipq.stores.health.jobs import Jobs, listeners, unclaimed
from hipq.stores.health.parts import expected
from hipq.stores.health.words import Words
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.schema import Schema
from hipq.stores.sql.setup import INCOMING
from hipq.stores.values import EngineSeen, QueueTables

T = TypeVar("T")


class Reading(ABC):
    words: ClassVar[Words]

    def __init__(self, schema: Schema, health: Health) -> None:
        self.schema = schema
        self.sql: Sql = schema.sql
        self.conn: Any = schema.sql.conn
        self.health = health
        self._errors = (schema.errors, msgspec.MsgspecError, ValueError)

    def ask(self, query: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self.sql.rows_of(query, **values)

    def times(self) -> dict[str, Any]:
        """What statements about leases need of the time."""
        return {}

    def apart(self) -> AbstractContextManager[Any]:
        """What a part is read in, lest its failure be that of the next."""
        return nullcontext()

    def begin(self) -> None:  # noqa: B027
        """From here on all that is read is of one moment."""

    @abstractmethod
    def parts(self) -> list[Part]:
        """The tables, indexes and checks that are there, of those that are expected."""

    def part(self, check: str, read: Callable[[], T], otherwise: T, queue: str = "") -> T:
        """What there is to read; if it cannot be read, that is a fact too."""
        try:
            with self.apart():
                return read()
        except self._errors as error:
            self.health.unread.append(Unread(check, queue, str(error).strip().partition("\n")[0]))
            return otherwise

    def all(self) -> None:
        health, part = self.health, self.part
        number, accepts, identity = self.schema.version()
        health.incoming = identity.startswith(INCOMING)
        health.level = Level(number, accepts, self.schema.known[-1].number)
        if not number or not self.sql.rows_of(self.schema.there, names=["hipq_queues"]):
            return
        self.begin()
        health.engines = part("engines", self._engines, [])
        health.noted_place = part("database", self.schema.noted_place, {})
        health.place = health.place or self.schema.place()
        self._queues()
        health.found = part("indexes", self.parts, [])

    def _engines(self) -> list[EngineHealth]:
        query = f"SELECT engine_id, label, serves, {self.words.lease_left} FROM hipq_engines ORDER BY engine_id"
        return [
            EngineHealth(EngineSeen.of(*engine), left is not None and left > 0, None if left is None else float(left))
            for *engine, left in self.ask(query, self.times())
        ]

    def _note(self, queue: int) -> str:
        """Why the throttler of a queue could not be asked."""
        over = f"engine_id <> 0 AND until <= {self.words.now}"
        query = f"SELECT note, engine_id, {over} FROM hipq_tickets WHERE queue = :queue"
        return ticket_note(self.ask(query, {"queue": queue, **self.times()}))

    def _queues(self) -> None:
        """Each queue. Engines have been read before."""
        health = self.health
        assert health.level
        nothing: list[tuple[QueueTables, int]] = []
        levels = self.part("schema", self.schema.levels, nothing)
        health.expected = expected(self.schema.known, health.level.found, levels)
        alive = {engine.engine_id for engine in health.alive}
        for tables, level in levels:
            queue = QueueHealth(tables, level)
            jobs = Jobs(self.ask, tables, self.words)
            health.queues.append(queue)
            self._jobs(queue, jobs, alive)
            said = self.part("jobs", partial(self._note, tables.number), "", queue.name)
            self._limits(queue, jobs, said)
        health.answers = self.part("answers", lambda: unclaimed(self.ask, health.now, self.words), [])
        health.listeners = self.part("listeners", lambda: listeners(self.ask), {})

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


class ServerReading(Reading):
    """Reading a server's database, and what the server has counted anyway."""

    @abstractmethod
    def server(self) -> ServerHealth: ...

    @abstractmethod
    def holdbacks(self) -> list[Holdback]:
        """What may keep dead rows, or old log, from being removed."""

    @abstractmethod
    def tables(self, names: Sequence[str]) -> list[TableHealth]: ...

    def all(self) -> None:
        health, part = self.health, self.part
        health.server = part("database", self.server, None)
        health.holdbacks = part("storage", self.holdbacks, [])
        super().all()
        names = [one.name for one in health.expected if one.kind == "table"]
        health.tables = part("storage", lambda: self.tables(names), []) if names else []
