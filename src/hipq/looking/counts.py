"""How many jobs there are in a queue, for people: each number is counted up to a limit, never all."""

from __future__ import annotations

from typing import Any, Final

from hipq.job.when import to_datetime
from hipq.stores.values import Counts

COUNTED_TO: Final = 10_000
"""Where counting stops."""
COUNTED: Final = ("ready", "scheduled", "parked", "running", "waiting", "retrying", "failed")


def named(found: Counts) -> dict[str, Any]:
    """By the words of people."""
    return {
        "ready": found.ready, "scheduled": found.scheduled, "parked": found.parked, "running": found.executing,
        "waiting": found.waiting, "retrying": found.retry, "failed": found.failed,
        "next_start": to_datetime(found.next_start) if found.next_start else None,
        "next_timeout": to_datetime(found.next_timeout) if found.next_timeout else None,
    }  # fmt: skip


def up_to(count: int) -> int | str:
    return f"{count}+" if count >= COUNTED_TO else count
