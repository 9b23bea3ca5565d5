"""The verbs about rules, throttlers and schedules: the part of the store that says what may start and when."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Sequence

from hipq.job.model import Row
from hipq.job.when import LATEST
from hipq.limits.rules import Rules
from hipq.stores.asking import BESIDE_NEW, HOLDERS, Read, asked
from hipq.stores.claim_groups import RankPosition
from hipq.stores.claims import Asked, Claim
from hipq.stores.rule_claims import ALL, START
from hipq.stores.sqlite.batch import read
from hipq.stores.sqlite.connection import Connection
from hipq.stores.sqlite.rule_claims import Rulebook
from hipq.stores.sqlite.statements import Statements
from hipq.stores.sqlite.tickets import Tickets
from hipq.stores.sqlite.turn import Take
from hipq.stores.values import Holder, Limits


class RuleVerbs:
    _db: Connection
    _statements: Statements
    _rulebook: Rulebook
    _take: Take
    _tickets: Tickets

    @abstractmethod
    def _alive(self, conn: sqlite3.Connection, engine_id: int) -> bool: ...
    @abstractmethod
    def notify(self) -> None: ...

    def ready_outside_window(self, queue: int, types: Sequence[str], windows: Sequence[str], limit: int) -> list[Row]:
        found: list[Row] = []
        with self._db.reading() as conn:
            heads = self._rulebook.reader(conn, queue, LATEST).heads(types, START, ALL)
            for group in {head.group._replace(factor=0) for head in heads if head.group.time_windows in windows}:
                values = (group.job_type, group.lane, group.time_windows, limit - len(found))
                found += read(conn, self._statements.of("ready_outside_window", queue), values)
        return found

    # -- rules ------------------------------------------------------------------------------------------------------
    def rules(self, queue: int, *, patient: bool = True) -> Rules:
        with self._db.reading(patient) as conn:
            return self._rulebook.read(conn, queue)[0]

    def limits(self, queue: int) -> Limits:
        with self._db.reading() as conn:
            rules, memory = self._rulebook.read(conn, queue)
            held = self._rulebook.reader(conn, queue, LATEST).held().by_lane
            holders = conn.execute(self._statements.of("heaviest", queue), (HOLDERS,)).fetchall()
            note = self._tickets.note(conn, queue)
        return Limits(rules, memory, held, [Holder(*row) for row in holders], note)

    def change_rules(self, queue: int, change: Callable[[Rules], Rules]) -> Rules:
        with self._db.writing() as conn:
            before, _ = self._rulebook.read(conn, queue)
            after = change(before)
            if after != before:
                query = "UPDATE hipq_queues SET rules = ? WHERE number = ?"
                conn.execute(query, (after.dump(), queue))
        self.notify()
        return after

    def ask(
        self, engine_id: int, claim: Claim, after: RankPosition, seconds: float, page: int, now: int
    ) -> Asked | None:
        with self._db.writing() as conn:
            ticket = 0
            if seconds:
                ticket = (
                    self._tickets.take(conn, claim.queue, engine_id, seconds) if self._alive(conn, engine_id) else 0
                )
                if not ticket:
                    return None
            picked, rules = self._rulebook.first(conn, claim, page, now, leave_traces=ticket > 0)
            ready = self._take.by_id(conn, claim.queue, picked.ids)
            few = min(page, BESIDE_NEW) if ready and ticket else page
            values = {"rank": after[0], "id": after[1], "page": few}
            parked = read(conn, self._statements.of("parked", claim.queue), values)
        with self._db.reading() as conn:  # there may be very many: others can write meanwhile
            running = read(conn, self._statements.of("running", claim.queue), ())
        return asked(ticket, Read(ready, page, parked, few, running), picked, claim.types, rules, now)

    def drop_ticket(self, queue: int, ticket: int, note: str) -> None:
        with self._db.writing() as conn:
            self._tickets.drop(conn, queue, ticket, note)
