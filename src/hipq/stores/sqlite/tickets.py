"""Tickets: one engine at a time asks a queue's code throttler, and its answer counts only while it holds the ticket."""

from __future__ import annotations

import sqlite3

from hipq.stores.asking import late
from hipq.stores.clock import Clock


class Tickets:
    def __init__(self, clock: Clock, boot: str) -> None:
        self._clock = clock
        self._boot = boot

    def take(self, conn: sqlite3.Connection, queue: int, engine_id: int, seconds: float) -> int:
        """A new number, unless an engine that is alive has a ticket that is not over."""
        steady = self._clock.steady()
        conn.execute("INSERT INTO hipq_tickets VALUES (?, 0, 0, 0, '', '') ON CONFLICT DO NOTHING", (queue,))
        query = (
            "UPDATE hipq_tickets SET number = number + 1, engine_id = ?, until = ?, boot = ? WHERE queue = ? AND NOT ("
            "engine_id NOT IN (0, ?) AND until > ? AND boot = ? AND EXISTS (SELECT 1 FROM hipq_engines e "
            "WHERE e.engine_id = hipq_tickets.engine_id AND e.lease_until > ? AND e.boot = ?))"
        )
        until = steady + round(seconds * 1e6)
        values = (engine_id, until, self._boot, queue, engine_id, steady, self._boot, steady, self._boot)
        if conn.execute(query, values).rowcount == 0:
            return 0
        return int(conn.execute("SELECT number FROM hipq_tickets WHERE queue = ?", (queue,)).fetchone()[0])

    def used(self, conn: sqlite3.Connection, queue: int, ticket: int, engine_id: int) -> bool:
        """Hand it in: whether it was still held."""
        query = (
            "UPDATE hipq_tickets SET engine_id = 0, note = '' "
            "WHERE queue = ? AND number = ? AND engine_id = ? AND until > ?"
        )
        return conn.execute(query, (queue, ticket, engine_id, self._clock.steady())).rowcount == 1

    def drop(self, conn: sqlite3.Connection, queue: int, ticket: int, note: str) -> None:
        conn.execute(
            "UPDATE hipq_tickets SET engine_id = 0, note = ? WHERE queue = ? AND number = ?", (note, queue, ticket)
        )

    def note(self, conn: sqlite3.Connection, queue: int) -> str:
        """Why it could not be asked the last time; or that an answer is overdue."""
        found = conn.execute("SELECT note, engine_id, until FROM hipq_tickets WHERE queue = ?", (queue,)).fetchone()
        if found is None:
            return ""
        note, engine_id, until = found
        return late(engine_id) if engine_id and until <= self._clock.steady() else str(note)
