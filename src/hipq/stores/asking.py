"""What a code throttler is asked about, put together from what a store has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hipq.job.model import Row
from hipq.stores.base import Asked
from hipq.stores.strands import is_known_open
from hipq.throttlers.rules import Rules

MANY_RUNNING: Final = 10_000
"""Running jobs a throttler is shown at most."""
BESIDE_NEW: Final = 25
"""Parked jobs that are asked about along with jobs that nobody has asked about yet."""
HOLDERS: Final = 100
"""Holders of a limit that are named at most."""


def asked(
    ticket: int, ready: list[Row], parked: list[Row], more: bool, running: list[Row], types: Sequence[str],
    rules: Rules, now: int,
) -> Asked:  # fmt: skip
    """Ready and parked jobs together, in the queue's order; of the parked ones those that could start. `more`: there
    may be more parked ones."""
    last = (parked[-1].rank, parked[-1].id) if more else None
    able = [
        row for row in parked
        if row.job_type in types and row.job_type not in rules.paused_types and row.lane not in rules.paused_lanes
        and not rules.paused and row.scheduled_run_time <= now and is_known_open(row.time_windows, now)
    ]  # fmt: skip
    return Asked(ticket, sorted([*ready, *able], key=lambda row: (row.rank, row.id)), running, last)


def late(sysid: int) -> str:
    """What to say of a throttler whose ticket ran out."""
    return f"engine {sysid} asked it and had no answer in time"
