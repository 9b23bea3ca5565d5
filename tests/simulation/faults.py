"""Faults by seed: a store that crashes its engine, loses acknowledgements, goes away, or takes very long."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hipq.errors import StoreUnavailable
from hipq.stores.forwarding import VERBS, Forwarding
from hipq.stores.waker import Waking

if TYPE_CHECKING:
    from tests.simulation.life import Life
    from tests.simulation.world import World

SPARED = {
    "close": "nobody calls a store that is closed",
    "now": "the clock of a SQLite file is the machine's, which does not fail",
}
"""Verbs that see no faults, and why."""
assert SPARED.keys() <= VERBS


class Crash(BaseException):
    """The process is gone: nothing after this line runs, nothing in memory is left."""


class Disk:
    """The connection underneath the store; while the disk is `full`, no transaction commits."""

    def __init__(self, conn: sqlite3.Connection, begins: Callable[[], None]) -> None:
        self._conn = conn
        self._begins = begins
        """Called before a transaction has its lock: others may be faster."""
        self.full = False

    def execute(self, statement: str, *values: Any) -> Any:
        if statement == "BEGIN IMMEDIATE":
            self._begins()
        if self.full and statement == "COMMIT":
            self._conn.execute("ROLLBACK")
            raise sqlite3.OperationalError("simulated: database or disk is full")
        return self._conn.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)


class FaultyStore(Forwarding):
    """The real store as one engine (or client) reaches it. Between any two calls anything may happen."""

    def __init__(self, world: World, life: Life | None) -> None:
        self._world = world
        self._life = life

    @property
    def url(self) -> str:
        return self._world.store.url

    @property
    def waker(self) -> Waking:
        return self._world.store.waker

    @property
    def at_once(self) -> int:
        return self._world.store.at_once

    @property
    def changes_at_once(self) -> int:
        return self._world.store.changes_at_once

    def _call(self, verb: str, given: tuple[Any, ...], more: dict[str, Any]) -> Any:
        if verb in SPARED:
            return getattr(self._world.store, verb)(*given, **more)
        world = self._world
        fault = world.draw_fault(verb, self._life is not None)
        world.trace(self._life, f"{verb}{' ' + given[1] if verb == 'due' else ''}{' (' + fault + ')' if fault else ''}")
        if fault == "crash before":
            raise Crash
        if fault == "away":
            raise StoreUnavailable("simulated: the store is away")
        if fault in ("slow", "stall"):
            world.stall(self._life, longer_than_lease=fault == "stall")
        if verb == "ask":
            given = (*given[:4], min(given[4], world.scene.page), given[5])
        world.call += 1
        world.actor = self._life.engine.engine_id if self._life else 0
        if verb == "answer":
            world.answering = world.call
        if verb == "drop_answer" or more.get("instead_of"):
            world.tended.add(world.call)
        if self._life:
            world.codes[world.actor] = self._life.types
        world.fill_disk(fault == "full")
        try:
            result = getattr(world.store, verb)(*given, **more)
        finally:
            world.actor = 0
            world.fill_disk(False)
        if verb == "turn" and self._life and "work" in self._life.types and result.refused:
            world.met.append(world.clock.steady())
        if fault == "crash after":
            raise Crash
        if fault == "lost":
            raise StoreUnavailable("simulated: the acknowledgement was lost")
        if verb == "ask" and self._life and result:
            self._life.ticket = result.ticket
        return result
