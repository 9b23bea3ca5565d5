"""The two times a store needs: what the calendar says, and a clock that never jumps."""

from __future__ import annotations

import time
from functools import cache
from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Microseconds since 1970 (UTC). May jump when somebody sets it."""

    def steady(self) -> int:
        """Microseconds since some moment all processes on this machine share. Never jumps."""


class SystemClock:
    """Its steady clock stands still while the machine is suspended, as all of its processes do: a lease that was alive
    before is alive after, and nobody takes the jobs of a process that is about to go on."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def steady(self) -> int:
        return (time.monotonic_ns() - time_namespace_offset()) // 1000


@cache
def time_namespace_offset() -> int:
    """Nanoseconds by which a container with a time namespace of its own is ahead of its machine. Without them its
    leases would look expired, or everlasting, to processes outside."""
    try:
        with open("/proc/self/timens_offsets") as file:
            offsets = {name: int(seconds) * 10**9 + int(rest) for name, seconds, rest in map(str.split, file)}
    except (OSError, ValueError):
        return 0
    return offsets.get("monotonic", 0)


def boot_id() -> str:
    """Which start of this machine `steady` counts from."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
