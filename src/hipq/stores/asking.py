"""The question to a code throttler, put together from what a store has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from hipq.job.model import Row
from hipq.limits.rules import Rules
from hipq.stores.claim_groups import is_known_open
from hipq.stores.claims import Asked
from hipq.stores.rule_claims import Picked

BESIDE_NEW: Final = 25
"""The most parked jobs in a question that has ready jobs nobody has asked about yet."""
HOLDERS: Final = 100
"""The most holders of a limit that are named."""
LOOKED_AT: Final = 10_000
"""How many jobs that hold units are searched for the heaviest ones."""


class Read(NamedTuple):
    """What a store has read for a question: a number of ready jobs, and of parked ones after a place."""

    ready: list[Row]
    ready_page: int
    parked: list[Row]
    parked_page: int
    running: list[Row]


def asked(ticket: int, read: Read, picked: Picked, types: Sequence[str], rules: Rules, now: int) -> Asked:
    """The ready jobs, and the parked ones that could start, in the queue's order."""
    parked = read.parked
    last = (parked[-1].rank, parked[-1].id) if len(parked) == read.parked_page else None
    able: list[Row] = []
    shut: list[Row] = []
    for row in parked:
        paused = rules.paused or row.job_type in rules.paused_types or row.lane in rules.paused_lanes
        if row.job_type in types and not paused and row.scheduled_run_time <= now:
            is_open = is_known_open(row.time_windows, now)
            if is_open is not None:
                (able if is_open else shut).append(row)
    due = sorted([*read.ready, *able], key=lambda row: (row.rank, row.id))
    return Asked(ticket, due, read.running, last, len(read.ready) == read.ready_page, picked.again, shut)


def ticket_note(found: Sequence[tuple[str, int, bool]]) -> str:
    """Why a queue's throttler could not be asked the last time, or that its answer is overdue; "" = neither. `found`:
    the queue's ticket, if there is one: its note, its engine, and whether its time is over."""
    for note, engine_id, is_over in found:
        return f"engine {engine_id} asked it and had no answer in time" if is_over else str(note)
    return ""
