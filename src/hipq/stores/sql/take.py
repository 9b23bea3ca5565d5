"""Claiming jobs for an engine: picked one by one, taken by one statement."""

from __future__ import annotations

from abc import ABC, abstractmethod

from hipq.job.model import Row
from hipq.stores.claims import Claim
from hipq.stores.rule_claims import Picked
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.rule_claims import narrowed
from hipq.stores.sql.settle import claimed_entry


class Take(ABC):
    """For databases in which nobody else can take what this picks before the transaction ends."""

    def claim(self, sql: Sql, engine_id: int, claim: Claim, now: int) -> tuple[list[Row], Picked]:
        """The rows claimed, in order, and what the queue's rules said."""
        claim = claim._replace(types=narrowed(sql, claim.queue, claim.types))
        won: list[Row] = []
        todo = self._todo(sql, claim) if claim.types and claim.limit > 0 else []
        ready = self._ready(sql, claim, claim.limit - len(todo), engine_id, now)
        for verb, picked in (("take", todo), ("claim", ready.ids)):
            values = {"engine_id": engine_id, "now": now, "entry": claimed_entry(engine_id, now), "ids": picked}
            if picked and sql.changed(verb, claim.queue, **values, critical=list(claim.critical)):
                won += sql.rows("these", claim.queue, ids=picked)
        return won, ready

    @abstractmethod
    def _todo(self, sql: Sql, claim: Claim) -> list[int]:
        """The jobs to claim that wait for other code than their handler. They come first, and their claim is no run."""

    @abstractmethod
    def _ready(self, sql: Sql, claim: Claim, want: int, engine_id: int, now: int) -> Picked:
        """The ready jobs to claim, as the rules of the queue allow."""
