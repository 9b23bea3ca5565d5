"""Timing, interleaving, and what the machine was doing meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def steal() -> tuple[int, int]:
    """Jiffies stolen by the host, and all jiffies, since boot."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return fields[7], sum(fields[:8])


def steal_between(before: tuple[int, int], after: tuple[int, int]) -> float:
    return 100 * (after[0] - before[0]) / max(after[1] - before[1], 1)
