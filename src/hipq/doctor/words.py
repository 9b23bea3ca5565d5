"""Times, sizes and counts in words."""

from __future__ import annotations

from hipq.job.when import to_datetime
from hipq.stores.health.facts import COUNTED


def lasting(seconds: float) -> str:
    """A time in the two units that matter: 45 s, 12 min, 3 h 5 min, 4 days 2 h."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if minutes < 60:
        return f"{minutes} min"
    if hours < 24:
        return _two(f"{hours} h", minutes % 60, "min")
    return _two("1 day" if days == 1 else f"{days} days", hours % 24, "h")


def _two(first: str, second: int, unit: str) -> str:
    return f"{first} {second} {unit}" if second else first


def at(moment: int) -> str:
    return to_datetime(moment).isoformat(" ", "seconds").replace("+00:00", " UTC")


def size(count: int) -> str:
    """Bytes: 512 bytes, 3.4 MB, 2 GB."""
    if count < 1000:
        return f"{count} bytes"
    value, unit = float(count), ""
    for unit in ("kB", "MB", "GB", "TB"):  # noqa: B007
        value /= 1000
        if value < 999.5:
            break
    return f"{value:.3g} {unit}"


def several(count: int, noun: str) -> str:
    """1 job, 12 jobs, 1,000 jobs or more."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}s" + (" or more" if count >= COUNTED else "")
