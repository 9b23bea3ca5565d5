"""The verbs about rules, limits and the tickets of code throttlers."""

from __future__ import annotations

from collections.abc import Callable

from hipq.job.model import Row
from hipq.job.when import LATEST
from hipq.limits.rules import Rules
from hipq.stores.asking import BESIDE_NEW, HOLDERS, LOOKED_AT, Read, asked, ticket_note
from hipq.stores.claim_groups import Head, RankPosition
from hipq.stores.claims import Asked, Claim
from hipq.stores.sql.dialect import Dialect, Sql
from hipq.stores.sql.rule_claims import Rulebook
from hipq.stores.values import Holder, Limits


class RuleVerbs(Dialect):
    _rulebook: Rulebook

    def rules(self, queue: int, *, patient: bool = True) -> Rules:
        with self._reading(patient=patient) as sql:
            return self._rulebook.read(sql, queue).rules

    def limits(self, queue: int) -> Limits:
        with self._reading() as sql:
            rules, memory, _ = self._rulebook.read(sql, queue)
            held = self._rulebook.reader(sql, queue, LATEST).held().by_lane
            holders = sql.found("heaviest", queue, limit=HOLDERS, looked=LOOKED_AT)
            note = ticket_note(sql.found("ticket", queue, **self._lease_time()))
        return Limits(rules, memory, held, [Holder(*row) for row in holders], note)

    def change_rules(self, queue: int, change: Callable[[Rules], Rules]) -> Rules:
        before = self.rules(queue)
        if change(before) == before:
            return before  # as every engine finds when it starts: that takes no lock
        after = self._transaction(lambda sql: self._rulebook.change(sql, queue, change), patient=False)
        self.waker.notify()
        return after

    def ask(
        self, engine_id: int, claim: Claim, after: RankPosition, seconds: float, page: int, now: int
    ) -> Asked | None:
        def work(sql: Sql) -> Callable[[list[Row]], Asked] | None:
            ticket, ruled = 0, None
            if seconds:
                ruled = self._rulebook.locked(sql, claim)  # before the ticket, as a claim does: else they may deadlock
                ticket = self._take_ticket(sql, claim.queue, engine_id, seconds)
                if not ticket:
                    return None
            picked, rules = self._rulebook.first(sql, claim, ruled, page, now)
            ready = sql.rows("these", claim.queue, ids=picked.ids)
            few = min(page, BESIDE_NEW) if ready and ticket else page
            parked = sql.rows("parked", claim.queue, rank=after[0], id=after[1], page=few)
            return lambda running: asked(
                ticket, Read(ready, page, parked, few, running), picked, claim.types, rules, now
            )

        found = self._transaction(work, patient=False)
        if found is None:
            return None
        with self._reading() as sql:  # there may be very many running jobs: not under the queue's lock
            return found(sql.rows("running", claim.queue))

    def would_start(self, claim: Claim, now: int, rules: Rules | None = None) -> list[Head]:
        with self._reading() as sql:
            return self._rulebook.would_start(sql, claim, rules, now)

    def _take_ticket(self, sql: Sql, queue: int, engine_id: int, seconds: float) -> int:
        """Take the queue's ticket. Returns its number; 0 while another engine has it."""
        found = sql.found("take_ticket", queue, engine_id=engine_id, seconds=seconds, **self._lease_time())
        return int(found[0][0]) if found else 0

    def drop_ticket(self, queue: int, ticket: int, note: str) -> None:
        with self._writing() as sql:
            sql.changed("drop_ticket", queue, ticket=ticket, note=note)
