"""Whether a window is open, by an audit's own sums."""

from __future__ import annotations

import json

from hipq.job.when import SECOND

MINUTE = 60 * SECOND


def is_open(windows: str, at: int) -> bool:
    """Whether a moment is in one of some windows (in UTC, on all days: there are no others here)."""
    minute = at // MINUTE % 1_440
    spans = [(_minute(one["start"]), _minute(one["end"])) for one in json.loads(windows)]
    inside = [opens <= minute < closes if opens < closes else not closes <= minute < opens for opens, closes in spans]
    return any(inside) or not spans


def _minute(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])
