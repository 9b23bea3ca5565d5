"""Large payloads are in a side table: the row has '' instead, and moves from live to final without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from hipq.job.model import Change, Row
from hipq.job.order import UNRANKED

PAYLOAD_LIMIT: Final = 8192
"""The most characters of JSON that a row itself carries."""


def inline(data: str) -> str:
    """The value of the row's own column: the payload, or '' (which is not JSON) for "see the side table"."""
    return data if len(data) <= PAYLOAD_LIMIT else ""


def oversized(payloads: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(job_id, data) for job_id, data in payloads if len(data) > PAYLOAD_LIMIT]


def changed(changes: Iterable[Change]) -> list[tuple[int, str]]:
    """The payloads to write, by id: those that a change replaced, and those of jobs that were added in plain SQL, which
    are in the row whatever their size until an engine ranks the job."""
    return [
        (change.after.id, change.after.job_data)
        for change in changes
        if change.after.job_data is not change.before.job_data or change.before.rank == UNRANKED
    ]


def rewritten(change: Change) -> str | None:
    """The value of the row's own column for a payload that a change replaced; None = it stays as it was."""
    return None if change.after.job_data is change.before.job_data else inline(change.after.job_data)


def absent(rows: Iterable[Row]) -> list[int]:
    return [row.id for row in rows if not row.job_data]


def filled(rows: list[Row], payloads: Mapping[int, str]) -> list[Row]:
    return [row if row.job_data else replace(row, job_data=payloads.get(row.id, "")) for row in rows]
