"""Large payloads stay in a side table: the row carries '' and moves from live to final without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from hipq.job.model import Change, Row

PAYLOAD_LIMIT: Final = 8192
"""Characters of JSON a row carries itself."""


def inline(data: str) -> str:
    """What the row's own column says: the payload, or '' (which no JSON is) for "look in the side table"."""
    return data if len(data) <= PAYLOAD_LIMIT else ""


def oversized(payloads: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(id, data) for id, data in payloads if len(data) > PAYLOAD_LIMIT]


def changed(changes: Iterable[Change]) -> list[tuple[int, str]]:
    """Payloads a change replaced, by id."""
    return [(c.after.id, c.after.job_data) for c in changes if c.after.job_data is not c.before.job_data]


def absent(rows: Iterable[Row]) -> list[int]:
    return [row.id for row in rows if not row.job_data]


def filled(rows: list[Row], payloads: Mapping[int, str]) -> list[Row]:
    return [row if row.job_data else replace(row, job_data=payloads[row.id]) for row in rows]
