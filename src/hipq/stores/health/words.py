"""What the databases write otherwise in the statements of `health.jobs`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Words:
    """As PostgreSQL writes them, but for `strategy`."""

    strategy: str
    """Of a job that is to be decided about: the retry strategy it is registered with, or an empty text."""
    table: str = "{table}"
    """A table that is read by an index."""
    indexes: Mapping[str, str] = field(default_factory=dict)
    """Those that have another name."""
    later: str = "(lane, time_windows, throttle_factor, rank) > (:lane, :windows, :factor, :rank)"
    """What stands behind a place among the ready jobs of a type."""
    windows: str = "time_windows"
    """The column that is indexed for them,"""
    these_windows: str = ":windows"
    """and what it has for these."""
    parked: str = "phase = 'parked' ORDER BY rank"
    run_time: str = "scheduled_run_time"
    deadline: str = "deadline"
    """The columns by which scheduled and waiting jobs are indexed."""
    left: str = "phase IN ('deciding', 'answered', 'cancelling') AND owner = 0"
    is_left_by_type: bool = True
    """Whether such jobs are indexed by their type first, and then by their strategy."""
    lease_left: str = "extract(epoch FROM lease_until - now())"
    """The seconds that a lease has left. Leases are compared with the transaction's own time: by a later clock, one
    renewed since would look expired."""
    now: str = "now()"
    """By which tickets end."""
    held: str = "held <> 0"
    buffered: str = "state = 'buffered'"

    @property
    def left_by(self) -> tuple[str, str]:
        return ("job_type", self.strategy) if self.is_left_by_type else (self.strategy, "job_type")

    def by_index(self, table: str, index: str) -> str:
        return self.table.format(table=table, index=f"{table}_{self.indexes.get(index, index)}")
