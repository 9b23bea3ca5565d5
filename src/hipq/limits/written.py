"""Limits as people write them, on the command line and in forms."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hipq.errors import Invalid
from hipq.job.when import duration
from hipq.limits.limit import limit
from hipq.limits.per_lane import per_lane
from hipq.limits.rate import rate
from hipq.limits.rules import AnyLimit
from hipq.limits.share import share


def written(
    most: float | None, lane: float | None, shares: str | None, other: float | None, rates: Sequence[str]
) -> list[AnyLimit]:
    """The limits that replace all others; none if only `most` is given, which replaces the limit of the whole queue."""
    if other is not None and shares is None:
        raise Invalid("a part for all other lanes goes with shares: give those, too")
    if shares is not None and not most:
        raise Invalid("shares are parts of a limit: give the limit of the whole queue, too")
    found: list[AnyLimit] = [per_lane(lane)] if lane is not None else []
    found += [share(percentages(shares), other=other)] if shares is not None else []
    found += [_rate(text) for text in rates]
    return [limit(most), *found] if found and most else found


def percentages(text: str) -> dict[str, float]:
    """Parts written like east=40,west=60."""
    found: dict[str, float] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(.*?)\s*=\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*", part)
        if not match:
            raise Invalid(f"share must be like east=40,west=60, in percent, not {part!r:.40}")
        if match[1] in found:
            raise Invalid(f"share names lane {match[1]!r:.40} twice")
        found[match[1]] = float(match[2])
    return found


def _rate(text: str) -> AnyLimit:
    match = re.fullmatch(r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*/\s*(.+?)\s*", text)
    if not match:
        raise Invalid(f"rate must be like 50/1 or 1000/1h, units in a time, not {text!r:.40}")
    return rate(float(match[1]), duration(match[2], "the time of a rate", least=0.001))
