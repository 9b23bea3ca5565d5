"""The audit log: what people did by hand to an instance, and what they were refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from hipq.job.fault import clean

LONGEST: Final = 500
"""Characters kept of a name, an address, an action and a target each."""
DETAILS: Final = 4_000
"""Characters that the details may have as JSON; of longer ones the first names are kept."""


class AuditEntry(NamedTuple):
    """One thing that somebody did. There is no payload in it, and no secret."""

    id: int
    """Its number; 0 = it is not stored yet."""
    at: int
    who: str
    role: str
    address: str
    """The address it came from."""
    action: str
    target: str
    """What it was done to."""
    details: str = "{}"
    """More of it, as JSON."""


RECORDED: Final = AuditEntry._fields[1:]
"""The columns that an entry is written with."""


def entry(
    at: int, who: str, role: str, address: str, action: str, target: str, details: Mapping[str, Any] | None = None
) -> AuditEntry:
    """An entry that every store takes, whatever is in it."""
    who, role, address, action, target = (clean(text[:LONGEST]) for text in (who, role, address, action, target))
    text = clean(msgspec.json.encode(details or {}).decode(), 1 << 30)
    if len(text) > DETAILS:
        text = msgspec.json.encode({"too_long": [clean(name[:50]) for name in list(details or {})[:20]]}).decode()
    return AuditEntry(0, at, who, role, address, action, target, text)
