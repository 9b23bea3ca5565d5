"""The two times a store needs: what the calendar says, and a clock that never jumps."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Microseconds since 1970 (UTC). May jump when somebody sets it."""

    def steady(self) -> int:
        """Microseconds since some moment all processes on this machine share. Never jumps."""


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1000

    def steady(self) -> int:
        return time.clock_gettime_ns(_BOOT) // 1000


_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_id() -> str:
    """Which start of this machine `steady` counts from."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
