"""`Why`: what `app.why` says of a job. How it is found out is in `hipq.engine.why`."""

from __future__ import annotations

from typing import Any

import msgspec


class Why(msgspec.Struct, frozen=True):
    """Why a job does not run now, or what it is doing."""

    reason: str
    """Words that stay the same: final, executing, waiting, answered, answer failed, cancelling, deciding, retry
    pending, window closed, scheduled, no engine, no code, paused, window unknown, due, throttler failed, parked, limit
    full, lane full, rate, behind, next"""
    sentence: str
    details: dict[str, Any]
    """The facts: what JSON can have, and datetimes."""
