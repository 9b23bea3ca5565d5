"""That something is quick, on a machine that may have other things to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

ROUNDS: Final = 5


def check_quick(measured: Callable[[], float], seconds: float, count: int, of: int) -> None:
    """So many of so many take less than these seconds. A machine that is busy for a while has some more rounds; what
    only looks every so often is quick in none of them but by rare chance."""
    rounds: list[list[float]] = []
    while len(rounds) < ROUNDS:
        rounds.append(sorted(measured() for _ in range(of)))
        if rounds[-1][count - 1] < seconds:
            return
    raise AssertionError(f"less than {count} of {of} came within {seconds} s: {rounds}")
