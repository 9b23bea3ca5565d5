"""The verbs about rules, throttlers and schedules: the part of the store that says what may start and when."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from hipq.errors import StoreUnavailable
from hipq.job.model import Row
from hipq.job.when import LATEST
from hipq.limits.rules import Rules
from hipq.stores.asking import BESIDE_NEW, HOLDERS, Read, asked, late
from hipq.stores.claim_groups import RankPosition
from hipq.stores.claims import Asked, Claim
from hipq.stores.postgres.connection import Connection, Connections
from hipq.stores.postgres.rule_claims import Rulebook
from hipq.stores.postgres.scan_floor import TOP
from hipq.stores.postgres.statements import Statements
from hipq.stores.postgres.turn import rows
from hipq.stores.postgres.wake import notify
from hipq.stores.rule_claims import ALL, START
from hipq.stores.values import Holder, Limits


class RuleVerbs:
    _statements: Statements
    _rulebook: Rulebook
    _db: Connections

    @abstractmethod
    def _using(self, answer_seconds: float = 0) -> AbstractContextManager[Connection]: ...
    @abstractmethod
    def _announce(self, conn: Connection, ready: Mapping[int, RankPosition]) -> None: ...
    @abstractmethod
    def notify(self) -> None: ...

    def ready_outside_window(self, queue: int, types: Sequence[str], windows: Sequence[str], limit: int) -> list[Row]:
        found: list[Row] = []
        with self._using() as conn:
            heads = self._rulebook.reader(conn, queue, LATEST).heads(types, START, ALL)
            for group in {head.group._replace(factor=0) for head in heads if head.group.time_windows in windows}:
                values = {"type": group.job_type, "lane": group.lane, "windows": group.time_windows}
                found += rows(
                    conn, self._statements.of("ready_outside_window", queue), values | {"limit": limit - len(found)}
                )
        return found

    # -- rules ------------------------------------------------------------------------------------------------------
    def rules(self, queue: int, *, patient: bool = True) -> Rules:
        began = time.monotonic()
        try:
            with self._using() as conn:
                return self._rulebook.read(conn, queue).rules
        except StoreUnavailable as error:
            if not patient:
                self._db.in_vain(error, began)
            raise

    def limits(self, queue: int) -> Limits:
        with self._using() as conn:
            rules, memory, _ = self._rulebook.read(conn, queue)
            held = self._rulebook.reader(conn, queue, LATEST).held().by_lane
            holders = conn.execute(self._statements.of("heaviest", queue), {"limit": HOLDERS}).fetchall()
            expired = b"engine_id <> 0 AND until <= clock_timestamp()"
            query = b"SELECT note, engine_id, " + expired + b" FROM hipq_tickets WHERE queue = %s"
            ticket = conn.execute(query, (queue,)).fetchone()
        return Limits(rules, memory, held, [Holder(*row) for row in holders], _note(ticket))

    def change_rules(self, queue: int, change: Callable[[Rules], Rules]) -> Rules:
        with self._using() as conn, conn.transaction():
            after, changed = self._rulebook.change(conn, queue, change)
            if changed:
                notify(conn, queue, TOP)
        self.notify()
        return after

    def ask(
        self, engine_id: int, claim: Claim, after: RankPosition, seconds: float, page: int, now: int
    ) -> Asked | None:
        with self._using() as conn, conn.transaction():
            ticket, found = 0, None
            if seconds:
                found = self._rulebook.locked(conn, claim)  # before the ticket, as a claim does: else they may deadlock
                values = {"queue": claim.queue, "engine_id": engine_id, "seconds": seconds}
                taken = conn.execute(self._statements.plain("take_ticket"), values).fetchone()
                if not taken:
                    return None
                ticket = taken[0]
            picked, rules = self._rulebook.first(conn, claim, found, page, now)
            ready = rows(conn, self._statements.of("these", claim.queue), {"ids": picked.ids})
            few = min(page, BESIDE_NEW) if ready and ticket else page
            place = {"rank": after[0], "id": after[1], "page": few}
            parked = rows(conn, self._statements.of("parked", claim.queue), place)
        with self._using() as conn:  # there may be very many: not under the queue's lock
            running = rows(conn, self._statements.of("running", claim.queue), {})
        return asked(ticket, Read(ready, page, parked, few, running), picked, claim.types, rules, now)

    def drop_ticket(self, queue: int, ticket: int, note: str) -> None:
        values = {"queue": queue, "ticket": ticket, "note": note}
        with self._using() as conn:
            conn.execute(self._statements.plain("drop_ticket"), values)


def _note(ticket: tuple[Any, ...] | None) -> str:
    if ticket is None:
        return ""
    note, engine_id, over = ticket
    return late(engine_id) if over else str(note)
